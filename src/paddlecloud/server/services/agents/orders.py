"""Orders for agents: what each of its replicas should do, as the response to its poll.

Orders are rows in the database, so an agent that was away, or a server that was killed, loses none.
"""

from __future__ import annotations

import time
from datetime import timedelta
from functools import partial

from paddlecloud import __version__
from paddlecloud.db.engine.base import Tx
from paddlecloud.db.tables import agents, servers
from paddlecloud.db.tables.agent_keys import AgentIdentity
from paddlecloud.db.tables.orders import Order as OrderRow
from paddlecloud.db.tables.orders import Want, orders_since
from paddlecloud.model.errors import Unauthenticated
from paddlecloud.model.files.layout import output_directory, replica_id
from paddlecloud.model.files.snapshot import check_path
from paddlecloud.model.jobs.environment import environment
from paddlecloud.model.jobs.gang import ports_of
from paddlecloud.model.jobs.job import DistributeMode, ExitCause, Job, Replica, Resources
from paddlecloud.model.jobs.spec_codec import limits_cpu
from paddlecloud.model.policy.pool import Pool
from paddlecloud.server.deps import JOINED_WAIT, Deps
from paddlecloud.server.http.auth import secret_of
from paddlecloud.server.schemas.agent import (
    AgentSettings,
    CommandOrder,
    Order,
    PollAnswer,
    PollRequest,
    RunOrder,
)
from paddlecloud.server.services.agents import package
from paddlecloud.server.services.agents.assignment import Assigned, Lookup, live
from paddlecloud.server.services.exec import commands
from paddlecloud.server.services.files import job_files, snapshots
from paddlecloud.server.services.placement import isolation
from paddlecloud.stores.base import CanLocalPath, CanPresign, Reader, Store

MAX_ORDERS = 200
IDLE_SECONDS = 1.0
"""How long orders that are not urgent are held back to send several at once."""
_MOST_RESERVED = 4 * 2**30
"""Bytes of a machine that no replica without --memory may use."""


async def poll(deps: Deps, identity: AgentIdentity, request: PollRequest) -> PollAnswer:
    """Orders above the cursor: at once if there are any, else when one comes."""
    node = identity.node
    await deps.loop_writer.call(record_contact, deps, identity, request)
    began = time.monotonic()
    deadline = began + _longest_wait(deps, identity, request)
    with deps.hub.waiter(("agent", node), (servers.CHANNEL, "")) as waiter:
        while True:
            found = await deps.loop_writer.call(orders, deps, node, request)
            if found.orders:
                # Deletions can wait, and a response now would delay an order to run that follows;
                # but after a full response there may be one already.
                full = len(found.orders) >= MAX_ORDERS
                urgent = full or any(order.want != Want.DELETE for order in found.orders)
                deadline = min(deadline, 0.0 if urgent else began + IDLE_SECONDS)
            # The agent has to know the other servers before this one fails.
            moved = deps.caches.sent_peers.get(node) not in (None, found.peers)
            waiting = found.commands or found.tunnels or moved
            left = 0.0 if waiting else deadline - time.monotonic()
            if found.restart or found.stopping or left <= 0 or deps.hub.closed:
                deps.caches.sent_peers.put(node, found.peers)
                return found
            await waiter.wait(min(left, 5.0))


def _longest_wait(deps: Deps, identity: AgentIdentity, request: PollRequest) -> float:
    """Machines that joined poll more often, so that it shows soon when one is unreachable."""
    if deps.has_joined(identity.node):
        return min(request.wait, JOINED_WAIT.total_seconds())
    return request.wait


def record_contact(deps: Deps, identity: AgentIdentity, poll: PollRequest) -> None:
    """Store that this agent is in contact, and what its machine has."""
    if poll.agent != identity.agent_id:
        raise Unauthenticated("agent_name", agent=poll.agent[:100], own=identity.agent_id)
    node = identity.node
    capacity = Resources(cpu=poll.capacity.cpu, memory=poll.capacity.memory, gpu=poll.capacity.gpu)
    agent = agents.Agent(
        id=node,
        pool=identity.pool or node,
        boot=poll.boot,
        version=poll.version,
        host=poll.host,
        capacity=capacity,
        enforces=poll.enforces,
        seen_at=deps.clock(),
    )
    if deps.db.read(lambda tx: agents.needs_saving(tx, agent)):
        deps.db.write(lambda tx: agents.upsert_agent(tx, agent), durable=False)
        if node in deps.unschedulable():
            deps.caches.machines.clear()


def orders(deps: Deps, node: str, poll: PollRequest) -> PollAnswer:
    """What changed for this agent since its cursor; everything that is live for cursor 0."""
    deps.caches.order_cursors.put(node, poll.cursor)

    def read(tx: Tx) -> tuple[list[tuple[OrderRow, Assigned | None]], list[CommandOrder]]:
        rows = orders_since(tx, node, poll.cursor, MAX_ORDERS)
        execs = commands.orders_for(tx, node, poll.commands)
        known = Lookup(tx)
        # An order to delete needs no details.
        wanted = [row for row in rows if row.want is not Want.DELETE]
        known.load({(row.job_id, row.attempt): None for row in wanted})
        return [
            (row, known.assigned(row.replica.id) if row.want is not Want.DELETE else None)
            for row in rows
        ], execs

    found, news = deps.db.read(read)
    uids = _Uids(deps)
    joined = deps.has_joined(node)
    is_old = joined and package.is_older(poll.version, __version__)
    return PollAnswer(
        cursor=max([poll.cursor, *(row.seq for row, _ in found)]),
        orders=[_order(deps, row, known, uids) for row, known in found],
        settings=AgentSettings(
            ship_interval=deps.settings.running.ship_interval.total_seconds(),
            grace=deps.settings.running.grace.total_seconds(),
            separate=isolation.is_wanted(deps),
            cache_limit=deps.settings.running.cache_limit,
        ),
        # An agent of another version ends, and its server starts one of its own version. Only that
        # server may request it: while servers are upgraded one by one, agents of servers with
        # another version poll here for a while.
        restart=poll.version != __version__
        and not joined
        and (deps.server is None or deps.server.node == node),
        package=package.package()[1] if is_old else "",
        # Where several servers share a database, the agent goes on with another one.
        stopping=deps.hub.closed and deps.server is None and not joined,
        peers=list(_peers(deps)),
        commands=news,
        tunnels=deps.tunnels.orders_for(node, poll.tunnels),
    )


def _peers(deps: Deps) -> tuple[str, ...]:
    if deps.server is None:
        return ()
    now = deps.clock()
    return deps.caches.peers.load(now, lambda: deps.db.read(partial(servers.urls, now=now)))


def outputs_before(deps: Deps, node: str, replica_id: str) -> list[tuple[str, int, float]]:
    """What earlier attempts put into OUTPUT_PATH of this live replica: path, size, time."""
    store, top = _outputs_of(deps, node, replica_id)
    return [
        (stat.path[len(top) :], stat.size, stat.modified.timestamp()) for stat in store.list(top)
    ]


def open_output_before(deps: Deps, node: str, replica_id: str, path: str) -> Reader:
    """The content of one of these files."""
    check_path(path, below=True)
    store, top = _outputs_of(deps, node, replica_id)
    return store.read(top + path)


def _outputs_of(deps: Deps, node: str, replica_id: str) -> tuple[Store, str]:
    assigned = live(deps, node, replica_id)
    replica = assigned.replica
    below = output_directory(assigned.job.id, replica.role, replica.rank)
    place = job_files.place_of(deps, assigned.job)
    return place.store, f"{place.root}{below}/"


class _Uids:
    """The uids of one answer: many orders in it are the same user's."""

    def __init__(self, deps: Deps) -> None:
        self._deps = deps
        self._found: dict[tuple[str, str], int | None] = {}

    def of(self, pool: Pool, owner: str) -> int | None:
        key = (pool.name, owner)
        if key not in self._found:
            self._found[key] = isolation.uid_for(self._deps, pool, owner)
        return self._found[key]


def _order(deps: Deps, row: OrderRow, assigned: Assigned | None, uids: _Uids) -> Order:
    # Older agents take the grace period at the wall time from the order to run.
    grace = deps.settings.running.grace if row.want is Want.RUN else row.grace
    return Order(
        seq=row.seq,
        replica=row.replica.id,
        job=row.job_id,
        attempt=row.attempt,
        fence=row.fence,
        want=row.want.value if assigned is not None else Want.DELETE.value,
        grace=grace.total_seconds(),
        cause=(row.cause or ExitCause.STOPPED).value,
        run=_run_order(deps, assigned, uids) if assigned is not None else None,
    )


def _store_timeout(deps: Deps, job: Job) -> float:
    """A killed job does not wait for an unavailable store; its unsent outputs are kept."""
    settings = deps.settings
    if job.kill_asked:
        return settings.running.grace.total_seconds()
    of = settings.store if job.spec.public_bos else settings.private_store
    return of.patience.total_seconds()


def _run_order(deps: Deps, assigned: Assigned, uids: _Uids) -> RunOrder:
    job, replica = assigned.job, assigned.replica
    spec, left = job.spec, job.time_left
    asked = spec.asked_for(replica.role)
    number = assigned.attempt.number
    is_gang = len(assigned.attempt.replicas) > 1 or spec.elastic is not None
    pool = deps.pools.get(assigned.attempt.pool)
    joined = deps.has_joined(replica.node)
    inherit = not joined and pool is not None and pool.private and not deps.settings.team
    return RunOrder(
        command=spec.start_cmd,
        began=replica.pid is not None or replica.exit is not None,
        env=environment(
            job,
            assigned.attempt,
            replica,
            inherit=inherit,
            has_cards=bool(replica.cards or _machine(deps, replica).gpu),
        ),
        snapshot=spec.snapshot,
        blobs_dir=_blobs_dir(deps, job.owner) if spec.public_bos and not joined else None,
        direct=not spec.public_bos or isinstance(deps.store, CanPresign),
        bucket_timeout=None if spec.public_bos else _store_timeout(deps, job),
        store_timeout=_store_timeout(deps, job) if spec.public_bos else None,
        role=replica.role.value,
        rank=replica.rank,
        worker=replica.worker,
        # Without time left the attempt starts and ends by its wall time, as usual.
        max_seconds=None if left is None else max(1.0, (left - _late(deps, job)).total_seconds()),
        cpu_request=asked.cpu,
        cpu_limit=asked.cpu if limits_cpu(spec, replica.role) else None,
        memory_limit=_memory_limit(deps, replica),
        pids_limit=deps.settings.running.pids_limit or None,
        log_limit=deps.settings.running.log_limit or None,
        uid=None if pool is None else uids.of(pool, job.owner),
        hide=isolation.hidden(deps),
        user_namespaces=deps.settings.user_namespaces,
        requirements=spec.requirements,
        install_seconds=deps.settings.running.install_limit.total_seconds(),
        private_root=spec.is_gang,
        # The same worker in the attempt before.
        resumes=replica_id(job.id, number - 1, replica.worker) if number > 1 else None,
        # Of a gang: what it may listen on. A single replica shares its port with all others.
        ports=list(ports_of(replica.role, replica.rank, replica.port)) if is_gang else [],
        stacks=spec.hang_timeout is not None,
        pserver_mode=spec.distribute_mode is DistributeMode.PSERVER,
        secret=secret_of(deps.server_key, replica.id),
        secrets=dict(spec.secrets),
    )


def _late(deps: Deps, job: Job) -> timedelta:
    """How long the job ran before this replica joined it."""
    if job.spec.elastic is None or job.running_since is None:
        return timedelta(0)
    return max(timedelta(0), deps.clock() - job.running_since)


def _memory_limit(deps: Deps, replica: Replica) -> int | None:
    """Bytes that it is held to: what it asked for, else what jobs get that ask for none."""
    chosen = deps.settings.running.default_memory
    if replica.resources.memory or chosen is not None:
        return replica.resources.memory or chosen or None
    return spared(_machine(deps, replica).memory) or None if deps.settings.team else None


def spared(memory: int) -> int:
    """What one replica may use of a machine: the rest is for the server, the agent, the system."""
    return memory - min(memory // 10, _MOST_RESERVED)


def _machine(deps: Deps, replica: Replica) -> Resources:
    """What its machine has; nothing where no pool knows that any more."""
    nodes = (node for pool in deps.nodes().values() for node in pool)
    nothing = Resources(cpu=0.0, memory=0, gpu=0)
    return next((node.total for node in nodes if node.id == replica.node), nothing)


def _blobs_dir(deps: Deps, owner: str) -> str | None:
    if not isinstance(deps.store, CanLocalPath):
        return None
    path = deps.store.local_path(snapshots.blobs_root(owner))
    return str(path) if path else None
