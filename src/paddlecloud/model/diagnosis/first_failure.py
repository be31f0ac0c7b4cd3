"""Finds the replica that caused a failure: the first to fail, ignoring aborts of its peers.

When one rank dies, its peers follow within moments: PaddlePaddle aborts them, its launcher reports
that abort as exit code 250 (and hides the culprit's own code), and the platform stops the rest.
None of these is the cause as long as anything else failed near them. Reports arrive in any order
and the clocks of two machines differ slightly, so the result does not depend on their order.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from paddlecloud.model.jobs.job import Attempt, ExitCause, Replica

NEAR = timedelta(seconds=10)
"""An abort this near to another failure follows from it, or from what both follow from."""
ASKED = frozenset({ExitCause.STOPPED, ExitCause.PREEMPTED})
"""Ordered ends, which are not failures."""
NEVER_RAN = frozenset({ExitCause.START_FAILED, ExitCause.PORT_TAKEN})
_NEVER = datetime.max.replace(tzinfo=UTC)
_SIGABRT = 6
_ABORT_CODES = (128 + _SIGABRT, 256 - _SIGABRT)
"""Exit codes by which a shell and Paddle's launcher report an abort of a child."""


def first_failure(attempt: Attempt) -> Replica | None:
    """The replica that failed first; None: none has failed.

    A stopped replica counts only if nothing else failed, because peers are stopped after the
    culprit; an aborted one only if nothing else failed around that time. A lost replica has no time
    and may have been the first, so an abort beside it is never the cause. A replica that was ended
    together with all (wall time, a hang, preemption) counts from when that started: peers that
    break while it still saves its work follow from it.
    """
    if trainers_ok(attempt):
        return None
    failed = [r for r in attempt.replicas if r.over and (r.exit is None or not r.exit.ok)]
    own = [r for r in failed if r.exit is None or r.exit.cause is not ExitCause.STOPPED]
    real = [replica for replica in own if not _aborted(replica)]
    causes = [replica for replica in own if not (_aborted(replica) and _near(replica, real))]
    return min(
        causes or failed, key=lambda r: (_failed_at(r) or _NEVER, r.role, r.rank), default=None
    )


def trainers_ok(attempt: Attempt) -> bool:
    """Whether every trainer succeeded; pservers no longer matter then."""
    trainers = attempt.trainers
    return bool(trainers) and all(r.exit is not None and r.exit.ok for r in trainers)


def exit_code(replica: Replica) -> int | None:
    """As a shell reports it: 128 + n for signal n."""
    if replica.exit is None:
        return None
    if replica.exit.signal is not None:
        return 128 + replica.exit.signal
    return replica.exit.exit_code


def _aborted(replica: Replica) -> bool:
    record = replica.exit
    if record is None or record.cause is not ExitCause.EXIT:
        return False
    return record.signal == _SIGABRT or record.exit_code in _ABORT_CODES


def _near(aborted: Replica, others: list[Replica]) -> bool:
    at = _failed_at(aborted)
    return any(
        at is None or (then := _failed_at(other)) is None or abs(then - at) <= NEAR
        for other in others
    )


def _failed_at(replica: Replica) -> datetime | None:
    record = replica.exit
    if record is None:
        return None
    asked = None if record.cause is ExitCause.EXIT else record.asked_at
    return asked or record.finished_at
