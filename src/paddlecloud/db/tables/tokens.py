"""The tokens table: access keys of users. Those of agents are in `agent_keys`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from paddlecloud.db.engine.base import Row, Tx, Value
from paddlecloud.db.engine.columns import from_micros, maybe_from_micros, to_micros
from paddlecloud.db.tables.users import UserRole

USE_STEP = timedelta(minutes=5)
"""The last use of a key is stored at most this often."""


class TokenKind(StrEnum):
    """Who signs with a key: a person's client, or a worker of a job."""

    USER = "user"
    JOB = "job"


class Scope(StrEnum):
    """What a key may do of what its user may do: everything, or only read."""

    FULL = "full"
    READ = "read"


class Origin(StrEnum):
    """How the user got the key: by mail, or shown on a screen."""

    SHOWN = ""
    MAIL = "mail"


@dataclass(frozen=True, kw_only=True)
class Token:
    """A valid access key and its user."""

    ak: str
    user_id: str
    kind: TokenKind
    role: UserRole
    scope: Scope = Scope.FULL
    unused_mail: bool = False
    """It was sent by mail and is unused: its first use may replace older ones."""


@dataclass(frozen=True, kw_only=True)
class TokenRow:
    """Everything about a key, valid or not."""

    ak: str
    user_id: str
    name: str
    scope: Scope
    origin: Origin
    created_at: datetime
    last_used_at: datetime | None
    revoked_at: datetime | None


def create_token(
    tx: Tx,
    ak: str,
    user_id: str,
    now: datetime,
    *,
    name: str = "",
    scope: Scope = Scope.FULL,
    origin: Origin = Origin.SHOWN,
) -> bool:
    """Store an access key; False, and nothing changed, if it exists (even revoked)."""
    changed = tx.execute(
        "insert into tokens (ak, user_id, kind, created_at, name, scope, origin)"
        " values (?, ?, ?, ?, ?, ?, ?) on conflict (ak) do nothing",
        (ak, user_id, "user", to_micros(now), name, scope.value, origin.value),
    )
    if changed:
        tx.notify("token", ak)
    return changed == 1


def find_token(tx: Tx, ak: str) -> Token | None:
    """The key if it is valid: not revoked, and its user not disabled."""
    if ak.startswith(_OF_JOB):
        return _worker_token(tx, ak)
    row = tx.one(
        "select t.ak, t.user_id, u.role, t.scope, t.origin, t.last_used_at"
        " from tokens t join users u on u.id = t.user_id"
        " where t.ak = ? and t.kind = 'user' and t.revoked_at is null and u.disabled_at is null",
        (ak,),
    )
    if row is None:
        return None
    return Token(
        ak=row[0],
        user_id=row[1],
        kind=TokenKind.USER,
        role=UserRole(row[2]),
        scope=Scope(row[3]),
        unused_mail=row[4] == Origin.MAIL and row[5] is None,
    )


def get_token(tx: Tx, ak: str) -> TokenRow | None:
    row = tx.one(f"select {_TOKEN} from tokens where ak = ? and kind = 'user'", (ak,))
    return _token(row) if row else None


def list_tokens(tx: Tx, user_id: str | None = None, *, all_of_them: bool = False) -> list[TokenRow]:
    """Keys, newest first: of one user or of all, revoked ones only if asked for."""
    wanted = ["kind = 'user'"]  # agents of earlier versions may still have theirs here
    values: list[Value] = []
    if user_id is not None:
        wanted.append("user_id = ?")
        values.append(user_id)
    if not all_of_them:
        wanted.append("revoked_at is null")
    where = " and ".join(wanted)
    rows = tx.all(
        f"select {_TOKEN} from tokens where {where} order by created_at desc, ak limit 10000",
        values,
    )
    return [_token(row) for row in rows]


def count_tokens(tx: Tx, user_id: str) -> int:
    """How many valid keys a user has, without those that were mailed and never used."""
    row = tx.one(
        "select count(*) from tokens where user_id = ? and revoked_at is null"
        " and not (origin = 'mail' and last_used_at is null)",
        (user_id,),
    )
    return int(row[0]) if row else 0


def revoke_token(tx: Tx, ak: str, now: datetime) -> bool:
    """Revoke a key and notify all servers; False if it was not valid."""
    changed = tx.execute(
        "update tokens set revoked_at = ? where ak = ? and revoked_at is null",
        (to_micros(now), ak),
    )
    if changed:
        tx.notify("token", ak)
    return changed == 1


def note_use(tx: Tx, ak: str, now: datetime) -> bool:
    """Store that a key was used; True if it was the first time, of which all servers are notified,
    so that they read the key again."""
    row = tx.one("select last_used_at from tokens where ak = ?", (ak,))
    if row is None or (row[0] is not None and to_micros(now - USE_STEP) < row[0]):
        return False
    tx.execute("update tokens set last_used_at = ? where ak = ?", (to_micros(now), ak))
    if row[0] is None:
        tx.notify("token", ak)
    return row[0] is None


def revoke_older_mailed(tx: Tx, ak: str, now: datetime) -> list[str]:
    """Revoke the mailed keys of the same user that are older than this one; returns them."""
    found = tx.all(
        "select old.ak from tokens old join tokens new on new.user_id = old.user_id"
        " where new.ak = ? and old.ak <> new.ak and old.origin = 'mail' and old.kind = 'user'"
        " and old.revoked_at is null and old.created_at <= new.created_at order by old.ak",
        (ak,),
    )
    return [old for (old,) in found if revoke_token(tx, old, now)]


def drop_unused_mailed(tx: Tx, user_id: str, before: datetime) -> int:
    """Delete mailed keys that were never used: they can be requested for any address."""
    return tx.execute(
        "delete from tokens where user_id = ? and origin = 'mail' and last_used_at is null"
        " and created_at < ?",
        (user_id, to_micros(before)),
    )


def _worker_token(tx: Tx, replica: str) -> Token | None:
    """The key of a worker is the name of its replica: nothing is stored, and it ends with the
    replica. It acts for the owner of the job, whatever that user's role is."""
    row = tx.one(
        "select j.owner from replicas r join jobs j on j.id = r.job_id"
        " join users u on u.id = j.owner where r.id = ? and r.state in ('ordered', 'running')"
        " and r.attempt = j.attempt and u.disabled_at is null",
        (replica,),
    )
    if row is None:
        return None
    return Token(ak=replica, user_id=row[0], kind=TokenKind.JOB, role=UserRole.USER)


_OF_JOB = "job-"

_TOKEN = "ak, user_id, name, scope, origin, created_at, last_used_at, revoked_at"


def _token(row: Row) -> TokenRow:
    return TokenRow(
        ak=row[0],
        user_id=row[1],
        name=row[2],
        scope=Scope(row[3]),
        origin=Origin(row[4]),
        created_at=from_micros(row[5]),
        last_used_at=maybe_from_micros(row[6]),
        revoked_at=maybe_from_micros(row[7]),
    )
