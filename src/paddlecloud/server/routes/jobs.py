"""Jobs: submit, list, look (also waiting for a change), kill, history."""

from __future__ import annotations

import time

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from paddlecloud.server.deps import Deps
from paddlecloud.server.http import Call, Route
from paddlecloud.server.services import jobs, views
from paddlecloud.server.shapes import (
    HistoryAnswer,
    JobQuery,
    JobsAnswer,
    JobsQuery,
    JobView,
    SubmitAnswer,
    SubmitRequest,
)


def submit(deps: Deps, call: Call) -> SubmitAnswer:
    job, notes = jobs.submit(deps, call.caller.user_id, call.body)
    return SubmitAnswer(
        job=views.view(deps, job, call.lang, position=False),
        notes=[views.say(note, call.lang) for note in notes],
    )


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
    with deps.hub.waiter(("job", job_id)) as waiter:
        while True:
            job = await run_in_threadpool(jobs.get, deps, call.caller.user_id, job_id)
            left = deadline - time.monotonic()
            if job.version > query.version or job.final or left <= 0 or deps.hub.closed:
                return await run_in_threadpool(views.view, deps, job, call.lang)
            await waiter.wait(min(left, 5.0))


def kill(deps: Deps, call: Call) -> JobView:
    job = jobs.kill(deps, call.caller.user_id, call.path["job_id"])
    return views.view(deps, job, call.lang)


def history(deps: Deps, call: Call) -> HistoryAnswer:
    rows = jobs.history(deps, call.caller.user_id, call.path["job_id"])
    return HistoryAnswer(history=[views.event(row, call.lang) for row in rows])


ROUTES = (
    Route(
        method="POST",
        path="/api/v1/jobs",
        summary="Submit a job",
        plain=submit,
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
