"""The tokens table: keys of users, agents and workers."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from paddlecloud.db.engine.base import Row, Tx, Value
from paddlecloud.db.engine.columns import from_micros, maybe_from_micros, to_micros
from paddlecloud.db.tables.users import UserRole

USE_STEP = timedelta(minutes=5)
"""The last use of a key is written down so often at most."""


class TokenKind(StrEnum):
    """Who signs with a key: a person's client, an agent, or a worker of a job."""

    USER = "user"
    AGENT = "agent"
    JOB = "job"


class Scope(StrEnum):
    """What a key may do of what its user may do: everything, or only look."""

    FULL = "full"
    READ = "read"


class Origin(StrEnum):
    """How a key came to its user: `mail` was sent to their address, everything else was shown."""

    SHOWN = ""
    MAIL = "mail"


@dataclass(frozen=True, kw_only=True)
class Token:
    """An access key that is good, and whom it speaks for."""

    ak: str
    user_id: str
    kind: TokenKind
    role: UserRole
    scope: Scope = Scope.FULL
    unused_mail: bool = False
    """It came by mail and nobody has used it yet: its first use may replace older ones."""


@dataclass(frozen=True, kw_only=True)
class TokenRow:
    """Everything about a key, good or not."""

    ak: str
    user_id: str
    kind: TokenKind
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
    kind: TokenKind,
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
        (ak, user_id, kind.value, to_micros(now), name, scope.value, origin.value),
    )
    if changed:
        tx.notify("token", ak)
    return changed == 1


def find_token(tx: Tx, ak: str) -> Token | None:
    """The key if it is good; a revoked key, or one of a disabled user, is as unknown as none."""
    if ak.startswith(_OF_JOB):
        return _worker_token(tx, ak)
    row = tx.one(
        "select t.ak, t.user_id, t.kind, u.role, t.scope, t.origin, t.last_used_at"
        " from tokens t join users u on u.id = t.user_id"
        " where t.ak = ? and t.revoked_at is null and u.disabled_at is null",
        (ak,),
    )
    if row is None:
        return None
    return Token(
        ak=row[0],
        user_id=row[1],
        kind=TokenKind(row[2]),
        role=UserRole(row[3]),
        scope=Scope(row[4]),
        unused_mail=row[5] == Origin.MAIL and row[6] is None,
    )


def get_token(tx: Tx, ak: str) -> TokenRow | None:
    row = tx.one(f"select {_TOKEN} from tokens where ak = ?", (ak,))
    return _token(row) if row else None


def list_tokens(tx: Tx, user_id: str | None = None, *, all_of_them: bool = False) -> list[TokenRow]:
    """People's keys, newest first: of one user or of everybody, revoked ones only if wanted."""
    wanted = ["kind = 'user'"]
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
    """How many good keys a user has that were not sent by mail and left unused."""
    row = tx.one(
        "select count(*) from tokens where user_id = ? and revoked_at is null"
        " and not (origin = 'mail' and last_used_at is null)",
        (user_id,),
    )
    return int(row[0]) if row else 0


def revoke_token(tx: Tx, ak: str, now: datetime) -> bool:
    """Make a key useless for ever and tell whoever remembers it; False if it was not good."""
    changed = tx.execute(
        "update tokens set revoked_at = ? where ak = ? and revoked_at is null",
        (to_micros(now), ak),
    )
    if changed:
        tx.notify("token", ak)
    return changed == 1


def revoke_agent_keys(tx: Tx, node: str, now: datetime) -> None:
    """Make every key of this machine's agents useless: two agents of one name would both obey."""
    question = "select ak from tokens where user_id = ? and kind = 'agent' and revoked_at is null"
    for (ak,) in tx.all(question, (node,)):
        revoke_token(tx, ak, now)


def note_use(tx: Tx, ak: str, now: datetime) -> bool:
    """Write down that a key was used; True if it was the first time.

    The first use of a key is told, so that every server asks again what it is.
    """
    row = tx.one("select last_used_at from tokens where ak = ?", (ak,))
    if row is None or (row[0] is not None and to_micros(now - USE_STEP) < row[0]):
        return False
    tx.execute("update tokens set last_used_at = ? where ak = ?", (to_micros(now), ak))
    if row[0] is None:
        tx.notify("token", ak)
    return row[0] is None


def revoke_older_mailed(tx: Tx, ak: str, now: datetime) -> list[str]:
    """Revoke the mailed keys of the same user that are older than this one; which those were."""
    found = tx.all(
        "select old.ak from tokens old join tokens new on new.user_id = old.user_id"
        " where new.ak = ? and old.ak <> new.ak and old.origin = 'mail' and old.kind = 'user'"
        " and old.revoked_at is null and old.created_at <= new.created_at order by old.ak",
        (ak,),
    )
    return [old for (old,) in found if revoke_token(tx, old, now)]


def drop_unused_mailed(tx: Tx, user_id: str, before: datetime) -> int:
    """Forget mailed keys that nobody used since; strangers can ask for them without end."""
    return tx.execute(
        "delete from tokens where user_id = ? and origin = 'mail' and last_used_at is null"
        " and created_at < ?",
        (user_id, to_micros(before)),
    )


def _worker_token(tx: Tx, replica: str) -> Token | None:
    """The key of a worker is the name of its replica: there is nothing to store, and it ends with
    the replica. It speaks for the owner of the job, whatever that person's role is."""
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

_TOKEN = "ak, user_id, kind, name, scope, origin, created_at, last_used_at, revoked_at"


def _token(row: Row) -> TokenRow:
    return TokenRow(
        ak=row[0],
        user_id=row[1],
        kind=TokenKind(row[2]),
        name=row[3],
        scope=Scope(row[4]),
        origin=Origin(row[5]),
        created_at=from_micros(row[6]),
        last_used_at=maybe_from_micros(row[7]),
        revoked_at=maybe_from_micros(row[8]),
    )
