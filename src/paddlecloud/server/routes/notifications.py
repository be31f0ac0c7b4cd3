"""Notification settings of a user, and a test message."""

from __future__ import annotations

from msgspec import UNSET

from paddlecloud.db.tables.notification_prefs import Choice
from paddlecloud.server.deps import Deps
from paddlecloud.server.http.routing import Call, Router
from paddlecloud.server.schemas.notifications import (
    Delivery,
    NotificationsAnswer,
    NotificationsRequest,
    NotificationsTest,
    NotificationsView,
)
from paddlecloud.server.services.notifications import notify

router = Router()


@router.get("/api/v1/notifications", "What you are told of, and how")
def show(deps: Deps, call: Call) -> NotificationsAnswer:
    return NotificationsAnswer(notifications=_view(notify.chosen(deps, call.caller.user_id)))


@router.post(
    "/api/v1/notifications",
    "Choose what you are told of, and how",
    long=True,
    body=NotificationsRequest,
)
def choose(deps: Deps, call: Call) -> NotificationsAnswer:
    asked: NotificationsRequest = call.body
    choice, secret = notify.choose(
        deps,
        call.caller.user_id,
        events=None if asked.events is UNSET else asked.events,
        mail=None if asked.mail is UNSET else asked.mail,
        webhook=None if asked.webhook is UNSET else asked.webhook,
    )
    return NotificationsAnswer(notifications=_view(choice), webhook_secret=secret)


@router.post("/api/v1/notifications/test", "Send a test by mail and webhook, as chosen", long=True)
def try_out(deps: Deps, call: Call) -> NotificationsTest:
    tries = notify.test(deps, call.caller.user_id)
    return NotificationsTest(
        deliveries=[
            Delivery(
                kind=each.kind,
                ok=each.error is None,
                message=each.error.text(call.lang) if each.error else "",
            )
            for each in tries
        ]
    )


def _view(choice: Choice) -> NotificationsView:
    wishes = choice.wishes
    return NotificationsView(
        events=list(wishes.events),
        known_events=list(notify.EVENTS),
        mail=wishes.mail,
        email=choice.email or "",
        webhook=wishes.webhook or "",
        webhook_off=wishes.webhook_off or "",
    )
