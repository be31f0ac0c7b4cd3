"""Which waiting job starts where next: `plan(view)` decides, the server acts.

The rule, which `query_job` explains and the tests hold:

1. A job that waited longer than `schedule_timeout` gives up, whatever is free.
2. Order: higher priority first, where a job counts one class higher for every `age_after` that it
   waited, up to the highest; within one priority the user who has the least in use now and lately,
   what this plan already promised included; within one user, and between users with the same, the
   job that came first.
3. A job starts in the first pool of its list in which every replica fits at once and which its
   owner's quota leaves open, or not at all.
4. A job that does not fit lets those behind it pass, until it has waited `reserve_after`. From then
   on the room it needs is kept on certain machines of one pool: those behind it may use what is
   left beside it and no more. What runs there ends some day and nothing takes its place, so the job
   starts. Each pool keeps room for one such job at a time, the first in order.
5. In a pool that allows it, a job that waited `preempt_after` and does not fit takes the place of
   running jobs of lower classes, as few as will do, none of which began within `min_run`. What they
   leave is kept for it. Its own class counts here, not the one that waiting has lent it.
6. A job that pauses before its next attempt (`not_before`) is left out until then.
7. A job is held only if its reason is news. Far back in the queue a reason whose free numbers alone
   have changed is not, so a long queue costs no writes while jobs come and go at its head.

Nothing here asks the time, and the same view gives the same decisions.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from paddlecloud.model.jobs.retry_policy import LONGEST_PAUSE
from paddlecloud.model.jobs.states import JobState
from paddlecloud.scheduler.planner import EXACT_REASONS, Planner
from paddlecloud.scheduler.view import Decision, Hold, View, WaitingJob

__all__ = ["EXACT_REASONS", "pause_holds", "pauses", "plan", "wake_at"]

_PREEMPTIONS = 64


def plan(view: View) -> list[Decision]:
    """What to do with each waiting job; a job that is not named goes on waiting as it does."""
    pausing = [job for job in view.waiting if pauses(job, view.now)]
    if not pausing:
        return Planner.of(view, preemptions=_PREEMPTIONS).decide(view.now)
    ready = replace(view, waiting=tuple(j for j in view.waiting if not pauses(j, view.now)))
    return pause_holds(pausing) + Planner.of(ready, preemptions=_PREEMPTIONS).decide(view.now)


def wake_at(view: View) -> datetime | None:
    """When the next of the jobs that pause may begin; None: none pauses."""
    ends = (job.not_before for job in view.waiting if pauses(job, view.now))
    return min((end for end in ends if end is not None), default=None)


def pauses(job: WaitingJob, now: datetime) -> bool:
    """Whether it pauses. A pause longer than any can be comes from a clock that was set back."""
    return job.not_before is not None and now < job.not_before <= now + LONGEST_PAUSE


def pause_holds(pausing: list[WaitingJob]) -> list[Decision]:
    """What jobs that pause are told, where that is news."""
    return [
        Hold(job_id=job.id, reason=job.pause_reason)
        for job in pausing
        if job.pause_reason is not None
        and (job.state is not JobState.QUEUE or job.held_reason != job.pause_reason)
    ]
