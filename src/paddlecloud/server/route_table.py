"""The route table: every route of the HTTP interface, in the order of its document."""

from __future__ import annotations

from paddlecloud.server.http.routing import Route
from paddlecloud.server.routes import (
    admin,
    agent,
    agent_outputs,
    data_tasks,
    job_files,
    jobs,
    logs,
    notifications,
    presigned,
    quota,
    snapshots,
    system,
    tokens,
    usage,
)
from paddlecloud.server.routes import exec as routes_exec

ROUTES: tuple[Route, ...] = (
    *jobs.ROUTES,
    *job_files.ROUTES,
    *snapshots.ROUTES,
    *logs.ROUTES,
    *usage.ROUTES,
    *routes_exec.ROUTES,
    *data_tasks.ROUTES,
    *agent.ROUTES,
    *agent_outputs.ROUTES,
    *presigned.ROUTES,
    *notifications.ROUTES,
    *quota.ROUTES,
    *tokens.ROUTES,
    *admin.ROUTES,
    *system.ROUTES,
)
