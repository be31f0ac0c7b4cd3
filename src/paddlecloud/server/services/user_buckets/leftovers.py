"""Uploads in parts that were begun in a user's own bucket, and that nobody brings to their end.

A bucket keeps the parts of an upload until it is joined or dropped, and its owner pays for them; a
client that was killed does neither. So each upload that begins here has a small record in the
server's own store, and one that nobody touched for a day is dropped with the keys of a job that has
the same directory. Whoever goes on with an upload has a record of it too, and the youngest counts.
Uploads of others in that bucket have no record: nobody here touches them. The
keys that came with the upload itself are not kept, so without such a job its parts stay.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial

import msgspec

from paddlecloud.db.engine.base import Tx
from paddlecloud.db.tables import jobs
from paddlecloud.db.tables import user_buckets as rows
from paddlecloud.model.errors import PaddleCloudError, Refused, Unreachable
from paddlecloud.model.files.bos_url import plain_bos_url
from paddlecloud.model.jobs.job import Job
from paddlecloud.server.deps import Deps
from paddlecloud.server.services.user_buckets.buckets import bucket_of, in_its_terms
from paddlecloud.server.services.user_buckets.logs import bucket_name, fell_silent
from paddlecloud.stores.base import Stat
from paddlecloud.stores.deadline import prompt_if

log = logging.getLogger(__name__)
ROOT = "begun"
"""Not below `users`: a user who left nothing but this behind can be deleted."""
ABANDONED = timedelta(days=1)
FORGOTTEN = timedelta(days=30)
"""After so long nobody will come with keys: the record goes."""
TOUCHED = timedelta(hours=1)
"""A record that is younger is good enough for an upload that goes on."""
MOST_JOBS = 200
"""Of one owner, the newest, among which a directory is looked for."""
SECONDS = 60.0
"""For all buckets together: whatever is left has its turn the next time."""


class Begun(msgspec.Struct, frozen=True, kw_only=True):
    bos_url: str
    path: str
    upload: str


def note(deps: Deps, owner: str, begun: Begun) -> None:
    """Remember an upload that was begun. It is worth having without that too: nothing is raised."""
    with suppress(PaddleCloudError, OSError):
        deps.store.write(_record(owner, begun), [msgspec.json.encode(begun)])


def touch(deps: Deps, owner: str, begun: Begun) -> None:
    """Somebody goes on with this upload, which may be none of ours."""
    with suppress(PaddleCloudError, OSError):
        known = deps.store.stat(_record(owner, begun))
        if known is not None and known.modified < deps.clock() - TOUCHED:
            note(deps, owner, begun)


def forget(deps: Deps, owner: str, begun: Begun) -> None:
    """It has been joined, or dropped."""
    with suppress(PaddleCloudError, OSError):
        deps.store.delete(_record(owner, begun))


def prune(deps: Deps) -> int:
    """Drop what nobody touched for a day, where there are keys for it; how many uploads that were.

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
    begun = _read(deps, stat) if directories else None
    place = _plain(begun.bos_url) if begun is not None else ""
    job = directories.get(place)
    if begun is None or job is None or place in given_up or _is_quiet(deps, job, now):
        if stat.modified < now - FORGOTTEN:
            _delete(deps, stat)
        return False
    try:
        # The age was read a while ago: somebody may have come back since.
        records = list(deps.store.list(stat.path.rpartition("/")[0] + "/"))
        if not records or any(each.modified >= now - ABANDONED for each in records):
            return False
        with in_its_terms(deps, job), prompt_if(True):
            bucket_of(deps, job).drop_parts(begun.path, begun.upload)
    except (PaddleCloudError, OSError) as error:
        if isinstance(error, Unreachable):
            fell_silent(deps, job, error)
        if isinstance(error, Unreachable | Refused):
            given_up.add(place)
        log.info("an upload to %s that nobody ended stays: %s", begun.bos_url, error)
        return False
    for each in records:
        _delete(deps, each)
    return True


def _delete(deps: Deps, stat: Stat) -> None:
    """A record that cannot be deleted has its turn the next time."""
    with suppress(PaddleCloudError, OSError):
        deps.store.delete(stat.path)


def _is_quiet(deps: Deps, job: Job, now: datetime) -> bool:
    quiet = deps.quiet.get(bucket_name(job))
    return quiet is not None and now < quiet.until


def _directories(tx: Tx, owner: str) -> dict[str, Job]:
    """Which of this owner's jobs has keys for which directory: the newest of each."""
    found: dict[str, Job] = {}
    for job_id in rows.jobs_with_keys(tx, owner, MOST_JOBS):
        job = jobs.get_job(tx, job_id)
        if job is not None:
            found.setdefault(_plain(job.spec.bos_url), job)
    return found


def _read(deps: Deps, stat: Stat) -> Begun | None:
    try:
        with deps.store.read(stat.path) as reader:
            return msgspec.json.decode(b"".join(reader), type=Begun)
    except (PaddleCloudError, OSError, msgspec.DecodeError):
        return None


def _record(owner: str, begun: Begun) -> str:
    name = "\0".join((_plain(begun.bos_url), begun.path, begun.upload))
    return f"{ROOT}/{hashlib.sha256(name.encode()).hexdigest()}/{owner}"


def _plain(bos_url: str) -> str:
    """The same for every spelling of a directory."""
    return plain_bos_url(bos_url) or bos_url
