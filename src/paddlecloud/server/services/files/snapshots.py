"""Submitted files: which contents are missing, where they lie, and the manifest that names them.

Contents are kept per user, so nobody learns from an upload what another user has. A snapshot row
appears only when every content of it is stored and flushed: a job can rely on it.
"""

from __future__ import annotations

from collections.abc import Mapping

from paddlecloud.db.engine.base import Tx
from paddlecloud.db.tables import snapshots, usage
from paddlecloud.model.errors import Invalid, NotFound, StorageFull
from paddlecloud.model.files.snapshot import Entry, EntryKind, Snapshot, snapshot_of
from paddlecloud.model.units import format_size
from paddlecloud.server.deps import Deps
from paddlecloud.server.schemas.files import EntryRow
from paddlecloud.server.services.accounts import quota
from paddlecloud.server.services.transfer import open_uploads
from paddlecloud.stores.base import CanLocalPath, CanReportFreeSpace, Reader, Sink
from paddlecloud.stores.pack import PackReceiver

SMALL = 64 * 1024
BIG = 16 * 1024 * 1024
"""What is larger comes in parts (`uploads`)."""
UNCOUNTED = 1024 * 1024
"""Fewer bytes than this of a stream may not count yet: small files are counted many at once."""


def blob_path(owner: str, sha256: str) -> str:
    return f"{blobs_root(owner)}/{sha256[:2]}/{sha256}"


def blobs_root(owner: str) -> str:
    return f"users/{owner}/blobs"


def offer(deps: Deps, owner: str, rows: list[EntryRow]) -> tuple[Snapshot, list[str]]:
    """The snapshot of these rows and the contents still missing; none missing: it is stored."""
    snapshot = snapshot_of(_entry(row) for row in rows)
    now = deps.clock()
    used_at = deps.db.read(lambda tx: snapshots.last_use(tx, owner, snapshot.id))
    if used_at is not None and now - used_at < snapshots.USE_STEP:
        return snapshot, []
    if used_at is not None and deps.db.write(
        lambda tx: snapshots.touch(tx, owner, snapshot.id, now)
    ):
        return snapshot, []
    digests = snapshot.digests
    with deps.owner_locks.of(owner):
        # First what is in doubt: a content that is found wrong goes before its record does.
        doubtful = open_uploads.unchecked(deps, owner)
        paths = {blob_path(owner, sha): sha for sha in digests}
        stored = {paths[path]: size for path, size in deps.store.sizes(paths).items()}
        missing = [
            sha for sha, size in digests.items() if stored.get(sha) != size or sha in doubtful
        ]
        if missing:
            size = sum(digests[sha] for sha in missing)
            open_uploads.check_storage(deps, owner, size, besides=missing)
            _check_room(deps, [digests[sha] for sha in missing if digests[sha] < BIG])
        else:
            deps.store.flush()
            deps.db.write(lambda tx: snapshots.put_snapshot(tx, owner, snapshot, now))
    return snapshot, missing


class Receiver(PackReceiver):
    """Takes a pack stream apart into an owner's contents, and checks each one."""

    def __init__(self, deps: Deps, owner: str) -> None:
        super().__init__(self._sink_of)
        self._deps, self._owner = deps, owner
        self._near = isinstance(deps.store, CanLocalPath)
        self._room = quota.storage_left(deps, owner)
        self._held = 0 if self._room is None else open_uploads.held_bytes(deps, owner)
        self._counted = 0
        """Of the bytes of this stream, and of the file that is on its way."""

    def close(self) -> None:
        """The stream is over: what came counts, all of it or not."""
        self.abort()
        rest = self.bytes - self._counted
        if self._room is not None and rest:
            self._deps.db.write(lambda tx: usage.add_files(tx, self._owner, rest))

    def _sink_of(self, sha256: str, size: int) -> Sink | None:
        # Clients send what they were told is missing: asking for each small one once more, or for
        # any that is far away, costs more than the few that are there.
        worth = self._near and (self._room is not None or size > SMALL)
        if worth and _stored(self._deps, self._owner, sha256, size):
            return None
        if self._room is not None:
            used, limit = self._room
            quota.check_fits(used + self.bytes, size, limit, self._held)
            if self.bytes - self._counted + size >= UNCOUNTED:
                self._count(size, limit)
        return self._deps.store.open_write(blob_path(self._owner, sha256))

    def _count(self, size: int, limit: int) -> None:
        """Count what came and the file that comes now, if it still fits: other streams fill the
        same room. Asked in the transaction that counts, so one of them gets the last of it."""
        came = self.bytes - self._counted

        def write(tx: Tx) -> int:
            used = usage.stored_bytes(tx, self._owner)
            quota.check_fits(used + came, size, limit, self._held)
            usage.add_files(tx, self._owner, came + size)
            return used

        used = self._deps.db.write(write, durable=False)
        self._room = used - self._counted, limit
        self._counted += came + size


def manifest(deps: Deps, owner: str, snapshot_id: str) -> Snapshot:
    found = deps.db.read(lambda tx: snapshots.get_snapshot(tx, owner, snapshot_id))
    if found is None:
        raise NotFound("snapshot_unknown", snapshot=snapshot_id[:100])
    return found


def entries_json(deps: Deps, owner: str, snapshot_id: str) -> bytes:
    """The rows of a snapshot as JSON, as they were kept: taking 10,000 apart is much work."""
    found = deps.db.read(lambda tx: snapshots.get_entries(tx, owner, snapshot_id))
    if found is None:
        raise NotFound("snapshot_unknown", snapshot=snapshot_id[:100])
    return found.encode()


def digests(deps: Deps, owner: str, snapshot_id: str) -> Mapping[str, int]:
    """Every content that this snapshot names, with its size, in order."""
    key = owner, snapshot_id
    return deps.caches.snapshot_blobs.load(key, lambda: manifest(deps, owner, snapshot_id).digests)


def files_of(deps: Deps, owner: str, snapshot_id: str) -> Mapping[str, tuple[str, int]]:
    """By path the content and the size of each file. Whoever downloads a snapshot asks for one
    after the other, and it is not taken apart for each."""

    def find() -> Mapping[str, tuple[str, int]]:
        entries = manifest(deps, owner, snapshot_id).entries
        files = (entry for entry in entries if entry.kind is EntryKind.FILE)
        return {entry.path: (entry.sha256, entry.size) for entry in files}

    return deps.caches.snapshot_files.load((owner, snapshot_id), find)


def content(deps: Deps, owner: str, snapshot_id: str, sha256: str, offset: int = 0) -> Reader:
    """One content that this snapshot names; any other is as unknown as none."""
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


def _check_room(deps: Deps, sizes: list[int]) -> None:
    """Refuse small files that cannot fit together before one is sent. Big ones are asked for one by
    one, because they may have holes."""
    size = sum(sizes)
    if isinstance(deps.store, CanReportFreeSpace) and (room := deps.store.free_bytes()) < size:
        told = {"size": format_size(size), "room": format_size(max(0, room))}
        raise StorageFull("store_room_files", files=len(sizes), **told)


def _stored(deps: Deps, owner: str, sha256: str, size: int) -> bool:
    stat = deps.store.stat(blob_path(owner, sha256))
    return stat is not None and stat.size == size


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
