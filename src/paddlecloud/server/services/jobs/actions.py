"""What can be done with jobs: submit, look, kill; and the one place where a job moves on.

`settle` is level-triggered: it asks the pure rules what the replicas seen so far imply and writes
that. Reports, kills and the watch loop all call it, so a crash between any two steps is repaired by
whoever comes next.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Mapping
from datetime import datetime

import msgspec

from paddlecloud.db.engine.base import Tx
from paddlecloud.db.tables import attempts, audit, idempotency, jobs, snapshots, usage, user_buckets
from paddlecloud.db.tables.attempts import Want
from paddlecloud.model.diagnosis.outcome import has_run, moment, trouble, wants_stop
from paddlecloud.model.diagnosis.outcome import settle as implied
from paddlecloud.model.errors import Conflict, Invalid, NotFound, SnapshotMissing
from paddlecloud.model.fast_replace import with_changes
from paddlecloud.model.jobs.elastic import judged
from paddlecloud.model.jobs.job import Attempt, ExitCause, Failure, HistoryRow, Job, JobSpec, Reason
from paddlecloud.model.jobs.retry_policy import pause_before_retry
from paddlecloud.model.jobs.spec_codec import spec_from_wire
from paddlecloud.model.jobs.states import Event, JobState
from paddlecloud.model.policy.admission import refusal, settled
from paddlecloud.server.deps import Deps
from paddlecloud.server.http.auth import Caller
from paddlecloud.server.http.permissions import may_see
from paddlecloud.server.schemas.jobs import JobsQuery, SubmitRequest
from paddlecloud.server.services.accounts import quota
from paddlecloud.server.services.notifications import notify
from paddlecloud.server.services.placement import isolation

SCHEDULE_BELL = "schedule"
"""Channel that wakes the schedule loop."""
ROOM_BELL = "room"
"""Channel that tells of a freed place: it may not be kept waiting."""
Tails = Mapping[str, bytes]
"""The last log bytes of workers, for the words about a failure."""


def storing(deps: Deps, owner: str, request: SubmitRequest, spec: JobSpec) -> Callable[[Tx], Job]:
    """The transaction that accepts a job, once per idempotency key, for a spec that was admitted.

    A request that comes again gets the job that it made, whatever became of that.
    """
    now = deps.clock()

    def store(tx: Tx) -> Job:
        known = _made_before(tx, owner, request)
        if known is not None:
            return known
        quota.check_submit(tx, deps, owner, spec)
        if spec.snapshot is not None and not snapshots.touch(tx, owner, spec.snapshot, now):
            raise SnapshotMissing("snapshot_missing", snapshot=spec.snapshot)
        if spec.public_bos and user_buckets.is_in_bucket(tx, owner, spec.snapshot or ""):
            raise Conflict("snapshot_elsewhere", snapshot=spec.snapshot)
        job = jobs.insert_accepted(tx, new_job(owner, spec, now), now, NOT_PLANNED)
        key = request.idempotency_key
        idempotency.remember_key(tx, owner, key, job.id, digest(request), now)
        tx.notify(SCHEDULE_BELL, "")
        return job

    return store


def repeated(deps: Deps, owner: str, request: SubmitRequest) -> Job | None:
    """The job that this very request made before, if it did.

    For a request that would be refused today: what was acknowledged stays so.
    """
    return deps.db.read(lambda tx: _made_before(tx, owner, request))


def admit(deps: Deps, owner: str, request: SubmitRequest) -> tuple[JobSpec, list[Reason]]:
    """The spec that this server would run, or the refusal, before a byte is uploaded."""
    asked = spec_from_wire(msgspec.to_builtins(request.spec))
    pools = [pool for pool in isolation.some_open_pools(deps) if pool.serves(owner)]
    nodes = deps.nodes()
    spec, notes = settled(asked, pools, nodes)
    refused = refusal(
        spec,
        pools,
        nodes,
        deps.settings.scheduling.max_replicas,
        private_store=deps.settings.private_store.enabled,
    )
    if refused is not None:
        raise refused
    return spec, list(notes)


def get(deps: Deps, caller: Caller, job_id: str) -> Job:
    return deps.db.read(lambda tx: _visible(tx, caller, job_id))


def listed(deps: Deps, owner: str, query: JobsQuery) -> list[Job]:
    states = None if query.state is None else [_state(word) for word in query.state.split(",")]
    return deps.db.read(
        lambda tx: jobs.list_jobs(
            tx, owner, states=states, name=query.name, before=query.before, limit=query.limit
        )
    )


def listed_of_all(deps: Deps, owner: str | None, query: JobsQuery) -> list[Job]:
    """Everybody's jobs, or one owner's, for who may see them all."""
    if owner is not None:
        return listed(deps, owner, query)
    states = None if query.state is None else [_state(word) for word in query.state.split(",")]
    return deps.db.read(
        lambda tx: jobs.list_all(
            tx, states=states, name=query.name, before=query.before, limit=query.limit
        )
    )


def kill(deps: Deps, caller: Caller, job_id: str) -> Job:
    """Ask for the end of a job. `killed` follows when nothing of it runs any more."""
    now = deps.clock()

    def ask(tx: Tx) -> Job:
        job = _visible(tx, caller, job_id)
        if job.final:
            raise Conflict("job_is_final", job_id=job.id, state=job.state)
        if job.state is JobState.KILLING:
            return job
        if job.owner != caller.user_id:
            detail = {"owner": job.owner, "state": job.state.value}
            by = {"actor": caller.user_id, "source": caller.source}
            audit.record(tx, at=now, **by, action="job.kill", target=job.id, detail=detail)
        job = jobs.advance(tx, job, Event.KILL_ASKED, now=now, sure=True)
        if job.pool is not None:
            stop_replicas(tx, deps, job, ExitCause.STOPPED)
        return settle(tx, deps, job, now=now)

    return deps.db.write(ask)


def history(deps: Deps, caller: Caller, job_id: str) -> list[HistoryRow]:
    job = get(deps, caller, job_id)
    return deps.db.read(lambda tx: jobs.history(tx, job.id))


def stop_replicas(tx: Tx, deps: Deps, job: Job, cause: ExitCause) -> None:
    """Order the end of what runs: SIGTERM, grace, SIGKILL, the whole process tree."""
    grace = deps.settings.running.grace
    attempts.set_wanted(tx, job.id, job.attempt, Want.STOP, grace=grace, cause=cause)


def settle(tx: Tx, deps: Deps, job: Job, *, now: datetime, tails: Tails | None = None) -> Job:
    """Move `job` as far as the facts in the database say, and end an attempt that is over.

    It has to be read in this very write, so that nobody can have changed it since.
    Its agents are told to forget it later, when its log is safe (`placement.release_ended`).
    """
    while not job.final:
        attempt = judged(job, current_attempt(tx, job))
        step = implied(job, attempt, tails or {})
        if step is None:
            return _while_it_goes_on(tx, deps, job, attempt, tails or {})
        event, failure = step
        # Between two attempts the job waits, and the end of the last one is why.
        reason = failure.reason if failure and event is Event.ATTEMPT_LOST else None
        at = moment(event, job, attempt, now)
        before = job
        pause = _not_before(deps, job, event, failure, now)
        job = jobs.advance(
            tx,
            job,
            event,
            now=now,
            at=at,
            reason=reason,
            sure=True,
            failure=failure,
            not_before=pause,
        )
        notify.on_change(tx, deps, before, job, now)
        if attempt is not None and event is Event.STARTED:
            usage.begin(tx, job, attempt, public=quota.is_public(deps, attempt.pool), at=at)
        if attempt is not None and attempt.over and (job.final or job.pool is None):
            _close_usage(tx, deps, job, attempt, at)
            attempts.end_attempt(tx, attempt.job_id, attempt.number, now, event)
            tx.notify(SCHEDULE_BELL, "")
            tx.notify(ROOM_BELL, job.id)
    return job


def _not_before(
    deps: Deps, job: Job, event: Event, failure: Failure | None, now: datetime
) -> datetime | None:
    """When the next attempt may begin; None: at once, or there is none."""
    if event is not Event.ATTEMPT_LOST:
        return None
    pause = pause_before_retry(job, failure, deps.settings.scheduling.retry_pause)
    return now + pause if pause else None


def _while_it_goes_on(tx: Tx, deps: Deps, job: Job, attempt: Attempt | None, tails: Tails) -> Job:
    """Write down why a gang has begun to fail, and stop what is left of it."""
    failure = trouble(job, attempt, tails)
    if failure is not None:
        told = with_changes(job, failure=failure)
        job = jobs.save_job(tx, told, expected_version=job.version)
        tx.notify("job", job.id)
    if attempt is not None:
        _stop_the_rest(tx, deps, attempt)
        if job.spec.elastic is not None:
            # Somebody may have to be replaced, or room came free that others wait for.
            tx.notify(SCHEDULE_BELL, "")
            tx.notify(ROOM_BELL, job.id)
    return job


def _stop_the_rest(tx: Tx, deps: Deps, attempt: Attempt) -> None:
    """Tell the live members of a gang to end when one of them failed, or when only pservers are
    left; whoever was told to end before is left to that."""
    if len(attempt.replicas) == 1 or not wants_stop(attempt):
        return
    attempts.set_wanted(
        tx,
        attempt.job_id,
        attempt.number,
        Want.STOP,
        grace=deps.settings.running.grace,
        cause=ExitCause.STOPPED,
        only={replica.id for replica in attempt.replicas if not replica.over},
        over=Want.RUN,
    )


def _close_usage(tx: Tx, deps: Deps, job: Job, attempt: Attempt, at: datetime) -> None:
    if usage.end(tx, attempt, at) or not any(map(has_run, attempt.replicas)):
        return
    # It was killed after it began and before its beginning was heard of.
    began = moment(Event.STARTED, job, attempt, at)
    usage.begin(tx, job, attempt, public=quota.is_public(deps, attempt.pool), at=began)
    usage.end(tx, attempt, at)


def current_attempt(tx: Tx, job: Job) -> Attempt | None:
    """The attempt that holds a place now; None while the job waits for one."""
    if job.pool is None or job.attempt == 0:
        return None
    return attempts.get_attempt(tx, job.id, job.attempt)


def _visible(tx: Tx, caller: Caller, job_id: str) -> Job:
    """The job, if it exists for this caller; whose it is makes no difference to the answer."""
    job = jobs.get_job(tx, job_id)
    if job is None or not may_see(caller, job):
        raise NotFound("job_unknown", job_id=job_id[:100])
    return job


def new_job(owner: str, spec: JobSpec, now: datetime) -> Job:
    return Job(
        id=f"job-{uuid.uuid4().hex}",
        number=0,
        owner=owner,
        spec=spec,
        state=JobState.SUBMIT,
        version=0,
        created_at=now,
        waiting_since=now,
    )


def _made_before(tx: Tx, owner: str, request: SubmitRequest) -> Job | None:
    key = request.idempotency_key
    earlier = idempotency.find_key(tx, owner, key)
    if earlier is None:
        return None
    if earlier.request_hash != digest(request):
        raise Conflict("idempotency_key_reused", key=key, job_id=earlier.job_id)
    return jobs.get_job(tx, earlier.job_id)


def digest(request: SubmitRequest) -> str:
    return hashlib.sha256(msgspec.json.encode(request.spec)).hexdigest()


def _state(word: str) -> JobState:
    try:
        return JobState(word)
    except ValueError:
        known = ", ".join(state.value for state in JobState)
        raise Invalid("state_unknown", value=word[:100], known=known) from None


NOT_PLANNED = Reason(code="not_planned_yet")
