"""The users table: people. Machines are in `agents`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from paddlecloud.db.engine.base import Row, Tx, Value
from paddlecloud.db.engine.columns import maybe_from_micros, maybe_to_micros, to_micros


class UserRole(StrEnum):
    USER = "user"
    ADMIN = "admin"
    READONLY = "readonly"


@dataclass(frozen=True, kw_only=True)
class User:
    id: str
    role: UserRole = UserRole.USER
    email: str | None = None
    """In the form of `model.email_address.canonical`; one user has one address at most."""
    plan: str | None = None
    """None: the default plan of the server."""
    limits: str | None = None
    """Limits that differ from the plan, as JSON; `quota` reads it."""
    lang: str = "zh"
    disabled_at: datetime | None = None
    created_at: datetime | None = field(default=None, compare=False)


def create_user(tx: Tx, user: User, now: datetime) -> bool:
    """Store a user; False, and nothing changed, if the id is taken."""
    changed = tx.execute(
        f"insert into users ({_USER}, created_at) values (?, ?, ?, ?, ?, ?, ?, ?)"
        " on conflict (id) do nothing",
        (user.id, *_changeable(user), to_micros(now)),
    )
    return changed == 1


def get_user(tx: Tx, user_id: str) -> User | None:
    row = tx.one(f"select {_USER}, created_at from users where id = ?", (user_id,))
    return _user(row) if row else None


def user_of_email(tx: Tx, email: str) -> User | None:
    row = tx.one(f"select {_USER}, created_at from users where email = ?", (email,))
    return _user(row) if row else None


def save_user(tx: Tx, user: User) -> bool:
    """Store what may change of a user; all servers read the user's keys again."""
    changed = tx.execute(
        "update users set role = ?, email = ?, plan = ?, limits = ?, lang = ?, disabled_at = ?"
        " where id = ?",
        (*_changeable(user), user.id),
    )
    notify_keys_changed(tx, user.id)
    tx.notify("user", user.id)
    return changed == 1


def delete_user(tx: Tx, user_id: str) -> bool:
    """Delete a user with all keys. The caller has checked that this is allowed."""
    notify_keys_changed(tx, user_id)
    return tx.execute("delete from users where id = ?", (user_id,)) == 1


def list_users(tx: Tx, *, after: str = "", limit: int = 1000) -> list[User]:
    """Users by id."""
    rows = tx.all(
        f"select {_USER}, created_at from users where id > ? order by id limit ?",
        (after, limit),
    )
    return [_user(row) for row in rows]


def other_admins(tx: Tx, user_id: str) -> int:
    """How many other admins there are who are not disabled."""
    row = tx.one(
        "select count(*) from users where role = 'admin' and disabled_at is null and id <> ?",
        (user_id,),
    )
    return int(row[0]) if row else 0


def user_ids(tx: Tx) -> list[str]:
    return [row[0] for row in tx.all("select id from users order by id")]


def notify_keys_changed(tx: Tx, user_id: str) -> None:
    for (ak,) in tx.all("select ak from tokens where user_id = ?", (user_id,)):
        tx.notify("token", ak)


_USER = "id, role, email, plan, limits, lang, disabled_at"


def _changeable(user: User) -> Sequence[Value]:
    return (
        user.role.value,
        user.email,
        user.plan,
        user.limits,
        user.lang,
        maybe_to_micros(user.disabled_at),
    )


def _user(row: Row) -> User:
    return User(
        id=row[0],
        role=UserRole(row[1]),
        email=row[2],
        plan=row[3],
        limits=row[4],
        lang=row[5],
        disabled_at=maybe_from_micros(row[6]),
        created_at=maybe_from_micros(row[7]),
    )
