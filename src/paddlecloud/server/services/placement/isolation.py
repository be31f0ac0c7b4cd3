"""Who may share a machine: each user of a team under a uid of their own, or one user alone.

Only a team server asks; the embedded one serves its person and runs everything as that person. Only
a backend that shares machines between users is concerned. Its agent says whether it can keep them
apart. Until it has said so it is believed, and told the uid: an agent that cannot obey then does
not run the job, and says why.
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
"""What an agent calls it among the things that it enforces."""


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
    """The server's own places, which no job may see, should it run on the same machine."""
    if not deps.settings.team:
        return []
    return sorted({str(deps.settings.home), str(deps.settings.store_dir)})


def open_pools(deps: Deps) -> tuple[Pool, ...]:
    """The pools that take jobs, in their order: without those that can neither keep users apart nor
    belong to one user alone."""
    pools = tuple(deps.pools.values())
    if not deps.settings.team:
        return pools
    return tuple(pool for pool in pools if len(pool.users) == 1 or able(deps, pool) is not False)


def some_open_pools(deps: Deps) -> tuple[Pool, ...]:
    """The same for who submits: Refused, with the reason, when there is none."""
    found = open_pools(deps)
    if deps.pools and not found:
        raise Refused("pool_not_separated", pool=", ".join(deps.pools))
    return found


def trouble(deps: Deps, pool: Pool) -> Reason | None:
    """What an admin should know about a pool that cannot keep users apart; None if all is well."""
    if not deps.settings.team or able(deps, pool) is not False:
        return None
    if len(pool.users) == 1:
        return Reason(code="pool_serves_one", params={"pool": pool.name, "user": min(pool.users)})
    return Reason(code="pool_not_separated", params={"pool": pool.name})


def able(deps: Deps, pool: Pool) -> bool | None:
    """Whether users are kept apart there; None while some agent has not said so yet."""
    backend = deps.backends.get(pool.name)
    if not isinstance(backend, SharesMachines):
        return True
    nodes = [node.id for node in deps.nodes()[pool.name]]

    def read(tx: Tx) -> list[bool | None]:
        found = [agents.get_agent(tx, node) for node in nodes]
        return [None if agent is None else agent.enforces.get(ABILITY) for agent in found]

    said = deps.db.read(read)
    if False in said:
        return False
    return None if None in said else True
