"""The servers on one database: their URLs, versions and the nodes of their agents.

Every server updates its row every few seconds (`loops/server_heartbeat`); after `LIVE` without an
update it counts as gone. The rows decide only which URLs agents get, and whether a starting server
is compatible with the running ones. Which server runs a loop is decided by leases.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from paddlecloud.db.engine.base import Row, Tx
from paddlecloud.db.engine.columns import from_micros, to_micros
from paddlecloud.model.errors import ConfigError

HEARTBEAT_INTERVAL = timedelta(seconds=5)
LIVE = timedelta(seconds=20)
"""Four times `HEARTBEAT_INTERVAL`: one late update does no harm."""
DELETED_AFTER = timedelta(days=1)

CHANNEL = "servers"
"""Notified when a server joins or leaves."""
_TEAM = "team"
"""A counter used as a flag: it exists or not."""
_COLUMNS = "boot, place, url, node, key_mark, version, started_at, seen_at"


@dataclass(frozen=True, kw_only=True)
class Server:
    """One start of a server."""

    boot: str
    place: str
    """Identifies its home: the same after a restart."""
    url: str
    """URL for agents on other machines; empty: they cannot reach it."""
    node: str
    """The name of its machine among those that run jobs; empty: it runs none."""
    key_mark: str
    """Fingerprint of its sealing key."""
    version: str
    started_at: datetime
    seen_at: datetime


def join(tx: Tx, server: Server, marks: frozenset[str]) -> None:
    """Add a starting server; ConfigError if it is incompatible with the live ones.

    `marks` are the fingerprints of all keys that it accepts. It holds the lock of its home, so a
    row of the same home is from an earlier run: that row is deleted and its leases end.
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
    """Update its row, and delete rows of servers that were gone for a day."""
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
    """Remove a server that shuts down."""
    tx.run("delete from servers where boot = ?", (boot,))
    tx.notify(CHANNEL, "")


def delete_all(tx: Tx) -> None:
    """Delete the rows of all servers; for a copy of a database."""
    tx.run("delete from servers")


def live(tx: Tx, now: datetime) -> list[Server]:
    """Live servers, the one that runs longest first."""
    rows = tx.all(
        f"select {_COLUMNS} from servers where seen_at > ? order by started_at, boot",
        (to_micros(now - LIVE),),
    )
    return [_server(row) for row in rows]


def all_have(tx: Tx, version: str, now: datetime) -> bool:
    """Whether all servers that are there have this version."""
    return all(server.version == version for server in live(tx, now))


def urls(tx: Tx, now: datetime) -> tuple[str, ...]:
    """The distinct URLs of live servers: several may share one."""
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
