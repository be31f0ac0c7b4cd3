"""Users: create, list, change and delete them. Every change writes its row of the audit log in the
same transaction. Their keys are `tokens`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from msgspec import UNSET, json

from paddlecloud.db.engine.base import Tx
from paddlecloud.db.tables import jobs, tokens, users
from paddlecloud.db.tables.users import User, UserRole
from paddlecloud.model import email_address
from paddlecloud.model.errors import Conflict, Invalid, NotFound
from paddlecloud.server.deps import Deps
from paddlecloud.server.http.auth import Caller
from paddlecloud.server.schemas.accounts import (
    DeletedAnswer,
    UserChange,
    UserRequest,
    UsersAnswer,
    UsersQuery,
    UserView,
)
from paddlecloud.server.services.accounts import plans
from paddlecloud.server.services.accounts.audit import record
from paddlecloud.server.services.files.job_files import aside_root, user_root
from paddlecloud.server.services.jobs.views import iso


def create(deps: Deps, caller: Caller, request: UserRequest) -> UserView:
    now = deps.clock()
    email = email_address.canonical(request.email) if request.email else None
    if not email_address.is_user_id(request.user_id):
        raise Invalid("user_id_invalid", user_id=request.user_id[:100])
    if request.user_id in email_address.RESERVED:
        raise Conflict("user_id_taken", user_id=request.user_id)
    user = User(
        id=request.user_id,
        role=UserRole(request.role),
        email=email,
        plan=plans.known(deps, request.plan),
        lang=request.lang or deps.settings.lang,
        created_at=now,
    )

    def store(tx: Tx) -> None:
        _check_email(tx, user)
        if not users.create_user(tx, user, now):
            raise Conflict("user_id_taken", user_id=user.id)
        record(tx, caller, now, "user.create", user.id, _facts(user))

    deps.db.write(store)
    return view(deps, user, 0)


def list_users(deps: Deps, query: UsersQuery) -> UsersAnswer:
    def read(tx: Tx) -> list[UserView]:
        found = users.list_users(tx, after=query.after or "", limit=query.limit)
        return [view(deps, user, tokens.count_tokens(tx, user.id)) for user in found]

    found = deps.db.read(read)
    full = len(found) == query.limit
    return UsersAnswer(users=found, next=found[-1].user_id if full else None)


def get(deps: Deps, user_id: str) -> UserView:
    def read(tx: Tx) -> UserView:
        return view(deps, find_user(tx, user_id), tokens.count_tokens(tx, user_id))

    return deps.db.read(read)


def change(deps: Deps, caller: Caller, user_id: str, asked: UserChange) -> UserView:
    """Set what is asked for; a user who is disabled is locked out at once, everywhere."""
    now = deps.clock()
    wanted = _wanted(deps, asked, now)

    def store(tx: Tx) -> User:
        before = find_user(tx, user_id)
        after = replace(before, **wanted)
        if before.disabled_at is not None and after.disabled_at is not None:
            after = replace(after, disabled_at=before.disabled_at)
        if after == before:
            return before
        _check_email(tx, after)
        _keep_an_admin(tx, before, after)
        users.save_user(tx, after)
        if after.plan != before.plan:
            plans.notify_change(tx, user_id)
        record(tx, caller, now, _action(before, after), user_id, _difference(before, after))
        return after

    user = deps.db.write(store)
    return view(deps, user, deps.db.read(lambda tx: tokens.count_tokens(tx, user_id)))


def delete(deps: Deps, caller: Caller, user_id: str) -> DeletedAnswer:
    """Delete a user without jobs or files; others can only be disabled. Files that `admin verify`
    moved aside are deleted as well."""
    now = deps.clock()
    deps.db.read(lambda tx: find_user(tx, user_id))
    damaged = aside_root(user_id)
    stored = (stat.path for stat in deps.store.list(user_root(user_id) + "/"))
    has_files = any(not path.startswith(f"{damaged}/") for path in stored)

    def check(tx: Tx) -> User:
        user = find_user(tx, user_id)
        count = sum(jobs.count_by_state(tx, user_id).values())
        if count or has_files:
            raise Conflict("user_has_jobs", user_id=user_id, jobs=count)
        _keep_an_admin(tx, user, None)
        return user

    def store(tx: Tx) -> None:
        user = check(tx)
        users.delete_user(tx, user_id)
        record(tx, caller, now, "user.delete", user_id, _facts(user))

    deps.db.read(check)
    deps.store.delete_tree(damaged)
    deps.db.write(store)
    return DeletedAnswer(user_id=user_id)


def view(deps: Deps, user: User, count: int) -> UserView:
    assert user.created_at is not None  # every stored user has it
    return UserView(
        user_id=user.id,
        role=user.role.value,
        email=user.email,
        plan=user.plan or deps.settings.default_plan,
        limits=json.decode(user.limits) if user.limits else {},
        lang=user.lang,
        disabled=user.disabled_at is not None,
        disabled_at=iso(user.disabled_at) if user.disabled_at else None,
        created_at=iso(user.created_at),
        tokens=count,
    )


def find_user(tx: Tx, user_id: str) -> User:
    found = users.get_user(tx, user_id) if email_address.is_user_id(user_id) else None
    if found is None:
        raise NotFound("user_unknown", user_id=user_id[:100])
    return found


def _wanted(deps: Deps, asked: UserChange, now: datetime) -> dict[str, Any]:
    wanted: dict[str, Any] = {}
    if asked.role is not UNSET:
        wanted["role"] = UserRole(asked.role)
    if asked.email is not UNSET:
        wanted["email"] = email_address.canonical(asked.email) if asked.email else None
    if asked.plan is not UNSET:
        wanted["plan"] = plans.known(deps, asked.plan)
    if asked.lang is not UNSET:
        wanted["lang"] = asked.lang
    if asked.disabled is not UNSET:
        wanted["disabled_at"] = now if asked.disabled else None
    if not wanted:
        known = ", ".join(UserChange.__struct_fields__)
        raise Invalid("user_change_missing", known=known)
    return wanted


def _check_email(tx: Tx, user: User) -> None:
    holder = users.user_of_email(tx, user.email) if user.email else None
    if holder is not None and holder.id != user.id:
        raise Conflict("email_taken", email=user.email, user_id=holder.id)


def _keep_an_admin(tx: Tx, before: User, after: User | None) -> None:
    """Without an admin the role could not be given back."""
    if not _gets_in(before) or (after is not None and _gets_in(after)):
        return
    if users.other_admins(tx, before.id) == 0:
        raise Conflict("user_last_admin", user_id=before.id)


def _gets_in(user: User) -> bool:
    return user.role is UserRole.ADMIN and user.disabled_at is None


def _action(before: User, after: User) -> str:
    if (before.disabled_at is None) == (after.disabled_at is None):
        return "user.set"
    return "user.enable" if after.disabled_at is None else "user.disable"


def _facts(user: User) -> dict[str, str | None]:
    return {"role": user.role.value, "email": user.email, "plan": user.plan, "lang": user.lang}


def _difference(before: User, after: User) -> Mapping[str, str | None]:
    old, new = _facts(before), _facts(after)
    changed = [key for key in new if old[key] != new[key]]
    pairs = [(f"old_{key}", old[key]) for key in changed]
    return dict(pairs + [(f"new_{key}", new[key]) for key in changed])
