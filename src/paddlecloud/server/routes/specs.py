"""What a job was asked to be, in full: for who submits it again or compares it with another."""

from __future__ import annotations

from paddlecloud.model.wirespec import spec_to_wire
from paddlecloud.server.deps import Deps
from paddlecloud.server.http import Call, Route
from paddlecloud.server.services import jobs, private, snapshots
from paddlecloud.server.services.views import iso
from paddlecloud.server.shapes import JobFilesAnswer, SpecAnswer


def spec(deps: Deps, call: Call) -> SpecAnswer:
    job = jobs.get(deps, call.caller, call.path["job_id"])
    return SpecAnswer(job_id=job.id, spec=spec_to_wire(job.spec))


def files(deps: Deps, call: Call) -> JobFilesAnswer:
    job = jobs.get(deps, call.caller, call.path["job_id"])
    wanted = job.spec.snapshot
    if wanted is None:
        return JobFilesAnswer(id=None, entries=[])
    rows = snapshots.rows_of(snapshots.manifest(deps, job.owner, wanted))
    tags = None if job.spec.public_bos else dict(private.tags_of(deps, job).values())
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
