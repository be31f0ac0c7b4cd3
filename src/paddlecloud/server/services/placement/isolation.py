"""Separates users on shared machines: each user of a team has a uid, or a pool serves one user.

Applies to team servers only; the embedded server runs everything as its one user. Applies only to
backends that share machines between users. Their agents report whether they can separate users;
until then the server assumes so and sends the uid, and an agent that cannot use it does not run the
job and reports why.
"""

from __future__ import annotations

from paddlecloud.backends.base import SharesMachines
from paddlecloud.db.engine.base import Tx
from paddlecloud.db.tables import agents, uids
from paddlecloud.model.errors import Refused
from paddlecloud.model.jobs.job import Reason
from paddlecloud.model.policy.pool import Pool
from paddlecloud.server.deps import Deps

ABILITY = "uid"
"""The name of this ability in the report of an agent."""


def is_wanted(deps: Deps) -> bool:
    return deps.settings.team


def uid_for(deps: Deps, pool: Pool, owner: str) -> int | None:
    """The uid under which this pool runs what `owner` submitted; None: the agent's own."""
    backend = deps.backends.get(pool.name)
    if not deps.settings.team or not isinstance(backend, SharesMachines):
        return None
    if pool.users == {owner} and able(deps, pool) is False:
        return None
    known = deps.db.read(lambda tx: uids.known(tx, owner))
    base = backend.uid_base
    return deps.db.write(lambda tx: uids.assign(tx, owner, base)) if known is None else known


def hidden(deps: Deps) -> list[str]:
    """Directories of the server that jobs on the same machine must not see."""
    if not deps.settings.team:
        return []
    return sorted({str(deps.settings.home), str(deps.settings.store_dir)})


def open_pools(deps: Deps) -> tuple[Pool, ...]:
    """The pools that accept jobs, in order: without those that can neither separate users nor serve
    one user only."""
    pools = tuple(deps.pools.values())
    if not deps.settings.team:
        return pools
    return tuple(pool for pool in pools if len(pool.users) == 1 or able(deps, pool) is not False)


def some_open_pools(deps: Deps) -> tuple[Pool, ...]:
    """The same for a submit: Refused, with the reason, if there is none."""
    found = open_pools(deps)
    if deps.pools and not found:
        raise Refused("pool_not_separated", pool=", ".join(deps.pools))
    return found


def trouble(deps: Deps, pool: Pool) -> Reason | None:
    """A warning for admins about a pool that cannot separate users; None: no problem."""
    if not deps.settings.team or able(deps, pool) is not False:
        return None
    if len(pool.users) == 1:
        return Reason(code="pool_serves_one", params={"pool": pool.name, "user": min(pool.users)})
    return Reason(code="pool_not_separated", params={"pool": pool.name})


def able(deps: Deps, pool: Pool) -> bool | None:
    """Whether this pool separates users; None while an agent has not reported it yet."""
    backend = deps.backends.get(pool.name)
    if not isinstance(backend, SharesMachines):
        return True
    nodes = [node.id for node in deps.nodes()[pool.name]]

    def read(tx: Tx) -> list[bool | None]:
        found = [agents.get_agent(tx, node) for node in nodes]
        return [None if agent is None else agent.enforces.get(ABILITY) for agent in found]

    reported = deps.db.read(read)
    if False in reported:
        return False
    return None if None in reported else True
