"""Jobs: submit, list, query, kill, delete, history, and what they were asked to be."""

from __future__ import annotations

from starlette.requests import Request

from paddlecloud.server.deps import Deps
from paddlecloud.server.http.routing import Call, Route
from paddlecloud.server.schemas.files import JobFilesAnswer
from paddlecloud.server.schemas.jobs import (
    DeletedJob,
    HistoryAnswer,
    JobQuery,
    JobsAnswer,
    JobsQuery,
    JobView,
    SpecAnswer,
    SubmitAnswer,
    SubmitRequest,
    ValidateAnswer,
)
from paddlecloud.server.services.files import retention
from paddlecloud.server.services.jobs import queries, views
from paddlecloud.server.services.jobs import submit as submit_service
from paddlecloud.server.services.jobs.kill import kill as kill_job


async def submit(deps: Deps, call: Call, _request: Request) -> SubmitAnswer:
    return await submit_service.submit(deps, call.caller.user_id, call.body, call.lang)


async def validate(deps: Deps, call: Call, _request: Request) -> ValidateAnswer:
    return await submit_service.validate(deps, call.caller.user_id, call.body, call.lang)


def list_jobs(deps: Deps, call: Call) -> JobsAnswer:
    return queries.list_own(deps, call.caller.user_id, call.query, call.lang)


async def show(deps: Deps, call: Call, _request: Request) -> JobView:
    return await queries.show(deps, call.caller, call.path["job_id"], call.query, call.lang)


def kill(deps: Deps, call: Call) -> JobView:
    job = kill_job(deps, call.caller, call.path["job_id"])
    return views.view(deps, job, call.lang)


def delete(deps: Deps, call: Call) -> DeletedJob:
    freed = retention.delete(deps, call.caller, call.path["job_id"])
    return DeletedJob(job_id=call.path["job_id"], bytes=freed)


def history(deps: Deps, call: Call) -> HistoryAnswer:
    return queries.history(deps, call.caller, call.path["job_id"], call.lang)


def spec(deps: Deps, call: Call) -> SpecAnswer:
    return queries.spec(deps, call.caller, call.path["job_id"])


def submitted_files(deps: Deps, call: Call) -> JobFilesAnswer:
    return queries.submitted_files(deps, call.caller, call.path["job_id"])


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
        method="POST",
        path="/api/v1/jobs/validate",
        summary="Check whether a job would be accepted; nothing is stored",
        streaming=validate,
        body=SubmitRequest,
        answer=ValidateAnswer,
    ),
    Route(
        method="GET",
        path="/api/v1/jobs",
        summary="List your jobs, newest first",
        plain=list_jobs,
        query=JobsQuery,
        answer=JobsAnswer,
    ),
    Route(
        method="GET",
        path="/api/v1/jobs/{job_id}",
        summary="One job",
        streaming=show,
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
        summary="Delete a job that has ended, with its outputs and logs",
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
    Route(
        method="GET",
        path="/api/v1/jobs/{job_id}/spec",
        summary="What a job was asked to be",
        plain=spec,
        answer=SpecAnswer,
    ),
    Route(
        method="GET",
        path="/api/v1/jobs/{job_id}/snapshot",
        summary="The files a job was given",
        plain=submitted_files,
        answer=JobFilesAnswer,
    ),
)
