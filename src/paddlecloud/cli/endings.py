"""Tells how a job ended: its state, why, and what to do about it. Says it on stderr only."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddlecloud.cli.render import Output
    from paddlecloud.client.sdk import Job


def tell_end(job: Job, out: Output) -> None:
    """One line, and for a failure the advice and the last lines of the worker that broke first."""
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
    if failure["last_lines"]:
        out.say("last_lines", worker=failure["worker"])
        for line in failure["last_lines"]:
            out.tell(f"  {line}")
