"""JSON schemas of the notification routes."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, UnsetType

from paddlecloud.server.schemas.base import Answer, Request


class NotificationsRequest(Request, frozen=True, kw_only=True):
    """Fields that are not set stay as they are."""

    events: (
        Annotated[list[Annotated[str, Meta(max_length=100)]], Meta(max_length=20)] | UnsetType
    ) = UNSET
    mail: bool | UnsetType = UNSET
    webhook: Annotated[str, Meta(max_length=4000)] | UnsetType = UNSET
    """Empty: no webhook any more."""


class NotificationsView(Answer, frozen=True, kw_only=True):
    events: list[str]
    known_events: list[str]
    mail: bool
    email: str
    webhook: str
    webhook_off: str
    """Why the server switched the webhook off, if it did."""


class NotificationsAnswer(Answer, frozen=True, kw_only=True):
    notifications: NotificationsView
    webhook_secret: str | None = None
    """The secret of a new webhook; it is returned only once."""


class Delivery(Answer, frozen=True, kw_only=True):
    kind: str
    ok: bool
    message: str


class NotificationsTest(Answer, frozen=True, kw_only=True):
    deliveries: list[Delivery]
