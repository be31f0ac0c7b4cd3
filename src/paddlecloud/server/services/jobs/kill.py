"""Kills a job: asks its replicas to stop. Its state is `killed` when their processes have ended."""

from __future__ import annotations

from paddlecloud.db.engine.base import Tx
from paddlecloud.db.tables import audit, jobs
from paddlecloud.model.errors import Conflict
from paddlecloud.model.jobs.job import ExitCause, Job
from paddlecloud.model.jobs.states import Event, JobState
from paddlecloud.server.deps import Deps
from paddlecloud.server.http.auth import Caller
from paddlecloud.server.services.jobs import views
from paddlecloud.server.services.jobs.queries import get_visible
from paddlecloud.server.services.jobs.settle import settle, stop_replicas


def kill(deps: Deps, caller: Caller, job_id: str, lang: str = "en") -> Job:
    """Ask for the end of a job. It is `killed` when none of its processes runs any more.

    Idempotent: a job that is killed, or being killed, stays as it is.
    """
    now = deps.clock()

    def ask(tx: Tx) -> Job:
        job = get_visible(tx, caller, job_id)
        if job.state in (JobState.KILLING, JobState.KILLED):
            return job
        if job.final:
            raise _ended(job, lang)
        if job.owner != caller.user_id:
            detail = {"owner": job.owner, "state": job.state.value}
            by = {"actor": caller.user_id, "source": caller.source}
            audit.record(tx, at=now, **by, action="job.kill", target=job.id, detail=detail)
        job = jobs.advance(tx, job, Event.KILL_ASKED, now=now, sure=True)
        if job.pool is not None:
            stop_replicas(tx, deps, job, ExitCause.STOPPED)
        return settle(tx, deps, job, now=now)

    return deps.db.write(ask)


def _ended(job: Job, lang: str) -> Conflict:
    """The refusal of a kill, with how the job ended in the language of the caller."""
    about = {"job_id": job.id, "state": job.state.value}
    if job.failure is None:
        return Conflict("job_is_final", **about)
    reason = " ".join(views.say(job.failure.reason, lang).split())
    return Conflict("job_is_final_why", **about, reason=reason)
