"""The route table: every route of the HTTP interface, in the order of its document."""

from __future__ import annotations

from paddlecloud.server.http.routing import Route
from paddlecloud.server.routes import (
    admin,
    agent,
    agent_outputs,
    client_files,
    data_tasks,
    job_files,
    jobs,
    logs,
    machines,
    notifications,
    presigned,
    quota,
    secrets,
    snapshots,
    system,
    tokens,
    tunnels,
    usage,
)
from paddlecloud.server.routes import exec as routes_exec

_MODULES = (
    jobs,
    job_files,
    snapshots,
    logs,
    usage,
    routes_exec,
    tunnels,
    data_tasks,
    agent,
    agent_outputs,
    presigned,
    notifications,
    quota,
    tokens,
    secrets,
    admin,
    machines,
    system,
    client_files,
)
ROUTES: tuple[Route, ...] = tuple(route for module in _MODULES for route in module.router.routes)
