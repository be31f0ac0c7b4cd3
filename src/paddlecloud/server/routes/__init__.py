"""HTTP in, one service call, HTTP out. Each module lists its routes; the table is their sum."""

from __future__ import annotations

from paddlecloud.server.http import Route
from paddlecloud.server.routes import (
    accounts,
    admin,
    agents,
    files,
    jobs,
    notifications,
    quota,
    system,
)

ROUTES: tuple[Route, ...] = (
    *jobs.ROUTES,
    *files.ROUTES,
    *agents.ROUTES,
    *notifications.ROUTES,
    *quota.ROUTES,
    *accounts.ROUTES,
    *admin.ROUTES,
    *system.ROUTES,
)
