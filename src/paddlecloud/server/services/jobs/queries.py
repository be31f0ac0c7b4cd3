"""Reads jobs: one, with or without waiting for a change, a page of them, history, spec, files."""

from __future__ import annotations

import time

import msgspec

from paddlecloud.db.engine.base import Tx
from paddlecloud.db.tables import jobs
from paddlecloud.model.errors import Invalid, NotFound, PaddleCloudError
from paddlecloud.model.jobs.job import Job
from paddlecloud.model.jobs.spec_codec import spec_to_wire
from paddlecloud.model.jobs.states import JobState
from paddlecloud.server.deps import Deps
from paddlecloud.server.http.auth import Caller
from paddlecloud.server.http.executors import in_bucket_thread, in_thread
from paddlecloud.server.http.permissions import may_see
from paddlecloud.server.http.token_recheck import KeyRecheck
from paddlecloud.server.schemas.files import JobFilesAnswer
from paddlecloud.server.schemas.jobs import (
    HistoryAnswer,
    JobQuery,
    JobsAnswer,
    JobsQuery,
    JobView,
    SpecAnswer,
)
from paddlecloud.server.services.files import snapshots
from paddlecloud.server.services.jobs import _git_diff as git_diff
from paddlecloud.server.services.jobs import views
from paddlecloud.server.services.user_buckets import buckets

RECHECK_SECONDS = 5.0
"""How often a waiting request reads the job even without a notification."""


def get(deps: Deps, caller: Caller, job_id: str) -> Job:
    """The job, or NotFound if this caller may not see it."""
    return deps.db.read(lambda tx: get_visible(tx, caller, job_id))


async def show(deps: Deps, caller: Caller, job_id: str, query: JobQuery, lang: str) -> JobView:
    """The job at once, or with `wait` as soon as its version is above the given one."""
    deadline = time.monotonic() + query.wait
    recheck = KeyRecheck(deps, caller)

    def read(version: int) -> JobView | None:
        job = get(deps, recheck.caller() if query.wait else caller, job_id)
        return None if job.version <= version and not job.final else views.view(deps, job, lang)

    with recheck, deps.hub.waiter(("job", job_id), recheck.topic) as waiter:
        while True:
            left = deadline - time.monotonic()
            version = query.version if left > 0 and not deps.hub.closed else -1
            view = await in_thread(read, version)
            if view is not None:
                break
            await waiter.wait(min(left, RECHECK_SECONDS))
    if view.git is None or query.wait or not query.diff:
        return view
    try:
        dirty = view.git.get("dirty") == "1"
        diff = await in_bucket_thread(git_diff.diff, deps, view) if dirty else ""
        git = view.git | {"diff": diff}
    except PaddleCloudError as error:  # all else is known without the store
        git = view.git | {"diff_missing": error.text(lang)}
    return msgspec.structs.replace(view, git=git)


def list_own(deps: Deps, owner: str, query: JobsQuery, lang: str) -> JobsAnswer:
    found = list_jobs(deps, owner, query)
    return JobsAnswer(
        jobs=[views.row(deps, job, lang) for job in found],
        next=found[-1].number if len(found) == query.limit else None,
    )


def list_jobs(deps: Deps, owner: str | None, query: JobsQuery) -> list[Job]:
    """A page of one owner's jobs, or of all jobs."""
    states = None if query.state is None else [_state(word) for word in query.state.split(",")]

    def read(tx: Tx) -> list[Job]:
        if owner is None:
            return jobs.list_all(
                tx, states=states, name=query.name, before=query.before, limit=query.limit
            )
        return jobs.list_jobs(
            tx, owner, states=states, name=query.name, before=query.before, limit=query.limit
        )

    return deps.db.read(read)


def history(deps: Deps, caller: Caller, job_id: str, lang: str) -> HistoryAnswer:
    job = get(deps, caller, job_id)
    rows = deps.db.read(lambda tx: jobs.history(tx, job.id))
    return HistoryAnswer(history=[views.event(row, lang) for row in rows])


def spec(deps: Deps, caller: Caller, job_id: str) -> SpecAnswer:
    """What the job was asked to be, in full: to submit it again or to compare it with another."""
    job = get(deps, caller, job_id)
    return SpecAnswer(job_id=job.id, spec=spec_to_wire(job.spec))


def submitted_files(deps: Deps, caller: Caller, job_id: str) -> JobFilesAnswer:
    job = get(deps, caller, job_id)
    snapshot_id = job.spec.snapshot
    if snapshot_id is None:
        return JobFilesAnswer(id=None, entries=[])
    rows = snapshots.rows_of(snapshots.manifest(deps, job.owner, snapshot_id))
    tags = None if job.spec.public_bos else dict(buckets.tags_of(deps, job).values())
    return JobFilesAnswer(id=snapshot_id, entries=rows, time=views.iso(job.created_at), tags=tags)


def get_visible(tx: Tx, caller: Caller, job_id: str) -> Job:
    job = jobs.get_job(tx, job_id)
    if job is None or not may_see(caller, job):
        raise NotFound("job_unknown", job_id=job_id[:100])
    return job


def _state(word: str) -> JobState:
    try:
        return JobState(word)
    except ValueError:
        known = ", ".join(state.value for state in JobState)
        raise Invalid("state_unknown", value=word[:100], known=known) from None
