"""Routes for admins: users, their keys and jobs, pools, audit log, housekeeping."""

from __future__ import annotations

from datetime import UTC, datetime

from paddlecloud.server.deps import Deps
from paddlecloud.server.http.routing import Call, Route
from paddlecloud.server.routes.tokens import new_token
from paddlecloud.server.schemas.accounts import (
    AdminJobsAnswer,
    AdminJobsQuery,
    AdminTokensQuery,
    AuditAnswer,
    AuditQuery,
    DeletedAnswer,
    NewToken,
    PoolsAnswer,
    TokenRequest,
    TokensAnswer,
    TokenView,
    UserChange,
    UserRequest,
    UsersAnswer,
    UsersQuery,
    UserView,
)
from paddlecloud.server.schemas.system import GcAnswer
from paddlecloud.server.services.accounts import audit, tokens, users
from paddlecloud.server.services.admin import overview
from paddlecloud.server.services.files import retention
from paddlecloud.server.services.jobs import queries


def user_list(deps: Deps, call: Call) -> UsersAnswer:
    query: UsersQuery = call.query
    found = users.listed(deps, query.after, query.limit)
    full = len(found) == query.limit
    return UsersAnswer(users=found, next=found[-1].user_id if full else None)


def user_create(deps: Deps, call: Call) -> UserView:
    return users.create(deps, call.caller, call.body)


def user_show(deps: Deps, call: Call) -> UserView:
    return users.get(deps, call.path["user_id"])


def user_set(deps: Deps, call: Call) -> UserView:
    return users.change(deps, call.caller, call.path["user_id"], call.body)


def user_delete(deps: Deps, call: Call) -> DeletedAnswer:
    users.delete(deps, call.caller, call.path["user_id"])
    return DeletedAnswer(user_id=call.path["user_id"])


def token_list(deps: Deps, call: Call) -> TokensAnswer:
    query: AdminTokensQuery = call.query
    return TokensAnswer(tokens=tokens.list_tokens(deps, query.user, revoked=bool(query.revoked)))


def token_create(deps: Deps, call: Call) -> NewToken:
    return new_token(tokens.create_token(deps, call.caller, call.path["user_id"], call.body))


def token_revoke(deps: Deps, call: Call) -> TokenView:
    return tokens.revoke(deps, call.caller, call.path["ak"], None)


def job_list(deps: Deps, call: Call) -> AdminJobsAnswer:
    query: AdminJobsQuery = call.query
    found = queries.list_jobs(deps, query.owner, query)
    return AdminJobsAnswer(
        jobs=[overview.job_row(deps, job, call.lang) for job in found],
        next=found[-1].number if len(found) == query.limit else None,
    )


def pool_list(deps: Deps, call: Call) -> PoolsAnswer:
    return PoolsAnswer(pools=overview.pools(deps, call.lang))


def audit_log(deps: Deps, call: Call) -> AuditAnswer:
    query: AuditQuery = call.query
    since = None if query.since is None else datetime.fromtimestamp(query.since, UTC)
    found = audit.list_events(deps, query, since)
    return AuditAnswer(events=found, next=found[-1].number if len(found) == query.limit else None)


def gc(deps: Deps, call: Call) -> GcAnswer:
    found = retention.collect(deps)
    counts = {"jobs": found.jobs, "bytes": found.bytes}
    now = deps.clock()
    deps.db.write(lambda tx: audit.record(tx, call.caller, now, "server.gc", "", counts))
    return GcAnswer(**counts)


_USERS = "/api/v1/admin/users"

ROUTES = (
    Route(
        method="GET",
        path=_USERS,
        summary="All users",
        plain=user_list,
        admin=True,
        query=UsersQuery,
        answer=UsersAnswer,
    ),
    Route(
        method="POST",
        path=_USERS,
        summary="Create a user",
        plain=user_create,
        admin=True,
        body=UserRequest,
        answer=UserView,
    ),
    Route(
        method="GET",
        path=_USERS + "/{user_id}",
        summary="One user",
        plain=user_show,
        admin=True,
        answer=UserView,
    ),
    Route(
        method="POST",
        path=_USERS + "/{user_id}",
        summary="Change a user: role, plan, address, language, disabled",
        plain=user_set,
        admin=True,
        body=UserChange,
        answer=UserView,
    ),
    Route(
        method="POST",
        path=_USERS + "/{user_id}/delete",
        summary="Delete a user without jobs and files",
        plain=user_delete,
        admin=True,
        long=True,
        answer=DeletedAnswer,
    ),
    Route(
        method="POST",
        path=_USERS + "/{user_id}/tokens",
        summary="Make keys for a user; the secret is shown this once",
        plain=token_create,
        admin=True,
        body=TokenRequest,
        answer=NewToken,
    ),
    Route(
        method="GET",
        path="/api/v1/admin/tokens",
        summary="Keys of all users, without their secrets",
        plain=token_list,
        admin=True,
        query=AdminTokensQuery,
        answer=TokensAnswer,
    ),
    Route(
        method="POST",
        path="/api/v1/admin/tokens/{ak}/revoke",
        summary="Revoke a key of any user",
        plain=token_revoke,
        admin=True,
        answer=TokenView,
    ),
    Route(
        method="GET",
        path="/api/v1/admin/jobs",
        summary="Jobs of all users, newest first",
        plain=job_list,
        admin=True,
        query=AdminJobsQuery,
        answer=AdminJobsAnswer,
    ),
    Route(
        method="GET",
        path="/api/v1/admin/pools",
        summary="Pools and their machines",
        plain=pool_list,
        admin=True,
        answer=PoolsAnswer,
    ),
    Route(
        method="GET",
        path="/api/v1/admin/audit",
        summary="Who changed what, newest first",
        plain=audit_log,
        admin=True,
        query=AuditQuery,
        answer=AuditAnswer,
    ),
    Route(
        method="POST",
        path="/api/v1/admin/gc",
        summary="Delete what is past its time",
        plain=gc,
        admin=True,
        long=True,
        answer=GcAnswer,
    ),
)
