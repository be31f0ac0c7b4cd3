"""Counts the stored bytes of jobs, for the quota of their owners, after each attempt.

Releasing an attempt (`placement.release_ended`) does not wait for it, because a store may not
respond for minutes. What is left to count is recorded with the attempt, so no restart loses it.
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
CHANNEL = "count"
"""Wakes the loop that counts."""
OF_ALL = ("lease_lost", "store_unreachable")
"""Errors that concern every job and every owner."""


def notice_limits(deps: Deps) -> None:
    """At the start of a server. Without limits nothing is counted; the first start with limits
    counts everything that was stored before."""
    counting = quota.binding(deps)
    if deps.db.read(usage.is_counting) != counting:
        deps.db.write(partial(usage.set_counting, counting=counting))


def count(deps: Deps, _now: datetime) -> None:
    """Count for the jobs whose attempts were released. If the files of one cannot be listed, it is
    retried later and the others are counted."""
    ended: dict[str, list[int]] = {}
    for job_id, number in deps.db.read(usage.to_count):
        ended.setdefault(job_id, []).append(number)
    for job_id, numbers in ended.items():
        try:
            _count(deps, job_id, numbers)
        except Exception as error:  # noqa: BLE001 - it concerns this job only
            log.warning("the stored bytes of %s cannot be counted yet: %s", job_id, error)
            if isinstance(error, PaddleCloudError) and error.code in OF_ALL:
                return


def _count(deps: Deps, job_id: str, ended: Collection[int]) -> None:
    job = deps.db.read(partial(jobs.get_job, job_id=job_id))
    if job is None:
        return
    root = f"{user_root(job.owner)}/{output_root(job.id)}/"
    size = sum(stat.size for stat in deps.store.list(root))
    write = partial(usage.set_output_bytes, job_id=job.id, size=size, ended=ended)
    deps.db.write(write, durable=False)  # if it is lost, it is counted again
