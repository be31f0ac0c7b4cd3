"""Overview for admins: pools with their machines, and the jobs of all users."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from paddlecloud.db.engine.base import Tx
from paddlecloud.db.tables import agents, attempts
from paddlecloud.db.tables.agents import Agent
from paddlecloud.model.jobs.job import Resources
from paddlecloud.model.policy.pool import Node, Pool
from paddlecloud.server.deps import Deps
from paddlecloud.server.schemas.accounts import (
    AdminJobRow,
    AdminJobsAnswer,
    AdminJobsQuery,
    NodeView,
    PoolsAnswer,
    PoolView,
)
from paddlecloud.server.services.jobs import queries, views
from paddlecloud.server.services.placement import isolation


def pools(deps: Deps, lang: str) -> PoolsAnswer:
    """Every pool in the order of `cluster=default`, with capacity and usage of its machines."""

    def read(tx: Tx) -> tuple[dict[str, Resources], dict[str, Agent]]:
        found = {agent.id: agent for agent in agents.list_agents(tx)}
        return attempts.used_on_nodes(tx), found

    used, known = deps.db.read(read)
    nodes = deps.nodes()
    return PoolsAnswer(
        pools=[
            _pool(deps, pool, nodes[name], used, known, lang) for name, pool in deps.pools.items()
        ]
    )


def jobs(deps: Deps, query: AdminJobsQuery, lang: str) -> AdminJobsAnswer:
    found = queries.list_jobs(deps, query.owner, query)
    rows = []
    for job in found:
        values = msgspec.structs.asdict(views.row(deps, job, lang))
        rows.append(AdminJobRow(**values, owner=job.owner, pool=job.pool or ""))
    return AdminJobsAnswer(jobs=rows, next=found[-1].number if len(found) == query.limit else None)


def _pool(
    deps: Deps,
    pool: Pool,
    nodes: tuple[Node, ...],
    used: Mapping[str, Resources],
    known: Mapping[str, Agent],
    lang: str,
) -> PoolView:
    return PoolView(
        name=pool.name,
        backend=pool.backend,
        public=pool.public,
        preemption=pool.preemption,
        users=sorted(pool.users),
        job_types=sorted(kind.value for kind in pool.job_types),
        nodes=[_node(node, used.get(node.id), known.get(node.id)) for node in nodes],
        note=views.say(isolation.trouble(deps, pool), lang),
    )


def _node(node: Node, used: Resources | None, agent: Agent | None) -> NodeView:
    return NodeView(
        id=node.id,
        cpu=node.total.cpu,
        memory=node.total.memory,
        gpu=node.total.gpu,
        used_cpu=used.cpu if used else 0.0,
        used_memory=used.memory if used else 0,
        used_gpu=used.gpu if used else 0,
        seen_at=views.iso(agent.seen_at) if agent else None,
        enforces=dict(agent.enforces) if agent else {},
    )
