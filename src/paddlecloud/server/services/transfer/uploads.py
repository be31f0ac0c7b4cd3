"""Multipart uploads: the life cycle that blobs, outputs and files in users' buckets share.

An upload is found by its record or started (`find`, `start`), gets its parts in any order, through
this server (`open`, `put_part`) or by presigned URL (`presign`), and ends with `complete`, which
verifies the whole and gives the file its name, or with `abort`. A record in the server's own store
(`open_uploads`) and the parts in the target's store are all that is needed to continue: the sender,
this server or both may be killed at any moment. A subclass adds where the file goes, what is
checked before it begins, and what has to happen around the join.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

from paddlecloud.model.errors import Invalid, NotFound
from paddlecloud.server.services.transfer import open_uploads
from paddlecloud.stores.base import CanPresign, CanReadParts, Part, Stat

if TYPE_CHECKING:
    from paddlecloud.server.deps import Deps
    from paddlecloud.server.services.transfer.open_uploads import Record
    from paddlecloud.stores.base import MultipartStore

_BLOCK = 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class State:
    """An open upload as the stores know it."""

    record: Record
    parts: Sequence[Part] = ()
    file: Stat | None = None
    """The parts were joined to this file, and the end was not recorded."""

    def numbers(self) -> list[int]:
        """Of the parts that need not be sent."""
        if self.file is not None:
            return [*range(1, self.record.count + 1)]
        return [p.number for p in self.parts if p.size == self.record.size_of(p.number)]

    def check_whole(self) -> None:
        """Invalid when a part is missing."""
        there, record = {*self.numbers()}, self.record
        missing = next((n for n in range(1, record.count + 1) if n not in there), None)
        if missing is not None:
            got = sum(map(record.size_of, there))
            raise Invalid("upload_incomplete", got=got, want=record.size, missing=missing)


class Upload:
    """One file on its way into a store."""

    def __init__(
        self, deps: Deps, *, owner: str, store: MultipartStore, path: str, record_path: str
    ) -> None:
        self.deps = deps
        self.owner = owner
        self.store = store
        self.path = path
        self.record_path = record_path

    def find(self) -> State | None:
        """The upload that its record names, with the parts that are there; None: there is none."""
        record = open_uploads.read(self.deps, self.record_path)
        if record is None:
            return None
        try:
            return State(record=record, parts=self.store.parts(self.path, record.upload))
        except NotFound:
            stat = self.store.stat(self.path)
        return State(record=record, file=stat) if record.became(stat) else None

    def start(self, part_size: int, modified: datetime | None = None) -> str:
        """The id of a new upload in the store; its record is still to be written."""
        return self.store.begin_parts(self.path, part_size=part_size, modified=modified)

    def presign(self, upload: str, numbers: Iterable[int], good_for: timedelta) -> list[str]:
        """Presigned URLs to PUT these parts to; none where the store has no such URLs."""
        store = self.store
        if not isinstance(store, CanPresign):
            return []
        now = self.deps.clock()
        return [
            store.presign_part(self.path, upload, number, good_for=good_for, now=now)
            for number in numbers
        ]

    def open(self, upload: str = "") -> Record:
        """The record of the open upload, for a part that comes through this server."""
        record = open_uploads.read(self.deps, self.record_path)
        if record is None or upload not in ("", record.upload):
            raise self.missing(upload)
        return record

    def put_part(self, record: Record, number: int, data: bytes | bytearray) -> None:
        """Store one part, whole and checked for damage. A digest that is under way may have read
        the bytes that it replaces."""
        self.deps.verifications.drop(self._key(record, is_joined=False))
        self.store.put_part(self.path, record.upload, number, data)
        self.deps.verifications.drop(self._key(record, is_joined=False))

    def complete(self, state: State, sha256: str) -> bool:
        """Verify the digest of the whole and give the file its name; False: the verification takes
        longer than one call may, call again.

        Where parts can be read before they are joined the digest is compared first, else after the
        join. Invalid("blob_digest"): it was another one, and the upload is aborted.
        """
        state.check_whole()
        record, is_joined = state.record, state.file is not None
        is_first = isinstance(self.store, CanReadParts) and not is_joined
        if is_first and not self._is_verified(record, sha256, is_joined=False):
            return False
        if not is_joined and not self.before_join(record):
            self.store.finish_parts(self.path, record.upload, size=record.size)
        if not is_first and not self._is_verified(record, sha256, is_joined=True):
            return False
        self.completed(record)
        return True

    def before_join(self, record: Record) -> bool:
        """Called before the file gets its name; what this raises prevents it. True: the file is
        there already, and is verified instead."""
        return False

    def completed(self, record: Record) -> None:
        """Called when the file has its name and is verified."""

    def abort(self, record: Record, *, is_joined: bool) -> None:
        """Drop all parts."""
        self.store.drop_parts(self.path, record.upload)

    def missing(self, upload: str) -> NotFound:
        return NotFound("upload_missing", upload=upload[:100])

    def _is_verified(self, record: Record, sha256: str, *, is_joined: bool) -> bool:
        """Whether the bytes have this digest; False: that is not known yet."""
        chunks = partial(self.store.read, self.path) if is_joined else partial(self._parts, record)
        key = self._key(record, is_joined=is_joined)
        got = self.deps.verifications.sha256(key, chunks)
        if got is not None and got != sha256:
            self.abort(record, is_joined=is_joined)
            raise Invalid("blob_digest", want=sha256, got=got)
        return got is not None

    def _key(self, record: Record, *, is_joined: bool) -> str:
        return f"{self.record_path} {record.upload} {is_joined}"

    def _parts(self, record: Record) -> Iterator[bytes]:
        """The bytes of all parts, before they are joined."""
        store = self.store
        assert isinstance(store, CanReadParts)
        for offset in range(0, record.size, _BLOCK):
            length = min(_BLOCK, record.size - offset)
            yield store.read_part(self.path, record.upload, offset, length)
