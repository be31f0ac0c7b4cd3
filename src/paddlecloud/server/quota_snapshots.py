"""How users stood when they were last looked at, so that a submit need not ask before it acts.

Only ever a guess: the statement that stores a job checks every part of it
(`db.tables.job_fast_insert`)."""

from __future__ import annotations

from datetime import datetime, timedelta

from paddlecloud.db.tables.job_fast_insert import Standing

LASTS = timedelta(minutes=1)
BRIEFLY = timedelta(seconds=1)
"""For one that helps nobody: too many live jobs to tell that few wait without counting."""
MOST = 10_000


class Standings:
    """For the event loop alone: nothing here is locked."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[Standing, datetime]] = {}

    def get(self, owner: str, now: datetime) -> Standing | None:
        kept = self._kept.get(owner)
        return kept[0] if kept is not None and kept[1] - LASTS <= now < kept[1] else None

    def keep(self, owner: str, standing: Standing, until: datetime) -> None:
        if len(self._kept) >= MOST:
            self._kept.clear()
        self._kept[owner] = (standing, until)
