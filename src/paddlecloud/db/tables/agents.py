"""The agents table: machines with an agent, what they have, and when it was last in contact.

Polls are frequent, so a poll without changes is stored only every `CONTACT_EVERY`. `seen_at` may
lag by that much, which has to be allowed for when an agent is counted as lost. Keys are in
`agent_keys`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from paddlecloud.db.engine.base import Row, Tx
from paddlecloud.db.engine.columns import from_micros, json_reader, to_json, to_micros
from paddlecloud.model.jobs.job import Resources

CONTACT_EVERY = timedelta(seconds=5)

_COLUMNS = "id, pool, boot, version, host, cpu, memory, gpu, enforces, seen_at"


@dataclass(frozen=True, kw_only=True)
class Agent:
    """One agent as it described itself in its last poll."""

    id: str
    pool: str
    boot: str
    """Differs after every start of the agent; empty: it counts as lost, and was not in contact
    since."""
    version: str
    host: str
    capacity: Resources
    enforces: Mapping[str, bool]
    """Which limits it can really enforce: cpu, memory, pids."""
    seen_at: datetime


def needs_saving(tx: Tx, agent: Agent) -> bool:
    """Whether `upsert_agent` would write: ask in a read, and spare the writer most polls."""
    known = get_agent(tx, agent.id)
    return known is None or _changed(known, agent) or _is_old(known, agent)


def upsert_agent(tx: Tx, agent: Agent) -> bool:
    """Store a poll if it has changes or the last one is old; True if it was stored.

    News (a new agent, a new start, other capacity) wake the listeners of "agents".
    """
    known = get_agent(tx, agent.id)
    news = known is None or _changed(known, agent)
    if known is not None and not news and not _is_old(known, agent):
        return False
    _save(tx, agent)
    if news:
        tx.notify("agents", agent.id)
    return True


def get_agent(tx: Tx, agent_id: str) -> Agent | None:
    row = tx.one(f"select {_COLUMNS} from agents where id = ?", (agent_id,))
    return _agent(row) if row else None


def list_agents(tx: Tx) -> list[Agent]:
    """All agents that were in contact and were not deleted, by id."""
    return [_agent(row) for row in tx.all(f"select {_COLUMNS} from agents order by id")]


def give_up(tx: Tx, agent_id: str, seen_at: datetime) -> bool:
    """Count this agent as lost until its next contact, which is news then. False if there was one:
    the last contact is not `seen_at`."""
    where = (agent_id, to_micros(seen_at))
    return tx.execute("update agents set boot = '' where id = ? and seen_at = ?", where) > 0


def delete(tx: Tx, agent_id: str) -> None:
    tx.execute("delete from agents where id = ?", (agent_id,))
    tx.notify("agents", agent_id)


def delete_silent(tx: Tx, before: datetime) -> int:
    """Delete the agents without contact since `before` that have nothing to run; returns how many.

    One that comes back is a new one: what it has to do is kept with its replicas.
    """
    return tx.execute(
        "delete from agents where seen_at < ? and not exists (select 1 from replicas"
        " where replicas.node = agents.id and replicas.state in ('ordered', 'running'))",
        (to_micros(before),),
    )


def _is_old(known: Agent, agent: Agent) -> bool:
    """Also when the clock was set back: a time to come would hide that the agent falls silent."""
    return abs(agent.seen_at - known.seen_at) >= CONTACT_EVERY


def _changed(known: Agent, agent: Agent) -> bool:
    return _description(known) != _description(agent)


def _description(agent: Agent) -> tuple[object, ...]:
    """Everything that an agent reports about itself, without the time."""
    return (
        agent.pool,
        agent.boot,
        agent.version,
        agent.host,
        agent.capacity,
        dict(agent.enforces),
    )


def _save(tx: Tx, agent: Agent) -> None:
    seen_at = to_micros(agent.seen_at)
    tx.execute(
        f"insert into agents ({_COLUMNS}, first_seen_at)"
        " values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) on conflict (id) do update set"
        " pool = excluded.pool, boot = excluded.boot, version = excluded.version,"
        " host = excluded.host, cpu = excluded.cpu, memory = excluded.memory,"
        " gpu = excluded.gpu, enforces = excluded.enforces, seen_at = excluded.seen_at",
        (
            agent.id,
            agent.pool,
            agent.boot,
            agent.version,
            agent.host,
            agent.capacity.cpu,
            agent.capacity.memory,
            agent.capacity.gpu,
            to_json(agent.enforces),
            seen_at,
            seen_at,
        ),
    )


_read_enforces: Callable[[str], dict[str, bool]] = json_reader(dict[str, bool])


def _agent(row: Row) -> Agent:
    id_, pool, boot, version, host, cpu, memory, gpu, enforces, seen_at = row
    return Agent(
        id=id_,
        pool=pool,
        boot=boot,
        version=version,
        host=host,
        capacity=Resources(cpu=cpu, memory=memory, gpu=gpu),
        enforces=_read_enforces(enforces),
        seen_at=from_micros(seen_at),
    )
