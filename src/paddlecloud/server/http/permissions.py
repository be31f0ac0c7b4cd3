"""Permissions of callers by kind, role and scope of their key.

Who the caller is was decided before (`auth`). What belongs to another user is treated as if it did
not exist, so a request never reveals that it does.
"""

from __future__ import annotations

from paddlecloud.db.tables.bearer_tokens import METRICS
from paddlecloud.db.tables.tokens import Scope
from paddlecloud.db.tables.users import UserRole
from paddlecloud.model.errors import Forbidden, Unauthenticated
from paddlecloud.model.jobs.job import Job
from paddlecloud.server.http.auth import Caller


def check_rights(caller: Caller, kind: str, *, writes: bool, admin: bool) -> None:
    """Raise unless this caller may call a route for callers of `kind`. Users may read metrics."""
    if caller.kind == METRICS:
        if kind != METRICS:
            raise Unauthenticated("auth_metrics_only", ak=caller.ak)
        return
    if caller.kind != ("user" if kind == METRICS else kind):
        raise Unauthenticated("auth_role", ak=caller.ak, role=caller.kind)
    if caller.kind != "user":
        return
    if admin and not caller.is_admin:
        raise Forbidden("auth_admin", user_id=caller.user_id)
    if writes and caller.role == UserRole.READONLY:
        raise Forbidden("auth_readonly", user_id=caller.user_id)
    if writes and caller.scope == Scope.READ:
        raise Forbidden("auth_scope", ak=caller.ak)


def may_see(caller: Caller, job: Job) -> bool:
    """Whether a job exists for this caller: a user sees their own jobs, and an admin all."""
    return job.owner == caller.user_id or caller.is_admin
