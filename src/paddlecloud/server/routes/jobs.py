"""Jobs: submit, list, look (also waiting for a change), kill, delete, history."""

from __future__ import annotations

import time
from collections.abc import Mapping

import msgspec
from starlette.requests import Request

from paddlecloud.model.errors import PaddleCloudError, Refused
from paddlecloud.model.jobs.job import Job, JobSpec, Reason
from paddlecloud.model.jobs.states import JobState
from paddlecloud.server.deps import Deps
from paddlecloud.server.http.executors import in_bucket_thread, in_long_thread, in_thread
from paddlecloud.server.http.routing import Call, Route
from paddlecloud.server.http.token_recheck import Stay
from paddlecloud.server.schemas.jobs import (
    DeletedJob,
    HistoryAnswer,
    JobQuery,
    JobsAnswer,
    JobsQuery,
    JobView,
    SubmitAnswer,
    SubmitRequest,
)
from paddlecloud.server.services.files import retention
from paddlecloud.server.services.jobs import actions, fast_accept, git_diff, views
from paddlecloud.server.services.user_buckets import buckets


async def submit(deps: Deps, call: Call, _request: Request) -> SubmitAnswer:
    """The busiest route: it waits for the database without taking a thread."""
    owner = call.caller.user_id
    notes: list[Reason] = []
    try:
        if call.body.spec.public_bos == 0:
            asked = deps, owner, call.body
            store, notes = await in_bucket_thread(buckets.submission, *asked, whose=owner)
            accepted = deps.gathering.write(store)
        else:
            spec, notes = await deps.gathering.call(actions.admit, deps, owner, call.body)
            accepted = _accepted(deps, owner, call.body, spec)
    except Refused:
        known = await in_thread(actions.repeated, deps, owner, call.body)
        if known is None:
            raise
        job = known
    else:
        job = await accepted
    if call.body.diff:
        # After the job is made: a submit that comes again brings it again.
        unkept = await in_long_thread(git_diff.keep, deps, job, call.body.diff)
        notes = [*notes, *unkept]
    fresh = job.state is JobState.SCHEDULE and job.attempt == 0
    view = (
        views.new(deps, job, call.lang)
        if fresh
        else await in_thread(views.view, deps, job, call.lang)
    )
    return SubmitAnswer(job=view, notes=[views.say(note, call.lang) for note in notes])


async def _accepted(deps: Deps, owner: str, request: SubmitRequest, spec: JobSpec) -> Job:
    """By the short way where it goes; else by the long one, which says why not."""
    quick = fast_accept.quick(deps, owner, request, spec)
    if quick is not None:
        stored = await deps.gathering.write(quick)
        job = stored()
        if job is not None:
            return job
    job = await deps.gathering.write(actions.storing(deps, owner, request, spec))
    await deps.gathering.call(fast_accept.learn, deps, owner)
    return job


def listed(deps: Deps, call: Call) -> JobsAnswer:
    query: JobsQuery = call.query
    found = actions.listed(deps, call.caller.user_id, query)
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
                return await _with_diff(deps, call, found)
            await waiter.wait(min(left, 5.0))


def _newer(deps: Deps, call: Call, stay: Stay, version: int) -> JobView | None:
    """The job if it has moved on since `version`, or can no longer."""
    caller = stay.caller() if call.query.wait else call.caller
    job = actions.get(deps, caller, call.path["job_id"])
    if job.version <= version and not job.final:
        return None
    return views.view(deps, job, call.lang)


async def _with_diff(deps: Deps, call: Call, found: JobView) -> JobView:
    """The job with what its repository differed in, if that is wanted; where the store does not
    give it, with the reason: all else is known without a store."""
    git = found.git
    if git is None or call.query.wait or not call.query.diff:
        return found
    try:
        diff = await in_bucket_thread(git_diff.diff, deps, found) if _differs(git) else ""
    except PaddleCloudError as error:
        git |= {"diff_missing": error.text(call.lang)}
    else:
        git |= {"diff": diff}
    return msgspec.structs.replace(found, git=git)


def _differs(git: Mapping[str, str]) -> bool:
    return git.get("dirty") == "1"


def kill(deps: Deps, call: Call) -> JobView:
    job = actions.kill(deps, call.caller, call.path["job_id"])
    return views.view(deps, job, call.lang)


def delete(deps: Deps, call: Call) -> DeletedJob:
    freed = retention.delete(deps, call.caller, call.path["job_id"])
    return DeletedJob(job_id=call.path["job_id"], bytes=freed)


def history(deps: Deps, call: Call) -> HistoryAnswer:
    rows = actions.history(deps, call.caller, call.path["job_id"])
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
        method="POST",
        path="/api/v1/jobs/{job_id}/delete",
        summary="Forget a job that has ended, with its outputs and logs",
        plain=delete,
        long=True,
        answer=DeletedJob,
    ),
    Route(
        method="GET",
        path="/api/v1/jobs/{job_id}/history",
        summary="Every change of state",
        plain=history,
        answer=HistoryAnswer,
    ),
)
