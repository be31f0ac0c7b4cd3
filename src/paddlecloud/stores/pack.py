"""Receives a pack stream: many files in one request, each as sha256 (32 bytes), length (8), bytes.

The receiver buffers one header at most: bytes go to the open sink as they arrive, and a file is
committed only if its digest matches. A store that can (`CommitsLater`) commits many files
concurrently while the stream continues. Files before a broken one stay; a pack may be sent again.
The client creates the stream; the caller chooses the paths of the files.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from paddlecloud.model.errors import Invalid, PaddleCloudError
from paddlecloud.stores.base import Sink, Stat

if TYPE_CHECKING:
    from concurrent.futures import Future

HEADER = 40
_MAX_LENGTH = 1 << 62

OpenSink = Callable[[str, int], "Sink | None"]
"""From sha256 (hex) and size to the sink of that file; None: the store has it."""


class PackReceiver:
    def __init__(self, open_sink: OpenSink) -> None:
        self._open_sink = open_sink
        self._header = bytearray()
        self._sink: Sink | None = None
        self._hash = hashlib.sha256()
        self._want = ""
        self._left: int | None = None
        """Missing bytes of the current file; None between files."""
        self._size = 0
        self._later: deque[tuple[int, Future[Stat]]] = deque()
        """Sizes and pending commits of earlier files."""
        self.count = 0
        self.bytes = 0

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        """Process the next chunk of any length. After an error the receiver cannot be used."""
        view = memoryview(data)
        try:
            self._settle(wait=False)
            while view:
                view = view[self._take(view) :]
        except BaseException:
            self.abort()
            raise

    def finish(self) -> int:
        """The number of files; Invalid("pack_malformed") if the stream ends inside one."""
        cut = self._left is not None or bool(self._header)
        try:
            self._settle(wait=True)
        finally:
            self.abort()
        if cut:
            raise Invalid("pack_malformed", count=self.count, detail="it ends inside a file")
        return self.count

    def abort(self) -> None:
        """Discard an incomplete file and wait for pending commits."""
        sink, self._sink = self._sink, None
        if sink is not None:
            sink.abort()
        while self._later:
            # The stream has failed already; this file is just missing.
            with suppress(PaddleCloudError):
                self._settle(wait=True)

    def _take(self, view: memoryview) -> int:
        if self._left is None:
            data = view[: HEADER - len(self._header)]
            self._header += data
            if len(self._header) == HEADER:
                self._begin_file(self._header[:32].hex(), int.from_bytes(self._header[32:], "big"))
            return len(data)
        data = view[: self._left]
        self._hash.update(data)
        if self._sink is not None:
            self._sink.write(data)
        self._left -= len(data)
        if self._left == 0:
            self._end_file()
        return len(data)

    def _begin_file(self, sha256: str, size: int) -> None:
        if size > _MAX_LENGTH:
            raise Invalid("pack_malformed", count=self.count, detail=f"a length of {size} bytes")
        self._header.clear()
        self._hash = hashlib.sha256()
        self._want = sha256
        self._size = self._left = size
        self._sink = self._open_sink(sha256, size)
        if size == 0:
            self._end_file()

    def _end_file(self) -> None:
        got = self._hash.hexdigest()
        if got != self._want:
            raise Invalid("blob_digest", want=self._want, got=got)
        sink, self._sink = self._sink, None
        self._left = None
        later: Callable[[], Future[Stat]] | None
        # isinstance(sink, CommitsLater) at a tenth of its cost.
        later = getattr(sink, "commit_later", None)
        if later is not None:
            self._later.append((self._size, later()))
            self.bytes += self._size
        elif sink is not None:
            self.bytes += sink.commit().size
        self.count += 1

    def _settle(self, *, wait: bool) -> None:
        """Collect finished commits; with `wait`, all of them."""
        while self._later and (wait or self._later[0][1].done()):
            size, future = self._later.popleft()
            try:
                future.result()
            except BaseException:
                self.bytes -= size
                raise
