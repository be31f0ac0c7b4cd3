"""The server's side of the agents: what each should do, and what each has seen.

Orders are rows in the database, so an agent that was away, or a server that was killed, loses none.
A report may come twice, late or out of order: log bytes carry their offset, everything else carries
the fence of its attempt, and a message with an old fence changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from paddlecloud import __version__
from paddlecloud.db import agents, attempts, jobs
from paddlecloud.db.attempts import Want
from paddlecloud.db.base import Tx
from paddlecloud.model.env import environment
from paddlecloud.model.errors import NotFound, StaleFence, Unauthenticated
from paddlecloud.model.job import (
    Attempt,
    ExitCause,
    ExitRecord,
    Job,
    Replica,
    ReplicaState,
    Resources,
)
from paddlecloud.model.paths import log_directory, output_directory
from paddlecloud.model.snapshot import check_path
from paddlecloud.server.deps import Deps
from paddlecloud.server.services import files, snapshots
from paddlecloud.server.services import jobs as job_service
from paddlecloud.server.shapes import (
    Ack,
    AgentSettings,
    ExitNote,
    Order,
    PollAnswer,
    PollRequest,
    Report,
    ReportAnswer,
    ReportItem,
    RunOrder,
)
from paddlecloud.stores.base import CanLocalPath, Sink

TAIL_BYTES = 16 * 1024
"""Enough for the last 20 lines in the words about a failure."""
MAX_ORDERS = 200


@dataclass(frozen=True, kw_only=True)
class Assigned:
    """A replica with the attempt and the job it belongs to."""

    replica: Replica
    attempt: Attempt
    job: Job


def seen(deps: Deps, node: str, poll: PollRequest) -> None:
    """Remember that this agent is there and what it has."""
    if poll.agent != node:
        raise Unauthenticated("agent_name", agent=poll.agent[:100], own=node)
    capacity = Resources(cpu=poll.capacity.cpu, memory=poll.capacity.memory, gpu=poll.capacity.gpu)
    agent = agents.Agent(
        id=node,
        pool=node,
        boot=poll.boot,
        version=poll.version,
        host=poll.host,
        capacity=capacity,
        enforces=poll.enforces,
        seen_at=deps.clock(),
    )
    if deps.db.read(lambda tx: agents.needs_saving(tx, agent)):
        deps.db.write(lambda tx: agents.upsert_seen(tx, agent), durable=False)


def orders(deps: Deps, node: str, poll: PollRequest) -> PollAnswer:
    """What changed for this agent since its cursor; everything that is live for cursor 0."""

    def read(tx: Tx) -> list[tuple[attempts.Order, Assigned | None]]:
        rows = attempts.orders_since(tx, node, poll.cursor, MAX_ORDERS)
        return [(row, _assigned(tx, row.replica.id)) for row in rows]

    found = deps.db.read(read)
    return PollAnswer(
        cursor=max([poll.cursor, *(row.seq for row, _ in found)]),
        orders=[_order(deps, row, known) for row, known in found],
        settings=AgentSettings(
            ship_interval=deps.settings.running.ship_interval.total_seconds(),
            grace=deps.settings.running.grace.total_seconds(),
        ),
        restart=poll.version != __version__,
    )


def report(deps: Deps, node: str, notes: Report, log_bytes: memoryview) -> ReportAnswer:
    """Take in what an agent saw: log bytes first, then what they make true of the jobs."""
    known = deps.db.read(lambda tx: {i.replica: _assigned(tx, i.replica) for i in notes.items})
    acks: list[Ack] = []
    stale: list[str] = []
    news: list[tuple[ReportItem, Assigned]] = []
    tails: dict[str, bytes] = {}
    position = 0
    for item in notes.items:
        length = item.log.length if item.log else 0
        piece = log_bytes[position : position + length]
        position += length
        assigned = known[item.replica]
        if assigned is None or not _current(assigned, item.fence, node):
            stale.append(item.replica)
            continue
        size = _store_log(deps, assigned, item, piece)
        whole = item.exited is not None and size >= item.exited.log_size
        acks.append(Ack(replica=item.replica, log_size=size, exited=whole))
        if item.started or whole or item.lost:
            news.append((item if whole else _without_exit(item), assigned))
            if whole or item.lost:
                tails[assigned.replica.id] = _tail(deps, assigned, size)
    if news:
        deps.db.write(lambda tx: _take_in(tx, news, tails, deps.clock()))
    return ReportAnswer(acks=acks, stale=stale)


def upload(deps: Deps, node: str, replica_id: str, fence: int) -> Assigned:
    """The replica that may send files now, or StaleFence."""
    assigned = deps.db.read(lambda tx: _assigned(tx, replica_id))
    if assigned is None or not _current(assigned, fence, node):
        raise StaleFence("fence_stale", replica=replica_id[:200], fence=fence)
    return assigned


def open_output(
    deps: Deps, assigned: Assigned, area: str, path: str, modified: datetime | None
) -> Sink:
    """Where one output file of a replica goes; area is output (OUTPUT_PATH) or log."""
    check_path(path)
    place = {"output": output_directory, "log": log_directory}.get(area)
    if place is None:
        raise NotFound("area_unknown", area=area[:50])
    replica = assigned.replica
    below = f"{place(assigned.job.id, replica.role, replica.rank)}/{path}"
    check_path(below)
    full = f"{files.user_root(assigned.job.owner)}/{below}"
    return deps.store.open_write(full, modified=modified)


def replica_owner(deps: Deps, node: str, replica_id: str) -> Job:
    """The job of a replica that this agent holds: it may read that job's files and no others."""
    assigned = deps.db.read(lambda tx: _assigned(tx, replica_id))
    if assigned is None or assigned.replica.node != node:
        raise NotFound("replica_unknown", replica=replica_id[:200])
    return assigned.job


def mark_lost(deps: Deps, node: str) -> None:
    """An agent is gone for good: everything that ran there is lost with it."""
    now = deps.clock()

    def lose(tx: Tx) -> None:
        for attempt in attempts.live_attempts(tx):
            mine = [r for r in attempt.replicas if r.node == node and not r.over]
            for replica in mine:
                attempts.update_replica(tx, replace(replica, state=ReplicaState.LOST))
            job = jobs.get_job(tx, attempt.job_id) if mine else None
            if job is not None:
                job_service.settle(tx, job, now=now)

    deps.db.write(lose)


def _assigned(tx: Tx, replica_id: str) -> Assigned | None:
    job_id, _, rest = replica_id.partition(".")
    number = rest.partition(".")[0]
    job = jobs.get_job(tx, job_id)
    if job is None or not number.isdigit():
        return None
    attempt = attempts.get_attempt(tx, job_id, int(number))
    for replica in attempt.replicas if attempt else ():
        if replica.id == replica_id:
            assert attempt is not None
            return Assigned(replica=replica, attempt=attempt, job=job)
    return None


def _current(assigned: Assigned, fence: int, node: str) -> bool:
    return (
        assigned.attempt.fence == fence
        and assigned.replica.node == node
        and assigned.job.attempt == assigned.attempt.number
        and assigned.attempt.ended_at is None
    ) or (
        # The end was already taken in and its answer lost: say yes again.
        assigned.attempt.fence == fence
        and assigned.replica.node == node
        and assigned.replica.over
        and assigned.job.attempt == assigned.attempt.number
    )


def _store_log(deps: Deps, assigned: Assigned, item: ReportItem, piece: memoryview) -> int:
    if item.log is None:
        return deps.logs.size(_log(deps, assigned))
    with deps.log_moves if assigned.job.spec.max_retries else nullcontext():
        size = deps.logs.append(_log(deps, assigned), item.log.offset, piece)
    if piece:
        deps.hub.tell("log", assigned.job.id)
    return size


def _log(deps: Deps, assigned: Assigned) -> str:
    """Where the log lies; asked anew for a job that may be tried again, whose logs move."""
    job: Job | None = assigned.job
    if assigned.job.spec.max_retries:
        job = deps.db.read(lambda tx: jobs.get_job(tx, assigned.job.id))
    return files.log_path(
        deps, job or assigned.job, assigned.replica.worker, assigned.attempt.number
    )


def _without_exit(item: ReportItem) -> ReportItem:
    return ReportItem(replica=item.replica, fence=item.fence, started=item.started, lost=item.lost)


def _tail(deps: Deps, assigned: Assigned, size: int) -> bytes:
    return deps.logs.read(_log(deps, assigned), max(0, size - TAIL_BYTES), TAIL_BYTES)


def _take_in(
    tx: Tx,
    news: Sequence[tuple[ReportItem, Assigned]],
    tails: dict[str, bytes],
    now: datetime,
) -> None:
    touched: dict[str, dict[str, bytes]] = {}
    for item, stale_view in news:
        assigned = _assigned(tx, stale_view.replica.id)
        if assigned is None or assigned.replica.over:
            continue
        changed = _observed(assigned.replica, item)
        attempts.update_replica(tx, changed)
        job_tails = touched.setdefault(assigned.job.id, {})
        if changed.id in tails:
            job_tails[changed.worker] = tails[changed.id]
    for job_id, job_tails in touched.items():
        job = jobs.get_job(tx, job_id)
        if job is not None:
            job_service.settle(tx, job, now=now, tails=job_tails)


def _observed(replica: Replica, item: ReportItem) -> Replica:
    if item.started is not None:
        replica = replace(replica, state=ReplicaState.RUNNING, pid=item.started.pid)
    if item.lost:
        replica = replace(replica, state=ReplicaState.LOST)
    if item.exited is not None:
        record = _exit_record(item.exited)
        size = item.exited.log_size
        replica = replace(replica, state=ReplicaState.EXITED, exit=record, log_bytes=size)
    return replica


def _exit_record(note: ExitNote) -> ExitRecord:
    known = note.cause in list(ExitCause)
    return ExitRecord(
        cause=ExitCause(note.cause) if known else ExitCause.EXIT,
        exit_code=note.exit_code,
        signal=note.signal,
        oom=note.oom,
        message=note.message,
        started_at=_when(note.started_at),
        finished_at=_when(note.finished_at),
        max_rss=note.max_rss,
        cpu_seconds=note.cpu_seconds,
        enforced=note.enforced,
    )


def _when(epoch: float | None) -> datetime | None:
    try:
        return None if epoch is None else datetime.fromtimestamp(epoch, UTC)
    except (ValueError, OverflowError, OSError):
        return None  # a broken clock must not keep the end of a job from being told


def _order(deps: Deps, row: attempts.Order, assigned: Assigned | None) -> Order:
    wants_run = row.want is not Want.FORGET and assigned is not None
    return Order(
        seq=row.seq,
        replica=row.replica.id,
        job=row.job_id,
        attempt=row.attempt,
        fence=row.fence,
        want=row.want.value if assigned is not None else Want.FORGET.value,
        grace=row.grace.total_seconds(),
        cause=(row.cause or ExitCause.STOPPED).value,
        run=_run_order(deps, assigned) if wants_run and assigned else None,
    )


def _run_order(deps: Deps, assigned: Assigned) -> RunOrder:
    job, replica = assigned.job, assigned.replica
    spec = job.spec
    inherit = deps.pools[assigned.attempt.pool].private
    return RunOrder(
        command=spec.start_cmd,
        env=environment(job, assigned.attempt, replica, inherit=inherit),
        snapshot=spec.snapshot,
        blobs_dir=_blobs_dir(deps, job.owner),
        role=replica.role.value,
        rank=replica.rank,
        worker=replica.worker,
        max_seconds=spec.wall_time.total_seconds() if spec.wall_time else None,
        cpu_request=replica.resources.cpu,
        cpu_limit=replica.resources.cpu if spec.cpu_limited else None,
        memory_limit=replica.resources.memory or None,
        pids_limit=deps.settings.running.pids_limit or None,
    )


def _blobs_dir(deps: Deps, owner: str) -> str | None:
    if not isinstance(deps.store, CanLocalPath):
        return None
    path = deps.store.local_path(snapshots.blobs_root(owner))
    return str(path) if path else None
