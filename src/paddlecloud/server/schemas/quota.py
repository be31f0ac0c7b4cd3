"""JSON schemas of quotas: what a plan allows, what is used of it, and what was used day by day."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, UnsetType, field

from paddlecloud.server.schemas.base import Answer, Request

Limit = int | float | None
MAX_DAYS = 400


class LimitRow(Answer, frozen=True, kw_only=True):
    """One limit; `limit` null is none, `used` null is what is not counted up (a job's minutes)."""

    name: str
    used: int | float | None
    limit: Limit


class QuotaAnswer(Answer, frozen=True, kw_only=True):
    user_id: str
    plan: str
    own_limits: list[str]
    """Limits of this user that override the plan."""
    max_priority: str
    limits: list[LimitRow]
    minutes_left: float | None
    """Of today; null: no limit."""
    renews: str
    """When the minutes of the day are reset, in the server's time zone."""
    renews_at: str


class HistoryQuery(Request, frozen=True, kw_only=True):
    days: Annotated[int, Meta(ge=1, le=MAX_DAYS)] = 30


class DayRow(Answer, frozen=True, kw_only=True):
    date: str
    minutes: float
    """On public pools: what a plan counts."""
    private_minutes: float
    jobs: int


class UsageAnswer(Answer, frozen=True, kw_only=True):
    user_id: str
    days: list[DayRow]


class PlanRow(Answer, frozen=True, kw_only=True):
    name: str
    default: bool
    limits: dict[str, Limit]
    max_priority: str


class PlansAnswer(Answer, frozen=True, kw_only=True):
    plans: list[PlanRow]


class QuotaChange(Request, frozen=True, kw_only=True):
    """What is not given stays as it is."""

    plan: str | UnsetType | None = UNSET
    """null: the server's default plan."""
    limits: dict[str, int | float | str | None] = field(default_factory=dict)
    """The user's own limits; null or "unlimited" is no limit, "plan" is the limit of the plan."""
