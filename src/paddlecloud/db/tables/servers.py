"""The servers on one database: who is there, where each is reached, which node its agent is.

Every server writes its row anew every few seconds (`loops/presence.py`); one that has not done so
for `LIVE` counts as gone. Nothing is decided by these rows but where an agent may ask besides, and
whether a server that starts fits to those that run: loops are given out by leases, not by them.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from paddlecloud.db.engine.base import Row, Tx
from paddlecloud.db.engine.columns import from_micros, to_micros
from paddlecloud.model.errors import ConfigError

HEARTBEAT_INTERVAL = timedelta(seconds=5)
LIVE = timedelta(seconds=20)
"""Four times `HEARTBEAT_INTERVAL`: one late write makes nobody gone."""
DELETED_AFTER = timedelta(days=1)

CHANNEL = "servers"
"""Told when a server comes or goes."""
_TEAM = "team"
"""The counter that says so counts nothing: it is there or not."""
_COLUMNS = "boot, place, url, node, key_mark, version, started_at, seen_at"


@dataclass(frozen=True, kw_only=True)
class Server:
    """One start of a server."""

    boot: str
    place: str
    """Names its home for good: a new start of the same server has the same one."""
    url: str
    """Where agents on other machines reach it; empty: they cannot."""
    node: str
    """The name of its machine among those that run jobs; empty: it runs none."""
    key_mark: str
    """Tells keys apart and tells nothing about them."""
    version: str
    started_at: datetime
    seen_at: datetime


def join(tx: Tx, server: Server, marks: frozenset[str]) -> None:
    """Enter a server that starts; ConfigError if it does not fit to those that are there.

    `marks` are those of all keys that it accepts. Its home is locked by it, so a row of the same
    home is of a start that is over, and so are the leases that it held: nobody waits for them.
    """
    dead = tx.all("select boot from servers where place = ?", (server.place,))
    for (boot,) in dead:
        tx.run("update leases set expires_at = 0 where holder = ?", (boot,))
    tx.run("delete from servers where place = ?", (server.place,))
    for other in live(tx, server.seen_at):
        if server.node and other.node == server.node:
            raise ConfigError("replica_node_taken", node=server.node, url=other.url or other.place)
        if other.key_mark not in marks:
            raise ConfigError("replica_key_differs", url=other.url or other.place)
    heartbeat(tx, server)
    tx.notify(CHANNEL, "")


def heartbeat(tx: Tx, server: Server) -> None:
    """Write down that it is there, and forget who was not for a long time."""
    tx.run(
        f"insert into servers ({_COLUMNS}) values (?, ?, ?, ?, ?, ?, ?, ?)"
        " on conflict (boot) do update set seen_at = excluded.seen_at",
        (
            server.boot,
            server.place,
            server.url,
            server.node,
            server.key_mark,
            server.version,
            to_micros(server.started_at),
            to_micros(server.seen_at),
        ),
    )
    tx.run("delete from servers where seen_at < ?", (to_micros(server.seen_at - DELETED_AFTER),))


def leave(tx: Tx, boot: str) -> None:
    """It goes down in order: nobody has to find out."""
    tx.run("delete from servers where boot = ?", (boot,))
    tx.notify(CHANNEL, "")


def live(tx: Tx, now: datetime) -> list[Server]:
    """Those that are there, the one that runs longest first."""
    rows = tx.all(
        f"select {_COLUMNS} from servers where seen_at > ? order by started_at, boot",
        (to_micros(now - LIVE),),
    )
    return [_server(row) for row in rows]


def urls(tx: Tx, now: datetime) -> tuple[str, ...]:
    """Where servers are reached, each address once: several may be behind one."""
    return tuple(dict.fromkeys(server.url for server in live(tx, now) if server.url))


def is_team(tx: Tx) -> bool:
    """Whether a team server has ever worked on this database."""
    return tx.one("select 1 from counters where name = ?", (_TEAM,)) is not None


def mark_team(tx: Tx) -> None:
    tx.run("insert into counters (name, value) values (?, 1) on conflict do nothing", (_TEAM,))


def _server(row: Row) -> Server:
    boot, place, url, node, key_mark, version, started_at, seen_at = row
    return Server(
        boot=boot,
        place=place,
        url=url,
        node=node,
        key_mark=key_mark,
        version=version,
        started_at=from_micros(started_at),
        seen_at=from_micros(seen_at),
    )
