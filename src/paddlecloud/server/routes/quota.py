"""Quotas: of the caller, and for admins of every user."""

from __future__ import annotations

from paddlecloud.server.deps import Deps
from paddlecloud.server.http.routing import Call, Route
from paddlecloud.server.schemas.quota import (
    HistoryQuery,
    PlansAnswer,
    QuotaAnswer,
    QuotaChange,
    UsageAnswer,
)
from paddlecloud.server.services.accounts import plans


def own(deps: Deps, call: Call) -> QuotaAnswer:
    return plans.overview(deps, call.caller.user_id)


def history(deps: Deps, call: Call) -> UsageAnswer:
    query: HistoryQuery = call.query
    return plans.history(deps, call.caller.user_id, query.days)


def known_plans(deps: Deps, _call: Call) -> PlansAnswer:
    return plans.plans(deps)


def show(deps: Deps, call: Call) -> QuotaAnswer:
    return plans.of_user(deps, call.path["user_id"])


def history_of(deps: Deps, call: Call) -> UsageAnswer:
    query: HistoryQuery = call.query
    return plans.history_of_user(deps, call.path["user_id"], query.days)


def change(deps: Deps, call: Call) -> QuotaAnswer:
    return plans.change(deps, call.caller, call.path["user_id"], call.body)


ROUTES = (
    Route(
        method="GET",
        path="/api/v1/quota",
        summary="Your plan and what is used of it",
        plain=own,
        answer=QuotaAnswer,
    ),
    Route(
        method="GET",
        path="/api/v1/quota/history",
        summary="What you ran, day by day",
        plain=history,
        query=HistoryQuery,
        answer=UsageAnswer,
    ),
    Route(
        method="GET",
        path="/api/v1/admin/plans",
        summary="The plans of the settings",
        plain=known_plans,
        admin=True,
        answer=PlansAnswer,
    ),
    Route(
        method="GET",
        path="/api/v1/admin/users/{user_id}/quota",
        summary="A user's plan and what is used of it",
        plain=show,
        admin=True,
        answer=QuotaAnswer,
    ),
    Route(
        method="GET",
        path="/api/v1/admin/users/{user_id}/quota/history",
        summary="What a user ran, day by day",
        plain=history_of,
        admin=True,
        query=HistoryQuery,
        answer=UsageAnswer,
    ),
    Route(
        method="POST",
        path="/api/v1/admin/users/{user_id}/quota",
        summary="Change a user's plan or limits",
        plain=change,
        admin=True,
        body=QuotaChange,
        answer=QuotaAnswer,
    ),
)
