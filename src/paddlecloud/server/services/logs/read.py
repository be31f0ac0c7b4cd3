"""Log reading: which worker and attempt, from which offset; one log as bytes, or several merged.

A log may move while it is read: before a retry the logs of the previous attempt are moved aside. So
the path is resolved again for each read, and a log counts as read to its end only if the attempt
was over before that read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from paddlecloud.db.tables import attempts, jobs
from paddlecloud.model.diagnosis.first_failure import first_failure
from paddlecloud.model.errors import Invalid, NotFound
from paddlecloud.model.jobs.job import Attempt, Job
from paddlecloud.model.logs.frames import framed
from paddlecloud.model.logs.merge import Source, merged
from paddlecloud.model.logs.time_index import since
from paddlecloud.server.deps import Deps
from paddlecloud.server.events import Topic
from paddlecloud.server.http.auth import Caller
from paddlecloud.server.schemas.logs import LogsQuery
from paddlecloud.server.services.files.job_files import log_path
from paddlecloud.server.services.jobs import queries
from paddlecloud.server.services.logs._grep import Pattern, SearchedSource
from paddlecloud.stores.logs.log_store import LogFile

if TYPE_CHECKING:
    from paddlecloud.model.logs.index_format import Note

LOG_CHUNK = 256 * 1024
MAX_NEWS = 32 * 1024
"""Bytes that are sent to followers directly; they read more than that from the store."""
MAX_HELD = 64 * 1024
"""Bytes of an unfinished line that are held back from a merged log."""
MAX_BLOCKS = 64
"""Blocks of `LOG_CHUNK` bytes that one step of a search reads: a few hundredths of a second."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """A request: the logs of some workers of one attempt, each from an offset on."""

    job_id: str
    owner: str
    attempt: int
    workers: tuple[str, ...]
    """Empty before the first attempt of a job with several workers."""
    offsets: tuple[int, ...]
    pattern: Pattern | None
    """Only lines that match."""
    merged: bool
    """The lines of all workers, each with its name."""


def begin(deps: Deps, caller: Caller, job_id: str, query: LogsQuery) -> Reading:
    pattern = None if query.grep is None else Pattern(query.grep)
    job = queries.get(deps, caller, job_id)
    merge = query.merge == "1" or (
        query.merge == "auto" and job.spec.is_gang and not (query.worker or query.failed)
    )
    number, names = _chosen(deps, job, query, merge=merge)
    left = _left_at(query.at)
    return Reading(
        job_id=job.id,
        owner=job.owner,
        attempt=number,
        workers=names,
        offsets=tuple(
            left[worker] if worker in left else _first_offset(deps, job, worker, number, query)
            for worker in names
        ),
        pattern=pattern,
        merged=merge,
    )


@dataclass(frozen=True, kw_only=True)
class OpenLogs:
    """The open logs of a reading; an open file stays the same if it is moved."""

    job: Job
    paths: tuple[str, ...]
    files: tuple[LogFile | None, ...]


def open_logs(deps: Deps, reading: Reading) -> OpenLogs:
    """Open every log of a reading, all of the attempt that was asked for."""
    job = _known(deps, reading.job_id)
    while True:
        paths = tuple(log_path(deps, job, worker, reading.attempt) for worker in reading.workers)
        files = tuple(map(deps.logs.open, paths))
        after = _known(deps, reading.job_id)
        if (after.attempt, after.pool) == (job.attempt, job.pool):
            return OpenLogs(job=job, paths=paths, files=files)
        job = after


@dataclass(frozen=True, kw_only=True)
class LogChunk:
    data: bytes
    over: bool
    """The attempt was over before these bytes were read."""


def chunk(deps: Deps, reading: Reading, offset: int) -> LogChunk:
    """The next bytes of the first worker's log, from its current path."""
    worker, number = reading.workers[0], reading.attempt
    before = _known(deps, reading.job_id)
    path = log_path(deps, before, worker, number)
    data = deps.logs.read(path, offset, LOG_CHUNK)
    over = _is_over(before, number)
    if not over:
        moved = log_path(deps, _known(deps, reading.job_id), worker, number)
        if moved != path:
            data = deps.logs.read(moved, offset, LOG_CHUNK)
    return LogChunk(data=data, over=over)


def topic(job_id: str, attempt: int, worker: str) -> Topic:
    """The topic on which growth of this log is notified."""
    return "log", f"{job_id}/{attempt}/{worker}"


class News(NamedTuple):
    """New bytes of a log for its followers; `chunk` has them with their HTTP chunk framing."""

    begin: int
    end: int
    data: bytes
    chunk: bytes

    @classmethod
    def of(cls, begin: int, data: bytes) -> News:
        return cls(begin, begin + len(data), data, b"%x\r\n%b\r\n" % (len(data), data))


def grew(deps: Deps, where: Topic, offset: int, data: memoryview, size: int) -> None:
    """Notify the followers of a log that now has `size` bytes, with the new bytes if few."""
    channel, payload = where
    news = None
    if offset + len(data) == size and len(data) <= MAX_NEWS and deps.hub.awaits(*where):
        news = News.of(offset, bytes(data))
    deps.hub.notify(channel, payload, news)
    deps.notify_log(payload)


class MergedLog:
    """Several logs merged by time into frames, or the matching lines of one or several.

    Each step is work for a thread: it returns after `LOG_CHUNK` bytes of frames or `MAX_BLOCKS`
    blocks without a match, so a client that leaves ends a search within one step.
    """

    def __init__(self, deps: Deps, reading: Reading, query: LogsQuery) -> None:
        self._deps = deps
        self._query = query
        self._pass: Iterator[bytes] | None = None
        self._open: OpenLogs | None = None
        """The logs as they were before the pass started."""
        self._sources: list[Source] = []
        self._framed: list[int] = []
        """The offset in the last frame of each source."""
        self.reading = reading
        self._over = False
        self.holds = False
        """Whether an unfinished line is held back until it ends or `flush` is set."""

    @property
    def topics(self) -> tuple[Topic, ...]:
        """Notifications after which there may be something new."""
        job_id, number = self.reading.job_id, self.reading.attempt
        logs = (topic(job_id, number, worker) for worker in self.reading.workers)
        return ("job", job_id), *logs

    def step(self, *, flush: bool = False) -> tuple[bytes, bool]:
        """Frames to send now, and whether they are the last; `flush`: unfinished lines too."""
        if self._pass is None:
            self._find_workers()
            self._open = open_logs(self._deps, self.reading)
            self._over = _is_over(self._open.job, self.reading.attempt)
            ends = (self._over or not self._query.follow) and not self._query.complete
            self._pass = self._frames(self._open, flush or ends)
        frames: list[bytes] = []
        size = silent = 0
        for frame in self._pass:
            frames.append(frame)
            size += len(frame)
            silent += not frame
            if size >= LOG_CHUNK or silent >= MAX_BLOCKS:
                return b"".join(frames) or self._progress(), False
        self._pass = self._open = None
        return b"".join(frames) + self._progress(), self._over or not self._query.follow

    def _find_workers(self) -> None:
        """The workers of a job are known once its first attempt has started; an elastic job may get
        more of them."""
        reading = self.reading
        if not reading.merged or self._query.worker is not None:
            return
        job = _known(self._deps, reading.job_id)
        if reading.workers and job.spec.elastic is None:
            return
        attempt = _attempt(self._deps, job, reading.attempt)
        new = [name for name in _names(attempt) if name not in reading.workers] if attempt else []
        offsets = [
            _first_offset(self._deps, job, name, reading.attempt, self._query) for name in new
        ]
        self.reading = replace(
            reading, workers=(*reading.workers, *new), offsets=(*reading.offsets, *offsets)
        )

    def _frames(self, now: OpenLogs, flush: bool) -> Iterator[bytes]:
        """A frame for each block that was read; an empty one for a block without a match."""
        for source, file in zip(self._sources, now.files, strict=False):
            if file:
                source.grow(file.size(), file.modified())
        for index in range(len(self._sources), len(now.files)):
            self._sources.append(self._source(now, index))
            self._framed.append(self.reading.offsets[index])
        dated = bool(self._query.times)
        for index, time, data in merged(
            self._sources, size=LOG_CHUNK, whole=not flush, dated=dated
        ):
            yield self._frame(index, data, time) if data else b""
        if self.reading.pattern is not None:
            return
        for index, source in enumerate(self._sources):
            if source.end - source.offset > MAX_HELD:
                for data in source.chunks(source.end, LOG_CHUNK):
                    yield self._frame(index, data, source.time)
        self.holds = any(one.offset < one.end for one in self._sources)

    def _source(self, now: OpenLogs, index: int) -> Source:
        file, pattern = now.files[index], self.reading.pattern
        make = Source if pattern is None else partial(SearchedSource, pattern)
        needs_times = self._query.times or len(now.files) > 1
        return make(
            partial(self._read, index),
            partial(self._deps.logs.notes, now.paths[index]) if needs_times else _no_notes,
            offset=self.reading.offsets[index],
            end=file.size() if file else 0,
            modified=file.modified() if file else 0.0,
        )

    def _progress(self) -> bytes:
        """Frames without bytes for the logs that were searched further than their last frame."""
        behind = [i for i, one in enumerate(self._sources) if one.offset > self._framed[i]]
        return b"".join(self._frame(index, b"", 0.0) for index in behind)

    def _frame(self, index: int, data: bytes, time: float) -> bytes:
        self._framed[index] = self._sources[index].offset
        at = time if self._query.times else None
        return framed(self.reading.workers[index], self._framed[index], data, at)

    def _read(self, index: int, offset: int, limit: int) -> bytes:
        file = self._open.files[index] if self._open else None
        return file.read(offset, limit) if file else b""


def _no_notes(first: int, count: int) -> list[Note]:
    """The times of a log that is neither merged with others nor shown with times."""
    return []


def _chosen(deps: Deps, job: Job, query: LogsQuery, *, merge: bool) -> tuple[int, tuple[str, ...]]:
    """Number of the attempt, and the workers. Before the first attempt every job is assumed to
    have a trainer-0, and a merged log has no workers yet."""
    number = query.attempt
    if number is not None and not 1 <= number <= job.attempt:
        raise NotFound("attempt_unknown", attempt=number, job_id=job.id, attempts=job.attempt)
    if query.failed:
        number, worker = _culprit(deps, job, number)
        return number, (worker,)
    number = number or max(1, job.attempt)
    attempt = _attempt(deps, job, number)
    if merge and query.worker is None:
        return number, _names(attempt) if attempt else ()
    names = _names(attempt) if attempt else ("trainer-0",)
    chosen = query.worker or ("trainer-0" if "trainer-0" in names else names[0])
    if chosen not in names:
        raise Invalid("worker_unknown", worker=chosen[:100], known=", ".join(names))
    return number, (chosen,)


def _culprit(deps: Deps, job: Job, asked: int | None) -> tuple[int, str]:
    """The newest attempt in which a worker failed, and that worker."""
    if job.failure is not None and job.failure.worker and asked in (None, job.attempt):
        return job.attempt, job.failure.worker
    for number in range(job.attempt, 0, -1) if asked is None else [asked]:
        attempt = _attempt(deps, job, number)
        failed = first_failure(attempt) if attempt else None
        if failed is not None:
            return number, failed.worker
    raise NotFound("logs_nothing_failed", job_id=job.id, state=job.state.value)


def _attempt(deps: Deps, job: Job, number: int) -> Attempt | None:
    return deps.db.read(lambda tx: attempts.get_attempt(tx, job.id, number))


def _names(attempt: Attempt) -> tuple[str, ...]:
    return tuple(replica.worker for replica in attempt.replicas)


def _first_offset(deps: Deps, job: Job, worker: str, number: int, query: LogsQuery) -> int:
    path = log_path(deps, job, worker, number)
    offset = query.offset
    if query.tail is not None:
        offset = max(offset, deps.logs.tail_offset(path, query.tail))
    if query.since is not None:
        moment = since(query.since, now=deps.clock(), zone=deps.settings.zone)
        offset = max(offset, deps.logs.offset_at(path, moment.timestamp()))
    return offset


def _left_at(text: str | None) -> dict[str, int]:
    """The offset of each worker: `trainer-0:120,trainer-1:98`."""
    left: dict[str, int] = {}
    for part in text.split(",") if text else ():
        worker, _, offset = part.rpartition(":")
        if not (worker and offset.isascii() and offset.isdigit() and len(offset) < 19):
            raise Invalid("query_invalid", detail=f"at: {part[:50]!r} is not worker:offset")
        left[worker] = int(offset)
    return left


def _is_over(job: Job, attempt: int) -> bool:
    return job.final or job.attempt > attempt


def _known(deps: Deps, job_id: str) -> Job:
    job = deps.db.read(lambda tx: jobs.get_job(tx, job_id))
    if job is None:
        raise NotFound("job_unknown", job_id=job_id[:100])
    return job
