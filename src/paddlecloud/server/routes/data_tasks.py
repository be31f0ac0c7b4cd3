"""Data tasks of a job, for its own trainers, who sign with the key of their replica."""

from __future__ import annotations

from paddlecloud.server.deps import Deps
from paddlecloud.server.http.routing import Access, Call, Router
from paddlecloud.server.schemas.data_tasks import (
    LeaseAnswer,
    LeaseRequest,
    RenewAnswer,
    RenewRequest,
    TaskDone,
    TaskDoneAnswer,
    TaskFailed,
    TaskFailedAnswer,
    TasksRequest,
)
from paddlecloud.server.schemas.jobs import TasksView
from paddlecloud.server.services import data_tasks

_PATH = "/api/v1/jobs/{job_id}/tasks/{name}"
router = Router()


@router.post(_PATH, "Define the tasks of a job", access=Access.JOB, body=TasksRequest)
def define(deps: Deps, call: Call) -> TasksView:
    return data_tasks.define(deps, call.caller, call.path["job_id"], call.path["name"], call.body)


@router.get(_PATH, "Progress of the tasks of a job", access=Access.JOB)
def show(deps: Deps, call: Call) -> TasksView:
    return data_tasks.show(deps, call.caller, call.path["job_id"], call.path["name"])


@router.post(f"{_PATH}/lease", "Lease tasks", access=Access.JOB, body=LeaseRequest)
def lease(deps: Deps, call: Call) -> LeaseAnswer:
    return data_tasks.lease(deps, call.caller, call.path["job_id"], call.path["name"], call.body)


@router.post(f"{_PATH}/renew", "Renew leases", access=Access.JOB, body=RenewRequest)
def renew(deps: Deps, call: Call) -> RenewAnswer:
    return data_tasks.renew(deps, call.caller, call.path["job_id"], call.path["name"], call.body)


@router.post(f"{_PATH}/finish", "Count a task as done", access=Access.JOB, body=TaskDone)
def finish(deps: Deps, call: Call) -> TaskDoneAnswer:
    return data_tasks.finish(deps, call.caller, call.path["job_id"], call.path["name"], call.body)


@router.post(f"{_PATH}/fail", "Give a task back", access=Access.JOB, body=TaskFailed)
def fail(deps: Deps, call: Call) -> TaskFailedAnswer:
    return data_tasks.fail(deps, call.caller, call.path["job_id"], call.path["name"], call.body)
