"""Counts what jobs have stored, when an attempt was let go; a store that is away is asked again."""

from __future__ import annotations

from datetime import timedelta

from paddlecloud.server.loops.runner import Loop
from paddlecloud.server.services import stored

LEASE = timedelta(minutes=10)
"""A silent store takes its time, and nobody waits for it."""

LOOP = Loop(
    name="count", tick=stored.count, every=timedelta(seconds=30), bell=stored.BELL, lease=LEASE
)
