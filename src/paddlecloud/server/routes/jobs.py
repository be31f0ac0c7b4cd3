"""Jobs: submit, list, look (also waiting for a change), kill, history."""

from __future__ import annotations

import time

import msgspec
from starlette.requests import Request

from paddlecloud.model.errors import Refused
from paddlecloud.model.job import Job, JobSpec, Reason
from paddlecloud.model.states import JobState
from paddlecloud.server.deps import Deps
from paddlecloud.server.http import Call, Route
from paddlecloud.server.services import accepting, jobs, private, repository, views
from paddlecloud.server.shapes import (
    HistoryAnswer,
    JobQuery,
    JobsAnswer,
    JobsQuery,
    JobView,
    SubmitAnswer,
    SubmitRequest,
)
from paddlecloud.server.staying import Stay
from paddlecloud.server.threads import in_bucket_thread, in_long_thread, in_thread


async def submit(deps: Deps, call: Call, _request: Request) -> SubmitAnswer:
    """The busiest route: it waits for the database without taking a thread."""
    owner = call.caller.user_id
    notes: list[Reason] = []
    try:
        if call.body.spec.public_bos == 0:
            asked = (private.submission, deps, owner, call.body)
            store, notes = await in_bucket_thread(*asked, whose=owner)
            accepted = deps.gathering.write(store)
        else:
            spec, notes = await deps.gathering.call(jobs.admit, deps, owner, call.body)
            accepted = _accepted(deps, owner, call.body, spec)
    except Refused:
        known = await in_thread(jobs.repeated, deps, owner, call.body)
        if known is None:
            raise
        job = known
    else:
        job = await accepted
    if call.body.diff:
        # After the job is made: a submit that comes again brings it again.
        await in_long_thread(repository.keep, deps, job, call.body.diff)
    fresh = job.state is JobState.SCHEDULE and job.attempt == 0
    view = views.new(deps, job, call.lang) if fresh else await in_thread(_view, deps, call, job)
    return SubmitAnswer(job=view, notes=[views.say(note, call.lang) for note in notes])


async def _accepted(deps: Deps, owner: str, request: SubmitRequest, spec: JobSpec) -> Job:
    """By the short way where it goes; else by the long one, which says why not."""
    quick = accepting.quick(deps, owner, request, spec)
    if quick is not None:
        stored = await deps.gathering.write(quick)
        job = stored()
        if job is not None:
            return job
    job = await deps.gathering.write(jobs.storing(deps, owner, request, spec))
    await deps.gathering.call(accepting.learn, deps, owner)
    return job


def _view(deps: Deps, call: Call, job: Job) -> JobView:
    return views.view(deps, job, call.lang)


def listed(deps: Deps, call: Call) -> JobsAnswer:
    query: JobsQuery = call.query
    found = jobs.listed(deps, call.caller.user_id, query)
    return JobsAnswer(
        jobs=[views.row(deps, job, call.lang) for job in found],
        next=found[-1].number if len(found) == query.limit else None,
    )


async def look(deps: Deps, call: Call, _request: Request) -> JobView:
    """Answers at once, or with `wait` when the job's version passes the given one."""
    query: JobQuery = call.query
    job_id = call.path["job_id"]
    deadline = time.monotonic() + query.wait
    stay = Stay(deps, call.caller)
    with stay, deps.hub.waiter(("job", job_id), stay.topic) as waiter:
        while True:
            left = deadline - time.monotonic()
            than = query.version if left > 0 and not deps.hub.closed else -1
            found = await in_thread(_newer, deps, call, stay, than)
            if found is not None:
                return found
            await waiter.wait(min(left, 5.0))


def _newer(deps: Deps, call: Call, stay: Stay, version: int) -> JobView | None:
    """The job if it has moved on since `version`, or can no longer."""
    caller = stay.caller() if call.query.wait else call.caller
    job = jobs.get(deps, caller, call.path["job_id"])
    if job.version <= version and not job.final:
        return None
    found = views.view(deps, job, call.lang)
    if call.query.wait or found.git is None:
        return found
    return msgspec.structs.replace(found, git=found.git | {"diff": repository.diff(deps, job)})


def kill(deps: Deps, call: Call) -> JobView:
    job = jobs.kill(deps, call.caller, call.path["job_id"])
    return views.view(deps, job, call.lang)


def history(deps: Deps, call: Call) -> HistoryAnswer:
    rows = jobs.history(deps, call.caller, call.path["job_id"])
    return HistoryAnswer(history=[views.event(row, call.lang) for row in rows])


ROUTES = (
    Route(
        method="POST",
        path="/api/v1/jobs",
        summary="Submit a job",
        streaming=submit,
        body=SubmitRequest,
        answer=SubmitAnswer,
    ),
    Route(
        method="GET",
        path="/api/v1/jobs",
        summary="List your jobs, newest first",
        plain=listed,
        query=JobsQuery,
        answer=JobsAnswer,
    ),
    Route(
        method="GET",
        path="/api/v1/jobs/{job_id}",
        summary="One job",
        streaming=look,
        query=JobQuery,
        answer=JobView,
    ),
    Route(
        method="POST",
        path="/api/v1/jobs/{job_id}/kill",
        summary="Kill a job",
        plain=kill,
        answer=JobView,
    ),
    Route(
        method="GET",
        path="/api/v1/jobs/{job_id}/history",
        summary="Every change of state",
        plain=history,
        answer=HistoryAnswer,
    ),
)
