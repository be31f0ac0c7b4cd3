"""What each owner used lately, for the fair share: old use counts less and less.

Use is a question to the rows of `usage`, grouped in the database by when it began and ended, so
that a week of short jobs is a few rows. What it is worth now is the scheduler's rule and counted in
`recent_use`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import datetime, timedelta

from paddlecloud.db.base import Tx
from paddlecloud.db.columns import MICROSECOND, to_micros
from paddlecloud.model.job import Resources

LOOK_BACK = 4
"""Half-lives; what is older would count less than a sixteenth."""
_BUCKETS = 24
"""Parts of a half-life within which use is taken together."""


def recent_use(
    tx: Tx, now: datetime, half_life: timedelta, weight: Callable[[Resources], float]
) -> dict[str, float]:
    """What each owner had in use on average, where use of one half-life ago counts half.

    Somebody who had one CPU in use all the time has 1. Who used nothing is absent.
    """
    life, at = half_life // MICROSECOND, to_micros(now)
    bucket = max(1, life // _BUCKETS)
    total: dict[str, float] = {}
    for owner, cpu, memory, gpu, first, last, micros in tx.all(
        f"select owner, cpu, memory, gpu, started_at / {bucket}, ended_at / {bucket},"
        " cast(sum(ended_at - started_at) as bigint) from usage where ended_at > ?"
        f" group by owner, cpu, memory, gpu, started_at / {bucket}, ended_at / {bucket}",
        (at - LOOK_BACK * life,),
    ):
        began, ended = (at - (first + 0.5) * bucket) / life, (at - (last + 0.5) * bucket) / life
        worth = _worth(began, ended) * int(micros) / life
        taken = weight(Resources(cpu=cpu, memory=int(memory), gpu=int(gpu)))
        total[owner] = total.get(owner, 0.0) + taken * worth
    for owner, cpu, memory, gpu, started in tx.all(
        "select owner, cpu, memory, gpu, started_at from usage where ended_at is null"
    ):
        age = max(0, at - started) / life
        taken = weight(Resources(cpu=cpu, memory=int(memory), gpu=int(gpu)))
        total[owner] = total.get(owner, 0.0) + taken * (1 - 0.5**age)
    return total


def _worth(began: float, ended: float) -> float:
    """What a moment of use is worth on average, between two ages counted in half-lives.

    Use without end is worth 1 in all, so that the sum is an average.
    """
    began, ended = max(0.0, began), max(0.0, ended)
    if began - ended < 1e-9:
        return math.log(2) * math.pow(0.5, ended)
    return (math.pow(0.5, ended) - math.pow(0.5, began)) / (began - ended)
