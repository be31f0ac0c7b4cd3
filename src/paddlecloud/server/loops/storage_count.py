"""Counts what jobs have stored, when an attempt was let go; a store that is away is asked again."""

from __future__ import annotations

from datetime import timedelta

from paddlecloud.server.loops.runner import Loop
from paddlecloud.server.services.files import storage_usage

LEASE = timedelta(minutes=10)
"""A silent store takes its time, and nobody waits for it."""

LOOP = Loop(
    name="count",
    tick=storage_usage.count,
    every=timedelta(seconds=30),
    bell=storage_usage.BELL,
    lease=LEASE,
)
