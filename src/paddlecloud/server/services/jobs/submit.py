"""Submitting a job: checks the request, stores the job once per idempotency key, and answers.

A request that arrives again gets the job that it made, whatever became of that job since.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import msgspec

from paddlecloud.db.engine.base import Tx
from paddlecloud.db.tables import idempotency, jobs, snapshots, user_buckets
from paddlecloud.model.diagnosis.reasons import caused
from paddlecloud.model.errors import Conflict, Refused, SnapshotMissing
from paddlecloud.model.jobs.job import Job, JobSpec, Reason
from paddlecloud.model.jobs.spec_codec import spec_from_wire
from paddlecloud.model.jobs.states import JobState
from paddlecloud.model.policy.admission import pools_for, refusal, settled
from paddlecloud.model.policy.quota import Plan
from paddlecloud.server.deps import Deps
from paddlecloud.server.events import SCHEDULE_CHANNEL
from paddlecloud.server.http.executors import in_bucket_thread, in_long_thread, in_thread
from paddlecloud.server.schemas.jobs import (
    GroupPlan,
    JobPlan,
    SubmitAnswer,
    SubmitRequest,
    ValidateAnswer,
)
from paddlecloud.server.schemas.transfer import PrivateFilesAnswer
from paddlecloud.server.services.accounts import quota, secrets
from paddlecloud.server.services.jobs import _git_diff as git_diff
from paddlecloud.server.services.jobs import views
from paddlecloud.server.services.placement import isolation
from paddlecloud.server.services.user_buckets import buckets

NOT_PLANNED = Reason(code=jobs.NOT_PLANNED_YET)


@dataclass(frozen=True, kw_only=True)
class Accepted:
    """A stored job; `plan` is its owner's, or None if an earlier request had stored the job."""

    job: Job
    plan: Plan | None = None
    waits: Reason | None = None
    """Why it has to wait for the quota of its owner first."""


async def submit(deps: Deps, owner: str, request: SubmitRequest, lang: str) -> SubmitAnswer:
    """Store a job and return it once it is on disk. The most frequent write there is, so it waits
    for the database without occupying a thread."""
    try:
        if request.spec.public_bos == 0:
            accept_it, notes = await in_bucket_thread(
                _prepare_private, deps, owner, request, whose=owner
            )
        else:
            spec, notes = await deps.loop_writer.call(admit, deps, owner, request)
            accept_it = partial(accept, deps=deps, owner=owner, request=request, spec=spec)
    except Refused:
        # What was acknowledged stays so, even if it would be refused today.
        job = await in_thread(find_earlier, deps, owner, request)
        if job is None:
            raise
        accepted, notes = Accepted(job=job), []
    else:
        accepted = await deps.loop_writer.write(accept_it)
    job = accepted.job
    if accepted.waits is not None:
        notes = [*notes, caused("note_waits", accepted.waits.code, accepted.waits.params)]
    if request.diff:
        # After the job is stored: a repeated request brings its diff again.
        notes = notes + await in_long_thread(git_diff.keep, deps, job, request.diff)
    if accepted.plan is None:
        view = await in_thread(views.view, deps, job, lang)
    else:
        view = views.new(deps, job, accepted.plan, lang)
    return SubmitAnswer(job=view, notes=[views.say(note, lang) for note in notes])


async def validate(deps: Deps, owner: str, request: SubmitRequest, lang: str) -> ValidateAnswer:
    """Raise what a submit would be refused for, without storing anything."""
    if request.spec.public_bos == 0:
        return await in_bucket_thread(_validate, deps, owner, request, lang, whose=owner)
    return await in_thread(_validate, deps, owner, request, lang)


def _validate(deps: Deps, owner: str, request: SubmitRequest, lang: str) -> ValidateAnswer:
    spec, notes = admit(deps, owner, request)

    def check(tx: Tx) -> bool:
        quota.check_submit(tx, deps, owner, spec)
        secrets.check_submit(tx, owner, spec)
        _check_storage(tx, owner, spec)
        return bool(spec.snapshot) and snapshots.last_use(tx, owner, str(spec.snapshot)) is not None

    has_files = deps.db.read(check)
    if not spec.public_bos:
        notes.append(buckets.found_files(spec, buckets.listed(deps, owner, spec, request)))
    return ValidateAnswer(
        has_files=has_files,
        notes=[views.say(note, lang) for note in notes],
        plan=_plan(deps, owner, spec),
    )


def _plan(deps: Deps, owner: str, spec: JobSpec) -> JobPlan:
    """What the server would start for a spec that was admitted."""
    pools = [pool for pool in isolation.some_open_pools(deps) if pool.serves(owner)]
    groups = [
        GroupPlan(
            role=group.role.value,
            count=group.count,
            cpu=group.resources.cpu,
            memory=group.resources.memory,
            gpu=group.resources.gpu,
        )
        for group in spec.groups
    ]
    return JobPlan(
        job_type=spec.job_type.value if spec.job_type else "",
        pools=[pool.name for pool in pools_for(spec, pools, deps.nodes(owner))],
        workers=groups,
    )


def admit(deps: Deps, owner: str, request: SubmitRequest) -> tuple[JobSpec, list[Reason]]:
    """The spec that this server would run, with notes for its owner; Refused, before any byte is
    uploaded, if no pool can ever run it."""
    asked = spec_from_wire(msgspec.to_builtins(request.spec))
    pools = [pool for pool in isolation.some_open_pools(deps) if pool.serves(owner)]
    nodes = deps.nodes(owner)
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


def accept(tx: Tx, deps: Deps, owner: str, request: SubmitRequest, spec: JobSpec) -> Accepted:
    """Store a job for a spec that was admitted, if the quota of its owner allows it now."""
    earlier = _find_earlier(tx, owner, request)
    if earlier is not None:
        return Accepted(job=earlier)
    now = deps.clock()
    plan = quota.check_submit(tx, deps, owner, spec)
    secrets.check_submit(tx, owner, spec)
    if spec.snapshot is not None and not snapshots.touch(tx, owner, spec.snapshot, now):
        raise SnapshotMissing("snapshot_missing", snapshot=spec.snapshot)
    _check_storage(tx, owner, spec)
    waits = quota.why_waits(tx, deps, owner, spec, now)
    new = Job(
        id=f"job-{uuid.uuid4().hex}",
        number=0,
        owner=owner,
        spec=spec,
        state=JobState.SUBMIT,
        version=0,
        created_at=now,
        waiting_since=now,
    )
    job = jobs.insert_accepted(tx, new, now, NOT_PLANNED)
    idempotency.insert_key(tx, owner, request.idempotency_key, job.id, _digest(request), now)
    tx.notify(SCHEDULE_CHANNEL, "")
    return Accepted(job=job, plan=plan, waits=waits)


def _check_storage(tx: Tx, owner: str, spec: JobSpec) -> None:
    """Conflict if a job with public storage names files that are in a bucket."""
    if spec.public_bos and user_buckets.is_in_bucket(tx, owner, spec.snapshot or ""):
        raise Conflict("snapshot_elsewhere", snapshot=spec.snapshot)


def find_earlier(deps: Deps, owner: str, request: SubmitRequest) -> Job | None:
    """The job that this very request made before, if it did."""
    return deps.db.read(lambda tx: _find_earlier(tx, owner, request))


def list_private_files(deps: Deps, owner: str, request: SubmitRequest) -> PrivateFilesAnswer:
    """The files that are in the user's bucket for a job whose own files are uploaded next. Raises
    whatever the job would be refused for now."""
    spec, _ = admit(deps, owner, request)
    deps.db.read(lambda tx: quota.check_submit(tx, deps, owner, spec))
    found = buckets.listed(deps, owner, spec, request)
    sizes = {entry.sha256: entry.size for entry in found.snapshot.entries}
    return PrivateFilesAnswer(
        files=[(path, sizes[name], tag) for name, (path, tag) in found.tags.items()]
    )


def _prepare_private(
    deps: Deps, owner: str, request: SubmitRequest
) -> tuple[Callable[[Tx], Accepted], list[Reason]]:
    """The transaction that accepts a job with files in its owner's bucket, and notes for the owner.

    Lists the bucket, so it takes a while, except for a request that made a job before.
    """
    earlier = find_earlier(deps, owner, request)
    if earlier is not None:
        return lambda tx: Accepted(job=earlier), []
    spec, notes = admit(deps, owner, request)
    found = buckets.listed(deps, owner, spec, request)
    sealed = buckets.sealed_keys(deps, owner, spec, request)
    spec = replace(spec, snapshot=found.snapshot.id)

    def accept_private(tx: Tx) -> Accepted:
        now = deps.clock()
        snapshots.put_snapshot(tx, owner, found.snapshot, now)
        user_buckets.keep_tags(tx, owner, found.snapshot.id, found.tags)
        accepted = accept(tx, deps, owner, request, spec)
        user_buckets.keep_keys(tx, accepted.job.id, sealed, now)
        return accepted

    return accept_private, [*notes, buckets.found_files(spec, found)]


def _find_earlier(tx: Tx, owner: str, request: SubmitRequest) -> Job | None:
    key = request.idempotency_key
    earlier = idempotency.find_key(tx, owner, key)
    if earlier is None:
        return None
    if earlier.request_hash != _digest(request):
        raise Conflict("idempotency_key_reused", key=key, job_id=earlier.job_id)
    return jobs.get_job(tx, earlier.job_id)


def _digest(request: SubmitRequest) -> str:
    return hashlib.sha256(msgspec.json.encode(request.spec)).hexdigest()
