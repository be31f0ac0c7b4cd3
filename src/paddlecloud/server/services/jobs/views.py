"""Jobs as JSON: the seventeen keys of the original documents and more, in the reader's language."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from types import MappingProxyType

import msgspec

from paddlecloud.db.engine.base import Tx
from paddlecloud.db.tables import attempts, jobs, live_usage
from paddlecloud.db.tables.live_usage import Use
from paddlecloud.messages import render
from paddlecloud.model.diagnosis.outcome import unsent
from paddlecloud.model.diagnosis.overprovisioning import advice, peak_memory
from paddlecloud.model.errors import Refused
from paddlecloud.model.files.layout import public_bos_url
from paddlecloud.model.jobs.job import (
    Attempt,
    Failure,
    HistoryRow,
    Job,
    JobType,
    Reason,
    Replica,
    ReplicaState,
    Role,
    with_changes,
)
from paddlecloud.model.jobs.states import WAITING
from paddlecloud.model.policy.admission import pools_for
from paddlecloud.model.policy.priority import class_name
from paddlecloud.model.policy.quota import UNLIMITED, Plan, job_limit
from paddlecloud.server.deps import Deps
from paddlecloud.server.schemas.jobs import (
    FailureView,
    HistoryEvent,
    JobRow,
    JobView,
    TasksView,
    UseView,
    WorkerView,
)
from paddlecloud.server.services import data_tasks
from paddlecloud.server.services.accounts import quota
from paddlecloud.server.services.jobs import hold_reasons


def new(deps: Deps, job: Job, plan: Plan, lang: str) -> JobView:
    """A job that was just accepted under its owner's plan: no query is needed."""
    return _view(deps, _held_to(deps, job, plan), None, None, lang)


def view(deps: Deps, job: Job, lang: str) -> JobView:
    """One job with its workers and the number of jobs ahead of it."""

    def read(
        tx: Tx,
    ) -> tuple[Attempt | None, int | None, dict[str, Use], list[TasksView], list[Reason], Job]:
        attempt = attempts.get_attempt(tx, job.id, job.attempt) if job.attempt else None
        waits = job.state in WAITING and job.pool is None
        uses = live_usage.of_attempt(tx, job.id, job.attempt) if attempt else {}
        theirs = data_tasks.of_job(tx, job) if attempt else []
        ahead = jobs.queue_position(tx, job) if waits else None
        trouble = hold_reasons.of_job(tx, job)
        held = quota.binding(deps) and waits
        plan = quota.plan_of(deps, tx, job.owner).plan if held else UNLIMITED
        return attempt, ahead, uses, theirs, trouble, _held_to(deps, job, plan)

    attempt, ahead, uses, theirs, trouble, held = deps.db.read(read)
    whole = _view(deps, held, attempt, ahead, lang, uses)
    if trouble:
        advice_ = [*whole.advice, *(say(reason, lang) for reason in trouble)]
        whole = msgspec.structs.replace(whole, advice=advice_)
    return msgspec.structs.replace(whole, tasks=theirs) if theirs else whole


def left_behind(deps: Deps, job: Job, lang: str) -> str:
    """Which outputs of an ended job did not arrive here, as a sentence; or empty text."""
    attempt = deps.db.read(lambda tx: attempts.get_attempt(tx, job.id, job.attempt))
    left = unsent(job, attempt.replicas) if attempt else None
    return say(left, lang) if left else ""


def _view(
    deps: Deps,
    job: Job,
    attempt: Attempt | None,
    ahead: int | None,
    lang: str,
    uses: Mapping[str, Use] = MappingProxyType({}),
) -> JobView:
    spec = job.spec
    peaks = {replica: use.peak_memory for replica, use in uses.items()}
    replicas = attempt.replicas if attempt else ()
    first = spec.asked_for(Role.TRAINER)
    return JobView(
        bos_url=spec.bos_url or public_bos_url(deps.settings.name, job.owner, spec.directory),
        create_time=_clock(deps, job.created_at),
        error_msg=_one_line(say_failure(job.failure, lang)) if job.failure else "",
        finish_time=_clock(deps, job.finished_at),
        instance_count=spec.instance_count,
        instance_ids_list=[str(replica.pid) for replica in replicas if replica.pid is not None],
        job_id=job.id,
        job_name=spec.job_name,
        job_status=job.state.value,
        job_type=(spec.job_type or JobType.CPU).value,
        kill_flag=int(job.kill_asked),
        public_bcc=int(spec.public_bcc),
        public_bos=int(spec.public_bos),
        queue_reason=_queue_reason(job, lang),
        start_cmd=spec.start_cmd,
        start_time=_clock(deps, job.started_at),
        wall_time=hours(job.may_run),
        owner=job.owner,
        number=job.number,
        version=job.version,
        description=spec.description,
        priority=class_name(spec.priority),
        cluster=spec.cluster,
        pool=job.pool or "",
        exit_code=_exit_code(job, replicas),
        attempts=job.attempt,
        queue_position=ahead,
        workers=[_worker(deps, replica, uses.get(replica.id)) for replica in replicas],
        failure=_failure(job.failure, lang),
        snapshot=spec.snapshot,
        resources={"cpu": first.cpu, "memory": first.memory, "gpu": first.gpu},
        env=dict(spec.env),
        secrets=[f"{name}={variable}".rstrip("=") for name, variable in spec.secrets.items()],
        created_at=iso(job.created_at),
        started_at=iso(job.started_at) if job.started_at else None,
        finished_at=iso(job.finished_at) if job.finished_at else None,
        advice=[say(reason, lang) for reason in _advice(job, replicas, peaks)],
        git=dict(spec.git) or None,
    )


def row(deps: Deps, job: Job, lang: str) -> JobRow:
    now = deps.clock()
    return JobRow(
        job_id=job.id,
        job_name=job.spec.job_name,
        job_status=job.state.value,
        job_type=(job.spec.job_type or JobType.CPU).value,
        create_time=_clock(deps, job.created_at),
        start_time=_clock(deps, job.started_at),
        finish_time=_clock(deps, job.finished_at),
        queue_reason=_queue_reason(job, lang),
        number=job.number,
        error_msg=_one_line(say(job.failure.reason, lang)) if job.failure else "",
        created_at=iso(job.created_at),
        age=_seconds(job.created_at, now),
        duration=_seconds(job.started_at, job.finished_at or now) if job.started_at else None,
    )


def event(row: HistoryRow, lang: str) -> HistoryEvent:
    return HistoryEvent(
        at=iso(row.at),
        event=row.event.value,
        before=row.before.value,
        after=row.after.value,
        reason=say(row.reason, lang),
    )


def say(reason: Reason | None, lang: str) -> str:
    return render(reason.code, reason.params, lang) if reason else ""


def say_failure(failure: Failure, lang: str) -> str:
    """Why a job failed, and why it was not retried if it could have been."""
    message = say(failure.reason, lang)
    if failure.not_retried is None:
        return message
    why = say(failure.not_retried, lang)
    return render("fail_not_retried", {"message": message, "why": why}, lang)


def iso(when: datetime) -> str:
    """UTC with a Z, to the second: the form of get_files in the original documents."""
    return when.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def hours(duration: timedelta | None) -> str:
    """hh:mm:ss; empty when there is no limit."""
    if duration is None:
        return ""
    seconds = int(duration.total_seconds())
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"


def _held_to(deps: Deps, job: Job, plan: Plan) -> Job:
    """A waiting job with the time limit that it will get if only public pools can run it."""
    limit = job_limit(plan)
    if limit is None:
        return job
    served = [pool for pool in deps.pools.values() if pool.serves(job.owner)]
    try:
        pools = pools_for(job.spec, served, deps.nodes())
    except Refused:  # the pools have changed since it was accepted
        return job
    return job if not all(pool.metered for pool in pools) else with_changes(job, time_limit=limit)


def _advice(job: Job, replicas: tuple[Replica, ...], peaks: Mapping[str, int]) -> Iterator[Reason]:
    yield from advice(job, replicas, peaks)
    left = unsent(job, replicas)
    if left is not None:
        yield left


def _clock(deps: Deps, when: datetime | None) -> str:
    if when is None:
        return ""
    return when.astimezone(deps.settings.zone).isoformat(" ", "seconds")[:19]


def _seconds(start: datetime, end: datetime) -> int:
    return max(0, int((end - start).total_seconds()))


def _queue_reason(job: Job, lang: str) -> str:
    """Why a job waits, or why a placed one is stuck."""
    waits = job.state in WAITING or hold_reasons.is_held(job)
    return _one_line(say(job.reason, lang)) if waits else ""


def _exit_code(job: Job, replicas: tuple[Replica, ...]) -> int | None:
    if job.failure is not None:
        return job.failure.exit_code
    codes = [replica.exit.exit_code for replica in replicas if replica.exit]
    return codes[0] if codes else None


def use_view(deps: Deps, use: Use | None) -> UseView | None:
    """The usage of a running worker, and for how long it has been quiet."""
    if use is None:
        return None
    quiet = 0.0 if use.quiet_since == use.at else (deps.clock() - use.quiet_since).total_seconds()
    return UseView(
        at=iso(use.at),
        cpu=use.cpu,
        memory=use.memory,
        gpu=use.gpu,
        gpu_memory=use.gpu_memory,
        quiet=max(0.0, round(quiet, 1)),
    )


def _worker(deps: Deps, replica: Replica, use: Use | None) -> WorkerView:
    record = replica.exit
    running = replica.state is ReplicaState.RUNNING
    return WorkerView(
        name=replica.worker,
        state=replica.state.value,
        node=replica.node,
        endpoint=f"{replica.host}:{replica.port}",
        cards=list(replica.cards),
        pid=replica.pid,
        exit_code=record.exit_code if record else None,
        signal=record.signal if record else None,
        log_bytes=replica.log_bytes,
        enforced=dict(record.enforced) if record else {},
        max_rss=record.max_rss if record else None,
        cpu_seconds=record.cpu_seconds if record else None,
        usage=use_view(deps, use) if running else None,
        peak_memory=peak_memory(replica, use.peak_memory if use else 0) or None,
    )


def _failure(failure: Failure | None, lang: str) -> FailureView | None:
    if failure is None:
        return None
    return FailureView(
        message=say_failure(failure, lang),
        advice=say(failure.advice, lang),
        worker=failure.worker,
        last_lines=list(failure.last_lines),
    )


def _one_line(text: str) -> str:
    return " ".join(text.split())
