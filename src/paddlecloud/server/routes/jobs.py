"""Jobs: submit, list, query, kill, delete, history, and what they were asked to be."""

from __future__ import annotations

from starlette.requests import Request

from paddlecloud.server.deps import Deps
from paddlecloud.server.http.routing import Call, Router
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
from paddlecloud.server.services.jobs import queries, views
from paddlecloud.server.services.jobs import submit as submit_service
from paddlecloud.server.services.jobs.delete import delete as delete_job
from paddlecloud.server.services.jobs.kill import kill as kill_job

router = Router()


@router.post("/api/v1/jobs", "Submit a job", body=SubmitRequest)
async def submit(deps: Deps, call: Call, _request: Request) -> SubmitAnswer:
    return await submit_service.submit(deps, call.caller.user_id, call.body, call.lang)


@router.post(
    "/api/v1/jobs/validate",
    "Check whether a job would be accepted; nothing is stored",
    body=SubmitRequest,
)
async def validate(deps: Deps, call: Call, _request: Request) -> ValidateAnswer:
    return await submit_service.validate(deps, call.caller.user_id, call.body, call.lang)


@router.get("/api/v1/jobs", "List your jobs, newest first", query=JobsQuery)
def list_jobs(deps: Deps, call: Call) -> JobsAnswer:
    return queries.list_own(deps, call.caller.user_id, call.query, call.lang)


@router.get("/api/v1/jobs/{job_id}", "One job", query=JobQuery)
async def show(deps: Deps, call: Call, _request: Request) -> JobView:
    return await queries.show(deps, call.caller, call.path["job_id"], call.query, call.lang)


@router.post("/api/v1/jobs/{job_id}/kill", "Kill a job")
def kill(deps: Deps, call: Call) -> JobView:
    job = kill_job(deps, call.caller, call.path["job_id"], call.lang)
    return views.view(deps, job, call.lang)


@router.post(
    "/api/v1/jobs/{job_id}/delete",
    "Delete a job that has ended, with its outputs and logs",
    long=True,
)
def delete(deps: Deps, call: Call) -> DeletedJob:
    freed = delete_job(deps, call.caller, call.path["job_id"])
    return DeletedJob(job_id=call.path["job_id"], bytes=freed)


@router.get("/api/v1/jobs/{job_id}/history", "Every change of state")
def history(deps: Deps, call: Call) -> HistoryAnswer:
    return queries.history(deps, call.caller, call.path["job_id"], call.lang)


@router.get("/api/v1/jobs/{job_id}/spec", "What a job was asked to be")
def spec(deps: Deps, call: Call) -> SpecAnswer:
    return queries.spec(deps, call.caller, call.path["job_id"])


@router.get("/api/v1/jobs/{job_id}/snapshot", "The files a job was given")
def submitted_files(deps: Deps, call: Call) -> JobFilesAnswer:
    return queries.submitted_files(deps, call.caller, call.path["job_id"])
