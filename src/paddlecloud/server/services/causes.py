"""What keeps a job with storage of its own from going on: kept with the job, told to its owner.

The cause is a sentence within a sentence, and both are put into words only when somebody reads
them, in that person's language. What holds a worker up goes with the next thing that the worker
does, and counts only while its attempt is the current one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from paddlecloud.db import private
from paddlecloud.db.base import Tx
from paddlecloud.model.errors import PaddleCloudError, Unreachable
from paddlecloud.model.job import Job, Reason, Replica, ReplicaState
from paddlecloud.model.texts import render
from paddlecloud.server.deps import Deps
from paddlecloud.server.shapes import HeldNote

_OUTPUTS, _START = "private_outputs_wait", "private_start_waits"
_HELD = (_OUTPUTS, _START)
_LONGEST = 4_000


def caused(code: str, cause: str, given: Mapping[str, object], **told: str | int) -> Reason:
    """The sentence `code`, whose `reason` is the sentence `cause` with the values `given`."""
    text = json.dumps(given, default=str)
    params = {**told, "cause": cause, "given": text if len(text) <= _LONGEST else "{}"}
    return Reason(code=code, params=params)


def say(reason: Reason, lang: str) -> str:
    params = dict(reason.params)
    if "cause" in params:
        params["reason"] = render(str(params["cause"]), json.loads(str(params["given"])), lang)
    return render(reason.code, params, lang)


def held(deps: Deps, note: HeldNote, job: Job, replica: Replica) -> Reason:
    """Before a replica runs its files are waited for, then its outputs."""
    code = _START if replica.state is ReplicaState.ORDERED else _OUTPUTS
    cause = _in_terms_of_its_owner(deps, note, job)
    return caused(code, cause.code, cause.params, worker=replica.worker, attempt=job.attempt)


def take_in(tx: Tx, waits: Mapping[str, Reason], moved: Iterable[Job]) -> None:
    """Keep why these jobs wait, by id; of those of which a worker went on, nothing of the kind."""
    for job in moved:
        known = None if job.spec.public_bos else private.trouble(tx, job.id)
        if known is not None and known.code in _HELD:
            private.set_trouble(tx, job.id, None)
    for job_id, reason in waits.items():
        private.set_trouble(tx, job_id, reason)


def of_job(tx: Tx, job: Job) -> Reason | None:
    """What is to be told of this job now."""
    known = None if job.spec.public_bos else private.trouble(tx, job.id)
    if known is None or known.code not in _HELD:
        return known
    holds_place = not job.final and job.pool is not None
    return known if holds_place and known.params.get("attempt") == job.attempt else None


def _in_terms_of_its_owner(deps: Deps, note: HeldNote, job: Job) -> PaddleCloudError:
    from paddlecloud.stores import private as buckets  # noqa: PLC0415 - 20 ms of http and xml

    try:
        with buckets.in_terms_of(
            buckets.parse_bos_url(job.spec.bos_url), deps.settings.private_store.door
        ):
            raise Unreachable(note.code, **note.params)
    except PaddleCloudError as error:
        return error
