"""Files of a job: outputs, logs and submitted files, listed and read.

The owner knows them as `output/<job_id>/…`. In the store they are below the owner's directory; the
outputs of a job with private storage are in the owner's bucket, its logs stay in the store as long
as its record. Nothing outside of that directory can be named.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec

from paddlecloud.db.tables import attempts
from paddlecloud.model.errors import Conflict, NotFound
from paddlecloud.model.files.layout import log_directory, log_file, output_root
from paddlecloud.model.files.path_rules import means
from paddlecloud.model.files.snapshot import Entry, EntryKind, check_path
from paddlecloud.model.jobs.job import Job
from paddlecloud.server.deps import Deps
from paddlecloud.server.schemas.files import FileRow
from paddlecloud.server.services.files import snapshots
from paddlecloud.server.services.jobs.views import iso
from paddlecloud.server.services.user_buckets import buckets
from paddlecloud.stores.base import Reader, Stat, Store
from paddlecloud.stores.directory.safe_open import shown

Listing = tuple[str, int, float, str]
"""Path, size, time of change (seconds since 1970) and sha256 of an output file."""
_APPEND = "append"
_SAME_TIME = 0.001
ASIDE_TIME = "%Y%m%dT%H%M%S%fZ"
"""The end of the name of a damaged blob: when it was moved. A move keeps the times of a file."""
DIGEST_BYTES = hashlib.sha256().digest_size


class Listed(msgspec.Struct, frozen=True, array_like=True):
    """A stored `Listing`."""

    path: str
    size: int
    mtime: float
    sha256: str
    tag: str = ""
    """The tag that the store gave the file when the list was made, if it has tags. Its listings may
    show another time than the one that was set."""

    def is_still(self, stat: Stat) -> bool:
        """Whether the file is the listed one: a later attempt may have written another."""
        return self.size == stat.size and not self.is_another(stat)

    def is_another(self, stat: Stat) -> bool:
        """Whether the file was rewritten, by the tag or time in the store, whatever its size."""
        if self.tag:
            return self.tag != tag_of(stat)
        return abs(stat.modified.timestamp() - self.mtime) >= _SAME_TIME


def tag_of(stat: Stat) -> str:
    """The tag of a file without quotes, which not all responses have."""
    return stat.tag.strip('"')


def user_root(owner: str) -> str:
    return f"users/{owner}"


@dataclass(frozen=True, kw_only=True)
class Place:
    """The store of a job's outputs; `root` comes before the path that the owner knows."""

    store: Store
    root: str


def are_near(deps: Deps, job: Job) -> bool:
    """Whether the files of this job are on the server's disk, not in a bucket."""
    return job.spec.public_bos and deps.settings.store.kind == "directory"


def place_of(deps: Deps, job: Job) -> Place:
    if job.spec.public_bos:
        return Place(store=deps.store, root=f"{user_root(job.owner)}/")
    return Place(store=buckets.bucket_of(deps, job), root="")


def listed(deps: Deps, job: Job, prefix: str | None) -> list[FileRow]:
    """Rows sorted by path. No prefix: the outputs; "/": all.

    Submitted files in a directory named `output` are included.
    """
    root = output_root(job.id) + "/"
    wanted = root if prefix is None else prefix.lstrip("/")
    top = FileRow(path=root, size=0, time=iso(job.created_at))
    rows = [top, *_with_empty_logs(deps, job, list(_outputs(deps, job)))]
    names = [row.path for row in rows]
    if not f"{wanted}/".startswith(root) and job.spec.snapshot is not None:
        entries = snapshots.manifest(deps, job.owner, job.spec.snapshot).entries
        rows = sorted([*rows, *_submitted(job, entries)], key=lambda row: row.path)
        # Links and directories have no rows, but a prefix may name one.
        names += (f"{e.path}/" if e.kind is EntryKind.DIRECTORY else e.path for e in entries)
    is_meant = means(wanted, names)
    return [row for row in rows if is_meant(row.path)]


def listings_root(owner: str, job_id: str) -> str:
    """The directory of the final lists of a job's workers; users do not see it."""
    return f"{user_root(owner)}/listings/{job_id}"


def aside_root(owner: str) -> str:
    """The directory of damaged blobs (`verify`). Agents on this machine check when it last changed:
    trees that they made before may share bytes with a blob that was moved there
    (`agent.inputs.snapshot_tree`)."""
    return f"{user_root(owner)}/damaged"


class Opened:
    """One listed file, open at an offset."""

    __slots__ = ("reader", "sha256", "version")

    def __init__(self, reader: Reader, version: str, sha256: str | None = None) -> None:
        self.reader = reader
        self.version = version
        """Changes with the bytes. `append…`: the file only grows."""
        self.sha256 = sha256
        """Of the whole file, if known without reading it."""


def opened(deps: Deps, job: Job, path: str, offset: int, length: int | None = None) -> Opened:
    """The bytes of one listed file from `offset` on, `length` at most."""
    check_path(path, below=True)
    try:
        return _opened(deps, job, path, offset, length)
    except NotFound as error:
        if error.code != "file_missing":
            raise
        # With the path that its owner knows, not the one in the store.
        raise NotFound("file_missing", path=shown(path)) from None


def with_digest(reader: Reader) -> Iterator[bytes]:
    """The bytes, followed by their sha256, which is not known before they were read."""
    digest = hashlib.sha256()
    for chunk in reader:
        digest.update(chunk)
        yield chunk
    yield digest.digest()


def _opened(deps: Deps, job: Job, path: str, offset: int, length: int | None) -> Opened:
    root = output_root(job.id) + "/"
    if path.startswith(root):
        try:
            reader = _open_output(deps, job, path, offset, length)
        except NotFound:
            if path not in (empty := _empty_logs(deps, job)):
                raise
            stat = Stat(path=path, size=0, modified=empty[path])
            reader = Reader(stat, 0, lambda _: b"", lambda: None)
        return Opened(reader, _version(job, path[len(root) :], reader.stat))
    if not job.spec.public_bos:
        return _open_private(deps, job, path, offset, length)
    if job.spec.snapshot is not None:
        sha256, size = snapshots.files_of(deps, job.owner, job.spec.snapshot).get(path, ("", 0))
        if sha256:
            blob = snapshots.blob_path(job.owner, sha256)
            reader = deps.store.read(blob, offset, length)
            version = f"{size}-{iso(job.created_at)}-{sha256}"
            return Opened(reader, version, sha256)
    raise NotFound("file_unknown", path=path[:200], job_id=job.id)


def log_path(deps: Deps, job: Job, worker: str, number: int) -> str:
    """The current path of a worker's log of one attempt.

    The log of an attempt that is over is moved before the next attempt starts; while the job waits
    for that, the newest log may be at either path.
    """
    root = user_root(job.owner)
    current = f"{root}/{log_file(job.id, worker)}"
    aside = f"{root}/{log_file(job.id, worker, number)}"
    if number < job.attempt:
        return aside
    between = number == job.attempt and job.pool is None
    return aside if between and deps.logs.open(current) is None else current


def set_logs_aside(deps: Deps, job: Job) -> None:
    """Move the logs of the last attempt to log/attempt-<k>/ before the next attempt starts.

    Idempotent, so a crash leaves no mixture. Log files in a bucket are moved by
    `user_buckets.logs`.
    """
    attempt = deps.db.read(lambda tx: attempts.get_attempt(tx, job.id, job.attempt))
    root, number = user_root(job.owner), job.attempt
    for replica in attempt.replicas if attempt else ():
        role, rank = replica.role, replica.rank
        for source, target in (
            (log_file(job.id, replica.worker), log_file(job.id, replica.worker, number)),
            (log_directory(job.id, role, rank), log_directory(job.id, role, rank, number)),
        ):
            # Nothing to move, or a file that was written after the move: both are fine.
            with suppress(NotFound, Conflict), deps.log_moves:
                deps.logs.move(f"{root}/{source}", f"{root}/{target}")


def _open_output(deps: Deps, job: Job, path: str, offset: int, length: int | None) -> Reader:
    here = f"{user_root(job.owner)}/{path}"
    if job.spec.public_bos or deps.store.stat(here) is not None:
        return deps.store.read(here, offset, length)
    return buckets.ask_bucket(deps, job, lambda bucket: bucket.read(path, offset, length))


def _open_private(deps: Deps, job: Job, path: str, offset: int, length: int | None) -> Opened:
    """One of the submitted files in the user's bucket, if it is unchanged."""
    mark = buckets.mark_of(deps, job, path)
    if mark is None:
        raise NotFound("file_unknown", path=path[:200], job_id=job.id)
    reader = buckets.content(deps, job, mark, offset, length)
    return Opened(reader, f"{reader.stat.size}-{mark}")


def _stored(deps: Deps, job: Job) -> Iterator[tuple[str, Stat]]:
    """All files of a job, by the path that its owner knows."""
    root, below = user_root(job.owner) + "/", f"{output_root(job.id)}/"
    here = ((stat.path[len(root) :], stat) for stat in deps.store.list(root + below))
    if job.spec.public_bos:
        return here
    found = buckets.ask_bucket(deps, job, lambda bucket: list(bucket.list(below)))
    there = {stat.path: stat for stat in found}
    return iter(sorted({**there, **dict(here)}.items()))


def _outputs(deps: Deps, job: Job) -> Iterator[FileRow]:
    known = listings(deps, job)
    for path, stat in _stored(deps, job):
        row = known.get(path)
        found = FileRow(path=path, size=stat.size, time=iso(stat.modified))
        if row is not None and row.is_still(stat):
            written_at = datetime.fromtimestamp(row.mtime, UTC)
            found = msgspec.structs.replace(found, time=iso(written_at), sha256=row.sha256 or None)
        elif row is not None and row.sha256 and job.final:
            # While the job runs a later attempt may be writing it.
            found = msgspec.structs.replace(found, written_sha256=row.sha256)
        yield found


def _with_empty_logs(deps: Deps, job: Job, rows: list[FileRow]) -> list[FileRow]:
    """The rows, and one for each empty log: nothing is stored for it, and the log of a worker must
    be listed as empty instead of missing."""
    empty = _empty_logs(deps, job)
    for row in rows:
        empty.pop(row.path, None)
    more = [FileRow(path=path, size=0, time=iso(at)) for path, at in empty.items()]
    return sorted([*rows, *more], key=lambda row: row.path) if more else rows


def _empty_logs(deps: Deps, job: Job) -> dict[str, datetime]:
    """Log path and end time of each worker that is over."""
    if job.pool is None:  # the logs of an attempt that is over are moved
        return {}
    attempt = deps.db.read(lambda tx: attempts.get_attempt(tx, job.id, job.attempt))
    return {
        log_file(job.id, replica.worker): (replica.exit.finished_at if replica.exit else None)
        or job.finished_at
        or job.created_at
        for replica in (attempt.replicas if attempt else ())
        if replica.over
    }


def listings(deps: Deps, job: Job) -> dict[str, Listed]:
    """The listed outputs of workers that are over, by path."""
    found: dict[str, Listed] = {}
    for stat in deps.store.list(listings_root(job.owner, job.id) + "/"):
        with suppress(NotFound, msgspec.DecodeError), deps.store.read(stat.path) as reader:
            rows = msgspec.json.decode(b"".join(reader), type=list[Listed])
            found.update((row.path, row) for row in rows)
    return found


def _version(job: Job, path: str, stat: Stat) -> str:
    """The version of an output; the log of the next attempt is another file of the same name."""
    if not _is_log(path):
        return f"{stat.size}-{iso(stat.modified)}-{stat.modified.timestamp():.6f}"
    return _APPEND if path.count("/") > 1 else f"{_APPEND}-{job.attempt}"


def _is_log(path: str) -> bool:
    """Whether it is the stdout and stderr of a worker, which only grows."""
    above, _, name = path.rpartition("/")
    is_ours = above == "log" or (above.count("/") == 1 and above.startswith("log/attempt-"))
    return is_ours and name.endswith(".log")


def _submitted(job: Job, entries: Iterable[Entry]) -> Iterator[FileRow]:
    for entry in entries:
        if entry.kind is EntryKind.FILE:
            sha256 = entry.sha256 if job.spec.public_bos else None
            when = iso(job.created_at)
            yield FileRow(path=entry.path, size=entry.size, time=when, sha256=sha256)
