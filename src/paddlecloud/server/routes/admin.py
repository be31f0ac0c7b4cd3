"""Routes for admins: users, their keys and jobs, pools, audit log, housekeeping."""

from __future__ import annotations

from paddlecloud.server.deps import Deps
from paddlecloud.server.http.routing import Call, Router
from paddlecloud.server.schemas.accounts import (
    AdminJobsAnswer,
    AdminJobsQuery,
    AdminTokensQuery,
    AuditAnswer,
    AuditQuery,
    BearerTokenRequest,
    DeletedAnswer,
    NewBearerToken,
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
from paddlecloud.server.services.admin import garbage_collection, overview

_USERS = "/api/v1/admin/users"
router = Router()


@router.get(_USERS, "All users", admin=True, query=UsersQuery)
def user_list(deps: Deps, call: Call) -> UsersAnswer:
    return users.list_users(deps, call.query)


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
    return users.delete(deps, call.caller, call.path["user_id"])


@router.post(
    _USERS + "/{user_id}/tokens",
    "Make keys for a user; the secret is shown this once",
    admin=True,
    body=TokenRequest,
)
def token_create(deps: Deps, call: Call) -> NewToken:
    return tokens.create_token(deps, call.caller, call.path["user_id"], call.body)


@router.get(
    "/api/v1/admin/tokens",
    "Keys of all users, without their secrets",
    admin=True,
    query=AdminTokensQuery,
)
def token_list(deps: Deps, call: Call) -> TokensAnswer:
    return tokens.list_tokens(deps, call.query.user, call.query)


@router.post(
    "/api/v1/admin/tokens",
    "Make a bearer token, which has no user; it is shown this once",
    admin=True,
    body=BearerTokenRequest,
)
def bearer_token_create(deps: Deps, call: Call) -> NewBearerToken:
    return tokens.create_bearer_token(deps, call.caller, call.body)


@router.post("/api/v1/admin/tokens/{ak}/revoke", "Revoke a key of any user", admin=True)
def token_revoke(deps: Deps, call: Call) -> TokenView:
    return tokens.revoke(deps, call.caller, call.path["ak"], None)


@router.get(
    "/api/v1/admin/jobs", "Jobs of all users, newest first", admin=True, query=AdminJobsQuery
)
def job_list(deps: Deps, call: Call) -> AdminJobsAnswer:
    return overview.jobs(deps, call.query, call.lang)


@router.get("/api/v1/admin/pools", "Pools and their machines", admin=True)
def pool_list(deps: Deps, call: Call) -> PoolsAnswer:
    return overview.pools(deps, call.lang)


@router.get("/api/v1/admin/audit", "Who changed what, newest first", admin=True, query=AuditQuery)
def audit_log(deps: Deps, call: Call) -> AuditAnswer:
    return audit.list_events(deps, call.query)


@router.post("/api/v1/admin/gc", "Delete what is past its time", admin=True, long=True)
def gc(deps: Deps, call: Call) -> GcAnswer:
    return garbage_collection.collect_for(deps, call.caller)
