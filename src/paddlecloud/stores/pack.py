"""Takes a pack stream apart: many files in one request, `[32 bytes sha256][8 bytes length][bytes]`
again and again.

The receiver keeps one header at most, never a file: bytes go to the open sink as they come, and a
file gets its name only when its digest is right. Where a store can do that later, many are done at
once while the stream goes on. Files before a broken one stay; sending the pack again is harmless.
Making the stream is the client's work, naming the files the caller's.
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
"""From sha256 (hex) and size to the sink of that file; None means it is here already."""


class PackReceiver:
    def __init__(self, open_sink: OpenSink) -> None:
        self._open_sink = open_sink
        self._header = bytearray()
        self._sink: Sink | None = None
        self._hash = hashlib.sha256()
        self._want = ""
        self._left: int | None = None
        """Bytes of the current file that are still to come; None between files."""
        self._size = 0
        self._later: deque[tuple[int, Future[Stat]]] = deque()
        """Files that are being given their names meanwhile, with their sizes."""
        self.count = 0
        self.bytes = 0

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        """Take the next piece, cut anywhere. After an error the receiver is of no further use."""
        view = memoryview(data)
        try:
            self._settle(wait=False)
            while view:
                view = view[self._take(view) :]
        except BaseException:
            self.abort()
            raise

    def finish(self) -> int:
        """How many files came; Invalid("pack_malformed") when the stream ends inside one."""
        cut = self._left is not None or bool(self._header)
        try:
            self._settle(wait=True)
        finally:
            self.abort()
        if cut:
            raise Invalid("pack_malformed", count=self.count, detail="it ends inside a file")
        return self.count

    def abort(self) -> None:
        """Drop the file that is not whole; the stream is over, and nothing is under way."""
        sink, self._sink = self._sink, None
        if sink is not None:
            sink.abort()
        while self._later:
            # Why the stream is over is known already; this file is simply not there.
            with suppress(PaddleCloudError):
                self._settle(wait=True)

    def _take(self, view: memoryview) -> int:
        if self._left is None:
            return self._take_header(view)
        piece = view[: self._left]
        self._hash.update(piece)
        if self._sink is not None:
            self._sink.write(piece)
        self._left -= len(piece)
        if self._left == 0:
            self._end_file()
        return len(piece)

    def _take_header(self, view: memoryview) -> int:
        piece = view[: HEADER - len(self._header)]
        self._header += piece
        if len(self._header) == HEADER:
            self._begin_file(self._header[:32].hex(), int.from_bytes(self._header[32:], "big"))
        return len(piece)

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
        # What isinstance(sink, CommitsLater) says, at a tenth of its price.
        later = getattr(sink, "commit_later", None)
        if later is not None:
            self._later.append((self._size, later()))
            self.bytes += self._size
        elif sink is not None:
            self.bytes += sink.commit().size
        self.count += 1

    def _settle(self, *, wait: bool) -> None:
        """See that files have their names: those that are done by now, or all of them."""
        while self._later and (wait or self._later[0][1].done()):
            size, future = self._later.popleft()
            try:
                future.result()
            except BaseException:
                self.bytes -= size
                raise
