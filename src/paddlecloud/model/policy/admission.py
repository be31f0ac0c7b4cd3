"""Rejects jobs at submit that no pool of this server can ever run.

The caller passes the pools and their known machines. The candidate pools are narrowed rule by rule,
and the first rule that leaves none gives the error. Whether a job can run now is decided by the
scheduler; a pool without known machines (its agent is still starting) counts as able. What a user
has left of a quota is checked in `server/services/accounts/quota`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from paddlecloud.model.errors import Refused
from paddlecloud.model.jobs.elastic import least_groups
from paddlecloud.model.jobs.gang import claims, fits
from paddlecloud.model.jobs.job import (
    NOTHING,
    DistributeMode,
    JobSpec,
    JobType,
    Reason,
    ReplicaGroup,
    Resources,
    with_changes,
)
from paddlecloud.model.jobs.spec_codec import labels_text, with_job_type
from paddlecloud.model.policy.pool import Node, Pool
from paddlecloud.model.policy.quota import Plan, beyond, whole
from paddlecloud.model.units import format_duration, format_resources, format_size

DEFAULT_CLUSTER = "default"
MAX_REPLICAS = 1000

Nodes = Mapping[str, Sequence[Node]]
"""The known machines of each pool, by name."""


def settled(
    spec: JobSpec, pools: Sequence[Pool], nodes: Nodes
) -> tuple[JobSpec, tuple[Reason, ...]]:
    """The spec with its job type decided, and notices about what that starts.

    gpu is the documented default; where no machine that the job may use has a card, it is cpu. A
    cpu job of several trainers runs in PSERVER mode, which starts more than trainers.
    """
    notes: list[Reason] = []
    if spec.job_type is None:
        kind = JobType.CPU
        for pool in _in_cluster(spec, pools):
            cards = any(node.total.gpu for node in nodes.get(pool.name, ()))
            if cards and JobType.GPU in pool.job_types:
                kind = JobType.GPU
        spec = with_job_type(spec, kind)
        if kind is JobType.CPU:
            notes.append(Reason(code="note_job_type_cpu"))
    if spec.distribute_mode is DistributeMode.PSERVER:
        pservers = spec.replica_count - spec.instance_count
        notes.append(
            Reason(
                code="note_pserver_one" if pservers == 1 else "note_pserver",
                params={"trainers": spec.instance_count, "pservers": pservers},
            )
        )
    return spec, tuple(notes)


def pools_for(spec: JobSpec, pools: Sequence[Pool], nodes: Nodes) -> list[Pool]:
    """The pools that may ever run this job, in the order in which they are asked; or Refused."""
    if not pools:
        raise Refused("no_pool")
    left = _in_cluster(spec, pools)
    if not left:
        known = f"{DEFAULT_CLUSTER}, {_names(pools)}"
        raise Refused("cluster_unknown", cluster=spec.cluster, known=known)
    nodes = matching(spec, nodes)
    if spec.require and not any(nodes.get(pool.name) for pool in left):
        raise Refused("require_none", require=labels_text(spec.require), pools=_names(left))
    if spec.require:
        left = [pool for pool in left if nodes.get(pool.name)]
    before, left = left, [pool for pool in left if pool.private or spec.public_bcc]
    if not left:
        raise Refused("private_pool_none", cluster=spec.cluster, pools=_names(before))
    job_type = spec.job_type
    before, left = left, [p for p in left if job_type is None or job_type in p.job_types]
    if not left:
        types = ", ".join(sorted({kind.value for pool in before for kind in pool.job_types}))
        raise Refused("job_type_none", job_type=job_type, pools=_names(before), types=types)
    before, left = left, [pool for pool in left if pool.private or spec.wall_time is None]
    if not left:
        wall_time = format_duration(spec.wall_time.total_seconds() if spec.wall_time else 0)
        raise Refused("wall_time_public", wall_time=wall_time, pools=_names(before))
    before, left = left, [p for p in left if not spec.is_gang or (p.private and p.gangs)]
    if not left:
        private = [pool for pool in before if pool.private]
        raise Refused(
            "gangs_none" if private else "instances_public",
            pools=_names(private or before),
            instance_count=spec.instance_count,
            replicas=spec.replica_count,
        )
    before, left = left, [p for p in left if _could_hold(spec, p, nodes.get(p.name, ()))]
    if not left:
        raise _too_big(spec, before, nodes)
    return left


def matching(spec: JobSpec, nodes: Nodes) -> Nodes:
    """The machines that have the labels that the job requires."""
    if not spec.require:
        return nodes
    return {
        name: [node for node in own if node.has_labels(spec.require)] for name, own in nodes.items()
    }


def seating(
    spec: JobSpec, pools: Sequence[Pool], nodes: Nodes
) -> tuple[list[Pool], tuple[ReplicaGroup, ...]]:
    """The pools to ask, as `pools_for`, and what the job claims there.

    A gang that no pool holds as it is claims less CPU than it asks for, and that by the machines of
    one pool: then that pool alone is asked.
    """
    found = pools_for(spec, pools, nodes)
    nodes = matching(spec, nodes)
    if not spec.is_gang:
        return found, spec.groups
    groups = least_groups(spec)
    whole_in = [p for p in found if not nodes.get(p.name) or fits(groups, nodes[p.name])]
    if whole_in:
        return whole_in, groups
    return found[:1], claims(groups, nodes[found[0].name], oversubscribe=True) or groups


def refusal(
    spec: JobSpec,
    pools: Sequence[Pool],
    nodes: Nodes,
    most: int = MAX_REPLICAS,
    *,
    private_store: bool = True,
) -> Refused | None:
    """Why this server will never run this job, or None. `spec` has its job type settled.

    `private_store`: whether a job may have its files in its owner's own bucket.
    """
    if not spec.public_bos and not private_store:
        return Refused("private_store_off", bos_url=spec.bos_url)
    asked = spec.replica_count
    if spec.elastic is not None:
        asked += spec.elastic.most - spec.instance_count
    if asked > most:
        return Refused("replicas_too_many", replicas=asked, limit=most)
    try:
        pools_for(spec, pools, nodes)
    except Refused as refused:
        return refused
    return None


def refused_by_plan(spec: JobSpec, pools: Sequence[Pool], plan: Plan, name: str) -> Refused | None:
    """Why the plan called `name` never lets this job run, or None.

    A plan binds on public pools, so a job that a private one may take is not refused by it.
    """
    asks = whole(spec.groups)
    limit = beyond(plan, asks)
    unlabelled = with_changes(spec, require=())
    if limit is None or not all(p.metered for p in pools_for(unlabelled, pools, {})):
        return None
    if limit in ("cpu", "memory", "gpu"):
        return Refused("quota_beyond", asks=_words(asks), plan=name, limit=_most(plan))
    return Refused("quota_none", plan=name, name=limit)


def _in_cluster(spec: JobSpec, pools: Sequence[Pool]) -> list[Pool]:
    if spec.cluster == DEFAULT_CLUSTER:
        return list(pools)
    return [pool for pool in pools if spec.cluster in (pool.name, pool.backend)]


def _could_hold(spec: JobSpec, pool: Pool, machines: Sequence[Node]) -> bool:
    if not machines:
        return True
    if not spec.is_gang:
        return _fits_some(spec.groups[0], machines)
    return claims(least_groups(spec), machines, oversubscribe=pool.oversubscribes) is not None


def _fits_some(group: ReplicaGroup, machines: Sequence[Node]) -> bool:
    return any(group.resources.fits_in(node.total) for node in machines)


def _too_big(spec: JobSpec, pools: Sequence[Pool], nodes: Nodes) -> Refused:
    machines = [node for pool in pools for node in nodes.get(pool.name, ())]
    unfit = [group for group in spec.groups if not _fits_some(group, machines)]
    if not unfit:
        return _gang_too_big(spec, pools, nodes)
    asks = unfit[0].resources
    if asks.gpu and not any(node.total.gpu for node in machines):
        return Refused("gpu_none", gpu=asks.gpu, pools=_names(pools))
    largest = max(machines, key=lambda node: (node.total.gpu, node.total.cpu, node.total.memory))
    has = _words(largest.total)
    return Refused("resources_never", asks=_words(asks), pools=_names(pools), has=has)


def _gang_too_big(spec: JobSpec, pools: Sequence[Pool], nodes: Nodes) -> Refused:
    """Each replica has a machine that is large enough, and all of them together have not."""
    totals = {
        pool.name: sum((node.total for node in nodes.get(pool.name, ())), NOTHING) for pool in pools
    }
    pool = max(totals, key=lambda name: (totals[name].gpu, totals[name].memory, totals[name].cpu))
    return Refused(
        "gang_never",
        replicas=spec.replica_count,
        asks=_words(whole(spec.groups)),
        pool=pool,
        machines=len(nodes.get(pool, ())),
        has=_words(totals[pool]),
    )


def _words(resources: Resources) -> str:
    return format_resources(resources.cpu, resources.memory, resources.gpu)


def _most(plan: Plan) -> str:
    """The limits of resources in words: 4 CPU, 8 GiB, 0 GPU."""
    parts = [] if plan.cpu is None else [f"{plan.cpu:g} CPU"]
    parts += [] if plan.memory is None else [format_size(plan.memory)]
    parts += [] if plan.gpu is None else [f"{plan.gpu} GPU"]
    return ", ".join(parts)


def _names(pools: Sequence[Pool]) -> str:
    return ", ".join(pool.name for pool in pools)
