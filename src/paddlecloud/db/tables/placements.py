"""Resources in use by placed jobs: per node, per owner and per job."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from paddlecloud.db.engine.base import Row, Tx
from paddlecloud.db.engine.columns import from_micros, in_parts, places
from paddlecloud.db.tables._replica_row import IN_USE, read_cards
from paddlecloud.db.tables.orders import Want
from paddlecloud.model.jobs.gang import ports_of
from paddlecloud.model.jobs.job import Resources, Role


@dataclass(frozen=True, kw_only=True)
class Placement:
    """A placed job: where, with which resources, and since when."""

    job_id: str
    owner: str
    priority: int
    pool: str
    since: datetime
    slots: tuple[tuple[str, Resources], ...]
    stopping: bool


def used_on_nodes(tx: Tx, nodes: Collection[str] | None = None) -> dict[str, Resources]:
    """The resources in use on each node (or each of these) that has any."""
    sums = "node, sum(cpu), cast(sum(memory) as bigint), cast(sum(gpu) as bigint)"
    if nodes is None:
        rows = tx.all(f"select {sums} from replicas where {IN_USE} group by node")
    else:
        rows = _in_use(tx, sums, nodes, " group by node")
    return {node: Resources(cpu=cpu, memory=memory, gpu=gpu) for node, cpu, memory, gpu in rows}


def ports_in_use(tx: Tx, nodes: Collection[str]) -> dict[str, set[int]]:
    """The ports in use on these machines, also those of gloo."""
    found: dict[str, set[int]] = {node: set() for node in nodes}
    for node, role, rank, port in _in_use(tx, "node, role, rank, port", nodes):
        found[node].update(ports_of(Role(role), rank, port))
    return found


def cards_in_use(tx: Tx, nodes: Collection[str]) -> dict[str, set[int]]:
    """The GPUs in use on these machines."""
    found: dict[str, set[int]] = {node: set() for node in nodes}
    for node, cards in _in_use(tx, "node, cards", nodes):
        found[node].update(read_cards(cards))
    return found


def used_by_owner(tx: Tx) -> dict[str, Resources]:
    """The resources in use by each owner who has any."""
    rows = tx.all(
        "select j.owner, sum(r.cpu), cast(sum(r.memory) as bigint), cast(sum(r.gpu) as bigint)"
        " from replicas r join jobs j on j.id = r.job_id"
        " where r.state in ('ordered', 'running') group by j.owner"
    )
    return {owner: Resources(cpu=cpu, memory=memory, gpu=gpu) for owner, cpu, memory, gpu in rows}


def placements(tx: Tx, pools: Collection[str]) -> list[Placement]:
    """Placed jobs in these pools, in the order of their attempts."""
    if not pools:
        return []
    rows = tx.all(
        "select a.job_id, j.owner, j.priority, a.pool, a.created_at, r.node, r.cpu, r.memory,"
        " r.gpu, r.want from attempts a join jobs j on j.id = a.job_id"
        " join replicas r on r.job_id = a.job_id and r.attempt = a.number"
        f" where a.ended_at is null and a.pool in ({places(len(pools))})"
        " and r.state in ('ordered', 'running') order by a.created_at, a.job_id, r.id",
        tuple(pools),
    )
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row[0], []).append(row)
    return [_placement(slots) for slots in found.values()]


def _in_use(tx: Tx, columns: str, nodes: Collection[str], grouped: str = "") -> list[Row]:
    rows: list[Row] = []
    for part, which in in_parts(nodes):
        rows += tx.all(
            f"select {columns} from replicas where {IN_USE} and node in ({which}){grouped}", part
        )
    return rows


def _placement(rows: list[Row]) -> Placement:
    job_id, owner, priority, pool, created_at = rows[0][:5]
    return Placement(
        job_id=job_id,
        owner=owner,
        priority=priority,
        pool=pool,
        since=from_micros(created_at),
        slots=tuple((row[5], Resources(cpu=row[6], memory=row[7], gpu=row[8])) for row in rows),
        # Of an elastic job some replicas may be stopped while the others go on.
        stopping=all(row[9] != Want.RUN.value for row in rows),
    )
