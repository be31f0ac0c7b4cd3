"""Copies logs of jobs into their users' buckets, and moves those of earlier attempts aside."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

from paddlecloud.db.tables import attempts, jobs
from paddlecloud.db.tables import user_buckets as rows
from paddlecloud.model.diagnosis.reasons import caused
from paddlecloud.model.errors import NotFound, PaddleCloudError, Retry, Unreachable
from paddlecloud.model.files.layout import log_directory, output_root
from paddlecloud.model.jobs.job import Attempt, Job
from paddlecloud.server.deps import Deps
from paddlecloud.server.events import SCHEDULE_CHANNEL
from paddlecloud.server.http.executors import later_for_agent
from paddlecloud.server.services.files.job_files import Place, log_path, place_of, user_root
from paddlecloud.server.services.user_buckets.buckets import ask_bucket, bucket_errors, bucket_of
from paddlecloud.stores.base import CanLocalPath
from paddlecloud.stores.deadline import prompt_if

if TYPE_CHECKING:
    from paddlecloud.stores.s3.store import S3Store

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class SilentBucket:
    """A bucket that did not answer."""

    times: int
    """In a row."""
    since: datetime
    """When it was last tried."""
    until: datetime
    """It is not tried again before."""
    error: PaddleCloudError


def are_aside(deps: Deps, job: Job) -> bool:
    """Whether the next attempt of this job finds the place free; if not, that is seen to."""
    if job.attempt == 0 or (job.spec.public_bos and isinstance(deps.store, CanLocalPath)):
        return True
    key = job.id, job.attempt
    done = deps.caches.moved_logs.get(key)
    if done is None:
        deps.caches.moved_logs.put(key, False)
        later_for_agent(job, partial(_set_aside, deps, job))
    return bool(done)


def _set_aside(deps: Deps, job: Job) -> None:
    """Idempotent, also if several servers run it at once: a late one stops at the first file,
    because the next attempt has started. After a failure it is retried."""
    key = job.id, job.attempt
    try:
        _move_all(deps, job)
        deps.caches.moved_logs.put(key, True)
    except (Retry, OSError) as error:
        log.warning("job %s has to wait with its next attempt: %s", job.id, error)
    except PaddleCloudError as error:
        # Neither these files nor those of the next attempt can be written there.
        log.warning("log files of %s stay where they are: %s", job.id, error)
        deps.caches.moved_logs.put(key, True)
    finally:
        if deps.caches.moved_logs.get(key):
            deps.hub.notify(SCHEDULE_CHANNEL, "")
        else:
            deps.caches.moved_logs.pop(key)


def _move_all(deps: Deps, job: Job) -> None:
    number, place = job.attempt, place_of(deps, job)
    attempt = deps.db.read(lambda tx: attempts.get_attempt(tx, job.id, number))
    is_due = partial(_is_due, deps, job)
    for replica in attempt.replicas if attempt else ():
        source = f"{place.root}{log_directory(job.id, replica.role, replica.rank)}/"
        target = f"{place.root}{log_directory(job.id, replica.role, replica.rank, number)}/"
        for stat in list(place.store.list(source)):
            with suppress(NotFound):
                if not _move(place, stat.path, target + stat.path[len(source) :], is_due):
                    return


def _is_due(deps: Deps, job: Job) -> bool:
    """Whether the next attempt has not begun; one that has writes its own files there."""
    now = deps.db.read(partial(jobs.get_job, job_id=job.id))
    return now is not None and (now.attempt, now.pool) == (job.attempt, None)


def _move(place: Place, source: str, target: str, is_due: Callable[[], bool]) -> bool:
    """False if it is not due any more. That is checked after the file was opened, so a file of the
    next attempt is never read. A file that was replaced since is not deleted."""
    with place.store.read(source) as reader:
        if not is_due():
            return False
        copied = place.store.write(target, reader, modified=reader.stat.modified)
        if copied.size != reader.length:
            raise Retry("body_cut", size=copied.size)
    with prompt_if(True):  # a long wait could replace the file after the check
        now = place.store.stat(source)
        if now is not None and (now, now.tag) == (reader.stat, reader.stat.tag):
            place.store.delete(source)
    return True


COPY_BATCH = 20

BACK_OFF = (
    timedelta(seconds=2),
    timedelta(seconds=5),
    timedelta(seconds=15),
    timedelta(minutes=1),
    timedelta(minutes=5),
    timedelta(minutes=30),
    timedelta(hours=1),
)
"""After the first failed try to copy logs, or silence of a bucket, the second, and so on; the last
one is repeated."""

_LOG_CHUNK = 1024 * 1024


def copy_logs(deps: Deps, now: datetime) -> None:
    """Copy the logs of attempts that are over to their buckets.

    Idempotent: an attempt counts as copied only when all of its logs are there.
    """
    while True:
        found = deps.db.read(lambda tx: rows.to_copy(tx, now, COPY_BATCH))
        asked = [_try_to_copy(deps, row, now) for row in found]
        if any(asked) or len(found) < COPY_BATCH:
            return


def bucket_name(job: Job) -> str:
    return job.spec.bos_url.strip().removeprefix("https://").partition("/")[0]


def fell_silent(deps: Deps, job: Job, error: PaddleCloudError) -> datetime:
    """Do not call the bucket of this job for a while, longer each time; until when."""
    before = deps.caches.silent_buckets.get(bucket_name(job))
    times = 0 if before is None else before.times
    now = deps.clock()
    due = now + BACK_OFF[min(times, len(BACK_OFF) - 1)]
    silent = SilentBucket(times=times + 1, since=now, until=due, error=error)
    deps.caches.silent_buckets.put(bucket_name(job), silent)
    return due


def _try_to_copy(deps: Deps, row: rows.ToCopy, now: datetime) -> bool:
    """Whether the bucket of this job was called. One that does not respond is skipped for all its
    jobs, because its timeout delays the logs of other users."""
    job = deps.db.read(partial(jobs.get_job, job_id=row.job_id))
    if job is None:
        return True
    name = bucket_name(job)
    quiet = deps.caches.silent_buckets.get(name)
    # A job that got its files from the bucket since then shows that it responds again.
    started = job.started_at
    if quiet and now < quiet.until and (started is None or started <= quiet.since):
        _record_problem(deps, job, quiet.error, quiet.until)
        return False
    try:
        with prompt_if(True):
            ask_bucket(deps, job, lambda store: store.probe())
        with bucket_errors(deps, job):
            _copy_job(deps, job, row.copied, now)
        deps.caches.silent_buckets.pop(name)
    except PaddleCloudError as error:
        due = deps.clock() + BACK_OFF[min(row.tries, len(BACK_OFF) - 1)]
        if isinstance(error, Unreachable):
            due = fell_silent(deps, job, error)
        log.warning("logs of %s are not in its bucket yet: %s", job.id, error)
        _record_problem(deps, job, error, due)
    return True


def _record_problem(deps: Deps, job: Job, error: PaddleCloudError, due: datetime) -> None:
    own = {"bos_url": job.spec.bos_url}  # the error may be that of another job of this bucket
    reason = caused("private_logs_wait", error.code, {**error.params, **own}, **own)
    deps.db.write(lambda tx: rows.record_problem(tx, job.id, reason, due))


def _copy_job(deps: Deps, job: Job, copied: int, now: datetime) -> None:
    """One attempt after the other; the last one when the job is over."""
    store = bucket_of(deps, job)
    last = job.attempt if job.final else job.attempt - 1
    for number in range(copied + 1, last + 1):
        attempt = deps.db.read(partial(attempts.get_attempt, job_id=job.id, number=number))
        if attempt is not None:
            _copy_attempt(deps, job, attempt, store)
        deps.db.write(partial(rows.record_copied, job_id=job.id, attempt=number, done=False))
    if job.final:
        with suppress(PaddleCloudError):
            # Keys without this permission are fine: leftovers cost space, not results. Nothing of
            # this job is uploaded any more, whatever the clock of the bucket shows.
            store.sweep(now + timedelta(days=1), f"{output_root(job.id)}/")
        deps.db.write(partial(rows.record_copied, job_id=job.id, attempt=last, done=True))


def _copy_attempt(deps: Deps, job: Job, attempt: Attempt, store: S3Store) -> None:
    for replica in attempt.replicas:
        path = log_path(deps, job, replica.worker, attempt.number)
        file = deps.logs.open(path)
        if file is not None:
            size = file.size()
            chunks = (
                file.read(offset, min(_LOG_CHUNK, size - offset))
                for offset in range(0, size, _LOG_CHUNK)
            )
            store.write(path.removeprefix(f"{user_root(job.owner)}/"), chunks)
