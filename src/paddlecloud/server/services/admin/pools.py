"""Pools that an admin adds: stored in the database, and opened at once by every server on it.

They come after the pools of the settings file, whose names they cannot have.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from paddlecloud.backends import base as backends
from paddlecloud.backends.base import Backend, backend_type
from paddlecloud.db.engine.base import Database, Tx
from paddlecloud.db.tables import attempts, pools
from paddlecloud.db.tables.pools import StoredPool
from paddlecloud.model.errors import Conflict, NotFound
from paddlecloud.model.jobs.job import JobType
from paddlecloud.model.policy.pool import ElasticLimits, Pool
from paddlecloud.server import encryption
from paddlecloud.server.deps import CopyOnWrite, Deps
from paddlecloud.server.http.auth import Caller
from paddlecloud.server.services.accounts.audit import record
from paddlecloud.server.settings import PoolSettings, Settings
from paddlecloud.server.settings.load import read_pool

LOCAL, MACHINES = "local", "machines"
log = logging.getLogger(__name__)


def create(deps: Deps, caller: Caller, name: str, options: Mapping[str, Any]) -> PoolSettings:
    """Store a pool. `options` are the keys of [pools.NAME], checked as in a settings file."""
    pool = read_pool(name, options)
    if any(each.name == name for each in deps.settings.pool_list):
        raise Conflict("pool_exists", pool=name)
    own = fields(backend_type(pool.kind).settings)
    hidden = {item.name for item in own if "Secret" in str(item.type)}
    plain = {key: value for key, value in options.items() if key not in hidden}
    secret = {key: value for key, value in options.items() if key in hidden}
    sealed = None
    if secret:
        text = json.dumps(secret).encode()
        sealed = encryption.seal(deps.server_key, text, _context(name))
    now = deps.clock()

    def store(tx: Tx) -> None:
        row = StoredPool(name=name, options=plain, sealed=sealed)
        if not pools.add(tx, row, now, caller.user_id):
            raise Conflict("pool_exists", pool=name)
        record(tx, caller, now, "pool.create", name, {"kind": pool.kind})

    deps.db.write(store)
    refresh(deps)
    return pool


def delete(deps: Deps, caller: Caller, name: str) -> None:
    """Delete a pool of the database; Conflict while jobs run there."""

    def remove(tx: Tx) -> None:
        if any(attempt.pool == name for attempt in attempts.live_attempts(tx)):
            raise Conflict("pool_in_use", pool=name)
        if not pools.delete(tx, name):
            raise NotFound("pool_unknown", pool=name[:100])
        record(tx, caller, deps.clock(), "pool.delete", name, {})

    deps.db.write(remove)
    refresh(deps)


def refresh(deps: Deps) -> None:
    """Open the pools that were stored since, and close those that were deleted."""
    if not isinstance(deps.pools, CopyOnWrite) or not isinstance(deps.backends, CopyOnWrite):
        return
    in_file = {pool.name for pool in deps.settings.pool_list}
    stored = {row.name for row in deps.db.read(pools.list_pools)} - in_file
    if stored == deps.pools.keys() - in_file:
        return
    keys = (deps.server_key, *deps.old_keys)
    found = {name: pool for name, pool in deps.pools.items() if name in in_file}
    places = {name: deps.backends[name] for name in found}
    for pool in stored_pools(deps.settings, deps.db, keys):
        known = deps.backends.get(pool.name)
        backend = known or backends.create(pool.kind, pool.settings, backends.ServerContext())
        places[pool.name] = backend
        found[pool.name] = to_pool(pool, deps.settings.team, backend, shared=deps.db.shared)
    deps.backends.replace({**deps.backends, **places})
    deps.pools.replace(found)
    deps.backends.replace(places)


def stored_pools(
    settings: Settings, db: Database, keys: Sequence[bytes]
) -> tuple[PoolSettings, ...]:
    """The pools of the database. One whose name the settings file has now is left out."""
    found = []
    names = {pool.name for pool in settings.pool_list}
    for row in db.read(pools.list_pools):
        if row.name in names:
            log.warning("the pool %s of the database is not used: the file has one", row.name)
            continue
        secret = encryption.unseal(keys, row.sealed, _context(row.name)) if row.sealed else b"{}"
        found.append(read_pool(row.name, {**row.options, **json.loads(secret)}))
    return tuple(found)


def _context(name: str) -> bytes:
    return f"pool:{name}".encode()


def to_pool(pool: PoolSettings, team: bool, backend: Backend, *, shared: bool = False) -> Pool:
    """`shared`: its machines may be those of several servers, and outlive a loss of power here."""
    types = frozenset(map(JobType, pool.job_types))
    found = backend.capacity("")
    sizes = [found.node] if isinstance(found, ElasticLimits) else [node.total for node in found]
    if sizes and not shared and not any(size.gpu for size in sizes):
        types -= {JobType.GPU}
    joined = pool.kind == MACHINES
    public = team and not joined if pool.public is None else pool.public
    return Pool(
        name=pool.name,
        backend=pool.kind,
        private=not public,
        of_team=team and joined,
        remote=shared or pool.kind != LOCAL,
        job_types=types,
        users=frozenset(pool.users),
        gangs=sys.platform == "linux" or pool.kind != LOCAL,
        oversubscribes=not public and pool.kind == LOCAL,
        preemption=pool.preemption,
    )
