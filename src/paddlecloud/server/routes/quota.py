"""Quotas: of the caller, and for admins of every user."""

from __future__ import annotations

from paddlecloud.server.deps import Deps
from paddlecloud.server.http.routing import Call, Router
from paddlecloud.server.schemas.quota import (
    HistoryQuery,
    PlansAnswer,
    QuotaAnswer,
    QuotaChange,
    UsageAnswer,
)
from paddlecloud.server.services.accounts import plans

router = Router()


@router.get("/api/v1/quota", "Your plan and what is used of it")
def own(deps: Deps, call: Call) -> QuotaAnswer:
    return plans.overview(deps, call.caller.user_id)


@router.get("/api/v1/quota/history", "What you ran, day by day", query=HistoryQuery)
def history(deps: Deps, call: Call) -> UsageAnswer:
    return plans.history(deps, call.caller.user_id, call.query.days)


@router.get("/api/v1/admin/plans", "The plans of the settings", admin=True)
def known_plans(deps: Deps, _call: Call) -> PlansAnswer:
    return plans.plans(deps)


@router.get(
    "/api/v1/admin/users/{user_id}/quota", "A user's plan and what is used of it", admin=True
)
def show(deps: Deps, call: Call) -> QuotaAnswer:
    return plans.of_user(deps, call.path["user_id"])


@router.get(
    "/api/v1/admin/users/{user_id}/quota/history",
    "What a user ran, day by day",
    admin=True,
    query=HistoryQuery,
)
def history_of(deps: Deps, call: Call) -> UsageAnswer:
    return plans.history_of_user(deps, call.path["user_id"], call.query.days)


@router.post(
    "/api/v1/admin/users/{user_id}/quota",
    "Change a user's plan or limits",
    admin=True,
    body=QuotaChange,
)
def change(deps: Deps, call: Call) -> QuotaAnswer:
    return plans.change(deps, call.caller, call.path["user_id"], call.body)
