"""What a job left behind: its outputs, its logs, and the files it was given.

To its owner a job's files are `output/<job_id>/…`; in the store they lie below the owner's own
directory. Nothing outside of that directory can be named.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from paddlecloud.db import attempts, jobs
from paddlecloud.model.errors import Conflict, Invalid, NotFound
from paddlecloud.model.job import Job
from paddlecloud.model.paths import log_directory, log_file, output_root
from paddlecloud.model.snapshot import EntryKind, check_path
from paddlecloud.server.deps import Deps
from paddlecloud.server.services import snapshots
from paddlecloud.server.services.views import iso
from paddlecloud.server.shapes import FileRow
from paddlecloud.stores.base import Reader

LOG_CHUNK = 256 * 1024


def user_root(owner: str) -> str:
    return f"users/{owner}"


def listed(deps: Deps, job: Job, prefix: str | None) -> list[FileRow]:
    """Rows sorted by path, the job's own directory first. No prefix: the outputs; "/": all.

    Files that were submitted in a directory `output` of the user's own are found there too.
    """
    root = output_root(job.id) + "/"
    wanted = root if prefix is None else prefix.lstrip("/")
    rows = [row for row in _outputs(deps, job) if _matches(row.path, wanted)]
    if _matches(root, wanted) or wanted.rstrip("/") == root.rstrip("/"):
        rows.insert(0, FileRow(path=root, size=0, time=iso(job.created_at)))
    if not f"{wanted}/".startswith(root) and job.spec.snapshot is not None:
        rows += [row for row in _submitted(deps, job) if _matches(row.path, wanted)]
    return rows


def output_bytes(deps: Deps, job: Job) -> int:
    """What the outputs and logs of a job take up in the store."""
    root = f"{user_root(job.owner)}/{output_root(job.id)}/"
    return sum(stat.size for stat in deps.store.list(root))


def opened(deps: Deps, job: Job, path: str, offset: int) -> tuple[Reader, str | None]:
    """The bytes of one listed file from `offset` on, and the sha256 of all of it where known."""
    check_path(path)
    if path.startswith(output_root(job.id) + "/"):
        return deps.store.read(f"{user_root(job.owner)}/{path}", offset), None
    if job.spec.snapshot is not None:
        snapshot = snapshots.manifest(deps, job.owner, job.spec.snapshot)
        for entry in snapshot.entries:
            if entry.path == path and entry.kind is EntryKind.FILE:
                blob = snapshots.blob_path(job.owner, entry.sha256)
                return deps.store.read(blob, offset), entry.sha256
    raise NotFound("file_unknown", path=path[:200], job_id=job.id)


@dataclass(frozen=True, kw_only=True)
class LogPlace:
    """Where one worker's log lies in the log store."""

    path: str
    worker: str
    attempt: int


def log_place(deps: Deps, job: Job, worker: str | None, attempt: int | None) -> LogPlace:
    """The log asked for: by default the first worker of the newest attempt.

    Before there is any attempt that is taken to be trainer-0 of the first: every job has one.
    """
    number = max(1, job.attempt) if attempt is None else attempt
    if attempt is not None and not 1 <= attempt <= job.attempt:
        raise NotFound("attempt_unknown", attempt=attempt, job_id=job.id, attempts=job.attempt)
    found = deps.db.read(lambda tx: attempts.get_attempt(tx, job.id, number))
    names = [replica.worker for replica in found.replicas] if found else ["trainer-0"]
    chosen = worker or names[0]
    if chosen not in names:
        raise Invalid("worker_unknown", worker=chosen[:100], known=", ".join(names))
    return LogPlace(path=log_path(deps, job, chosen, number), worker=chosen, attempt=number)


def log_path(deps: Deps, job: Job, worker: str, number: int) -> str:
    """Where the log of a worker of one attempt lies now.

    The log of an attempt that is over goes aside before the next attempt gets its place; while the
    job waits for that, the newest log may be here or there.
    """
    root = user_root(job.owner)
    current = f"{root}/{log_file(job.id, worker)}"
    aside = f"{root}/{log_file(job.id, worker, number)}"
    if number < job.attempt:
        return aside
    between = number == job.attempt and job.pool is None
    return aside if between and deps.store.stat(current) is None else current


def set_logs_aside(deps: Deps, job: Job) -> None:
    """Make room for the logs of the next attempt: those of the last go to log/attempt-<k>/.

    Done before the next attempt exists and harmless to repeat, so a crash leaves no mixture.
    """
    attempt = deps.db.read(lambda tx: attempts.get_attempt(tx, job.id, job.attempt))
    root, number = user_root(job.owner), job.attempt
    for replica in attempt.replicas if attempt else ():
        role, rank = replica.role, replica.rank
        for source, target in (
            (log_file(job.id, replica.worker), log_file(job.id, replica.worker, number)),
            (log_directory(job.id, role, rank), log_directory(job.id, role, rank, number)),
        ):
            # Nothing to move, or what a straggler left behind after the move: both may stay.
            with suppress(NotFound, Conflict), deps.log_moves:
                deps.logs.move(f"{root}/{source}", f"{root}/{target}")


@dataclass(frozen=True, kw_only=True)
class LogPiece:
    data: bytes
    final: bool
    """The job had ended before these bytes were read."""
    newer: bool
    """A later attempt had begun before these bytes were read."""


def log_piece(deps: Deps, job_id: str, place: LogPlace, offset: int) -> LogPiece:
    """The next bytes of one attempt's log, wherever it lies meanwhile."""
    before = _known(deps, job_id)
    path = log_path(deps, before, place.worker, place.attempt)
    data = deps.logs.read(path, offset, LOG_CHUNK)
    moved = log_path(deps, _known(deps, job_id), place.worker, place.attempt)
    if moved != path:
        data = deps.logs.read(moved, offset, LOG_CHUNK)
    return LogPiece(data=data, final=before.final, newer=before.attempt > place.attempt)


def _known(deps: Deps, job_id: str) -> Job:
    job = deps.db.read(lambda tx: jobs.get_job(tx, job_id))
    if job is None:
        raise NotFound("job_unknown", job_id=job_id[:100])
    return job


def _outputs(deps: Deps, job: Job) -> Iterator[FileRow]:
    root = user_root(job.owner) + "/"
    for stat in deps.store.list(f"{root}{output_root(job.id)}/"):
        yield FileRow(path=stat.path[len(root) :], size=stat.size, time=iso(stat.modified))


def _submitted(deps: Deps, job: Job) -> Iterator[FileRow]:
    assert job.spec.snapshot is not None
    for entry in snapshots.manifest(deps, job.owner, job.spec.snapshot).entries:
        if entry.kind is EntryKind.FILE:
            yield FileRow(path=entry.path, size=entry.size, time=iso(job.created_at))


def _matches(path: str, prefix: str) -> bool:
    """A prefix means a directory or a file of that name, or the beginning of names in one."""
    return path.startswith(prefix)
