"""The agent_keys table: the keys of agents, and what each agent is: its machine and pool.

An agent may be bound to one attempt; then its key is good until the attempt is released. What an
agent reports of its machine is in `agents`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from paddlecloud.db.engine.base import Tx
from paddlecloud.db.engine.columns import to_micros

_COLUMNS = "ak, agent, node, pool, job_id, attempt"
_VALID = (
    "revoked_at is null and (job_id is null or exists (select 1 from attempts a"
    " where a.job_id = agent_keys.job_id and a.number = agent_keys.attempt and a.released = 0))"
)


@dataclass(frozen=True, kw_only=True)
class AgentIdentity:
    """An agent, by one of its keys."""

    ak: str
    agent_id: str
    """The name that it calls itself in polls and reports."""
    node: str
    """The machine whose orders it carries out."""
    pool: str
    """Empty: unknown, for a key from before agents had a pool."""
    job_id: str | None = None
    attempt: int | None = None
    """With `job_id`: it serves this attempt only."""


def create_key(
    tx: Tx, agent: AgentIdentity, now: datetime, *, join_token: str | None = None
) -> bool:
    """Store a key; False, and nothing changed, if it exists, even revoked. `join_token`: digest of
    the token that the agent joined with."""
    changed = tx.execute(
        f"insert into agent_keys ({_COLUMNS}, join_token, created_at)"
        " values (?, ?, ?, ?, ?, ?, ?, ?) on conflict (ak) do nothing",
        (
            agent.ak,
            agent.agent_id,
            agent.node,
            agent.pool,
            agent.job_id,
            agent.attempt,
            join_token,
            to_micros(now),
        ),
    )
    if changed:
        tx.notify("token", agent.ak)
    return changed == 1


def find_key(tx: Tx, ak: str) -> AgentIdentity | None:
    """The agent with this key, if the key is valid."""
    row = tx.one(f"select {_COLUMNS} from agent_keys where ak = ? and {_VALID}", (ak,))
    return _identity(*row) if row else None


def joined_with(tx: Tx, ak: str, join_token: str) -> AgentIdentity | None:
    """The agent with this valid key, if it joined with the token of this digest."""
    where = f"ak = ? and join_token = ? and {_VALID}"
    row = tx.one(f"select {_COLUMNS} from agent_keys where {where}", (ak, join_token))
    return _identity(*row) if row else None


def agent_of(tx: Tx, node: str) -> AgentIdentity | None:
    """The agent of this machine that has a valid key."""
    row = tx.one(f"select {_COLUMNS} from agent_keys where node = ? and {_VALID}", (node,))
    return _identity(*row) if row else None


def revoke_keys(tx: Tx, node: str, now: datetime) -> None:
    """Revoke all keys of the agents of this machine, before another agent gets one: two agents
    would carry out the same orders."""
    found = tx.all("select ak from agent_keys where node = ? and revoked_at is null", (node,))
    for (ak,) in found:
        tx.execute("update agent_keys set revoked_at = ? where ak = ?", (to_micros(now), ak))
        tx.notify("token", ak)


def set_pool(tx: Tx, ak: str, pool: str) -> None:
    tx.execute("update agent_keys set pool = ? where ak = ?", (pool, ak))
    tx.notify("token", ak)


def legacy_users(tx: Tx) -> list[str]:
    """Ids of the users under which older versions stored the keys of agents, as tokens."""
    found = tx.all("select distinct user_id from tokens where kind = 'agent' order by user_id")
    return [user_id for (user_id,) in found]


def drop_legacy_users(tx: Tx) -> None:
    """Delete these tokens, and the users unless a person has the same name. The keys are in this
    table too."""
    machines = legacy_users(tx)
    tx.execute("delete from tokens where kind = 'agent'")
    for user_id in machines:
        tx.execute(
            "delete from users where id = ? and email is null"
            " and not exists (select 1 from tokens where user_id = users.id)"
            " and not exists (select 1 from jobs where owner = users.id)",
            (user_id,),
        )


def _identity(
    ak: str, agent_id: str, node: str, pool: str, job_id: str | None, attempt: int | None
) -> AgentIdentity:
    return AgentIdentity(
        ak=ak, agent_id=agent_id, node=node, pool=pool, job_id=job_id, attempt=attempt
    )
