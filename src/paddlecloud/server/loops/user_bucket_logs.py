"""Copies logs to the buckets of jobs that have storage of their own."""

from __future__ import annotations

from datetime import timedelta

from paddlecloud.server.loops.runner import Loop
from paddlecloud.server.services.user_buckets import logs

LEASE = timedelta(minutes=10)
"""A long log takes its time, and nobody waits for it."""

LOOP = Loop(name="private", tick=logs.copy_logs, every=timedelta(seconds=2), lease=LEASE)
