"""What keeps a job with a place from going on: kept with the job, told to its owner.

The cause is a sentence within a sentence, and both are put into words only when somebody reads
them, in that person's language. What holds a worker up is the reason of its job, until the worker
goes on or the job moves, and counts only while its attempt is the current one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from paddlecloud.db.engine.base import Tx
from paddlecloud.db.tables import jobs, user_buckets
from paddlecloud.model.diagnosis.reasons import caused
from paddlecloud.model.errors import PaddleCloudError, Unreachable
from paddlecloud.model.fast_replace import with_changes
from paddlecloud.model.jobs.job import Job, Reason, Replica, ReplicaState
from paddlecloud.model.jobs.states import WAITING
from paddlecloud.server.deps import Deps
from paddlecloud.server.schemas.agent import HeldNote

NO_MORE = "held_no_more"
_START, _INSTALLS = "private_start_waits", "environment_waits"
_ON_ITS_WAY = frozenset({"held_fetching", "held_sending"})
"""All is well with it, and it takes its time."""
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
    """Before a replica runs its files are waited for, then its outputs, or the end of processes
    that its dead supervisor left; None: nothing any more."""
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
    cause = _in_terms_of_its_owner(deps, note, job)
    return caused(code, cause.code, cause.params, worker=replica.worker, attempt=job.attempt)


def take_in(tx: Tx, waits: Mapping[str, Reason | None], moved: Iterable[Job]) -> None:
    """Keep why these jobs wait, by id; of those of which a worker went on, nothing of the kind."""
    for job_id in {job.id: None for job in moved if is_held(job)}:
        _tell(tx, job_id, None)
    for job_id, reason in waits.items():
        _tell(tx, job_id, reason)


def of_job(tx: Tx, job: Job) -> list[Reason]:
    """What is to be told of this job now."""
    told = [job.reason] if job.reason is not None and is_held(job) else []
    known = None if job.spec.public_bos else user_buckets.trouble(tx, job.id)
    return told if known is None or known.code in _HELD else [*told, known]


def is_held(job: Job) -> bool:
    """Whether the reason of a job with a place is what holds it up now."""
    told = job.reason
    if told is None or told.code not in _HELD or job.final or job.pool is None:
        return False
    return told.params.get("attempt") == job.attempt


def _tell(tx: Tx, job_id: str, reason: Reason | None) -> None:
    """Written only if it is news: an agent says it again and again, and so do all of a gang."""
    job = jobs.get_job(tx, job_id)
    if job is None or job.final or job.pool is None:
        return
    known = job.reason if is_held(job) else None
    if reason == known or (reason is not None and known is not None and _stands(known, reason)):
        return
    if reason is None and job.state in WAITING:
        reason = Reason(code="queue_starting", params={"pool": job.pool})
    jobs.save_job(tx, with_changes(job, reason=reason), expected_version=job.version)
    tx.notify("job", job.id)


def _stands(known: Reason, reason: Reason) -> bool:
    """One worker speaks for all; but that all is well with it is no answer for another."""
    other = known.params.get("worker") != reason.params.get("worker")
    return other and known.code not in _ON_ITS_WAY


def _in_terms_of_its_owner(deps: Deps, note: HeldNote, job: Job) -> PaddleCloudError:
    trouble = Unreachable(note.code, **note.params)
    if job.spec.public_bos:
        return trouble
    from paddlecloud.stores import user_bucket as buckets  # noqa: PLC0415 - 20 ms of http and xml

    try:
        with buckets.in_terms_of(
            buckets.parse_bos_url(job.spec.bos_url), deps.settings.private_store.door
        ):
            raise trouble
    except PaddleCloudError as error:
        return error
