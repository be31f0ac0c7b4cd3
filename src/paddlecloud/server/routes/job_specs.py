"""What a job was asked to be, in full: for who submits it again or compares it with another."""

from __future__ import annotations

from paddlecloud.model.jobs.spec_codec import spec_to_wire
from paddlecloud.server.deps import Deps
from paddlecloud.server.http.routing import Call, Route
from paddlecloud.server.schemas.files import JobFilesAnswer
from paddlecloud.server.schemas.jobs import SpecAnswer
from paddlecloud.server.services.files import snapshots
from paddlecloud.server.services.jobs import actions
from paddlecloud.server.services.jobs.views import iso
from paddlecloud.server.services.user_buckets import buckets


def spec(deps: Deps, call: Call) -> SpecAnswer:
    job = actions.get(deps, call.caller, call.path["job_id"])
    return SpecAnswer(job_id=job.id, spec=spec_to_wire(job.spec))


def files(deps: Deps, call: Call) -> JobFilesAnswer:
    job = actions.get(deps, call.caller, call.path["job_id"])
    wanted = job.spec.snapshot
    if wanted is None:
        return JobFilesAnswer(id=None, entries=[])
    rows = snapshots.rows_of(snapshots.manifest(deps, job.owner, wanted))
    tags = None if job.spec.public_bos else dict(buckets.tags_of(deps, job).values())
    return JobFilesAnswer(id=wanted, entries=rows, time=iso(job.created_at), tags=tags)


ROUTES = (
    Route(
        method="GET",
        path="/api/v1/jobs/{job_id}/spec",
        summary="What a job was asked to be",
        plain=spec,
        answer=SpecAnswer,
    ),
    Route(
        method="GET",
        path="/api/v1/jobs/{job_id}/snapshot",
        summary="The files a job was given",
        plain=files,
        answer=JobFilesAnswer,
    ),
)
