"""The server's side of the agents: what each should do, and what each has seen.

Orders are rows in the database, so an agent that was away, or a server that was killed, loses none.
A report may come twice, late or out of order: log bytes carry their offset, everything else carries
the fence of its attempt, and a message with an old fence changes nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from paddlecloud import __version__
from paddlecloud.backends.base import AgentState
from paddlecloud.db.engine.base import Tx
from paddlecloud.db.tables import agents, attempts, jobs, servers
from paddlecloud.db.tables.agent_keys import AgentIdentity
from paddlecloud.db.tables.orders import Order as OrderRow
from paddlecloud.db.tables.orders import Want, orders_since, set_order
from paddlecloud.model.errors import NotFound, PaddleCloudError, StaleFence, Unauthenticated
from paddlecloud.model.files.layout import output_directory, replica_id
from paddlecloud.model.files.snapshot import check_path
from paddlecloud.model.jobs.environment import environment
from paddlecloud.model.jobs.gang import ports_of
from paddlecloud.model.jobs.job import (
    Attempt,
    DistributeMode,
    ExitCause,
    Job,
    Reason,
    Replica,
    ReplicaState,
    Resources,
)
from paddlecloud.model.jobs.spec_codec import limits_cpu
from paddlecloud.model.logs.tail import TAIL_BYTES
from paddlecloud.model.policy.pool import Pool
from paddlecloud.server.deps import Deps
from paddlecloud.server.http.auth import secret_of
from paddlecloud.server.schemas.agent import (
    Ack,
    AgentSettings,
    CommandOrder,
    Order,
    PollAnswer,
    PollRequest,
    Report,
    ReportAnswer,
    ReportItem,
    RunOrder,
    UseNote,
)
from paddlecloud.server.services.agents.observed import observed
from paddlecloud.server.services.exec import commands
from paddlecloud.server.services.files import job_files, snapshots
from paddlecloud.server.services.jobs import hold_reasons, live_usage
from paddlecloud.server.services.jobs.settle import current_attempt, settle
from paddlecloud.server.services.logs import read as logs_read
from paddlecloud.server.services.placement import isolation, release
from paddlecloud.stores.base import CanLocalPath, CanPresign, Reader, Store

MAX_ORDERS = 200
_MOST_RESERVED = 4 * 2**30
"""Bytes of a machine that no replica without --memory may use."""


@dataclass(frozen=True, kw_only=True)
class Assigned:
    """A replica with the attempt and the job it belongs to."""

    replica: Replica
    attempt: Attempt
    job: Job


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
        deps.db.write(lambda tx: agents.upsert_seen(tx, agent), durable=False)
        if node in deps.silent():
            deps.caches.machines.clear()


def orders(deps: Deps, node: str, poll: PollRequest) -> PollAnswer:
    """What changed for this agent since its cursor; everything that is live for cursor 0."""
    deps.caches.order_cursors.put(node, poll.cursor)

    def read(tx: Tx) -> tuple[list[tuple[OrderRow, Assigned | None]], list[CommandOrder]]:
        rows = orders_since(tx, node, poll.cursor, MAX_ORDERS)
        told = commands.orders_for(tx, node, poll.commands)
        known = _Known(tx)
        # To forget one nothing has to be known of it.
        wanted = [row for row in rows if row.want is not Want.DELETE]
        known.learn({(row.job_id, row.attempt): None for row in wanted})
        return [
            (row, known.assigned(row.replica.id) if row.want is not Want.DELETE else None)
            for row in rows
        ], told

    found, news = deps.db.read(read)
    uids = _Uids(deps)
    return PollAnswer(
        cursor=max([poll.cursor, *(row.seq for row, _ in found)]),
        orders=[_order(deps, row, known, uids) for row, known in found],
        settings=AgentSettings(
            ship_interval=deps.settings.running.ship_interval.total_seconds(),
            grace=deps.settings.running.grace.total_seconds(),
            separate=isolation.is_wanted(deps),
            cache_limit=deps.settings.running.cache_limit,
        ),
        restart=_is_to_restart(deps, node, poll.version),
        peers=list(_peers(deps)),
        commands=news,
    )


def _is_to_restart(deps: Deps, node: str, version: str) -> bool:
    """An agent of another version ends, and its server starts one of its own version.

    Only the server that would do so may ask for it: while servers are exchanged one by one, agents
    come by here whose servers have another version for a while.
    """
    return version != __version__ and (deps.server is None or deps.server.node == node)


def _peers(deps: Deps) -> tuple[str, ...]:
    if deps.server is None:
        return ()
    now = deps.clock()
    ask = partial(deps.db.read, partial(servers.urls, now=now))
    return deps.caches.peers.load(now, ask)


@dataclass(frozen=True, kw_only=True)
class Noted:
    """A report whose log bytes are stored: its answer, and what it says of the jobs."""

    answer: ReportAnswer
    news: Sequence[tuple[ReportItem, Assigned]]
    tails: Mapping[str, bytes]
    uses: Mapping[str, UseNote]
    waits: Mapping[str, Reason | None]
    """By job, what holds it up; None: nothing any more."""

    @property
    def tells(self) -> bool:
        """Whether there is anything to write down."""
        return bool(self.news or self.uses or self.waits)

    @property
    def durable(self) -> bool:
        """Whether it has to be on disk before it is answered. Mostly not: the agent keeps all of
        it until `release_ended` has waited for the disk, so after a loss of power it tells the
        same once more. What is lost it may forget at once."""
        return any(_given_up(item, assigned) for item, assigned in self.news)


def note(deps: Deps, node: str, notes: Report, log_bytes: memoryview) -> Noted:
    """Store the log bytes of a report; before it is answered `take_in` follows, if it `tells`."""
    known = deps.db.read(lambda tx: _known(tx, deps, notes.items))
    acks: list[Ack] = []
    stale: list[str] = []
    news: list[tuple[ReportItem, Assigned]] = []
    tails: dict[str, bytes] = {}
    uses: dict[str, UseNote] = {}
    waits: dict[str, Reason | None] = {}
    position = 0
    for item in notes.items:
        length = item.log.length if item.log else 0
        piece = log_bytes[position : position + length]
        position += length
        assigned = known[item.replica]
        ends = item.lost or item.exited is not None
        if assigned is None or not _current(assigned, item.fence, node, ends=ends):
            stale.append(item.replica)
            continue
        size = _store_log(deps, assigned, item, piece)
        if item.usage is not None and not assigned.replica.over:
            uses[item.replica] = item.usage
        if item.held is not None:
            waits[assigned.job.id] = hold_reasons.held(
                deps, item.held, assigned.job, assigned.replica
            )
        given_up = assigned.replica.state is ReplicaState.LOST
        whole = item.exited is not None and (given_up or size >= item.exited.log_size)
        acks.append(Ack(replica=item.replica, log_size=size, exited=whole))
        if item.started or whole or item.lost:
            news.append((item if whole else _without_exit(item), assigned))
        if whole or item.lost:
            tails |= _first_tail(deps, assigned)
            tails[assigned.replica.id] = _tail(deps, assigned, size)
        if item.lost:
            deps.logs.flush([_log(deps, assigned)])
            # Who is lost may have failed first, which shifts the blame: all last words are needed.
            told = last_bytes(deps, assigned.attempt)
            tails |= {one.id: told.get(one.worker, b"") for one in assigned.attempt.replicas}
    answer = ReportAnswer(acks=acks, stale=stale)
    return Noted(answer=answer, news=news, tails=tails, uses=uses, waits=waits)


def take_in(tx: Tx, deps: Deps, noted: Noted) -> None:
    """Write down what a report makes true of its jobs."""
    now = deps.clock()
    live_usage.take_in(tx, noted.uses, now)
    hold_reasons.take_in(tx, noted.waits, [assigned.job for _, assigned in noted.news])
    touched: dict[str, tuple[Job, dict[str, bytes]]] = {}
    known = _Known(tx)
    if len(noted.news) > 1:
        known.learn({(it.attempt.job_id, it.attempt.number): None for _, it in noted.news})
    for item, stale_view in noted.news:
        assigned = known.assigned(stale_view.replica.id)
        if assigned is None:
            continue
        changed = assigned.replica
        if not changed.over:
            changed = observed(changed, item)
            attempts.update_replica(tx, changed)
        if changed.state is ReplicaState.LOST and (item.lost or item.exited):
            _forget(tx, assigned)
        if assigned.replica.over:
            continue
        members = [one for one in assigned.attempt.replicas if one.id in noted.tails]
        job, job_tails = touched.setdefault(assigned.job.id, (assigned.job, {}))
        job_tails |= {one.worker: noted.tails[one.id] for one in members}
    for job, job_tails in touched.values():
        settle(tx, deps, job, now=now, tails=job_tails)


def upload(deps: Deps, node: str, replica_id: str, fence: int) -> Assigned:
    """The replica that may send files now, or StaleFence."""
    assigned = deps.db.read(lambda tx: _assigned(tx, replica_id))
    if assigned is None or not _current(assigned, fence, node):
        raise StaleFence("fence_stale", replica=replica_id[:200], fence=fence)
    return assigned


def live(deps: Deps, node: str, replica_id: str) -> Assigned:
    """A live replica of this agent, whose files it may read."""
    assigned = deps.db.read(lambda tx: _assigned(tx, replica_id))
    if assigned is None or assigned.replica.node != node or assigned.replica.over:
        raise NotFound("replica_unknown", replica=replica_id[:200])
    return assigned


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


def mark_lost(deps: Deps, node: str, seen_at: datetime | None = None) -> None:
    """An agent is gone for good: everything that ran there is lost with it. `seen_at`: when it was
    last heard of, as the one knows who says so; else as it is known now."""
    now = deps.clock()
    known = deps.db.read(lambda tx: agents.get_agent(tx, node)) if seen_at is None else None
    heard = known.seen_at if known is not None else seen_at or now
    live = [a for a in deps.db.read(attempts.live_attempts) if _running_on(a, node)]
    tails = {attempt.job_id: last_bytes(deps, attempt) for attempt in live}

    def lose(tx: Tx, job_id: str) -> None:
        job = jobs.get_job(tx, job_id)
        attempt = current_attempt(tx, job) if job is not None else None
        if job is not None and attempt is not None:
            release.lose(tx, attempt, _running_on(attempt, node))
            settle(tx, deps, job, now=now, tails=tails[job_id])

    if any(_is_up(deps, attempt) for attempt in live):
        # It is there and says nothing: no place for the next attempt. One that is gone is: whoever
        # is placed there has another agent started.
        deps.db.write(lambda tx: agents.give_up(tx, node, heard))
        deps.caches.machines.clear()
    for attempt in live:
        deps.db.write(partial(lose, job_id=attempt.job_id))


def _is_up(deps: Deps, attempt: Attempt) -> bool:
    backend = deps.backends.get(attempt.pool)
    if backend is None:
        return False
    try:
        return backend.status(release.handle_of(backend, attempt)).state is AgentState.UP
    except (PaddleCloudError, OSError):
        return True


def last_bytes(deps: Deps, attempt: Attempt) -> dict[str, bytes]:
    """The end of each worker's log, for the words about a failure."""
    job = deps.db.read(lambda tx: jobs.get_job(tx, attempt.job_id))
    tails: dict[str, bytes] = {}
    for replica in attempt.replicas if job is not None else ():
        assert job is not None
        assigned = Assigned(replica=replica, attempt=attempt, job=job)
        size = deps.logs.size(_log(deps, assigned))
        tails[replica.worker] = _tail(deps, assigned, size)
    return tails


def _first_tail(deps: Deps, assigned: Assigned) -> dict[str, bytes]:
    """The end of the log of the gang's first worker, which speaks for a gang that was killed and
    may have ended with an earlier report than the one that is told now."""
    first = assigned.attempt.replicas[0]
    if first.id == assigned.replica.id:
        return {}
    theirs = Assigned(replica=first, attempt=assigned.attempt, job=assigned.job)
    return {first.id: _tail(deps, theirs, deps.logs.size(_log(deps, theirs)))}


def _outputs_of(deps: Deps, node: str, replica_id: str) -> tuple[Store, str]:
    assigned = live(deps, node, replica_id)
    replica = assigned.replica
    below = output_directory(assigned.job.id, replica.role, replica.rank)
    place = job_files.place_of(deps, assigned.job)
    return place.store, f"{place.root}{below}/"


def _running_on(attempt: Attempt, node: str) -> list[Replica]:
    return [replica for replica in attempt.replicas if replica.node == node and not replica.over]


class _Known:
    """What one transaction has looked up: the members of a gang come together, and each attempt is
    read once for all of them. Good for as long as each replica is asked for once."""

    def __init__(self, tx: Tx) -> None:
        self._tx = tx
        self._found: dict[str, Assigned] = {}

    def assigned(self, replica_id: str) -> Assigned | None:
        if replica_id not in self._found:
            job = jobs.of_replica(self._tx, replica_id)
            attempt = attempts.attempt_of(self._tx, replica_id)
            if attempt is None:
                return None
            self._keep(attempt, job())
        return self._found.get(replica_id)

    def learn(self, wanted: Collection[tuple[str, int]]) -> None:
        """Look up these attempts, by job and number, all at once."""
        found = attempts.get_attempts(self._tx, wanted)
        known = jobs.get_jobs(self._tx, dict.fromkeys(attempt.job_id for attempt in found))
        by_id = {job.id: job for job in known}
        for attempt in found:
            self._keep(attempt, by_id.get(attempt.job_id))

    def _keep(self, attempt: Attempt, job: Job | None) -> None:
        for replica in attempt.replicas if job is not None else ():
            assert job is not None
            self._found[replica.id] = Assigned(replica=replica, attempt=attempt, job=job)


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


def _known(tx: Tx, deps: Deps, items: Iterable[ReportItem]) -> dict[str, Assigned | None]:
    """The replicas of a report; of one that only speaks, what was read before will do as long as
    it holds."""
    looked_up = _Known(tx)
    found: dict[str, Assigned | None] = {}
    for item in items:
        speaks = not (item.started or item.exited or item.lost)
        mark = attempts.replica_mark(tx, item.replica) if speaks else None
        kept = deps.caches.logging_replicas.get((item.replica, *mark)) if mark else None
        found[item.replica] = kept or looked_up.assigned(item.replica)
        if mark and kept is None and (read := found[item.replica]) is not None:
            deps.caches.logging_replicas.put((item.replica, *mark), read)
    return found


def _assigned(tx: Tx, replica_id: str) -> Assigned | None:
    return _Known(tx).assigned(replica_id)


def _current(assigned: Assigned, fence: int, node: str, *, ends: bool = False) -> bool:
    """Whether a message of this agent with this fence counts; one that `ends` a replica may repeat.

    The end was taken in and its answer lost: say yes again. A replica that was given up counts for
    nothing but its end, so an agent that comes back with one alive hears that it is stale.
    """
    replica, attempt = assigned.replica, assigned.attempt
    if attempt.fence != fence or replica.node != node:
        return False
    if replica.over and ends:
        return True
    return replica.state is not ReplicaState.LOST and assigned.job.attempt == attempt.number


def _store_log(deps: Deps, assigned: Assigned, item: ReportItem, piece: memoryview) -> int:
    if item.log is None:
        return deps.logs.size(_log(deps, assigned))
    with deps.log_moves if _may_be_tried_again(deps, assigned) else nullcontext():
        now = deps.clock().timestamp()
        size = deps.logs.append(_log(deps, assigned), item.log.offset, piece, now)
    if piece:
        number, worker = assigned.attempt.number, assigned.replica.worker
        topic = logs_read.topic(assigned.job.id, number, worker)
        logs_read.grew(deps, topic, item.log.offset, piece, size)
    return size


def _log(deps: Deps, assigned: Assigned) -> str:
    """Where the log lies; asked anew for a job that may be tried again, whose logs move."""
    job: Job | None = assigned.job
    if _may_be_tried_again(deps, assigned):
        job = deps.db.read(lambda tx: jobs.get_job(tx, assigned.job.id))
    return job_files.log_path(
        deps, job or assigned.job, assigned.replica.worker, assigned.attempt.number
    )


def _may_be_tried_again(deps: Deps, assigned: Assigned) -> bool:
    pool = deps.pools.get(assigned.attempt.pool)
    preempted = pool is not None and pool.preemption
    return preempted or bool(assigned.job.spec.max_retries)


def _given_up(item: ReportItem, assigned: Assigned) -> bool:
    return item.lost or assigned.replica.state is ReplicaState.LOST


def _without_exit(item: ReportItem) -> ReportItem:
    return ReportItem(
        replica=item.replica,
        fence=item.fence,
        started=item.started,
        lost=item.lost,
        all_ended=item.all_ended,
    )


def _tail(deps: Deps, assigned: Assigned, size: int) -> bytes:
    return deps.logs.read(_log(deps, assigned), max(0, size - TAIL_BYTES), TAIL_BYTES)


def _forget(tx: Tx, assigned: Assigned) -> None:
    """Its own agent says that nothing is left of a lost replica."""
    job_id, number = assigned.job.id, assigned.attempt.number
    set_order(tx, job_id, number, Want.DELETE, only=(assigned.replica.id,))


def _order(deps: Deps, row: OrderRow, assigned: Assigned | None, uids: _Uids) -> Order:
    wants_run = row.want is not Want.DELETE and assigned is not None
    # Agents of before take from the order to run what its monitor grants at the wall time.
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
        run=_run_order(deps, assigned, uids) if wants_run and assigned else None,
    )


def _patience(deps: Deps, job: Job) -> float:
    """Who asked for its end does not wait for a store that is away; what is left is kept."""
    settings = deps.settings
    if job.kill_asked:
        return settings.running.grace.total_seconds()
    of = settings.store if job.spec.public_bos else settings.private_store
    return of.patience.total_seconds()


def _run_order(deps: Deps, assigned: Assigned, uids: _Uids) -> RunOrder:
    job, replica = assigned.job, assigned.replica
    spec, left = job.spec, job.time_left
    asked = spec.asked_for(replica.role)
    pool = deps.pools.get(assigned.attempt.pool)
    inherit = pool is not None and pool.private and not deps.settings.team
    return RunOrder(
        command=spec.start_cmd,
        began=replica.pid is not None or replica.exit is not None,
        env=environment(
            job, assigned.attempt, replica, inherit=inherit, has_cards=_has_cards(deps, replica)
        ),
        snapshot=spec.snapshot,
        blobs_dir=_blobs_dir(deps, job.owner) if spec.public_bos else None,
        direct=not spec.public_bos or isinstance(deps.store, CanPresign),
        bucket_timeout=None if spec.public_bos else _patience(deps, job),
        store_timeout=_patience(deps, job) if spec.public_bos else None,
        role=replica.role.value,
        rank=replica.rank,
        worker=replica.worker,
        # An attempt whose job has no time left still tells so by itself, in the usual way.
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
        resumes=_before(assigned),
        ports=_ports(assigned),
        stacks=spec.hang_timeout is not None,
        pserver_mode=spec.distribute_mode is DistributeMode.PSERVER,
        secret=secret_of(deps.server_key, replica.id),
    )


def _late(deps: Deps, job: Job) -> timedelta:
    """How long the job ran before this replica joined it."""
    if job.spec.elastic is None or job.running_since is None:
        return timedelta(0)
    return max(timedelta(0), deps.clock() - job.running_since)


def _ports(assigned: Assigned) -> list[int]:
    """Of a gang: what this replica may listen on. A single one shares its port with all others."""
    replica = assigned.replica
    if len(assigned.attempt.replicas) == 1 and assigned.job.spec.elastic is None:
        return []
    return list(ports_of(replica.role, replica.rank, replica.port))


def _has_cards(deps: Deps, replica: Replica) -> bool:
    return bool(replica.cards or _machine(deps, replica).gpu)


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


def _before(assigned: Assigned) -> str | None:
    """The same worker in the attempt before; None in the first."""
    number = assigned.attempt.number - 1
    if number < 1:
        return None
    return replica_id(assigned.job.id, number, assigned.replica.worker)


def _blobs_dir(deps: Deps, owner: str) -> str | None:
    if not isinstance(deps.store, CanLocalPath):
        return None
    path = deps.store.local_path(snapshots.blobs_root(owner))
    return str(path) if path else None
