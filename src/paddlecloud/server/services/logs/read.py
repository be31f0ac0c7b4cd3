"""Reading logs: whose, of which attempt, from where on; one of them or several as one.

A log may move while it is read: those of an attempt that is over go aside before the next attempt
gets their place. So whoever reads asks for the place anew each time, and takes a log to be read to
its end only where it was known beforehand that nothing could move or grow any more.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from paddlecloud.db.tables import attempts, jobs
from paddlecloud.model.diagnosis.first_failure import first_failure
from paddlecloud.model.errors import Invalid, NotFound
from paddlecloud.model.jobs.job import Attempt, Job
from paddlecloud.model.logs.frames import framed
from paddlecloud.model.logs.grep import compiled
from paddlecloud.model.logs.merge import Source, merged
from paddlecloud.model.logs.time_index import since
from paddlecloud.server.deps import Deps
from paddlecloud.server.events import Topic
from paddlecloud.server.http.auth import Caller
from paddlecloud.server.schemas.logs import LogsQuery
from paddlecloud.server.services.files.job_files import log_path
from paddlecloud.server.services.jobs import actions as job_service
from paddlecloud.stores.logs.log_store import LogFile

LOG_CHUNK = 256 * 1024
MOST_NEWS = 32 * 1024
"""Bytes of a log that followers are handed directly; they read longer pieces from the store."""
LONGEST_HELD = 64 * 1024
"""Bytes of a line that has no end yet and is not shown among those of others."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What a reader asked for: some workers' logs of one attempt, each from an offset on."""

    job_id: str
    owner: str
    attempt: int
    workers: tuple[str, ...]
    """None while an attempt with several workers has not begun."""
    offsets: tuple[int, ...]


def begin(deps: Deps, caller: Caller, job_id: str, query: LogsQuery) -> Reading:
    """What to read, or why that cannot be."""
    if query.grep is not None:
        if query.follow:
            raise Invalid("grep_follow")
        compiled(query.grep)
    job = job_service.get(deps, caller, job_id)
    number, names = _chosen(deps, job, query)
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
    )


@dataclass(frozen=True, kw_only=True)
class Opened:
    """The logs of a reading as they lie at one moment; an open file stays the same if it moves."""

    job: Job
    paths: tuple[str, ...]
    files: tuple[LogFile | None, ...]


def opened(deps: Deps, reading: Reading) -> Opened:
    """Open every log of a reading, all of the attempt that was asked for."""
    job = _known(deps, reading.job_id)
    while True:
        paths = tuple(log_path(deps, job, worker, reading.attempt) for worker in reading.workers)
        files = tuple(map(deps.logs.open, paths))
        after = _known(deps, reading.job_id)
        if (after.attempt, after.pool) == (job.attempt, job.pool):
            return Opened(job=job, paths=paths, files=files)
        job = after


@dataclass(frozen=True, kw_only=True)
class LogPiece:
    data: bytes
    over: bool
    """Nothing could be added any more before these bytes were read."""


def piece(deps: Deps, reading: Reading, offset: int) -> LogPiece:
    """The next bytes of the first worker's log, wherever it lies meanwhile."""
    worker, number = reading.workers[0], reading.attempt
    before = _known(deps, reading.job_id)
    path = log_path(deps, before, worker, number)
    data = deps.logs.read(path, offset, LOG_CHUNK)
    over = _is_over(before, number)
    if not over:
        moved = log_path(deps, _known(deps, reading.job_id), worker, number)
        if moved != path:
            data = deps.logs.read(moved, offset, LOG_CHUNK)
    return LogPiece(data=data, over=over)


def topic(job_id: str, attempt: int, worker: str) -> Topic:
    """What is told when this log grows."""
    return "log", f"{job_id}/{attempt}/{worker}"


class News(NamedTuple):
    """What is new in a log, for who follows it; `chunk` is the same as HTTP sends it."""

    begin: int
    end: int
    data: bytes
    chunk: bytes

    @classmethod
    def of(cls, begin: int, data: bytes) -> News:
        return cls(begin, begin + len(data), data, b"%x\r\n%b\r\n" % (len(data), data))


def grew(deps: Deps, where: Topic, offset: int, data: memoryview, size: int) -> None:
    """Wake who follows a log that has now `size` bytes, and hand them what is new in it."""
    channel, payload = where
    news = None
    if offset + len(data) == size and len(data) <= MOST_NEWS and deps.hub.awaits(*where):
        news = News.of(offset, bytes(data))
    deps.hub.notify(channel, payload, news)
    deps.notify_log(payload)


class Merge:
    """Several logs as one, a step at a time; each step is work for a thread."""

    def __init__(self, deps: Deps, reading: Reading, query: LogsQuery, *, follow: bool) -> None:
        self._deps = deps
        self._query = query
        self._follow = follow
        self._pass: Iterator[bytes] | None = None
        self._now: Opened | None = None
        """As it was before the pass began."""
        self._sources: list[Source] = []
        self.reading = reading
        self._over = False
        self.holds = False
        """Whether a line without an end is kept back."""

    @property
    def topics(self) -> tuple[Topic, ...]:
        """What may bring something new."""
        job_id, number = self.reading.job_id, self.reading.attempt
        logs = (topic(job_id, number, worker) for worker in self.reading.workers)
        return ("job", job_id), *logs

    def step(self, *, flush: bool = False) -> tuple[bytes, bool]:
        """Frames to send now, and whether they are the last; `flush`: lines without an end too."""
        if self._pass is None:
            self._find_workers()
            self._now = opened(self._deps, self.reading)
            self._over = _is_over(self._now.job, self.reading.attempt)
            self._pass = self._frames(self._now, flush or self._over or not self._follow)
        told: list[bytes] = []
        size = 0
        for frame in self._pass:
            told.append(frame)
            size += len(frame)
            if size >= LOG_CHUNK:
                return b"".join(told), False
        self._pass = self._now = None
        return b"".join(told), not told and (self._over or not self._follow)

    def _frames(self, now: Opened, flush: bool) -> Iterator[bytes]:
        found = self._new(now, flush) if self._sources else self._old(now, flush)
        for index, data in found:
            yield framed(self.reading.workers[index], self._sources[index].offset, data)
        self.holds = any(source.offset < source.end for source in self._sources)

    def _find_workers(self) -> None:
        """Who waits for the first attempt hears here who its workers are."""
        number = self.reading.attempt
        if self.reading.workers:
            return
        job = _known(self._deps, self.reading.job_id)
        attempt = _attempt(self._deps, job, number)
        names = _names(attempt) if attempt else ()
        offsets = (_first_offset(self._deps, job, name, number, self._query) for name in names)
        self.reading = replace(self.reading, workers=names, offsets=tuple(offsets))

    def _old(self, now: Opened, flush: bool) -> Iterator[tuple[int, bytes]]:
        """What is there already, in the order in which it came."""
        for index, file in enumerate(now.files):
            source = Source(
                partial(self._read, index),
                partial(self._deps.logs.notes, now.paths[index]),
                offset=self.reading.offsets[index],
                end=file.size() if file else 0,
                modified=file.modified() if file else 0.0,
            )
            self._sources.append(source)
        yield from merged(self._sources, size=LOG_CHUNK, whole=not flush)

    def _new(self, now: Opened, flush: bool) -> Iterator[tuple[int, bytes]]:
        """What came since the last pass: that it is so little is order enough."""
        for index, source in enumerate(self._sources):
            file = now.files[index]
            source.end = max(source.end, file.size() if file else 0)
            until = source.end if flush else source.whole_lines(source.end)
            if source.end - until > LONGEST_HELD:
                until = source.end
            for data in source.pieces(until, LOG_CHUNK):
                yield index, data

    def _read(self, index: int, offset: int, limit: int) -> bytes:
        file = self._now.files[index] if self._now else None
        return file.read(offset, limit) if file else b""


def _chosen(deps: Deps, job: Job, query: LogsQuery) -> tuple[int, tuple[str, ...]]:
    """Number of the attempt, and the workers; before there is any attempt every job is taken to
    have a trainer-0, and who wants all workers has to wait for them."""
    number = query.attempt
    if number is not None and not 1 <= number <= job.attempt:
        raise NotFound("attempt_unknown", attempt=number, job_id=job.id, attempts=job.attempt)
    if query.failed:
        number, worker = _culprit(deps, job, number)
        return number, (worker,)
    number = number or max(1, job.attempt)
    attempt = _attempt(deps, job, number)
    if query.merge and query.worker is None:
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


def _left_at(told: str | None) -> dict[str, int]:
    """Where each log was left: `trainer-0:120,trainer-1:98`."""
    left: dict[str, int] = {}
    for part in (told or "").split(",") if told else ():
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
