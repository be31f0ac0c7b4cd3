"""Deletion of an ended job with its outputs and logs, at a request or by garbage collection."""

from __future__ import annotations

import time
from functools import partial

from paddlecloud.db.tables import attempts, jobs
from paddlecloud.db.tables.orders import notify_agents
from paddlecloud.model.errors import Conflict, Retry
from paddlecloud.model.files.layout import output_root
from paddlecloud.model.jobs.job import Job
from paddlecloud.server.deps import Deps
from paddlecloud.server.http.auth import Caller
from paddlecloud.server.services.accounts.audit import record
from paddlecloud.server.services.exec import output
from paddlecloud.server.services.files.job_files import listings_root, user_root
from paddlecloud.server.services.jobs import queries
from paddlecloud.server.services.placement import release
from paddlecloud.server.services.transfer.output_uploads import sending_root

POLL_WITHIN = 3.0
"""Seconds in which a running agent polls for its orders once it is notified."""
PAUSE = 0.06


def delete(deps: Deps, caller: Caller, job_id: str) -> int:
    """Delete a job that has ended, with its outputs and logs; the number of freed bytes.

    The files are deleted first: after a crash in between the job can still be deleted. Submitted
    files are deleted once no other job references them. Files in a user's bucket stay.
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
    return delete_stored(deps, job)


def _is_held(deps: Deps, job: Job) -> bool:
    return deps.db.read(lambda tx: attempts.is_held(tx, job.id))


def _await_agents(deps: Deps, job: Job) -> None:
    """Wait until the running agents that keep files of a job know that they may delete them. Other
    agents learn it when they, or a server, start next."""
    orders = deps.db.write(lambda tx: notify_agents(tx, job.id))
    until = time.monotonic() + POLL_WITHIN
    for node, order in orders.items():
        while time.monotonic() < until:
            cursor = deps.caches.order_cursors.get(node)
            if cursor is None or cursor >= order:
                break
            time.sleep(PAUSE)


def delete_stored(deps: Deps, job: Job) -> int:
    """Delete the files of an ended job, then its row; the number of freed bytes."""
    root = f"{user_root(job.owner)}/{output_root(job.id)}"
    beside = output.root_of(job.owner, job.id)
    freed = deps.store.delete_tree(root) + deps.store.delete_tree(beside)
    freed += deps.store.delete_tree(listings_root(job.owner, job.id))
    freed += deps.store.delete_tree(sending_root(job.owner, job.id))
    deps.logs.close_deleted(root)
    deps.logs.close_deleted(beside)
    deps.db.write(partial(jobs.delete_job, job_id=job.id))
    return freed
