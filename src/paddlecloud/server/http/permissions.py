"""Who may do what: the few rules about roles and scopes, each in one place.

Whether somebody is who they say is not decided here (`auth`). What belongs to another user is
treated as if it did not exist, so that nobody can find out by asking that it does.
"""

from __future__ import annotations

from paddlecloud.db.tables.tokens import Scope
from paddlecloud.db.tables.users import UserRole
from paddlecloud.model.errors import Forbidden
from paddlecloud.model.jobs.job import Job
from paddlecloud.server.http.auth import Caller


def check_rights(caller: Caller, *, writes: bool, admin: bool) -> None:
    """Raise unless this person may call a route of this kind."""
    if admin and not caller.is_admin:
        raise Forbidden("auth_admin", user_id=caller.user_id)
    if writes and caller.role == UserRole.READONLY:
        raise Forbidden("auth_readonly", user_id=caller.user_id)
    if writes and caller.scope == Scope.READ:
        raise Forbidden("auth_scope", ak=caller.ak)


def may_see(caller: Caller, job: Job) -> bool:
    """Whether a job exists for this person: their own does, and every one for an admin."""
    return job.owner == caller.user_id or caller.is_admin
