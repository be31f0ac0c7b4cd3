"""How long things are kept, and what goes when they are not: never what a live job needs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from paddlecloud.db import coordination, jobs, snapshots
from paddlecloud.db.base import Tx
from paddlecloud.model.paths import output_root
from paddlecloud.server.deps import Deps
from paddlecloud.server.services.files import user_root
from paddlecloud.server.services.snapshots import blobs_root
from paddlecloud.stores.base import CanSweep

BATCH = 100
ABANDONED = timedelta(days=1)
"""No upload lasts this long: what it left behind is nobody's."""


@dataclass(frozen=True, kw_only=True)
class Collected:
    jobs: int = 0
    bytes: int = 0


def collect(deps: Deps) -> Collected:
    """Delete finished jobs and unused files past their time; files before the rows naming them."""
    finished = _finished_jobs(deps)
    unused = _unused_files(deps)
    now = deps.clock()
    deps.db.write(lambda tx: coordination.forget_nonces(tx, now), durable=False)
    if isinstance(deps.store, CanSweep):
        deps.store.sweep(now - ABANDONED)
    return Collected(jobs=finished.jobs, bytes=finished.bytes + unused)


def _finished_jobs(deps: Deps) -> Collected:
    before = deps.clock() - deps.settings.retention.finished_jobs
    count = freed = 0
    while True:
        old = deps.db.read(lambda tx: jobs.finished_before(tx, before, BATCH))
        for job in old:
            freed += _delete_outputs(deps, f"{user_root(job.owner)}/{output_root(job.id)}")
            deps.db.write(partial(_delete_job, job.id))
            count += 1
        if len(old) < BATCH:
            return Collected(jobs=count, bytes=freed)


def _delete_outputs(deps: Deps, root: str) -> int:
    freed = deps.store.delete_tree(root)
    deps.logs.forget(root)
    return freed


def _delete_job(job_id: str, tx: Tx) -> None:
    jobs.delete_job(tx, job_id)


def _unused_files(deps: Deps) -> int:
    """Snapshots that no job names any more, then the contents that no snapshot names."""
    before = deps.clock() - deps.settings.retention.unused_files
    unused = deps.db.read(lambda tx: snapshots.unused_snapshots(tx, before))
    for owner, snapshot_id in unused:
        deps.db.write(partial(_delete_snapshot, owner, snapshot_id, before))
    return sum(_unnamed_contents(deps, owner, before) for owner in {owner for owner, _ in unused})


def _delete_snapshot(owner: str, snapshot_id: str, before: datetime, tx: Tx) -> None:
    snapshots.delete_snapshot(tx, owner, snapshot_id, before)


def _unnamed_contents(deps: Deps, owner: str, before: datetime) -> int:
    freed = 0
    with deps.uploads:
        kept = deps.db.read(lambda tx: snapshots.kept_digests(tx, owner))
        for stat in list(deps.store.list(blobs_root(owner) + "/")):
            if stat.modified < before and stat.path.rpartition("/")[2] not in kept:
                deps.store.delete(stat.path)
                freed += stat.size
    return freed
