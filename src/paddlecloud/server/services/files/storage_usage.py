"""Counts what jobs have put into the store, for their owners' quota, after each attempt.

An attempt is let go without it (`placement.release_ended`): a store may be silent for minutes, and
nobody waits for it there. What is left to count is written with the attempt, so no restart loses
it.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from datetime import datetime
from functools import partial

from paddlecloud.db.tables import jobs, usage
from paddlecloud.model.errors import PaddleCloudError
from paddlecloud.model.files.layout import output_root
from paddlecloud.server.deps import Deps
from paddlecloud.server.services.accounts import quota
from paddlecloud.server.services.files.job_files import user_root

log = logging.getLogger(__name__)
BELL = "count"
OF_ALL = ("lease_lost", "store_unreachable")
"""What is true of every job and every owner, not of one."""


def notice_limits(deps: Deps) -> None:
    """At a start. Where nobody has limits nothing is counted; the first start with some has all
    counted that was stored before."""
    counting = quota.binding(deps)
    if deps.db.read(usage.is_counting) != counting:
        deps.db.write(partial(usage.set_counting, counting=counting))


def count(deps: Deps, _now: datetime) -> None:
    """Count for the jobs whose attempts were let go. One whose files cannot be listed has its turn
    again and keeps no other from it."""
    ended: dict[str, list[int]] = {}
    for job_id, number in deps.db.read(usage.to_count):
        ended.setdefault(job_id, []).append(number)
    for job_id, numbers in ended.items():
        try:
            _count(deps, job_id, numbers)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is of this job
            log.warning("what %s has stored cannot be counted yet: %s", job_id, error)
            if isinstance(error, PaddleCloudError) and error.code in OF_ALL:
                return


def _count(deps: Deps, job_id: str, ended: Collection[int]) -> None:
    job = deps.db.read(partial(jobs.get_job, job_id=job_id))
    if job is None:
        return
    root = f"{user_root(job.owner)}/{output_root(job.id)}/"
    size = sum(stat.size for stat in deps.store.list(root))
    write = partial(usage.set_output_bytes, job_id=job.id, size=size, ended=ended)
    deps.db.write(write, durable=False)  # if that is lost, it is counted again
