"""Submitted files: snapshots, their blobs and which of them are missing.

Blobs are stored per user, so an upload reveals nothing about the files of other users. A snapshot
row is written only after all its blobs are stored and flushed: a job can rely on it.
"""

from __future__ import annotations

from collections.abc import Mapping

from paddlecloud.db.engine.base import Tx
from paddlecloud.db.tables import snapshots, usage
from paddlecloud.model.errors import Invalid, NotFound, StorageFull
from paddlecloud.model.files.snapshot import Entry, EntryKind, Snapshot, snapshot_of
from paddlecloud.model.units import format_size
from paddlecloud.server.deps import Deps
from paddlecloud.server.schemas.files import EntryRow, SnapshotAnswer
from paddlecloud.server.services.accounts import quota
from paddlecloud.server.services.transfer import open_uploads
from paddlecloud.stores.base import CanLocalPath, CanReportFreeSpace, Reader, Sink
from paddlecloud.stores.pack import PackReceiver

SMALL = 64 * 1024
BIG = 16 * 1024 * 1024
"""Larger blobs are uploaded in parts (`services/transfer`)."""
UNCOUNTED = 1024 * 1024
"""Received bytes that may not be counted yet: small files are counted many at once."""


def blob_path(owner: str, sha256: str) -> str:
    return f"{blobs_root(owner)}/{sha256[:2]}/{sha256}"


def blobs_root(owner: str) -> str:
    return f"users/{owner}/blobs"


def offer(deps: Deps, owner: str, rows: list[EntryRow], *, dry_run: bool = False) -> SnapshotAnswer:
    """The snapshot of these rows and its missing blobs; if none is missing, it is stored, except in
    a dry run."""
    snapshot = snapshot_of((_entry(row) for row in rows), outside_links=not deps.settings.team)
    now = deps.clock()
    used_at = deps.db.read(lambda tx: snapshots.last_use(tx, owner, snapshot.id))
    if used_at is not None and (
        dry_run
        or now - used_at < snapshots.USE_STEP
        or deps.db.write(lambda tx: snapshots.touch(tx, owner, snapshot.id, now))
    ):
        return SnapshotAnswer(id=snapshot.id, missing=[])
    digests = snapshot.digests
    with deps.owner_locks.of(owner):
        # Unverified blobs first: a damaged one is deleted before its record.
        doubtful = open_uploads.unchecked(deps, owner)
        paths = {blob_path(owner, sha): sha for sha in digests}
        stored = {paths[path]: size for path, size in deps.store.sizes(paths).items()}
        missing = [
            sha for sha, size in digests.items() if stored.get(sha) != size or sha in doubtful
        ]
        if missing:
            size = sum(digests[sha] for sha in missing)
            open_uploads.check_storage(deps, owner, size, besides=missing)
            _check_free_space(deps, [digests[sha] for sha in missing if digests[sha] < BIG])
        elif not dry_run:
            deps.store.flush()
            deps.db.write(lambda tx: snapshots.put_snapshot(tx, owner, snapshot, now))
    return SnapshotAnswer(id=snapshot.id, missing=missing)


class Receiver(PackReceiver):
    """Stores the blobs of a pack stream and verifies each one."""

    def __init__(self, deps: Deps, owner: str) -> None:
        super().__init__(self._sink_of)
        self._deps, self._owner = deps, owner
        self._near = isinstance(deps.store, CanLocalPath)
        self._quota = quota.storage_left(deps, owner)
        self._held = 0 if self._quota is None else open_uploads.held_bytes(deps, owner)
        self._counted = 0
        """Counted bytes of this stream, including the current file."""

    def close(self) -> None:
        """At the end of the stream, complete or not, the received bytes are counted."""
        self.abort()
        rest = self.bytes - self._counted
        if self._quota is not None and rest:
            self._deps.db.write(lambda tx: usage.add_files(tx, self._owner, rest))

    def _sink_of(self, sha256: str, size: int) -> Sink | None:
        # Clients send missing blobs: checking a small one again, or one in a bucket, costs more
        # than receiving the few that exist.
        check = self._near and (self._quota is not None or size > SMALL)
        stat = self._deps.store.stat(blob_path(self._owner, sha256)) if check else None
        if stat is not None and stat.size == size:
            return None
        if self._quota is not None:
            used, limit = self._quota
            quota.check_fits(used + self.bytes, size, limit, self._held)
            if self.bytes - self._counted + size >= UNCOUNTED:
                self._count(size, limit)
        return self._deps.store.open_write(blob_path(self._owner, sha256))

    def _count(self, size: int, limit: int) -> None:
        """Count the received bytes and the current file, if they still fit into the quota. The
        check is in the transaction that counts, because other streams use the same quota."""
        received = self.bytes - self._counted

        def write(tx: Tx) -> int:
            used = usage.stored_bytes(tx, self._owner)
            quota.check_fits(used + received, size, limit, self._held)
            usage.add_files(tx, self._owner, received + size)
            return used

        used = self._deps.db.write(write, durable=False)
        self._quota = used - self._counted, limit
        self._counted += received + size


def manifest(deps: Deps, owner: str, snapshot_id: str) -> Snapshot:
    found = deps.db.read(lambda tx: snapshots.get_snapshot(tx, owner, snapshot_id))
    if found is None:
        raise NotFound("snapshot_unknown", snapshot=snapshot_id[:100])
    return found


def entries_json(deps: Deps, owner: str, snapshot_id: str) -> bytes:
    """The rows of a snapshot as stored JSON: decoding 10,000 rows is expensive."""
    found = deps.db.read(lambda tx: snapshots.get_entries(tx, owner, snapshot_id))
    if found is None:
        raise NotFound("snapshot_unknown", snapshot=snapshot_id[:100])
    return found.encode()


def digests(deps: Deps, owner: str, snapshot_id: str) -> Mapping[str, int]:
    """Size by digest of every blob that this snapshot references, in order."""
    key = owner, snapshot_id
    return deps.caches.snapshot_blobs.load(key, lambda: manifest(deps, owner, snapshot_id).digests)


def files_of(deps: Deps, owner: str, snapshot_id: str) -> Mapping[str, tuple[str, int]]:
    """Digest and size of each file by path; cached, because a download requests one file after
    the other."""

    def find() -> Mapping[str, tuple[str, int]]:
        entries = manifest(deps, owner, snapshot_id).entries
        files = (entry for entry in entries if entry.kind is EntryKind.FILE)
        return {entry.path: (entry.sha256, entry.size) for entry in files}

    return deps.caches.snapshot_files.load((owner, snapshot_id), find)


def content(deps: Deps, owner: str, snapshot_id: str, sha256: str, offset: int = 0) -> Reader:
    """One blob that this snapshot references; NotFound for any other."""
    if sha256 not in digests(deps, owner, snapshot_id):
        raise NotFound("file_missing", path=sha256[:100])
    try:
        return deps.store.read(blob_path(owner, sha256), offset)
    except NotFound:
        raise NotFound("content_gone", sha256=sha256) from None


def rows_of(snapshot: Snapshot) -> list[EntryRow]:
    return [
        (e.path, e.kind.value, e.size, e.sha256, int(e.executable), e.target)
        for e in snapshot.entries
    ]


def _check_free_space(deps: Deps, sizes: list[int]) -> None:
    """Refuse small files that do not fit before one is uploaded. Big ones are checked one by one,
    because they may have holes."""
    size = sum(sizes)
    if isinstance(deps.store, CanReportFreeSpace) and (free := deps.store.free_bytes()) < size:
        params = {"size": format_size(size), "room": format_size(max(0, free))}
        raise StorageFull("store_room_files", files=len(sizes), **params)


def _entry(row: EntryRow) -> Entry:
    path, kind, size, sha256, executable, target = row
    try:
        known = EntryKind(kind)
    except ValueError:
        raise Invalid("snapshot_kind", path=path[:200], kind=kind[:50]) from None
    return Entry(
        path=path,
        kind=known,
        size=size,
        sha256=sha256,
        executable=bool(executable),
        target=target,
    )
