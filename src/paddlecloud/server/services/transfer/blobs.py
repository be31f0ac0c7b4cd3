"""Uploads of big blobs in parts: quota and disk space first, verification before they count.

The blob of a store whose parts cannot be read before they are joined, a bucket, is verified after
the join: as long as its record exists, what lies under its name counts as missing. On the embedded
server a client copies big files into a directory of the store instead, and the server adopts them.
"""

from __future__ import annotations

import time
from datetime import datetime, timedelta

from paddlecloud.db.tables import usage
from paddlecloud.model.errors import Invalid, NotFound, Refused, StorageFull
from paddlecloud.model.files.snapshot import is_digest
from paddlecloud.model.units import format_size
from paddlecloud.server.deps import Deps
from paddlecloud.server.schemas.transfer import PartsAnswer, PartsRequest, PlaceAnswer
from paddlecloud.server.services.accounts import quota
from paddlecloud.server.services.files.snapshots import blob_path
from paddlecloud.server.services.transfer import open_uploads
from paddlecloud.server.services.transfer.open_uploads import Record, check_storage, uploads_root
from paddlecloud.server.services.transfer.uploads import State, Upload
from paddlecloud.stores.base import (
    CanAdopt,
    CanLocalPath,
    CanMultipart,
    CanReadParts,
    CanReportFreeSpace,
)
from paddlecloud.stores.deadline import prompt_if

KIB = 1024
MIB = 1024 * KIB
PART = 8 * MIB
LARGEST_PART = 64 * MIB
"""One is held in memory whole, and several come at once."""
MOST_PARTS = 10_000
"""Object stores take no more."""
LARGEST_FILE = 16 * 1024 * 1024 * MIB
"""Usual file systems take no more."""
LOSS = 64
"""A file has at least so many parts: what is lost when a connection breaks is a small share."""
GOOD_FOR = timedelta(hours=6)
URLS = 200
"""Presigned URLs in one answer."""
_PAUSE = 0.02


def place(deps: Deps) -> PlaceAnswer:
    """A fresh directory for files that the caller, who is this server's own user, copies there.

    A team server has none: its store is not its callers'.
    """
    if deps.settings.team or not isinstance(deps.store, CanAdopt):
        return PlaceAnswer()
    name, path = deps.store.make_place()
    return PlaceAnswer(name=name, path=str(path))


def begin(deps: Deps, owner: str, request: PartsRequest) -> PartsAnswer:
    """The state of an upload, started if there is none; `stored` when there is nothing to do."""
    upload = BlobUpload(deps, owner, request.sha256)
    with deps.owner_locks.of(owner):
        state = upload.find()
        if state is not None:
            open_uploads.touch(deps, upload.record_path, state.record)
            if state.record.size != request.size:
                raise Invalid("upload_size", got=request.size, want=state.record.size)
        elif upload.is_stored(request.size):
            deps.store.delete(upload.record_path)  # of another size, which nothing came of
            return PartsAnswer(stored=True)
        if request.handed and upload.adopt(request, state):
            return PartsAnswer(stored=True)
        if state is None:
            state = upload.begin(request)
    record, there = state.record, state.numbers()
    urls: list[tuple[int, str]] = []
    if request.direct and not isinstance(deps.store, CanReadParts):
        missing = sorted({*range(1, record.count + 1)} - {*there})[:URLS]
        urls = [*zip(missing, upload.presign(record.upload, missing, GOOD_FOR), strict=False)]
    return PartsAnswer(stored=False, part_size=record.part_size, parts=there, urls=urls)


def finish(deps: Deps, owner: str, sha256: str) -> bool:
    """Verify the whole and give it its name; False: not done yet, call again. Idempotent."""
    upload = BlobUpload(deps, owner, sha256)
    state = upload.find()
    if state is None:
        if deps.store.stat(upload.path) is None:
            raise upload.missing(sha256)
        return True
    try:
        return upload.complete(state, sha256)
    except NotFound:
        # Two clients send the same blob, and the other one was a moment earlier.
        if open_uploads.read(deps, upload.record_path) is not None:
            time.sleep(_PAUSE)
            return False
        if not state.record.became(deps.store.stat(upload.path)):
            raise
        return True


def drop_abandoned(deps: Deps, owner: str, before: datetime) -> int:
    """Delete uploads that did not continue since `before`; how many bytes that freed."""
    records = list(deps.store.list(f"{uploads_root(owner)}/"))
    old = [stat.path.rpartition("/")[2] for stat in records if stat.modified < before]
    return sum(_drop_if_old(deps, owner, sha256, before) for sha256 in old if is_digest(sha256))


def part_size_of(size: int, *, local: bool) -> int:
    """Bytes of a part: a small share of the file, as far as a bucket takes small parts, and more
    where there would be too many, which a local disk takes in the end."""
    least, step = (256 * KIB, 64 * KIB) if local else (5 * MIB, MIB)
    share = size // LOSS // step * step
    return max(least, min(PART, share), min(LARGEST_PART, -(-size // MOST_PARTS // step) * step))


class BlobUpload(Upload):
    def __init__(self, deps: Deps, owner: str, sha256: str) -> None:
        if not is_digest(sha256):
            raise self.missing(sha256)
        if not isinstance(deps.store, CanMultipart):
            raise Refused("upload_no_parts")
        super().__init__(
            deps,
            owner=owner,
            store=deps.store,
            path=blob_path(owner, sha256),
            record_path=f"{uploads_root(owner)}/{sha256}",
        )
        self.sha256 = sha256

    def begin(self, request: PartsRequest) -> State:
        """Start an upload; what cannot fit is refused before any of it is sent."""
        store, size = self.deps.store, request.size
        needed = size if request.allocated is None else min(size, request.allocated)
        if isinstance(store, CanReportFreeSpace) and (space := store.free_bytes()) < needed:
            sizes = {"size": format_size(needed), "room": format_size(max(0, space))}
            raise StorageFull("store_room", **sizes)
        check_storage(self.deps, self.owner, size, besides=(self.sha256,))
        local = isinstance(store, CanLocalPath)
        limit = LARGEST_FILE if local else LARGEST_PART * MOST_PARTS
        if size > limit:
            raise Refused("upload_too_large", size=format_size(size), limit=format_size(limit))
        part_size = part_size_of(size, local=local)
        record = Record(upload=self.start(part_size), size=size, part_size=part_size)
        open_uploads.write(self.deps, self.record_path, record)
        return State(record=record)

    def is_stored(self, size: int) -> bool:
        """Whether the blob is there; Invalid when it is, and of another size. A directory may have
        a part of it, after a loss of power."""
        stat = self.store.stat(self.path)
        if stat is None or stat.size == size:
            return stat is not None
        if isinstance(self.store, CanReadParts):
            return False
        raise Invalid("upload_size", got=size, want=stat.size)

    def adopt(self, request: PartsRequest, state: State | None) -> bool:
        """Take over a file that a client on this machine copied to a place of the store.

        Its name there is its digest, and is trusted: only our own user can enter the directory, and
        could write to the whole store. Parts of the same blob are not needed any more.
        """
        store = self.deps.store
        if self.deps.settings.team or not isinstance(store, CanAdopt):
            return False
        check_storage(self.deps, self.owner, request.size, besides=(self.sha256,))
        if not store.adopt(request.handed, self.sha256, self.path, size=request.size):
            return False
        if state is not None:
            self.store.drop_parts(self.path, state.record.upload)
        store.delete(self.record_path)
        self._count(request.size)
        return True

    def put_part(self, record: Record, number: int, data: bytes | bytearray) -> None:
        super().put_part(record, number, data)
        if open_uploads.is_due(self.deps, self.record_path):
            with self.deps.owner_locks.of(self.owner):
                open_uploads.touch(self.deps, self.record_path, record)

    def before_join(self, record: Record) -> bool:
        """In a bucket the blob has its name before it is verified, so its record has to be there;
        and one that came another way in between is verified instead of being overwritten."""
        if isinstance(self.store, CanReadParts):
            return False
        with self.deps.owner_locks.of(self.owner):
            if not open_uploads.touch(self.deps, self.record_path, record):
                raise self.missing(self.sha256)
        try:
            is_there = self.is_stored(record.size)
        except Invalid:
            self.abort(record, is_joined=False)
            raise
        if is_there:
            self.store.drop_parts(self.path, record.upload)
        return is_there

    def completed(self, record: Record) -> None:
        with self.deps.owner_locks.of(self.owner):
            if open_uploads.read(self.deps, self.record_path) == record:
                self._count(record.size)  # while the record still holds its quota
                self.deps.store.delete(self.record_path)

    def abort(self, record: Record, *, is_joined: bool) -> None:
        """What came is not what was announced: nothing of it stays. Under the name of the blob may
        lie that of another upload, if the record is of another one."""
        super().abort(record, is_joined=is_joined)
        with self.deps.owner_locks.of(self.owner):
            if open_uploads.read(self.deps, self.record_path) == record:
                if is_joined:
                    self.deps.store.delete(self.path)
                self.deps.store.delete(self.record_path)

    def _count(self, size: int) -> None:
        if quota.storage_left(self.deps, self.owner) is not None:
            self.deps.db.write(lambda tx: usage.add_files(tx, self.owner, size))


def _drop_if_old(deps: Deps, owner: str, sha256: str, before: datetime) -> int:
    """The unverified blob goes before its record, without which it would count as verified. One of
    another size was there before the upload, and is good."""
    upload = BlobUpload(deps, owner, sha256)
    with prompt_if(True), deps.owner_locks.of(owner):  # for which submits wait
        stat = deps.store.stat(upload.record_path)
        if stat is None or stat.modified >= before:  # it continued since it was listed
            return 0
        freed = 0
        blob, record = deps.store.stat(upload.path), open_uploads.read(deps, upload.record_path)
        is_joined = blob is not None and (record is None or record.size == blob.size)
        if blob is not None and is_joined and not isinstance(deps.store, CanReadParts):
            freed = blob.size
            deps.store.delete(upload.path)
        deps.store.delete(upload.record_path)
    return freed
