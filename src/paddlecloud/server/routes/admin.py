"""Routes for admins: users, their keys and jobs, pools, audit log, housekeeping."""

from __future__ import annotations

from datetime import UTC, datetime

from paddlecloud.server.deps import Deps
from paddlecloud.server.http.routing import Call, Router
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

_USERS = "/api/v1/admin/users"
router = Router()


@router.get(_USERS, "All users", admin=True, query=UsersQuery)
def user_list(deps: Deps, call: Call) -> UsersAnswer:
    query: UsersQuery = call.query
    found = users.listed(deps, query.after, query.limit)
    full = len(found) == query.limit
    return UsersAnswer(users=found, next=found[-1].user_id if full else None)


@router.post(_USERS, "Create a user", admin=True, body=UserRequest)
def user_create(deps: Deps, call: Call) -> UserView:
    return users.create(deps, call.caller, call.body)


@router.get(_USERS + "/{user_id}", "One user", admin=True)
def user_show(deps: Deps, call: Call) -> UserView:
    return users.get(deps, call.path["user_id"])


@router.post(
    _USERS + "/{user_id}",
    "Change a user: role, plan, address, language, disabled",
    admin=True,
    body=UserChange,
)
def user_set(deps: Deps, call: Call) -> UserView:
    return users.change(deps, call.caller, call.path["user_id"], call.body)


@router.post(
    _USERS + "/{user_id}/delete", "Delete a user without jobs and files", admin=True, long=True
)
def user_delete(deps: Deps, call: Call) -> DeletedAnswer:
    users.delete(deps, call.caller, call.path["user_id"])
    return DeletedAnswer(user_id=call.path["user_id"])


@router.post(
    _USERS + "/{user_id}/tokens",
    "Make keys for a user; the secret is shown this once",
    admin=True,
    body=TokenRequest,
)
def token_create(deps: Deps, call: Call) -> NewToken:
    return new_token(tokens.create_token(deps, call.caller, call.path["user_id"], call.body))


@router.get(
    "/api/v1/admin/tokens",
    "Keys of all users, without their secrets",
    admin=True,
    query=AdminTokensQuery,
)
def token_list(deps: Deps, call: Call) -> TokensAnswer:
    query: AdminTokensQuery = call.query
    return TokensAnswer(tokens=tokens.list_tokens(deps, query.user, revoked=bool(query.revoked)))


@router.post("/api/v1/admin/tokens/{ak}/revoke", "Revoke a key of any user", admin=True)
def token_revoke(deps: Deps, call: Call) -> TokenView:
    return tokens.revoke(deps, call.caller, call.path["ak"], None)


@router.get(
    "/api/v1/admin/jobs", "Jobs of all users, newest first", admin=True, query=AdminJobsQuery
)
def job_list(deps: Deps, call: Call) -> AdminJobsAnswer:
    query: AdminJobsQuery = call.query
    found = queries.list_jobs(deps, query.owner, query)
    return AdminJobsAnswer(
        jobs=[overview.job_row(deps, job, call.lang) for job in found],
        next=found[-1].number if len(found) == query.limit else None,
    )


@router.get("/api/v1/admin/pools", "Pools and their machines", admin=True)
def pool_list(deps: Deps, call: Call) -> PoolsAnswer:
    return PoolsAnswer(pools=overview.pools(deps, call.lang))


@router.get("/api/v1/admin/audit", "Who changed what, newest first", admin=True, query=AuditQuery)
def audit_log(deps: Deps, call: Call) -> AuditAnswer:
    query: AuditQuery = call.query
    since = None if query.since is None else datetime.fromtimestamp(query.since, UTC)
    found = audit.list_events(deps, query, since)
    return AuditAnswer(events=found, next=found[-1].number if len(found) == query.limit else None)


@router.post("/api/v1/admin/gc", "Delete what is past its time", admin=True, long=True)
def gc(deps: Deps, call: Call) -> GcAnswer:
    found = retention.collect(deps)
    counts = {"jobs": found.jobs, "bytes": found.bytes}
    now = deps.clock()
    deps.db.write(lambda tx: audit.record(tx, call.caller, now, "server.gc", "", counts))
    return GcAnswer(**counts)
