"""Why a placed job is stuck: missing inputs, outputs that cannot be sent, processes that do not
end.

An agent reports the cause with a code; the reason is stored with the job and rendered in the
language of the reader. It applies until the worker goes on or the job changes its state, and only
to the current attempt.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from paddlecloud.db.engine.base import Tx
from paddlecloud.db.tables import jobs, user_buckets
from paddlecloud.model.diagnosis.reasons import caused
from paddlecloud.model.errors import PaddleCloudError, Unreachable
from paddlecloud.model.jobs.job import Job, Reason, Replica, ReplicaState, with_changes
from paddlecloud.model.jobs.states import WAITING
from paddlecloud.server.deps import Deps
from paddlecloud.server.schemas.agent import HeldNote

NO_MORE = "held_no_more"
_START, _INSTALLS = "private_start_waits", "environment_waits"
_ON_ITS_WAY = frozenset({"held_fetching", "held_sending"})
"""No problem: it only takes time."""
_NOT_ENDING = "replica_not_ending"
_HELD = frozenset(
    {
        *_ON_ITS_WAY,
        _NOT_ENDING,
        _INSTALLS,
        _START,
        "outputs_late",
        "outputs_wait",
        "private_outputs_late",
        "private_outputs_wait",
    }
)


def held(deps: Deps, note: HeldNote, job: Job, replica: Replica) -> Reason | None:
    """The reason for a report of an agent: a replica waits for its files, for its outputs to be
    sent, or for the end of processes that its dead supervisor left; None: no longer."""
    if note.code == NO_MORE:
        return None
    if note.code in _ON_ITS_WAY:
        return Reason(code=note.code, params={"worker": replica.worker, "attempt": job.attempt})
    if note.code == _NOT_ENDING:
        pids, node = note.params.get("pids", "?"), replica.node
        about = {"worker": replica.worker, "node": node, "pids": pids, "attempt": job.attempt}
        return Reason(code=note.code, params=about)
    code = "outputs_late" if note.runs else "outputs_wait"
    code = code if job.spec.public_bos else f"private_{code}"
    if replica.state is ReplicaState.ORDERED:
        code = _INSTALLS if note.code == "environment_making" else _START
    cause = _in_terms_of_owner(deps, note, job)
    return caused(code, cause.code, cause.params, worker=replica.worker, attempt=job.attempt)


def take_in(tx: Tx, waits: Mapping[str, Reason | None], moved: Iterable[Job]) -> None:
    """Store why these jobs are stuck, by id; jobs of which a worker went on are not any more."""
    for job_id in {job.id: None for job in moved if is_held(job)}:
        _store(tx, job_id, None)
    for job_id, reason in waits.items():
        _store(tx, job_id, reason)


def of_job(tx: Tx, job: Job) -> list[Reason]:
    """The reasons to show with this job now."""
    reasons = [job.reason] if job.reason is not None and is_held(job) else []
    known = None if job.spec.public_bos else user_buckets.trouble(tx, job.id)
    return reasons if known is None or known.code in _HELD else [*reasons, known]


def is_held(job: Job) -> bool:
    """Whether the reason of a placed job is one of these, for its current attempt."""
    reason = job.reason
    if reason is None or reason.code not in _HELD or job.final or job.pool is None:
        return False
    return reason.params.get("attempt") == job.attempt


def _store(tx: Tx, job_id: str, reason: Reason | None) -> None:
    """Write the reason if it is new: agents repeat it, and each replica of a gang reports it."""
    job = jobs.get_job(tx, job_id)
    if job is None or job.final or job.pool is None:
        return
    known = job.reason if is_held(job) else None
    if reason == known:
        return
    if reason is not None and known is not None:
        other = known.params.get("worker") != reason.params.get("worker")
        if other and known.code not in _ON_ITS_WAY:
            return  # the problem of one worker is shown for all of them
    if reason is None and job.state in WAITING:
        reason = Reason(code="queue_starting", params={"pool": job.pool})
    jobs.save_job(tx, with_changes(job, reason=reason), expected_version=job.version)
    tx.notify("job", job.id)


def _in_terms_of_owner(deps: Deps, note: HeldNote, job: Job) -> PaddleCloudError:
    """The reported error; for a job with private storage, in terms of the user's bucket."""
    trouble = Unreachable(note.code, **note.params)
    if job.spec.public_bos:
        return trouble
    from paddlecloud.stores import user_bucket as buckets  # noqa: PLC0415 - 20 ms of http and xml

    try:
        with buckets.user_bucket_errors(
            buckets.parse_bos_url(job.spec.bos_url), deps.settings.private_store.door
        ):
            raise trouble
    except PaddleCloudError as error:
        return error
