"""Takes in the reports of agents: stores log bytes, and writes starts, exits and resource use.

A report may come twice, late or out of order: log bytes carry their offset, everything else carries
the fence of its attempt.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial

from paddlecloud.db.engine.base import Tx
from paddlecloud.db.tables import attempts, jobs
from paddlecloud.db.tables.orders import Want, set_order
from paddlecloud.model.errors import Invalid
from paddlecloud.model.jobs.job import (
    Attempt,
    ExitCause,
    ExitRecord,
    Job,
    Reason,
    Replica,
    ReplicaState,
)
from paddlecloud.model.logs.tail import TAIL_BYTES
from paddlecloud.server.deps import Deps
from paddlecloud.server.http.executors import in_thread
from paddlecloud.server.http.request_body import decode_body
from paddlecloud.server.schemas.agent import (
    Ack,
    ExitNote,
    Report,
    ReportAnswer,
    ReportItem,
    UseNote,
)
from paddlecloud.server.services.agents.assignment import Assigned, Lookup, is_current
from paddlecloud.server.services.files import job_files
from paddlecloud.server.services.jobs import hold_reasons, live_usage
from paddlecloud.server.services.jobs.settle import settle
from paddlecloud.server.services.logs import read as logs_read

SMALL_REPORT = 64 * 1024
"""Bytes of logs that the event loop stores by itself; a thread stores more."""
CLOCKS_DIFFER = 2.0
"""Seconds; no report takes longer, unless the clocks of agent and server differ."""


@dataclass(frozen=True, kw_only=True)
class StoredReport:
    """A report whose log bytes are stored: its response, and the changes that it implies."""

    answer: ReportAnswer
    news: Sequence[tuple[ReportItem, Assigned]]
    tails: Mapping[str, bytes]
    uses: Mapping[str, UseNote]
    waits: Mapping[str, Reason | None]
    """By job, the reason why it is held; None: it is not held any more."""

    @property
    def has_changes(self) -> bool:
        """Whether there is anything to write to the database."""
        return bool(self.news or self.uses or self.waits)

    @property
    def durable(self) -> bool:
        """Whether it must be on disk before the response. Mostly not: the agent keeps its records
        until `release_ended` has waited for the disk, so after a power failure it reports the same
        again. Records of lost replicas it may delete at once."""
        return any(
            item.lost or assigned.replica.state is ReplicaState.LOST for item, assigned in self.news
        )


async def receive(deps: Deps, node: str, body: memoryview) -> ReportAnswer:
    """Take in a report: a length of 4 bytes, JSON, then the log bytes."""
    start = 4 + int.from_bytes(body[:4], "big")
    if len(body) < start:
        raise Invalid("body_invalid", detail="the report is shorter than its own length says")
    report = decode_body(bytes(body[4:start]), Report)
    log_bytes = body[start:]
    blocks = len(log_bytes) > SMALL_REPORT or any(item.lost for item in report.items)
    run = in_thread if blocks else deps.loop_writer.call
    stored = await run(store_logs, deps, node, report, log_bytes)
    if stored.has_changes:
        work = partial(apply, deps=deps, stored=stored)
        for pool, waited in await deps.loop_writer.write(work, durable=stored.durable):
            deps.metrics.started(pool, waited.total_seconds())
    return stored.answer


def store_logs(deps: Deps, node: str, report: Report, log_bytes: memoryview) -> StoredReport:
    """Store the log bytes of a report. If it `has_changes`, `apply` follows before the response."""
    known = deps.db.read(lambda tx: _known(tx, deps, report.items))
    acks: list[Ack] = []
    stale: list[str] = []
    news: list[tuple[ReportItem, Assigned]] = []
    tails: dict[str, bytes] = {}
    uses: dict[str, UseNote] = {}
    waits: dict[str, Reason | None] = {}
    position = 0
    for item in report.items:
        length = item.log.length if item.log else 0
        chunk = log_bytes[position : position + length]
        position += length
        assigned = known[item.replica]
        ends = item.lost or item.exited is not None
        if assigned is None or not is_current(assigned, item.fence, node, ends=ends):
            stale.append(item.replica)
            continue
        size = _store_log(deps, assigned, item, chunk, report.clock)
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
            # A lost replica may have failed first, so the last lines of all of them are needed.
            ends_of = last_bytes(deps, assigned.attempt)
            tails |= {one.id: ends_of.get(one.worker, b"") for one in assigned.attempt.replicas}
    answer = ReportAnswer(acks=acks, stale=stale)
    return StoredReport(answer=answer, news=news, tails=tails, uses=uses, waits=waits)


def apply(tx: Tx, deps: Deps, stored: StoredReport) -> list[tuple[str, timedelta]]:
    """Write the changes of a report, and settle the jobs that it concerns. Returns the pool of each
    that has started for the first time, and how long that took since its submit."""
    now = deps.clock()
    live_usage.take_in(tx, stored.uses, now)
    hold_reasons.take_in(tx, stored.waits, [assigned.job for _, assigned in stored.news])
    touched: dict[str, tuple[Job, dict[str, bytes]]] = {}
    known = Lookup(tx)
    if len(stored.news) > 1:
        known.load({(it.attempt.job_id, it.attempt.number): None for _, it in stored.news})
    for item, stale_view in stored.news:
        assigned = known.assigned(stale_view.replica.id)
        if assigned is None:
            continue
        changed = assigned.replica
        if not changed.over:
            changed = observed(changed, item)
            attempts.update_replica(tx, changed)
        if changed.state is ReplicaState.LOST and (item.lost or item.exited):
            # The agent reports that nothing of the lost replica is left.
            job_id, number = assigned.job.id, assigned.attempt.number
            set_order(tx, job_id, number, Want.DELETE, only=(assigned.replica.id,))
        if assigned.replica.over:
            continue
        members = [one for one in assigned.attempt.replicas if one.id in stored.tails]
        job, job_tails = touched.setdefault(assigned.job.id, (assigned.job, {}))
        job_tails |= {one.worker: stored.tails[one.id] for one in members}
    started: list[tuple[str, timedelta]] = []
    for job, job_tails in touched.values():
        settled = settle(tx, deps, job, now=now, tails=job_tails)
        if job.started_at is None and settled.started_at is not None:
            started.append((job.pool or "", settled.started_at - job.created_at))
    return started


def last_bytes(deps: Deps, attempt: Attempt) -> dict[str, bytes]:
    """The end of each worker's log, for the message about a failure."""
    job = deps.db.read(lambda tx: jobs.get_job(tx, attempt.job_id))
    tails: dict[str, bytes] = {}
    for replica in attempt.replicas if job is not None else ():
        assert job is not None
        assigned = Assigned(replica=replica, attempt=attempt, job=job)
        size = deps.logs.size(_log(deps, assigned))
        tails[replica.worker] = _tail(deps, assigned, size)
    return tails


def _known(tx: Tx, deps: Deps, items: Iterable[ReportItem]) -> dict[str, Assigned | None]:
    """The replicas of a report. For items with log bytes only, a cached one is used as long as the
    replica and its job have not changed."""
    lookup = Lookup(tx)
    found: dict[str, Assigned | None] = {}
    for item in items:
        only_logs = not (item.started or item.exited or item.lost)
        mark = attempts.replica_mark(tx, item.replica) if only_logs else None
        kept = deps.caches.logging_replicas.get((item.replica, *mark)) if mark else None
        found[item.replica] = kept or lookup.assigned(item.replica)
        if mark and kept is None and (read := found[item.replica]) is not None:
            deps.caches.logging_replicas.put((item.replica, *mark), read)
    return found


def _store_log(
    deps: Deps, assigned: Assigned, item: ReportItem, chunk: memoryview, clock: int | None
) -> int:
    if item.log is None:
        return deps.logs.size(_log(deps, assigned))
    with deps.log_moves if _may_be_retried(deps, assigned) else nullcontext():
        now = deps.clock().timestamp()
        times = _written_at(item.log.times, now, clock)
        size = deps.logs.append(_log(deps, assigned), item.log.offset, chunk, now, times)
    if chunk:
        number, worker = assigned.attempt.number, assigned.replica.worker
        topic = logs_read.topic(assigned.job.id, number, worker)
        logs_read.grew(deps, topic, item.log.offset, chunk, size)
    return size


def _written_at(
    times: Sequence[tuple[int, int]], now: float, clock: int | None
) -> list[tuple[float, int]]:
    """The times of a report in seconds by the clock of this server. A small difference of the two
    clocks is the time that the report took."""
    ahead = 0.0 if clock is None else clock / 1000 - now
    shift = ahead if abs(ahead) > CLOCKS_DIFFER else 0.0
    return [(at / 1000 - shift, offset) for offset, at in times]


def _first_tail(deps: Deps, assigned: Assigned) -> dict[str, bytes]:
    """The end of the log of the gang's first worker, which is shown for a gang that was killed; it
    may have ended with an earlier report."""
    first = assigned.attempt.replicas[0]
    if first.id == assigned.replica.id:
        return {}
    theirs = Assigned(replica=first, attempt=assigned.attempt, job=assigned.job)
    return {first.id: _tail(deps, theirs, deps.logs.size(_log(deps, theirs)))}


def _tail(deps: Deps, assigned: Assigned, size: int) -> bytes:
    return deps.logs.read(_log(deps, assigned), max(0, size - TAIL_BYTES), TAIL_BYTES)


def _log(deps: Deps, assigned: Assigned) -> str:
    """The path of the log. Read again for a job that may be retried, because its logs move."""
    job = assigned.job
    if _may_be_retried(deps, assigned):
        job = deps.db.read(lambda tx: jobs.get_job(tx, job.id)) or job
    return job_files.log_path(deps, job, assigned.replica.worker, assigned.attempt.number)


def _may_be_retried(deps: Deps, assigned: Assigned) -> bool:
    pool = deps.pools.get(assigned.attempt.pool)
    preempted = pool is not None and pool.preemption
    return preempted or bool(assigned.job.spec.max_retries)


def _without_exit(item: ReportItem) -> ReportItem:
    return ReportItem(
        replica=item.replica,
        fence=item.fence,
        started=item.started,
        lost=item.lost,
        all_ended=item.all_ended,
    )


def observed(replica: Replica, item: ReportItem) -> Replica:
    """The replica as its agent reports it now: started, lost or exited."""
    if item.started is not None:
        began = replica.started_at or _when(item.started.at)
        pid = item.started.pid
        replica = replace(replica, state=ReplicaState.RUNNING, pid=pid, started_at=began)
    if item.lost and replica.state is not ReplicaState.LOST:
        gone = ExitRecord(cause=ExitCause.UNWATCHED, all_ended=item.all_ended)
        replica = replace(replica, state=ReplicaState.LOST, exit=gone)
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
        memory_limit=note.memory_limit,
        message=note.message,
        started_at=_when(note.started_at),
        finished_at=_when(note.finished_at),
        asked_at=_when(note.stopping_at),
        ran=note.ran,
        max_rss=note.max_rss,
        peak_memory=note.peak_memory,
        cpu_seconds=note.cpu_seconds,
        enforced=note.enforced,
        hint=note.hint[:100],
        said=Reason(code=note.said.code, params=note.said.params) if note.said else None,
    )


def _when(epoch: float | None) -> datetime | None:
    try:
        return None if epoch is None else datetime.fromtimestamp(epoch, UTC)
    except (ValueError, OverflowError, OSError):
        return None  # a broken clock must not prevent the end of a job
