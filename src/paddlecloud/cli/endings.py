"""Tells how a job ended, or why it has not begun: its state, why, and what to do about it. Says it
on stderr only."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddlecloud.cli.render import Output
    from paddlecloud.client.sdk import Job

WAITING = ("submit", "schedule", "queue")


def tell_waiting(job: Job, out: Output) -> bool:
    """Whether the job waits for its turn, which is told with the reason if there is one."""
    if job.state not in WAITING:
        return False
    reason = job.view.get("queue_reason")
    code = "job_waits_why" if reason else "job_waits"
    out.say(code, job_id=job.id, state=out.told_state(job.state), reason=reason)
    return True


def tell_end(job: Job, out: Output, seen: str = "") -> None:
    """One line, and for a failure the advice and the last lines of the worker that broke first,
    unless that is the worker whose whole log was just `seen`."""
    state = out.told_state(job.state)
    failure = job.view.get("failure")
    if not failure:
        out.say("ended", job_id=job.id, state=state)
        if job.state == "success":
            out.say("results", job_id=job.id)
        return
    out.say("ended_why", job_id=job.id, state=state, message=failure["message"])
    if failure["advice"]:
        out.tell(failure["advice"])
    if failure["last_lines"] and failure["worker"] != seen:
        out.say("last_lines", worker=failure["worker"])
        for line in failure["last_lines"]:
            out.tell(f"  {line}")
