"""Big contents that come in parts, as one server has them in its mind.

The digest of the whole is taken while parts arrive, in their order; a part that comes early is read
back from the store when its turn comes. All of this can be made anew from the store: a server that
starts, or another one, goes on.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

import msgspec

from paddlecloud.model.errors import Invalid, NotFound, Retry
from paddlecloud.stores.base import CanMultipart, CanReadParts, Part, Store

KEPT = 256
"""Uploads that a server has in its mind; all others are in the store."""
STEP = 16
"""Parts that are read back for one that arrives."""
PATIENCE = 15.0
"""Seconds after which a check answers: not yet."""
_SHORT = 0.02


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """What the store keeps about an upload."""

    upload: str
    size: int
    part_size: int


@dataclass(frozen=True, kw_only=True)
class Target:
    """A content that is being uploaded, and where it and its record lie in the store."""

    owner: str
    sha256: str
    path: str
    record: str


class Upload:
    """One upload as this server knows it: which parts are there, and the digest so far."""

    def __init__(self, target: Target, record: Record) -> None:
        self.target = target
        self.record = record
        self.there: dict[int, int] = {}
        """Sizes by number."""
        self.joined = False
        """The parts are one file, which is not checked yet."""
        self.touched: datetime | None = None
        """When a part last kept its record from counting as abandoned."""
        self._writers = 0
        self._closed = False
        self._gate = threading.Lock()
        self._digest = hashlib.sha256()
        self._next = 1
        self._hashing = threading.Lock()
        self._chunks: Iterator[bytes] | None = None

    @property
    def count(self) -> int:
        return -(-self.record.size // self.record.part_size)

    def size_of(self, number: int) -> int:
        """Bytes that this part has; 0 when there is no such part."""
        if not 1 <= number <= self.count:
            return 0
        return min(self.record.part_size, self.record.size - (number - 1) * self.record.part_size)

    def put(self, store: CanMultipart, number: int, data: bytes | bytearray) -> None:
        """Keep one part; the digest goes on as far as the parts follow each other."""
        with self._writing():
            store.put_part(self.target.path, self.record.upload, number, data)
        if number < self._next:
            self._begin_again()
        self.there[number] = len(data)
        if isinstance(store, CanReadParts):
            self._advance(store, number, data)

    def note(self, parts: Iterable[Part]) -> None:
        """Parts that the store has, whoever sent them."""
        self.there |= {p.number: p.size for p in parts if p.size == self.size_of(p.number)}

    def note_joined(self) -> None:
        """The parts are one file already, but the check of it did not end."""
        self.there = {number: self.size_of(number) for number in range(1, self.count + 1)}
        self.joined = True

    def check_whole(self) -> None:
        """Invalid when a part is missing."""
        missing = next((n for n in range(1, self.count + 1) if n not in self.there), None)
        if missing is not None:
            got = sum(self.there.values())
            raise Invalid("upload_incomplete", got=got, want=self.record.size, missing=missing)

    @contextmanager
    def closed(self) -> Iterator[bool]:
        """Meanwhile no part is let in; False if one is just being written: ask again."""
        with self._gate:
            closed = self._closed = not self._writers
        if not closed:
            time.sleep(_SHORT)
        try:
            yield closed
        finally:
            with self._gate:
                self._closed = False

    def checked(self, store: Store, sha256: str = "") -> bool:
        """Whether all bytes are those of the digest, of the target if none is given; False: it
        takes longer than one call may.

        Invalid("blob_digest") when they are not.
        """
        with self._hashing:
            until = time.monotonic() + PATIENCE
            if isinstance(store, CanReadParts) and not self.joined:
                while self._next <= self.count:
                    if time.monotonic() > until:
                        return False
                    self._take(store, self._next, b"")
            elif not self._read_joined(store, until):
                return False
        got, want = self._digest.hexdigest(), sha256 or self.target.sha256
        if got != want:
            raise Invalid("blob_digest", want=want, got=got)
        return True

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Held while a part is written: nothing changes any more once the whole is checked."""
        with self._gate:
            if self._closed:
                raise Retry("upload_closing")
            self._writers += 1
        try:
            yield
        finally:
            with self._gate:
                self._writers -= 1

    def _begin_again(self) -> None:
        """A part that was looked at came once more, and may be another."""
        with self._hashing:
            self._digest, self._next = hashlib.sha256(), 1

    def _advance(self, store: CanReadParts, number: int, data: bytes | bytearray) -> None:
        """Whoever finds another thread at it leaves the part to that one."""
        left = STEP
        while left and self._next in self.there and self._hashing.acquire(blocking=False):
            try:
                if self._next in self.there:
                    self._take(store, self._next, data if self._next == number else b"")
                    left -= 1
            finally:
                self._hashing.release()

    def _take(self, store: CanReadParts, number: int, data: bytes | bytearray) -> None:
        path, upload = self.target.path, self.record.upload
        begin = (number - 1) * self.record.part_size
        self._digest.update(data or store.read_part(path, upload, begin, self.size_of(number)))
        self._next += 1

    def _read_joined(self, store: Store, until: float) -> bool:
        if self._chunks is None:
            self._digest = hashlib.sha256()
            self._chunks = iter(store.read(self.target.path))
        try:
            for chunk in self._chunks:
                self._digest.update(chunk)
                if time.monotonic() > until:
                    return False
        except BaseException:
            # Nothing more comes from these, which looks like the end: the next call begins anew.
            self._chunks = None
            raise
        return True


class Uploads:
    """Those that this server has in its mind. If they are too many, the one that nobody asked for
    for the longest time goes: it is read from the store again."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[Target, Upload] = {}

    def get(self, target: Target) -> Upload | None:
        with self._lock:
            found = self._kept.pop(target, None)
            if found is not None:
                self._kept[target] = found
            return found

    def put(self, upload: Upload) -> Upload:
        """Remember it; what is known of the same upload already if there is something."""
        with self._lock:
            known = self._kept.pop(upload.target, upload)
            found = known if known.record == upload.record else upload
            self._kept[upload.target] = found
            while len(self._kept) > KEPT:
                self._kept.pop(next(iter(self._kept)))
            return found

    def put_part(
        self, upload: Upload, store: CanMultipart, number: int, data: bytes | bytearray
    ) -> None:
        """Keep one part, whole and checked for damage; an upload that is gone is forgotten."""
        try:
            upload.put(store, number, data)
        except NotFound:
            self.forget(upload.target)
            raise

    def forget(self, target: Target) -> None:
        with self._lock:
            self._kept.pop(target, None)
