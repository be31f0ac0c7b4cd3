"""Sends one file in parts over a few connections: the engine of every large upload.

A `Target` is where the file goes. The engine reads the file in order, holds one part for each
connection in memory, skips parts that are there, and sends the others: by presigned URL where the
target gives one, through the server where it does not or the bucket cannot be reached from here.
Whatever interrupts it, the next `send` of the same file resumes, in this process or another. It has
no retries of its own: the transport retries a request, and the caller the whole
(`transfer.resume`).
"""

from __future__ import annotations

import hashlib
from itertools import islice

from paddlecloud.model.files.etag import at_once, md5_of
from paddlecloud.transfer.presigned import PutFailed
from paddlecloud.transfer.workers import run_workers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Protocol

    from paddlecloud.transfer.presigned import PresignedConnections
    from paddlecloud.transfer.resume import Progress
    from paddlecloud.transfer.slots import Slots

    class Source(Protocol):
        """A file that must not change while it is sent. One thread at a time calls it."""

        size: int

        def read(self, begin: int, buffer: memoryview) -> None:
            """Fill the buffer with the bytes from `begin` on; raises when the file changed."""

        def check(self) -> None:
            """Raises when the file changed since it was first seen."""

    Part = tuple[int, memoryview, bytearray]
    """Its number, its bytes, and the buffer in which they are."""

#: Presigned URLs that are asked for at a time: few, because each expires.
URLS = 16


class Upload:
    """The state of an upload as its target reports it."""

    def __init__(
        self,
        part_size: int = 0,
        parts: Mapping[int, str] | None = None,
        *,
        stored: bool = False,
        verified: bool = False,
        through: bool = True,
        urls: Mapping[int, str] | None = None,
    ) -> None:
        self.part_size = part_size
        self.parts = parts or {}
        """The tags of the parts that are there, by number; the first part has number 1."""
        self.stored = stored
        """There is nothing to send."""
        self.verified = verified
        """The server compares the digest of the whole in the end: a part without a tag counts."""
        self.through = through
        """The server takes parts, where there is no presigned URL or it fails."""
        self.urls = urls
        """Presigned URLs by number, as far as they are known; None: the target has none."""


class Target:
    """Where one file goes. Several threads call `put` and `stored`, one at a time the others."""

    def begin(self) -> Upload:
        """Begin the upload, or find the state of one that was interrupted."""
        raise NotImplementedError

    def presign(self, numbers: Sequence[int]) -> Mapping[int, str]:
        """Presigned URLs for these parts."""
        return {}

    def put(self, number: int, data: memoryview) -> str:
        """Send a part through the server; its tag, where that matters."""
        raise NotImplementedError

    def stored(self, number: int) -> None:
        """Called after each part that was sent."""

    def complete(self, tags: Sequence[str], sha256: str) -> None:
        """Give the file its name, now that all parts are there. `tags` are those of all parts in
        order, "" where none is known; `sha256` is that of the file, if the engine was to hash."""
        raise NotImplementedError


class PartSender:
    def __init__(
        self,
        source: Source,
        target: Target,
        connections: PresignedConnections,
        progress: Progress,
        *,
        threads: int = 1,
        total: int = 0,
        slots: Slots | None = None,
        hashes: bool = False,
    ) -> None:
        """At most `threads` parts are under way at a time, and of `total` bytes, of which the file
        may be a small part, no more than a twentieth, for they are lost when the connection breaks.
        Each part in memory holds one of the `slots`. With `hashes` the digest of the file is taken
        while it is read."""
        self._source = source
        self._target = target
        self._connections = connections
        self._progress = progress
        self._threads = threads
        self._total = total or source.size
        self._slots = slots
        self._digest = hashlib.sha256() if hashes else None
        self._upload = Upload()
        self._urls: Mapping[int, str] = {}
        self._tags: dict[int, str] = {}
        self._numbers: Iterator[int] = iter(())
        self._buffers: list[bytearray] = []

    def send(self) -> str:
        """Send what is missing and complete the upload; the digest, if it was to be taken."""
        self._upload = upload = self._target.begin()
        if upload.stored:
            return ""
        self._urls = upload.urls or {}
        count = -(-self._source.size // upload.part_size)
        self._numbers = iter(range(1, count + 1))
        threads = min(self._threads, count, at_once(self._total, upload.part_size))
        run_workers(threads, self._next, self._put_some)
        self._source.check()
        sha256 = self._digest.hexdigest() if self._digest is not None else ""
        self._target.complete([self._tags[number] for number in sorted(self._tags)], sha256)
        return sha256

    def _next(self) -> Part | None:
        """Read the next part that has to be sent, with its presigned URL."""
        for number in self._numbers:
            begin = (number - 1) * self._upload.part_size
            size = min(self._upload.part_size, self._source.size - begin)
            tag = self._upload.parts.get(number)
            if tag == "" and self._upload.verified and self._digest is None:
                self._has(number, size, tag)
                continue
            buffer = self._take_buffer()
            try:
                data = memoryview(buffer)[:size]
                self._source.read(begin, data)
                if self._digest is not None:
                    self._digest.update(data)
                if tag is None or not self._is_same(data, tag):
                    self._presign(number)
                    return number, data, buffer
                self._has(number, size, tag)
            except BaseException:
                self._give_back(buffer)
                raise
            self._give_back(buffer)
            del data, buffer
        return None

    def _put_some(self, parts: Iterator[Part]) -> None:
        """What one thread does."""
        for number, data, buffer in parts:
            try:
                self._tags[number] = self._put(number, data)
                self._target.stored(number)
            finally:
                self._give_back(buffer)
            del data, buffer

    def _put(self, number: int, data: memoryview) -> str:
        url, through = self._urls.get(number, ""), self._upload.through
        if url and not (through and self._connections.is_away(url)):
            try:
                return self._connections.put(url, data, self._progress.add)
            except PutFailed:
                if not through:
                    raise
        tag = self._target.put(number, data)
        self._progress.add(len(data))
        return tag

    def _presign(self, number: int) -> None:
        """Have the presigned URL of this part, and of those that are likely to be sent next."""
        is_due = self._upload.urls is not None and number not in self._urls
        if not is_due or (self._upload.through and self._connections.is_any_away):
            return
        count = -(-self._source.size // self._upload.part_size)
        later = (n for n in range(number + 1, count + 1) if n not in self._upload.parts)
        self._urls = {
            **self._urls,
            **self._target.presign([number, *islice(later, URLS - 1)]),
        }

    def _is_same(self, data: memoryview, tag: str) -> bool:
        """Whether these very bytes are there."""
        if not tag:
            return self._upload.verified
        return md5_of(tag) == hashlib.md5(data, usedforsecurity=False).hexdigest()

    def _has(self, number: int, size: int, tag: str) -> None:
        self._tags[number] = tag
        self._progress.skip(size)

    def _take_buffer(self) -> bytearray:
        if self._slots is not None:
            self._slots.acquire()
        if self._buffers:
            return self._buffers.pop()
        return bytearray(min(self._upload.part_size, self._source.size))

    def _give_back(self, buffer: bytearray) -> None:
        """A file that waits for a slot has nothing in memory."""
        if self._slots is None:
            self._buffers.append(buffer)
        else:
            self._slots.release()
