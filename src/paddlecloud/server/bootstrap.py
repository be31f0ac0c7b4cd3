"""Opens everything that the services need, from the settings; makes what is missing.

The first start of a home makes its key, its first user and the token of its agent. A server on a
database that it may share with others enters itself there, and shares its locks with them too.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from paddlecloud import __version__
from paddlecloud.backends.base import Backend, KeepsAgent, ServerContext
from paddlecloud.backends.base import create as create_backend
from paddlecloud.backends.local import cards
from paddlecloud.db import open_database
from paddlecloud.db.engine.base import EVERYTHING, CanAutocommit, Database
from paddlecloud.db.engine.notify import Notifier
from paddlecloud.db.tables import agent_keys, attempts, leases, notification_prefs, pools, servers
from paddlecloud.model.errors import ConfigError, PaddleCloudError
from paddlecloud.server.deps import CopyOnWrite, Deps, OwnerLocks
from paddlecloud.server.lost_database import check_restored, database_of, has_traces, prepare
from paddlecloud.server.open_store import open_store
from paddlecloud.server.services.accounts import embedded_accounts
from paddlecloud.server.services.admin.pools import refresh, to_pool
from paddlecloud.server.services.exec import pending_tunnels
from paddlecloud.server.services.files import storage_usage
from paddlecloud.server.settings import Settings
from paddlecloud.stores.directory.filelock import FileLock
from paddlecloud.stores.logs.log_store import MAX_OPEN, LogStore

LOCKS = "locks"
"""The directory of the locks, beside those of the users."""
MOST_NAMED = 5
"""Jobs that a sentence about many names."""
ADMIN = "admin"
"""The first user of a team server; that of an embedded one is the person at the machine."""


def open_deps(settings: Settings, url: str = "", *, fresh: bool = False) -> Deps:
    """`url` is where agents on other machines reach this server; `fresh`: it starts without the
    database that its home lost.

    The order matters: what shows that there was a database is written after it was committed.
    """
    server_dir = settings.server_dir
    now = datetime.now(UTC)
    check_restored(settings)
    if fresh:
        prepare(settings, now)
    key = (
        key_bytes(settings.key)
        if settings.key
        else embedded_accounts.server_key(server_dir / "server.key")
    )
    old_keys = tuple(map(key_bytes, settings.old_keys))
    boot = secrets.token_hex(8)
    db = open_the_database(settings, now)
    server = entered(settings, db, (key, *old_keys), boot, url, now) if db.shared else None
    has_legacy = bool(db.read(agent_keys.legacy_users))
    if has_legacy and db.read(lambda tx: servers.all_have(tx, __version__, now)):
        db.write(agent_keys.drop_legacy_users)
    first = ADMIN if settings.team else None
    credentials = server_dir / "credentials.json"
    embedded_accounts.embedded_user(db, key, credentials, now, first, settings.lang)
    backends = open_backends(settings, db, key, now)
    deps = Deps(
        settings=settings,
        db=db,
        store=open_store(settings, shared=db.shared),
        logs=LogStore(settings.store_dir, max_open=0 if db.shared else MAX_OPEN),
        pools=CopyOnWrite(
            {
                pool.name: to_pool(pool, settings.team, backends[pool.name], shared=db.shared)
                for pool in settings.pool_list
                if pool.name in backends
            }
        ),
        backends=CopyOnWrite(backends),
        server_key=key,
        old_keys=old_keys,
        boot=boot,
        url=url,
        server=server,
    )
    if isinstance(db, CanAutocommit):
        deps = together(deps, db)
    refresh(deps)
    storage_usage.notice_limits(deps)
    deps.metrics.add_pools(deps.pools)
    db.subscribe(partial(forward_notification, deps))
    for backend in deps.backends.values():
        if isinstance(backend, KeepsAgent):
            backend.ensure_agent()
    return deps


def forward_notification(deps: Deps, channel: str, payload: str) -> None:
    """Pass a notification of the database on to waiters, after the caches that it affects were
    cleared."""
    if channel in (servers.CHANNEL, EVERYTHING):
        deps.caches.peers.clear()
    if channel in (notification_prefs.CHANNEL, EVERYTHING):
        deps.caches.subscribers.clear()
    if channel == pending_tunnels.CHANNEL:
        channel, payload = "agent", deps.tunnels.receive(payload)
    deps.hub.notify(channel, payload)


def entered(
    settings: Settings,
    db: Database,
    keys: tuple[bytes, ...],
    boot: str,
    url: str,
    now: datetime,
) -> servers.Server:
    """Enter this server among those on its database; ConfigError if it does not fit to them."""
    has_node = settings.replica.agent and any(p.kind == "local" for p in settings.pool_list)
    server = servers.Server(
        boot=boot,
        place=place_of(settings.server_dir / "place"),
        url=url,
        node=settings.node if has_node else "",
        key_mark=key_mark(keys[0]),
        version=__version__,
        started_at=now,
        seen_at=now,
    )
    db.write(lambda tx: servers.join(tx, server, frozenset(map(key_mark, keys))))
    return server


def place_of(path: Path) -> str:
    """The name of this home among all homes, made when there is none."""
    if not path.exists():
        embedded_accounts.write_private(path, secrets.token_hex(8))
    return path.read_text("utf-8", errors="replace").strip()


def key_mark(key: bytes) -> str:
    return hmac.new(key, b"mark of the server key", hashlib.sha256).hexdigest()[:32]


def together(deps: Deps, db: CanAutocommit) -> Deps:
    """The same with locks and notifications that all servers of one database and store share."""

    def lock(name: str, patience: float) -> FileLock:
        file = hashlib.sha256(name.encode()).hexdigest()[:32]
        return FileLock(deps.settings.store_dir / LOCKS / file, patience)

    return replace(
        deps,
        # Held for as long as a sync of the store takes, by each of a user's uploads in turn.
        owner_locks=OwnerLocks(lambda owner: lock(f"owner {owner}", 60.0)),
        log_moves=lock("logs", 10.0),
        notify_log=Notifier(db, "log").notify,
    )


def open_the_database(settings: Settings, now: datetime) -> Database:
    place, connections = database_of(settings), settings.database.connections
    lost_if_empty = has_traces(settings)
    db = open_database(place, now=now, connections=connections, must_exist=lost_if_empty)
    try:
        claim(settings, db)
        keep_pools(settings, db)
    except PaddleCloudError:
        db.close()
        raise
    if not db.shared:
        # This server holds the lock of the home, so the holders of leases are dead.
        db.write(leases.break_leases, durable=False)
    return db


def claim(settings: Settings, db: Database) -> None:
    """Raise ConfigError if an embedded server starts on the database of a team: it has no limits
    and runs all jobs with its own rights. Usually its settings file was left out by mistake."""
    known = db.read(servers.is_team)
    if settings.team and not known:
        db.write(servers.mark_team)
    elif known and not settings.team:
        place = "database.url" if db.shared else str(database_of(settings))
        raise ConfigError("database_of_team", database=place)


def keep_pools(settings: Settings, db: Database) -> None:
    """Raise ConfigError if a pool with live jobs is not in the settings any more.

    The server could not watch these jobs or stop what was started for them, which may cost money;
    and to end them because of a line that is missing in a file would be worse.
    """
    known = {pool.name for pool in settings.pool_list}
    known |= {pool.name for pool in db.read(pools.list_pools)}
    live = [each for each in db.read(attempts.live_attempts) if each.pool not in known]
    live.sort(key=lambda each: (each.created_at, each.job_id))
    if live:
        pool = live[0].pool
        theirs = [each.job_id for each in live if each.pool == pool]
        more = ", …" if len(theirs) > MOST_NAMED else ""
        shown = ", ".join(theirs[:MOST_NAMED]) + more
        raise ConfigError("settings_pool_in_use", pool=pool, jobs=shown)


def open_backends(
    settings: Settings, db: Database, key: bytes, now: datetime
) -> dict[str, Backend]:
    """The backend of each pool by its name.

    The local pool of a server that runs no jobs is left out, unless other servers may have machines
    for it.
    """
    machine, runs_jobs = settings.local_pool, settings.replica.agent
    server = ServerContext(
        node=settings.node if runs_jobs else "",
        agent_config=settings.agent_dir / "agent.json",
        shared=db.shared,
        cpu=machine.cpu,
        memory=machine.memory,
        gpu=machine.gpu,
    )
    found: dict[str, Backend] = {}
    for pool in settings.pool_list:
        if pool.kind == "local" and not runs_jobs and not db.shared:
            continue
        if pool.kind == "local" and runs_jobs:
            endpoint_file = settings.server_dir / "server.json"
            more = {"capacity": stated(settings)} if db.shared else {}
            embedded_accounts.embedded_agent(
                db, key, server.agent_config, settings.node, pool.name, endpoint_file, now, more
            )
        found[pool.name] = create_backend(pool.kind, pool.settings, server)
    return found


def stated(settings: Settings) -> dict[str, float]:
    """What the agent of this machine reports as its capacity, where that is not all of it."""
    machine = settings.local_pool
    gpu = cards() if machine.gpu is None else machine.gpu
    values = {"cpu": machine.cpu, "memory": machine.memory, "gpu": gpu}
    return {key: value for key, value in values.items() if value is not None}


def key_bytes(text: str) -> bytes:
    """Hex digits, as in server.key, are bytes; anything else is taken as it is."""
    try:
        return bytes.fromhex(text)
    except ValueError:
        return text.encode()
