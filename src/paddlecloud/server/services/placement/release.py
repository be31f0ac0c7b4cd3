"""Ends what is over: lost replicas, ended attempts, and leftovers in backends."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial

from paddlecloud.backends.base import NAME, Backend, CanReap, Handle, attempt_name
from paddlecloud.db.engine.base import Tx
from paddlecloud.db.tables import attempts, jobs
from paddlecloud.db.tables.orders import Want, set_order
from paddlecloud.model.errors import PaddleCloudError
from paddlecloud.model.jobs.job import Attempt, ExitCause, Replica, ReplicaState
from paddlecloud.server.deps import Deps
from paddlecloud.server.services.accounts import quota
from paddlecloud.server.services.files import job_files, storage_usage

log = logging.getLogger(__name__)
MAX_RELEASED = 256
"""Ended attempts that are released at once: each batch costs one wait for the disk."""
MAX_FAILURES = 8
"""After so many failures a pool is not tried again in this round."""


def lose(tx: Tx, attempt: Attempt, replicas: Sequence[Replica]) -> None:
    """Count these replicas as lost, and order their end in case they still run.

    Their agent may have received the order to run and be out of contact; when it is back it ends
    them and reports that, and only then it is ordered to delete them.
    """
    for replica in replicas:
        attempts.update_replica(tx, replace(replica, state=ReplicaState.LOST))
    set_order(
        tx,
        attempt.job_id,
        attempt.number,
        Want.STOP,
        cause=ExitCause.STOPPED,
        only={replica.id for replica in replicas},
    )


def handle_of(backend: Backend, attempt: Attempt) -> Handle:
    """The handle by which a backend finds an attempt; rows of earlier versions may have none."""
    return backend.handle(attempt) if attempt.handle is None else attempt.handle


def release_ended(deps: Deps) -> int:
    """Release attempts that are over; returns how many. Until then their agents keep every byte.

    An agent may delete a replica only when its log and outputs are durable here. That costs a wait
    for the disk, so it is done for many at once, after their jobs have ended. A pool whose attempts
    cannot be released does not delay other pools.
    """
    released, failed = 0, Counter[str]()
    while True:
        stuck = tuple(failed)
        ended = deps.db.read(partial(attempts.ended_attempts, limit=MAX_RELEASED, without=stuck))
        stopped = []
        for attempt in ended:
            if failed[attempt.pool] < MAX_FAILURES and _stop(deps, attempt):
                stopped.append(attempt)
            else:
                failed[attempt.pool] += 1
        if stopped:
            _release(deps, stopped)
        released += len(stopped)
        if len(ended) < MAX_RELEASED:
            return released


def _release(deps: Deps, stopped: Sequence[Attempt]) -> None:
    _flush(deps, stopped)
    to_count = quota.binding(deps)

    def write(tx: Tx) -> None:
        attempts.release(tx, stopped, to_count=to_count)
        if to_count:
            tx.notify(storage_usage.CHANNEL, "")

    deps.db.write(write)


def _stop(deps: Deps, attempt: Attempt) -> bool:
    """Stop what the backend started for this attempt; False if it has to be tried again."""
    backend = deps.backends.get(attempt.pool)
    if backend is None:
        if all(pool.name != attempt.pool for pool in deps.settings.pool_list):
            # The pool left the settings after the attempt had ended.
            log.warning(
                "pool %s is not in the settings any more: what it started for %s was not stopped, "
                "and is called %s there",
                attempt.pool,
                attempt.job_id,
                attempt_name(attempt.job_id, attempt.number),
            )
        return True
    try:
        backend.stop(handle_of(backend, attempt), timedelta(0))
    except (PaddleCloudError, OSError) as error:
        log.warning("pool %s cannot stop %s yet: %s", attempt.pool, attempt.job_id, error)
        return False
    return True


def reap(deps: Deps) -> int:
    """Stop what backends still have and no row mentions; returns how many."""
    reaped = 0
    for pool, backend in deps.backends.items():
        if not isinstance(backend, CanReap):
            continue
        try:
            # Listed first: whatever exists by then has had a row.
            found = {handle.get(NAME, ""): handle for handle in backend.existing()}
            for attempt in deps.db.read(attempts.unreleased) if found else ():
                found.pop(attempt_name(*attempt), None)
        except (PaddleCloudError, OSError) as error:
            log.warning("pool %s cannot list what it has: %s", pool, error)
            continue
        for name, handle in found.items():
            log.warning("pool %s still has %s, which is over: stopping it", pool, name)
            try:
                backend.stop(handle, timedelta(0))
                reaped += 1
            except (PaddleCloudError, OSError) as error:
                log.warning("pool %s cannot stop %s now: %s", pool, name, error)
    return reaped


def _flush(deps: Deps, ended: Sequence[Attempt]) -> None:
    logged = [a for a in ended if any(replica.log_bytes for replica in a.replicas)]
    known = deps.db.read(lambda tx: {a.job_id: jobs.get_job(tx, a.job_id) for a in logged})
    paths = [
        job_files.log_path(deps, job, replica.worker, attempt.number)
        for attempt in logged
        if (job := known[attempt.job_id]) is not None
        for replica in attempt.replicas
    ]
    if paths:
        deps.logs.flush(paths)
    deps.store.flush()
