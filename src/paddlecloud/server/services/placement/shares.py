"""What counts against each user in the order of the queue: in use now, and lately.

Lately changes slowly, so it is asked once a minute and remembered; what is in use is asked every
time. On a private server there is nobody to share with, and only the latter is asked.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from paddlecloud.db.engine.base import Tx
from paddlecloud.db.tables import attempts, usage
from paddlecloud.scheduler.view import weight
from paddlecloud.server.deps import Deps

REMEMBERED = timedelta(minutes=1)


def in_use(deps: Deps, tx: Tx, now: datetime) -> dict[str, float]:
    """CPU-equivalents of each user: what they hold now and what they had on average lately."""
    used = {owner: weight(taken) for owner, taken in attempts.used_by_owner(tx).items()}
    if not deps.settings.team:
        return used
    lately = deps.recent_use.get(now, REMEMBERED, lambda: _lately(deps, tx, now))
    return {owner: used.get(owner, 0.0) + lately.get(owner, 0.0) for owner in used.keys() | lately}


def _lately(deps: Deps, tx: Tx, now: datetime) -> dict[str, float]:
    return usage.recent_use(tx, now, deps.settings.scheduling.share_half_life, weight)
