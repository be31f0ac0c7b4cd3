"""What waiting jobs have waited, when the clock is moved under them.

Here alone rows of jobs change without `jobs.save_job`: nobody decided anything about them, so their
versions stay, and whoever saves one at that very moment takes the jump back for that job alone.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from paddlecloud.db.base import Tx
from paddlecloud.db.columns import MICROSECOND, to_micros
from paddlecloud.model.retries import LONGEST_PAUSE

_WAITING = "pool is null and state in ('schedule', 'queue')"
"""As the index has it, word for word."""


def shift(tx: Tx, ahead: timedelta, now: datetime, passed: timedelta) -> int:
    """The clock was moved by so much, forward or back, while `passed` until `now`: nobody waited
    for that time, and no pause ended or grew by it. How many waited then.

    Which times were written before and which after it is told by themselves: those of after lie
    within `passed`, and a pause within the longest that there is. What may be of either stays.
    """
    forward = ahead > timedelta(0)
    before = "waiting_since <= ?" if forward else "(waiting_since < ? or waiting_since > ?)"
    times = (now - ahead,) if forward else (now - passed, now)
    step = ahead // MICROSECOND
    waited = tx.execute(
        "update jobs set waiting_since = waiting_since + ?, quota_since = quota_since + ?"
        f" where {_WAITING} and {before}",
        (step, step, *map(to_micros, times)),
    )
    pauses = "not_before <= ?" if forward else "not_before > ?"
    last = now - passed if forward else now + LONGEST_PAUSE
    tx.execute(
        f"update jobs set not_before = not_before + ? where {_WAITING} and {pauses}",
        (step, to_micros(last)),
    )
    return waited
