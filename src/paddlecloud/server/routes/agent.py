"""Routes for agents: orders out, reports and files in. Agents connect to the server, never back."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import TypeVar

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from paddlecloud.model.jobs.job import Job
from paddlecloud.server.deps import Deps
from paddlecloud.server.http.executors import (
    agents_of,
    bucket_chunks,
    for_agent,
    in_long_thread,
    in_thread,
    later_for_agent,
)
from paddlecloud.server.http.request_body import signed_batches, signed_body
from paddlecloud.server.http.routing import BYTES, Access, Call, Router
from paddlecloud.server.routes.agent_outputs import assigned_to, output_name
from paddlecloud.server.schemas.agent import (
    AgentJoinAnswer,
    AgentJoinRequest,
    EntriesAnswer,
    OutputsAnswer,
    PollAnswer,
    PollRequest,
    ReplicaQuery,
    ReplicaSecrets,
    ReportAnswer,
    UploadAnswer,
    UploadQuery,
)
from paddlecloud.server.schemas.transfer import ContentQuery
from paddlecloud.server.services.accounts import secrets
from paddlecloud.server.services.agents import assignment, join, orders, reports
from paddlecloud.server.services.files import job_files, outputs
from paddlecloud.server.services.transfer import agent_inputs
from paddlecloud.stores.base import Sink

T = TypeVar("T")
Work = Callable[[Deps, Call, Job], T]
MAX_REPORT = 16 * 1024 * 1024
router = Router()


@router.post(
    "/api/v1/agent/join",
    "Exchange a join token for an agent id and key",
    access=Access.OPEN,
    body=AgentJoinRequest,
)
def join_server(deps: Deps, call: Call) -> AgentJoinAnswer:
    return join.join(deps, call.caller, call.body)


@router.post("/api/v1/agent/poll", "Wait for orders", access=Access.AGENT, body=PollRequest)
async def poll(deps: Deps, call: Call, _request: Request) -> PollAnswer:
    assert call.caller.agent is not None
    return await orders.poll(deps, call.caller.agent, call.body)


@router.post("/api/v1/agent/report", "Starts, log bytes, ends", access=Access.AGENT)
async def report(deps: Deps, call: Call, request: Request) -> ReportAnswer:
    """Starts, log bytes and ends. The body is a length of 4 bytes, JSON, then the log bytes."""
    body = await signed_body(request, call.headers, MAX_REPORT)
    return await reports.receive(deps, call.caller.node, memoryview(body))


@router.get(
    "/api/v1/agent/snapshots/{snapshot_id}",
    "A job's file list",
    access=Access.AGENT,
    query=ReplicaQuery,
    answer=EntriesAnswer,
)
def manifest(deps: Deps, call: Call) -> Response:
    job = assignment.live(deps, call.caller.node, call.query.replica).job
    body = agent_inputs.manifest(deps, job, call.path["snapshot_id"])
    return Response(body, media_type="application/json")


@router.get(
    "/api/v1/agent/blobs/{sha256}",
    "A content of a job's files",
    access=Access.AGENT,
    query=ContentQuery,
    media=BYTES,
)
async def blob(deps: Deps, call: Call, _request: Request) -> Response:
    return await _in_store_thread(deps, call, call.query.replica, _blob)


@router.get(
    "/api/v1/agent/replicas/{replica}/outputs",
    "What the attempts before put out",
    access=Access.AGENT,
)
async def outputs_before(deps: Deps, call: Call, _request: Request) -> OutputsAnswer:
    return await _in_store_thread(deps, call, call.path["replica"], _outputs_before)


@router.get(
    "/api/v1/agent/replicas/{replica}/outputs/{path:path}",
    "One of these files, followed by its sha256",
    access=Access.AGENT,
    media=BYTES,
)
async def output_before(deps: Deps, call: Call, _request: Request) -> Response:
    """One of these files, followed by its sha256, which is not known before it was read."""
    return await _in_store_thread(deps, call, call.path["replica"], _output_before)


@router.get(
    "/api/v1/agent/replicas/{replica}/secrets",
    "The secrets that its job names",
    access=Access.AGENT,
)
def replica_secrets(deps: Deps, call: Call) -> ReplicaSecrets:
    job = assignment.live(deps, call.caller.node, call.path["replica"]).job
    return ReplicaSecrets(secrets=dict(secrets.values_of(deps, job)))


async def _in_store_thread(deps: Deps, call: Call, replica: str, work: Work[T]) -> T:
    """In a thread for disks, or for buckets if the files are in one."""
    job, found = await in_thread(_if_near, deps, call, replica, work)
    return await for_agent(job, work, deps, call, job) if found is None else found


def _if_near(deps: Deps, call: Call, replica: str, work: Work[T]) -> tuple[Job, T | None]:
    job = assignment.live(deps, call.caller.node, replica).job
    near = job_files.are_near(deps, job)
    return job, work(deps, call, job) if near else None


def _blob(deps: Deps, call: Call, job: Job) -> Response:
    reader = agent_inputs.content(deps, job, call.path["sha256"], call.query.offset)
    headers = {"content-length": str(reader.length)}
    if job.spec.public_bos:
        headers["x-content-sha256"] = call.path["sha256"]
    return _streamed(job, reader, headers)


def _outputs_before(deps: Deps, call: Call, _job: Job) -> OutputsAnswer:
    found = orders.outputs_before(deps, call.caller.node, call.path["replica"])
    return OutputsAnswer(files=found)


def _output_before(deps: Deps, call: Call, job: Job) -> Response:
    node, replica, path = call.caller.node, call.path["replica"], call.path["path"]
    reader = orders.open_output_before(deps, node, replica, path)
    headers = {"content-length": str(reader.length + job_files.DIGEST_BYTES)}
    return _streamed(job, job_files.with_digest(reader), headers)


def _streamed(job: Job, chunks: Iterable[bytes], headers: dict[str, str]) -> Response:
    body = iter(chunks) if job.spec.public_bos else bucket_chunks(chunks, agents_of(job))
    return StreamingResponse(body, media_type=BYTES, headers=headers)


@router.put(
    "/api/v1/agent/replicas/{replica}/files/{area}/{path:path}",
    "Bring back an output file",
    access=Access.AGENT,
    query=UploadQuery,
)
async def upload(deps: Deps, call: Call, request: Request) -> UploadAnswer:
    """Store one output file; it gets its name once it is complete and matches the signature."""
    job, sink = await in_long_thread(_open, deps, call)
    try:
        rest = b""
        async for batch in signed_batches(request, call.headers):
            if rest:
                await for_agent(job, sink.write, rest)
            rest = batch
        return await for_agent(job, _finish, deps, call, sink, rest)
    finally:
        # Abort an upload that did not complete; the bucket or the disk may not respond.
        later_for_agent(job, sink.abort)


def _open(deps: Deps, call: Call) -> tuple[Job, Sink]:
    query: UploadQuery = call.query
    assigned = assigned_to(deps, call)
    modified = None if query.mtime is None else datetime.fromtimestamp(query.mtime, UTC)
    return assigned.job, outputs.open_output(deps, assigned, output_name(call), modified)


def _finish(deps: Deps, call: Call, sink: Sink, rest: bytes) -> UploadAnswer:
    sink.write(rest)
    # A newer attempt may own this path by now.
    assigned_to(deps, call)
    return UploadAnswer(size=sink.commit().size)
