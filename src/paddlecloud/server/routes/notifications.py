"""Notification settings of a user, and a test message."""

from __future__ import annotations

from paddlecloud.server.deps import Deps
from paddlecloud.server.http.routing import Call, Router
from paddlecloud.server.schemas.notifications import (
    NotificationsAnswer,
    NotificationsRequest,
    NotificationsTest,
)
from paddlecloud.server.services.notifications import notify

router = Router()


@router.get("/api/v1/notifications", "What you are told of, and how")
def show(deps: Deps, call: Call) -> NotificationsAnswer:
    return notify.show(deps, call.caller.user_id)


@router.post(
    "/api/v1/notifications",
    "Choose what you are told of, and how",
    long=True,
    body=NotificationsRequest,
)
def choose(deps: Deps, call: Call) -> NotificationsAnswer:
    return notify.choose(deps, call.caller.user_id, call.body)


@router.post("/api/v1/notifications/test", "Send a test by mail and webhook, as chosen", long=True)
def try_out(deps: Deps, call: Call) -> NotificationsTest:
    return notify.test(deps, call.caller.user_id, call.lang)
