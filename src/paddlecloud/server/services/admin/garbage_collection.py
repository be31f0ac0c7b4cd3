"""Garbage collection: finished jobs, unused snapshots and blobs, old audit rows, abandoned uploads.

What a live job needs is never deleted.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial

from paddlecloud.db.tables import agents, audit, jobs, snapshots, usage, users
from paddlecloud.model.errors import PaddleCloudError
from paddlecloud.server.deps import Deps
from paddlecloud.server.http.auth import Caller
from paddlecloud.server.schemas.system import GcAnswer
from paddlecloud.server.services.accounts import quota
from paddlecloud.server.services.accounts.audit import record
from paddlecloud.server.services.files import storage_usage
from paddlecloud.server.services.files.job_files import (
    ASIDE_TIME,
    aside_root,
)
from paddlecloud.server.services.files.referenced_blobs import ReferencedBlobs
from paddlecloud.server.services.files.snapshots import blobs_root
from paddlecloud.server.services.jobs.delete import delete_stored
from paddlecloud.server.services.transfer import blobs
from paddlecloud.server.services.transfer.output_uploads import sending_root
from paddlecloud.stores.base import CanSweep, Stat
from paddlecloud.stores.deadline import prompt_if

log = logging.getLogger(__name__)
BATCH = 100
ABANDONED = timedelta(days=1)
"""An upload without progress for this long is abandoned."""
SILENT_AGENTS = timedelta(days=1)
"""A machine without contact for this long that runs nothing is deleted."""
HELD = 0.1
"""Seconds for which the lock of an owner is held; uploads of that owner wait."""
PAUSE = 0.06
"""Seconds in between: other servers try to get the lock every 50 ms."""
KEEP_USAGE = timedelta(days=400)
"""Usage is kept for more than a year, longer than the jobs themselves."""
AUDIT_BATCH = 500
"""Rows in one transaction: other writes wait for it."""


@dataclass(frozen=True, kw_only=True)
class Collected:
    jobs: int = 0
    bytes: int = 0


def collect(deps: Deps) -> Collected:
    """Delete expired jobs and unused files; files before the rows that reference them."""
    now = deps.clock()
    deps.db.write(lambda tx: agents.delete_silent(tx, now - SILENT_AGENTS), durable=False)
    kept = deps.settings.retention.audit
    delete_batch = partial(audit.delete_old, before=now - kept, limit=AUDIT_BATCH)
    while kept and deps.db.write(delete_batch, durable=False):
        pass
    finished = _finished_jobs(deps)
    unused = _unused_files(deps)
    if isinstance(deps.store, CanSweep):
        try:
            deps.store.sweep(now - ABANDONED)
        except (PaddleCloudError, OSError) as error:
            log.warning("abandoned uploads could not be deleted: %s", error)
    return Collected(jobs=finished.jobs, bytes=finished.bytes + unused)


def collect_for(deps: Deps, caller: Caller) -> GcAnswer:
    """The same at an admin's request, with its row of the audit log."""
    found = collect(deps)
    counts = {"jobs": found.jobs, "bytes": found.bytes}
    now = deps.clock()
    deps.db.write(lambda tx: record(tx, caller, now, "server.gc", "", counts))
    return GcAnswer(**counts)


def _finished_jobs(deps: Deps) -> Collected:
    """A job that cannot be deleted is retried next time; the others are deleted."""
    before = deps.clock() - deps.settings.retention.finished_jobs
    failed: set[str] = set()
    count = freed = 0
    while True:
        limit = BATCH + len(failed)
        found = deps.db.read(partial(jobs.finished_before, when=before, limit=limit))
        old = [job for job in found if job.id not in failed]
        for job in old:
            try:
                freed += delete_stored(deps, job)
                count += 1
            except (PaddleCloudError, OSError) as error:
                log.warning("job %s could not be deleted: %s", job.id, error)
                failed.add(job.id)
        if not old:
            return Collected(jobs=count, bytes=freed)


def _unused_files(deps: Deps) -> int:
    """Delete snapshots that no job references, then blobs that no snapshot references.

    Blobs are checked for every owner: an upload without a snapshot leaves some.
    """
    now = deps.clock()
    before = now - deps.settings.retention.unused_files
    unused = deps.db.read(lambda tx: snapshots.unused_snapshots(tx, before))
    for owner, snapshot_id in unused:
        delete_one = partial(snapshots.delete_snapshot, owner=owner, snapshot_id=snapshot_id)
        deps.db.write(partial(delete_one, before=before))
    owners = deps.db.read(users.user_ids)
    deps.db.write(lambda tx: usage.delete_old(tx, owners, now - KEEP_USAGE), durable=False)
    return sum(_unused_of(deps, owner, before) for owner in owners)


def _unused_of(deps: Deps, owner: str, before: datetime) -> int:
    """An owner whose files cannot be listed or deleted is skipped until next time; an error that
    concerns all owners is raised."""
    try:
        freed = _damaged(deps, owner, before) + _orphaned_records(deps, owner)
        return freed + _unreferenced_blobs(deps, owner, before)
    except (PaddleCloudError, OSError) as error:
        if isinstance(error, PaddleCloudError) and error.code in storage_usage.OF_ALL:
            raise
        log.warning("unused files of %s could not be deleted: %s", owner, error)
        return 0


def _damaged(deps: Deps, owner: str, before: datetime) -> int:
    """Delete damaged blobs that `verify` moved aside before then; files of others stay."""
    freed = 0
    for stat in list(deps.store.list(aside_root(owner) + "/")):
        try:
            moved = datetime.strptime(stat.path.rpartition(".")[2], ASIDE_TIME).replace(tzinfo=UTC)
        except ValueError:
            continue
        if moved < before:
            deps.store.delete(stat.path)
            freed += stat.size
    return freed


def _orphaned_records(deps: Deps, owner: str) -> int:
    """Delete upload records of outputs of deleted jobs: older servers on this database do not
    delete them with the job."""
    above = sending_root(owner, "")
    found = {stat.path[len(above) :].partition("/")[0] for stat in deps.store.list(above)}
    gone = found - deps.db.read(lambda tx: jobs.versions(tx, found)).keys()
    return sum(deps.store.delete_tree(sending_root(owner, job_id)) for job_id in gone)


def _unreferenced_blobs(deps: Deps, owner: str, before: datetime) -> int:
    abandoned = blobs.drop_abandoned(deps, owner, deps.clock() - ABANDONED)
    # Read before the blobs are listed: one that is uploaded in between may be counted twice, or not
    # at all, until the next collection.
    counted = deps.db.read(lambda tx: usage.files_bytes(tx, owner))
    found = list(deps.store.list(blobs_root(owner) + "/"))
    freed = _delete_unreferenced(deps, owner, [stat for stat in found if stat.modified < before])
    left = sum(stat.size for stat in found) - freed
    if quota.binding(deps) and deps.db.read(lambda tx: usage.outputs_differ(tx, owner)):
        deps.db.write(partial(usage.recount_outputs, owner=owner), durable=False)
    if quota.binding(deps) and counted != left:
        recount = partial(usage.recount_files, owner=owner, size=left, instead_of=counted)
        deps.db.write(recount, durable=False)
    return abandoned + freed


def _delete_unreferenced(deps: Deps, owner: str, old: list[Stat]) -> int:
    """Delete blobs that no snapshot references, in short steps; the number of freed bytes.

    The lock of the owner is held for each step, because no snapshot may reference a blob while it
    is deleted; uploads get their turn in the pauses. After a pause the references are read again.
    """
    if not old:
        return 0
    referenced = deps.caches.referenced_blobs.pop(owner) or ReferencedBlobs(owner)
    referenced.refresh(deps.db)
    doomed = [stat for stat in reversed(old) if _digest(stat) not in referenced]
    freed = 0
    while doomed:
        with prompt_if(True), deps.owner_locks.of(owner):
            referenced.refresh(deps.db)
            until = time.monotonic() + HELD
            while doomed:
                stat = doomed.pop()
                if _digest(stat) not in referenced:
                    deps.store.delete(stat.path)
                    freed += stat.size
                if time.monotonic() >= until:
                    break
        if doomed:
            _pause()
    deps.caches.referenced_blobs.put(owner, referenced)
    return freed


def _digest(stat: Stat) -> str:
    return stat.path.rpartition("/")[2]


def _pause() -> None:
    time.sleep(PAUSE)
