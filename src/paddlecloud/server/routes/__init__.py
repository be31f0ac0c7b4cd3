"""HTTP in, one service call, HTTP out. Each module lists its routes; the table is their sum."""

from __future__ import annotations

from paddlecloud.server.http import Route
from paddlecloud.server.routes import (
    accounts,
    addresses,
    admin,
    agents,
    commands,
    files,
    jobs,
    logs,
    notifications,
    outputs,
    quota,
    snapshots,
    specs,
    system,
    tasks,
    usage,
)

ROUTES: tuple[Route, ...] = (
    *jobs.ROUTES,
    *specs.ROUTES,
    *files.ROUTES,
    *snapshots.ROUTES,
    *logs.ROUTES,
    *usage.ROUTES,
    *commands.ROUTES,
    *tasks.ROUTES,
    *agents.ROUTES,
    *outputs.ROUTES,
    *addresses.ROUTES,
    *notifications.ROUTES,
    *quota.ROUTES,
    *accounts.ROUTES,
    *admin.ROUTES,
    *system.ROUTES,
)
