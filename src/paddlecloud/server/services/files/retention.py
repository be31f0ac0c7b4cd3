"""How long things are kept, and what goes when they are not: never what a live job needs."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial

from paddlecloud.db.engine.base import Tx
from paddlecloud.db.tables import agents, attempts, audit, jobs, snapshots, usage, users
from paddlecloud.db.tables.orders import notify_agents
from paddlecloud.model.errors import Conflict, PaddleCloudError, Retry
from paddlecloud.model.files.layout import output_root
from paddlecloud.model.jobs.job import Job
from paddlecloud.server.deps import Deps
from paddlecloud.server.http.auth import Caller
from paddlecloud.server.services.accounts import quota
from paddlecloud.server.services.accounts.audit import record
from paddlecloud.server.services.exec import output
from paddlecloud.server.services.files import storage_usage
from paddlecloud.server.services.files.job_files import (
    ASIDE_TIME,
    aside_root,
    listings_root,
    user_root,
)
from paddlecloud.server.services.files.referenced_blobs import ReferencedBlobs
from paddlecloud.server.services.files.snapshots import blobs_root
from paddlecloud.server.services.jobs import queries
from paddlecloud.server.services.placement import release
from paddlecloud.server.services.transfer import blobs
from paddlecloud.server.services.transfer.output_uploads import sending_root
from paddlecloud.stores.base import CanSweep, Stat
from paddlecloud.stores.deadline import prompt_if

log = logging.getLogger(__name__)
BATCH = 100
ABANDONED = timedelta(days=1)
"""No upload stands still for this long: what it left behind is nobody's."""
SILENT_AGENTS = timedelta(days=1)
"""A machine that was not heard of for this long, and runs nothing, has left for good."""
HELD = 0.1
"""Seconds for which the uploads of an owner wait at once."""
PAUSE = 0.06
"""Seconds in between: whoever waits for the lock of several servers looks every 50 ms."""
HEARD_WITHIN = 3.0
"""Seconds in which an agent that is there asks for its orders, once it is woken."""
KEEP_USAGE = timedelta(days=400)
"""Who ran when is kept for more than a year, longer than the jobs themselves."""
AUDIT_BATCH = 500
"""Rows in one transaction: others wait for it."""


@dataclass(frozen=True, kw_only=True)
class Collected:
    jobs: int = 0
    bytes: int = 0


def collect(deps: Deps) -> Collected:
    """Delete finished jobs and unused files past their time; files before the rows naming them."""
    now = deps.clock()
    deps.db.write(lambda tx: agents.forget_silent(tx, now - SILENT_AGENTS), durable=False)
    _forget_audit(deps, now)
    finished = _finished_jobs(deps)
    unused = _unused_files(deps)
    if isinstance(deps.store, CanSweep):
        try:
            deps.store.sweep(now - ABANDONED)
        except (PaddleCloudError, OSError) as error:
            log.warning("uploads that nobody ended are left for the next time: %s", error)
    return Collected(jobs=finished.jobs, bytes=finished.bytes + unused)


def delete(deps: Deps, caller: Caller, job_id: str) -> int:
    """Forget a job that has ended, with its outputs and logs; how many bytes that freed.

    The files go first: after a crash in between the job is still there to be deleted. The submitted
    ones go in their time, when no other job has them. What lies in a user's own bucket stays.
    """
    job = queries.get(deps, caller, job_id)
    if not job.final:
        raise Conflict("job_not_over", job_id=job.id, state=job.state)
    if _is_held(deps, job):
        release.release_ended(deps)
        if _is_held(deps, job):
            raise Retry("job_is_held", job_id=job.id)
    now, facts = deps.clock(), {"owner": job.owner, "state": job.state.value}
    deps.db.write(lambda tx: record(tx, caller, now, "job.delete", job.id, facts))
    _await_agents(deps, job)
    return _delete_job(deps, job)


def _is_held(deps: Deps, job: Job) -> bool:
    return deps.db.read(lambda tx: attempts.is_held(tx, job.id))


def _await_agents(deps: Deps, job: Job) -> None:
    """Until those who keep something of a job have heard that they may forget it, if they are there
    to hear it; what others keep goes when they, or a server, next start."""
    orders = deps.db.write(lambda tx: notify_agents(tx, job.id))
    until = time.monotonic() + HEARD_WITHIN
    for node, order in orders.items():
        while time.monotonic() < until:
            cursor = deps.caches.order_cursors.get(node)
            if cursor is None or cursor >= order:
                break
            _pause()


def _forget_audit(deps: Deps, now: datetime) -> None:
    kept = deps.settings.retention.audit
    forget = partial(audit.delete_old, before=now - kept, limit=AUDIT_BATCH)
    while kept and deps.db.write(forget, durable=False):
        pass


def _finished_jobs(deps: Deps) -> Collected:
    """A job that cannot be deleted is left for the next time; the others go."""
    before = deps.clock() - deps.settings.retention.finished_jobs
    failed: set[str] = set()
    count = freed = 0
    while True:
        most = BATCH + len(failed)
        found = deps.db.read(partial(jobs.finished_before, when=before, limit=most))
        old = [job for job in found if job.id not in failed]
        for job in old:
            try:
                freed += _delete_job(deps, job)
                count += 1
            except (PaddleCloudError, OSError) as error:
                log.warning("job %s could not be deleted: %s", job.id, error)
                failed.add(job.id)
        if not old:
            return Collected(jobs=count, bytes=freed)


def _delete_job(deps: Deps, job: Job) -> int:
    root = f"{user_root(job.owner)}/{output_root(job.id)}"
    beside = output.root_of(job.owner, job.id)
    freed = deps.store.delete_tree(root) + deps.store.delete_tree(beside)
    freed += deps.store.delete_tree(listings_root(job.owner, job.id))
    freed += deps.store.delete_tree(sending_root(job.owner, job.id))
    deps.logs.close_deleted(root)
    deps.logs.close_deleted(beside)
    deps.db.write(partial(jobs.delete_job, job_id=job.id))
    return freed


def _unused_files(deps: Deps) -> int:
    """Snapshots that no job names any more, then the contents that no snapshot names.

    Those are looked for with every owner: an upload that never came to its snapshot leaves some.
    """
    now = deps.clock()
    before = now - deps.settings.retention.unused_files
    unused = deps.db.read(lambda tx: snapshots.unused_snapshots(tx, before))
    for owner, snapshot_id in unused:
        deps.db.write(partial(_delete_snapshot, owner, snapshot_id, before))
    owners = deps.db.read(users.user_ids)
    deps.db.write(lambda tx: usage.delete_old(tx, owners, now - KEEP_USAGE), durable=False)
    return sum(_unused_of(deps, owner, before) for owner in owners)


def _unused_of(deps: Deps, owner: str, before: datetime) -> int:
    """An owner whose files cannot be listed or deleted is left for the next time; others are not,
    unless the store answers nobody."""
    try:
        freed = _damaged(deps, owner, before) + _left_of_uploads(deps, owner)
        return freed + _unnamed_contents(deps, owner, before)
    except (PaddleCloudError, OSError) as error:
        if isinstance(error, PaddleCloudError) and error.code in storage_usage.OF_ALL:
            raise
        log.warning("files of %s that nobody needs could not be deleted: %s", owner, error)
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


def _delete_snapshot(owner: str, snapshot_id: str, before: datetime, tx: Tx) -> None:
    snapshots.delete_snapshot(tx, owner, snapshot_id, before)


def _left_of_uploads(deps: Deps, owner: str) -> int:
    """Records of outputs on their way, of jobs that are gone: an older server on this database that
    deletes a job knows nothing of them."""
    above = sending_root(owner, "")
    found = {stat.path[len(above) :].partition("/")[0] for stat in deps.store.list(above)}
    gone = found - deps.db.read(lambda tx: jobs.versions(tx, found)).keys()
    return sum(deps.store.delete_tree(sending_root(owner, job_id)) for job_id in gone)


def _unnamed_contents(deps: Deps, owner: str, before: datetime) -> int:
    abandoned = blobs.drop_abandoned(deps, owner, deps.clock() - ABANDONED)
    # Before they are listed: what comes meanwhile is counted twice until the next time, or, if it
    # was counted when it had only begun to come, not at all until then.
    counted = deps.db.read(lambda tx: usage.files_bytes(tx, owner))
    found = list(deps.store.list(blobs_root(owner) + "/"))
    freed = _delete_unnamed(deps, owner, [stat for stat in found if stat.modified < before])
    left = sum(stat.size for stat in found) - freed
    if quota.binding(deps) and deps.db.read(lambda tx: usage.outputs_differ(tx, owner)):
        deps.db.write(partial(usage.recount_outputs, owner=owner), durable=False)
    if quota.binding(deps) and counted != left:
        recount = partial(usage.recount_files, owner=owner, size=left, instead_of=counted)
        deps.db.write(recount, durable=False)
    return abandoned + freed


def _delete_unnamed(deps: Deps, owner: str, old: list[Stat]) -> int:
    """Delete what no snapshot names, a little at a time; how many bytes that freed.

    Nobody may name a content while it goes, so an owner's uploads wait for this, also if the store
    is silent. In each pause one gets its turn, and then it is asked anew what is named.
    """
    if not old:
        return 0
    named = deps.caches.referenced_blobs.pop(owner) or ReferencedBlobs(owner)
    named.refresh(deps.db)
    doomed = [stat for stat in reversed(old) if _digest(stat) not in named]
    freed = 0
    while doomed:
        with prompt_if(True), deps.owner_locks.of(owner):
            named.refresh(deps.db)
            until = time.monotonic() + HELD
            while doomed:
                stat = doomed.pop()
                if _digest(stat) not in named:
                    deps.store.delete(stat.path)
                    freed += stat.size
                if time.monotonic() >= until:
                    break
        if doomed:
            _pause()
    deps.caches.referenced_blobs.put(owner, named)
    return freed


def _digest(stat: Stat) -> str:
    return stat.path.rpartition("/")[2]


def _pause() -> None:
    time.sleep(PAUSE)
