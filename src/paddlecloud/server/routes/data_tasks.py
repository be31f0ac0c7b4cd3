"""Data tasks of a job, for its own trainers, who sign with the key of their replica."""

from __future__ import annotations

from paddlecloud.server.deps import Deps
from paddlecloud.server.http.routing import Access, Call, Route
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


def define(deps: Deps, call: Call) -> TasksView:
    return data_tasks.define(deps, call.caller, call.path["job_id"], call.path["name"], call.body)


def show(deps: Deps, call: Call) -> TasksView:
    return data_tasks.show(deps, call.caller, call.path["job_id"], call.path["name"])


def lease(deps: Deps, call: Call) -> LeaseAnswer:
    return data_tasks.lease(deps, call.caller, call.path["job_id"], call.path["name"], call.body)


def renew(deps: Deps, call: Call) -> RenewAnswer:
    return data_tasks.renew(deps, call.caller, call.path["job_id"], call.path["name"], call.body)


def finish(deps: Deps, call: Call) -> TaskDoneAnswer:
    return data_tasks.finish(deps, call.caller, call.path["job_id"], call.path["name"], call.body)


def fail(deps: Deps, call: Call) -> TaskFailedAnswer:
    return data_tasks.fail(deps, call.caller, call.path["job_id"], call.path["name"], call.body)


ROUTES = (
    Route(
        method="POST",
        path=_PATH,
        summary="Define the tasks of a job",
        plain=define,
        access=Access.JOB,
        body=TasksRequest,
        answer=TasksView,
    ),
    Route(
        method="GET",
        path=_PATH,
        summary="Progress of the tasks of a job",
        plain=show,
        access=Access.JOB,
        answer=TasksView,
    ),
    Route(
        method="POST",
        path=f"{_PATH}/lease",
        summary="Lease tasks",
        plain=lease,
        access=Access.JOB,
        body=LeaseRequest,
        answer=LeaseAnswer,
    ),
    Route(
        method="POST",
        path=f"{_PATH}/renew",
        summary="Renew leases",
        plain=renew,
        access=Access.JOB,
        body=RenewRequest,
        answer=RenewAnswer,
    ),
    Route(
        method="POST",
        path=f"{_PATH}/finish",
        summary="Count a task as done",
        plain=finish,
        access=Access.JOB,
        body=TaskDone,
        answer=TaskDoneAnswer,
    ),
    Route(
        method="POST",
        path=f"{_PATH}/fail",
        summary="Give a task back",
        plain=fail,
        access=Access.JOB,
        body=TaskFailed,
        answer=TaskFailedAnswer,
    ),
)
