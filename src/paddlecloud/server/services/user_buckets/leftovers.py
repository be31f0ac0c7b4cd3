"""Abandoned multipart uploads in users' own buckets.

A bucket keeps the parts of an upload until it is joined or dropped, and its owner pays for them; a
client that was killed does neither. An upload whose record was not touched for a day is dropped
with the keys of a job that has the same directory. Uploads of others in that bucket have no record
and stay. The keys that came with the upload itself are not kept, so without such a job its parts
stay.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial

from paddlecloud.db.engine.base import Tx
from paddlecloud.db.tables import jobs
from paddlecloud.db.tables import user_buckets as rows
from paddlecloud.model.errors import PaddleCloudError, Refused, Unreachable
from paddlecloud.model.files.bos_url import plain_bos_url
from paddlecloud.model.jobs.job import Job
from paddlecloud.server.deps import Deps
from paddlecloud.server.services.transfer import open_uploads
from paddlecloud.server.services.user_buckets.buckets import bucket_errors, bucket_of
from paddlecloud.server.services.user_buckets.logs import bucket_name, fell_silent
from paddlecloud.server.services.user_buckets.uploads import ROOT
from paddlecloud.stores.base import Stat
from paddlecloud.stores.deadline import prompt_if

log = logging.getLogger(__name__)
ABANDONED = timedelta(days=1)
EXPIRED = timedelta(days=30)
"""After so long no job with keys is expected: the record is deleted."""
MOST_JOBS = 200
"""Of one owner, the newest, among which the one with a directory is searched."""
SECONDS = 60.0
"""For all buckets together: whatever is left has its turn the next time."""


def prune(deps: Deps) -> int:
    """Drop what was not touched for a day, where there are keys for it; how many uploads.

    A bucket that does not answer, or refuses its keys, is asked once; the silent one is then left
    alone for a while.
    """
    if not deps.settings.private_store.enabled:
        return 0
    now, until = deps.clock(), time.monotonic() + SECONDS
    old = [stat for stat in deps.store.list(f"{ROOT}/") if stat.modified < now - ABANDONED]
    known: dict[str, Mapping[str, Job]] = {}
    given_up: set[str] = set()
    dropped = 0
    for stat in old:
        if time.monotonic() > until:
            break
        owner = stat.path.rpartition("/")[2]
        if owner not in known:
            known[owner] = deps.db.read(partial(_directories, owner=owner))
        dropped += _drop(deps, stat, known[owner], given_up)
    return dropped


def _drop(deps: Deps, stat: Stat, directories: Mapping[str, Job], given_up: set[str]) -> bool:
    """Whether the parts are gone now; `given_up` are directories that failed before."""
    now = deps.clock()
    begun = open_uploads.read(deps, stat.path) if directories else None
    place = _plain(begun.bos_url) if begun is not None else ""
    job = directories.get(place)
    if begun is None or job is None or place in given_up or _is_quiet(deps, job, now):
        if stat.modified < now - EXPIRED:
            _delete(deps, stat)
        return False
    try:
        # Its age was read a while ago: it may have been resumed since.
        known = deps.store.stat(stat.path)
        if known is None or known.modified >= now - ABANDONED:
            return False
        with bucket_errors(deps, job), prompt_if(True):
            bucket_of(deps, job).drop_parts(begun.path, begun.upload)
    except (PaddleCloudError, OSError) as error:
        if isinstance(error, Unreachable):
            fell_silent(deps, job, error)
        if isinstance(error, Unreachable | Refused):
            given_up.add(place)
        log.info("an upload to %s that nobody ended stays: %s", begun.bos_url, error)
        return False
    _delete(deps, stat)
    return True


def _delete(deps: Deps, stat: Stat) -> None:
    """A record that cannot be deleted has its turn the next time."""
    with suppress(PaddleCloudError, OSError):
        deps.store.delete(stat.path)


def _is_quiet(deps: Deps, job: Job, now: datetime) -> bool:
    quiet = deps.caches.silent_buckets.get(bucket_name(job))
    return quiet is not None and now < quiet.until


def _directories(tx: Tx, owner: str) -> dict[str, Job]:
    """Which of this owner's jobs has keys for which directory: the newest of each."""
    found: dict[str, Job] = {}
    for job_id in rows.jobs_with_keys(tx, owner, MOST_JOBS):
        job = jobs.get_job(tx, job_id)
        if job is not None:
            found.setdefault(_plain(job.spec.bos_url), job)
    return found


def _plain(bos_url: str) -> str:
    """The same for every spelling of a directory."""
    return plain_bos_url(bos_url) or bos_url
