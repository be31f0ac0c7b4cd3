"""Housekeeping: deletes what is past its retention, counts storage, copies logs to user buckets."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta

from paddlecloud.server.deps import Deps
from paddlecloud.server.loops.runner import Loop
from paddlecloud.server.services.admin import garbage_collection
from paddlecloud.server.services.files import storage_usage
from paddlecloud.server.services.user_buckets import leftovers, logs

log = logging.getLogger(__name__)
LEASE = timedelta(minutes=10)
"""Long: a tick may delete many files or wait for a store that does not answer."""


def tick(deps: Deps, _now: datetime) -> None:
    """Delete what is past its retention; `paddlecloud admin gc` does the same at once."""
    collected = garbage_collection.collect(deps)
    if collected.jobs or collected.bytes:
        log.info("deleted %d old jobs, %d bytes", collected.jobs, collected.bytes)
    dropped = leftovers.prune(deps)
    if dropped:
        log.info("dropped %d abandoned uploads", dropped)


LOOPS = (
    Loop(name="maintenance", tick=tick, every=timedelta(minutes=10), lease=LEASE),
    Loop(
        name="storage_count",
        tick=storage_usage.count,
        every=timedelta(seconds=30),
        channel=storage_usage.CHANNEL,
        lease=LEASE,
    ),
    Loop(name="user_bucket_logs", tick=logs.copy_logs, every=timedelta(seconds=2), lease=LEASE),
)
