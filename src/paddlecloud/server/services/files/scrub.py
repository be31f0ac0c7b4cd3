"""Reads what the store keeps once more, and takes what went bad out of use.

Nobody else does: replicas see submitted files through further names of the stored ones. A search
is many short requests, each of which says where the next goes on, so it ends with its client and
goes on after a restart. The first says no more than when the search began: a request that is made
again, because its answer was lost, tells again what was set aside since. A damaged content of a
snapshot is moved aside, and no new job may refer to a snapshot that names it: the next submit sends
it again. It is kept for as long as unused files are. An output cannot be sent again and stays where
it is. What lies in the buckets of users is theirs, and is not read.
"""

from __future__ import annotations

import errno
import heapq
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import islice

from paddlecloud.db.engine.base import Tx
from paddlecloud.db.engine.columns import to_micros
from paddlecloud.db.tables import jobs, snapshots
from paddlecloud.db.tables import users as tables_users
from paddlecloud.model.errors import NotFound, TooMany
from paddlecloud.model.jobs.job import Job
from paddlecloud.server.deps import Deps
from paddlecloud.server.http.auth import Caller
from paddlecloud.server.partial_digests import Half
from paddlecloud.server.schemas.verify import DamagedRow, VerifyAnswer, VerifyPlace, VerifyRequest
from paddlecloud.server.services.accounts import users
from paddlecloud.server.services.files import job_files
from paddlecloud.server.services.files.snapshots import blob_path, blobs_root
from paddlecloud.server.services.transfer.open_uploads import unchecked
from paddlecloud.stores.base import CanMove, Stat
from paddlecloud.stores.directory.safe_open import shown

log = logging.getLogger(__name__)
PAGE = 5.0
"""Seconds of one request."""
STEP = 4 * 1024 * 1024
"""Bytes between two rests; each rest is as long as the work before it."""
MOST_REST = 0.2
FILE_COST = 16 * 1024
"""What opening a file counts for, in bytes."""
MOST_DAMAGED = 50
"""Rows of one answer."""
LISTED = 20
"""Paths, jobs and snapshots that are named of one content."""
FEW = 1000
"""Up to so many contents of a user are listed at once; of more, one directory at a time."""
JOBS = 50
_END = "\U0010ffff"
"""Comes after every path: the rest of these files is read."""
_UNREADABLE = "unreadable"
_BAD = frozenset(
    (errno.EIO, errno.EUCLEAN, errno.EBADMSG, errno.ENODATA, errno.EILSEQ, errno.EREMOTEIO)
)
"""What a disk or a file system says of bytes that it cannot give, by their kinds and their checks.
Anything else speaks of this server, and not of the file."""
_WHEN = "%Y%m%dT%H%M%S%fZ"
"""Names of what was set aside end with it: when that was. Moving keeps a file's own times."""


def page(deps: Deps, caller: Caller, request: VerifyRequest) -> VerifyAnswer:
    """Read on for a few seconds from where the last page ended."""
    if request.user is not None:
        users.get(deps, request.user)
    if request.at is None:
        return _begun(deps, request.user)
    if not deps.halves.turn.acquire(timeout=2 * PAGE):
        raise TooMany("verify_busy")
    try:
        return _Page(deps, caller).read(request.user, request.at)
    finally:
        deps.halves.turn.release()


def forget(deps: Deps, owner: str, before: datetime) -> int:
    """Delete what was set aside before then; how many bytes that freed."""
    freed = 0
    for stat in list(deps.store.list(job_files.aside_root(owner) + "/")):
        when = _set_aside_at(stat.path)
        if when is not None and when < before:
            deps.store.delete(stat.path)
            freed += stat.size
    return freed


def _set_aside_at(path: str) -> datetime | None:
    """None for a file that somebody else put there: that stays."""
    try:
        return datetime.strptime(path.rpartition(".")[2], _WHEN).replace(tzinfo=UTC)
    except ValueError:
        return None


@dataclass(frozen=True, kw_only=True)
class _Item:
    """A file to read, or the end of some files (no `path`)."""

    owner: str
    job: Job | None = None
    name: str = _END
    path: str = ""
    sha256: str = ""
    listed: job_files.Listed | None = None
    aside: Stat | None = None
    """Where it lies, if this search has found it damaged before."""


def _begun(deps: Deps, user: str | None) -> VerifyAnswer:
    owner = user or min(deps.db.read(tables_users.user_ids))
    place = VerifyPlace(owner=owner, began=to_micros(deps.clock()))
    return VerifyAnswer(files=0, bytes=0, damaged=[], changed=[], next=place)


class _Page:
    def __init__(self, deps: Deps, caller: Caller) -> None:
        self._deps = deps
        self._caller = caller
        self._until = time.monotonic() + PAGE
        self._worked_since = time.monotonic()
        self._since_rest = 0
        self._files = self._bytes = self._began = 0
        self._damaged: list[DamagedRow] = []
        self._changed: list[DamagedRow] = []

    def read(self, user: str | None, at: VerifyPlace) -> VerifyAnswer:
        self._began, begun = at.began, at.offset > 0
        for item in _items(self._deps, user, at):
            if item.aside is not None:
                self._tell_again(item, item.aside)
            half = self._read(item, begun=begun) if item.path else None
            begun = False
            if half is not None:
                return self._answer(item, half.offset)
            if self._over() or len(self._damaged) + len(self._changed) >= MOST_DAMAGED:
                return self._answer(item, 0)
        return self._answer(None, 0)

    def _tell_again(self, item: _Item, aside: Stat) -> None:
        self._files += 1
        self._bytes += aside.size
        self._damaged.append(_submitted_row(self._deps, item, aside, aside.path))

    def _read(self, item: _Item, *, begun: bool) -> Half | None:
        """None when that file is dealt with, else how far it was read."""
        half = self._deps.halves.take(item.path) if begun else Half(path=item.path)
        try:
            if not self._read_on(half):
                self._deps.halves.keep(half)
                return half
            found = half.digest.hexdigest()
        except NotFound:  # deleted meanwhile
            return None
        except OSError as error:
            if error.errno not in _BAD:
                raise
            found = _UNREADABLE
        self._files += 1
        if found != item.sha256:
            self._report(item, half.stat)
        return None

    def _read_on(self, half: Half) -> bool:
        """Whether the end was reached."""
        with self._deps.store.read(half.path, half.offset) as reader:
            if half.stat not in (None, reader.stat):
                raise NotFound("file_missing", path=half.path)
            half.stat = reader.stat
            self._spent(FILE_COST)
            for piece in reader:
                half.digest.update(piece)
                half.offset += len(piece)
                self._bytes += len(piece)
                self._spent(len(piece))
                if self._over():
                    return False
        return True

    def _report(self, item: _Item, stat: Stat | None) -> None:
        if item.job is None:
            row = _set_aside(self._deps, item, stat, self._note)
        else:
            row = _output_row(item, stat)
            if stat is not None and item.listed is not None and item.listed.is_another(stat):
                # Written anew since it was listed, as by a later attempt that was lost: no damage,
                # but not what its job told of it either.
                self._changed.append(row)
                return
            self._deps.db.write(partial(self._note, row=row))
        if row is not None:
            log.warning("damaged: %s of %s, sha256 %s", row.paths, item.owner, item.sha256)
            self._damaged.append(row)

    def _note(self, tx: Tx, row: DamagedRow) -> None:
        facts = {"kind": row.kind, "sha256": row.sha256, "aside": row.aside}
        now = self._deps.clock()
        users.note(tx, self._caller, now, "content.damaged", row.user_id, facts)

    def _spent(self, size: int) -> None:
        self._since_rest += size
        if self._since_rest >= STEP:
            _rest(min(MOST_REST, time.monotonic() - self._worked_since))
            self._since_rest = 0
            self._worked_since = time.monotonic()

    def _over(self) -> bool:
        return self._deps.hub.closed or time.monotonic() >= self._until

    def _answer(self, item: _Item | None, offset: int) -> VerifyAnswer:
        place = None
        if item is not None:
            job = item.job.number if item.job else None
            place = VerifyPlace(
                owner=item.owner, job=job, after=item.name, offset=offset, began=self._began
            )
        return VerifyAnswer(
            files=self._files,
            bytes=self._bytes,
            damaged=self._damaged,
            changed=self._changed,
            next=place,
        )


def _items(deps: Deps, user: str | None, at: VerifyPlace) -> Iterator[_Item]:
    for owner in [user] if user else sorted(deps.db.read(tables_users.user_ids)):
        if owner > at.owner:
            at = VerifyPlace(owner=owner, began=at.began)
        if owner == at.owner:
            if at.job is None:
                yield from _contents(deps, owner, at)
            yield from _outputs(deps, owner, at)


def _contents(deps: Deps, owner: str, at: VerifyPlace) -> Iterator[_Item]:
    if at.after == _END:
        return
    there = (
        _Item(owner=owner, name=_name(stat), path=stat.path, sha256=_name(stat))
        for stat in _stored(deps, owner, at.after[:2])
    )
    # Before anything more is set aside.
    told = list(_told(deps, owner, at.began))
    for item in heapq.merge(told, there, key=lambda item: item.name):
        if _is_due(item.name, at):
            yield item
    yield _Item(owner=owner)


def _told(deps: Deps, owner: str, began: int) -> Iterator[_Item]:
    """What was set aside since; whoever comes to its place in the order was not told of it."""
    for stat in deps.store.list(job_files.aside_root(owner) + "/"):
        when = _set_aside_at(stat.path)
        if when is not None and to_micros(when) > began:
            sha256 = _name(stat).partition(".")[0]
            yield _Item(owner=owner, name=sha256, sha256=sha256, aside=stat)


def _name(stat: Stat) -> str:
    return stat.path.rpartition("/")[2]


def _stored(deps: Deps, owner: str, first: str) -> Iterator[Stat]:
    root = f"{blobs_root(owner)}/"
    found = list(islice(deps.store.list(root), FEW + 1))
    if len(found) <= FEW:
        yield from found
        return
    for number in range(256):
        if f"{number:02x}" >= first:
            yield from deps.store.list(f"{root}{number:02x}/")


def _outputs(deps: Deps, owner: str, at: VerifyPlace) -> Iterator[_Item]:
    """Outputs of jobs that are over, newest first; of others they may be written just now."""
    before = at.job
    if before is not None and at.after != _END:
        before += 1
    while True:
        found = deps.db.read(partial(jobs.list_jobs, owner=owner, before=before, limit=JOBS))
        for job in found:
            if job.final and job.spec.public_bos:
                yield from _outputs_of(deps, job, at)
            yield _Item(owner=owner, job=job)
        if len(found) < JOBS:
            return
        before = found[-1].number


def _outputs_of(deps: Deps, job: Job, at: VerifyPlace) -> Iterator[_Item]:
    root = job_files.user_root(job.owner)
    for path, row in sorted(job_files.listings(deps, job).items()):
        if row.sha256 and (at.job != job.number or _is_due(path, at)):
            yield _Item(
                owner=job.owner,
                job=job,
                name=path,
                path=f"{root}/{path}",
                sha256=row.sha256,
                listed=row,
            )


def _is_due(name: str, at: VerifyPlace) -> bool:
    return name >= at.after if at.offset else name > at.after


def _output_row(item: _Item, stat: Stat | None) -> DamagedRow:
    assert item.job is not None
    return DamagedRow(
        kind="output",
        user_id=item.owner,
        sha256=item.sha256,
        size=stat.size if stat else 0,
        paths=[item.name],
        jobs=[item.job.id],
        snapshots=[],
        aside="",
    )


def _set_aside(
    deps: Deps, item: _Item, seen: Stat | None, note: Callable[[Tx, DamagedRow], None]
) -> DamagedRow | None:
    """Take a content out of use; None when it has been replaced since it was read.

    First it is written down and no new job may refer to it, then it goes: after a crash in between
    it is found again. An upload of its owner waits for that.
    """
    owner, sha256, store = item.owner, item.sha256, deps.store
    path = blob_path(owner, sha256)
    aside = f"{job_files.aside_root(owner)}/{sha256}.{deps.clock():{_WHEN}}"
    if not isinstance(store, CanMove):
        # A copy takes a while, for which no upload waits: it is made before, and may be in vain.
        if _is_replaced(deps, item, seen):
            return None
        with store.read(path) as reader:
            store.write(aside, reader)
    with deps.owner_locks.of(owner):
        if _is_replaced(deps, item, seen):
            store.delete(aside)  # what lies there is told as damaged
            return None
        row = _submitted_row(deps, item, seen, aside)

        def store_row(tx: Tx) -> None:
            snapshots.take_out_of_use(tx, owner, sha256)
            note(tx, row)

        deps.db.write(store_row)
        if isinstance(store, CanMove):
            store.move(path, aside)
        else:
            store.delete(path)
    return row


def _is_replaced(deps: Deps, item: _Item, seen: Stat | None) -> bool:
    """Whether other bytes than those that were read lie there, or are about to."""
    owner, sha256 = item.owner, item.sha256
    changed = seen is not None and deps.store.stat(blob_path(owner, sha256)) != seen
    return changed or sha256 in unchecked(deps, owner)


def _submitted_row(deps: Deps, item: _Item, seen: Stat | None, aside: str) -> DamagedRow:
    owner, sha256 = item.owner, item.sha256
    named = deps.db.read(lambda tx: snapshots.naming(tx, owner, sha256, LISTED))
    return DamagedRow(
        kind="submitted",
        user_id=owner,
        sha256=sha256,
        size=seen.size if seen else 0,
        paths=_paths(deps, owner, sha256, named),
        jobs=_jobs(deps, owner, named),
        snapshots=named,
        aside=aside,
    )


def _paths(deps: Deps, owner: str, sha256: str, named: list[str]) -> list[str]:
    found: dict[str, None] = {}
    for snapshot_id in named:
        snapshot = deps.db.read(
            partial(snapshots.get_snapshot, owner=owner, snapshot_id=snapshot_id)
        )
        for entry in snapshot.entries if snapshot else ():
            if entry.sha256 == sha256:
                found[shown(entry.path)] = None
    return list(found)[:LISTED]


def _jobs(deps: Deps, owner: str, named: list[str]) -> list[str]:
    found: list[str] = []
    for snapshot_id in named:
        found += deps.db.read(
            partial(snapshots.jobs_of, owner=owner, snapshot_id=snapshot_id, limit=LISTED)
        )
    return found[:LISTED]


def _rest(seconds: float) -> None:
    time.sleep(seconds)
