"""Users and the access keys that speak for them.

Secret keys are not here: a server derives each from its own secret and the access key, so a copy
of the database lets nobody in.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from paddlecloud.db.base import Tx
from paddlecloud.db.columns import to_micros


class UserRole(StrEnum):
    USER = "user"
    ADMIN = "admin"


class TokenKind(StrEnum):
    """Who signs with a key: a person's client, or an agent."""

    USER = "user"
    AGENT = "agent"


@dataclass(frozen=True, kw_only=True)
class User:
    id: str
    role: UserRole = UserRole.USER


@dataclass(frozen=True, kw_only=True)
class Token:
    """An access key that is good, and whom it speaks for."""

    ak: str
    user_id: str
    kind: TokenKind
    role: UserRole


def create_user(tx: Tx, user: User, now: datetime) -> bool:
    """Store a user; False, and nothing changed, if the id is taken."""
    changed = tx.execute(
        "insert into users (id, role, created_at) values (?, ?, ?) on conflict (id) do nothing",
        (user.id, user.role.value, to_micros(now)),
    )
    return changed == 1


def get_user(tx: Tx, user_id: str) -> User | None:
    row = tx.one("select id, role from users where id = ?", (user_id,))
    return User(id=row[0], role=UserRole(row[1])) if row else None


def user_ids(tx: Tx) -> list[str]:
    """Everybody, agents too."""
    return [row[0] for row in tx.all("select id from users order by id")]


def create_token(tx: Tx, ak: str, user_id: str, kind: TokenKind, now: datetime) -> bool:
    """Store an access key; False, and nothing changed, if it exists (even revoked)."""
    changed = tx.execute(
        "insert into tokens (ak, user_id, kind, created_at) values (?, ?, ?, ?)"
        " on conflict (ak) do nothing",
        (ak, user_id, kind.value, to_micros(now)),
    )
    if changed:
        tx.notify("token", ak)
    return changed == 1


def find_token(tx: Tx, ak: str) -> Token | None:
    """The key if it is good; a revoked key is as unknown as none."""
    row = tx.one(
        "select t.ak, t.user_id, t.kind, u.role from tokens t join users u on u.id = t.user_id"
        " where t.ak = ? and t.revoked_at is null",
        (ak,),
    )
    if row is None:
        return None
    return Token(ak=row[0], user_id=row[1], kind=TokenKind(row[2]), role=UserRole(row[3]))


def revoke_token(tx: Tx, ak: str, now: datetime) -> bool:
    """Make a key useless for ever and tell whoever remembers it; False if it was not good."""
    changed = tx.execute(
        "update tokens set revoked_at = ? where ak = ? and revoked_at is null",
        (to_micros(now), ak),
    )
    if changed:
        tx.notify("token", ak)
    return changed == 1
