"""Deletes what is past its time every ten minutes; `paddlecloud admin gc` does it at once."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta

from paddlecloud.server.deps import Deps
from paddlecloud.server.loops.runner import Loop
from paddlecloud.server.services.files import retention
from paddlecloud.server.services.user_buckets import leftovers

log = logging.getLogger(__name__)
LEASE = timedelta(minutes=10)
"""Deleting many files takes its time, and nobody waits for it."""


def tick(deps: Deps, _now: datetime) -> None:
    collected = retention.collect(deps)
    if collected.jobs or collected.bytes:
        log.info("deleted %d old jobs, %d bytes", collected.jobs, collected.bytes)
    dropped = leftovers.prune(deps)
    if dropped:
        log.info("dropped %d uploads that nobody ended", dropped)


LOOP = Loop(name="clean", tick=tick, every=timedelta(minutes=10), lease=LEASE)
