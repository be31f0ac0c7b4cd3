"""Sets aside what an attempt left in LOCAL_LOG_PATH where that lies in a bucket.

A bucket cannot rename: every file is copied and then deleted, which takes its time, and has no end
while the bucket is silent. So nobody waits for it here. The job pauses before its next attempt, and
the schedule loop is woken when all of it is done.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from paddlecloud.db import attempts, jobs
from paddlecloud.model.errors import NotFound, PaddleCloudError, Retry
from paddlecloud.model.job import Job
from paddlecloud.model.paths import log_directory
from paddlecloud.server.deps import Deps
from paddlecloud.server.services.files import Place, place_of
from paddlecloud.server.services.jobs import SCHEDULE_BELL
from paddlecloud.server.threads import later_for_agent
from paddlecloud.stores.base import CanLocalPath
from paddlecloud.stores.patience import prompt_if

log = logging.getLogger(__name__)
REMEMBERED = 10_000


def are_aside(deps: Deps, job: Job) -> bool:
    """Whether the next attempt of this job finds the place free; if not, that is seen to."""
    if job.attempt == 0 or (job.spec.public_bos and isinstance(deps.store, CanLocalPath)):
        return True
    key = job.id, job.attempt
    done = deps.set_aside.get(key)
    if done is None:
        if len(deps.set_aside) > REMEMBERED:
            deps.set_aside.clear()
        deps.set_aside[key] = False
        later_for_agent(job, partial(_set_aside, deps, job))
    return bool(done)


def _set_aside(deps: Deps, job: Job) -> None:
    """May be repeated, also by several at once: whoever comes late stops at the first file, because
    the next attempt has begun. Given up for now, it is tried again."""
    key = job.id, job.attempt
    try:
        _move_all(deps, job)
        deps.set_aside[key] = True
    except (Retry, OSError) as error:
        log.warning("job %s has to wait with its next attempt: %s", job.id, error)
    except PaddleCloudError as error:
        # Neither these files nor those of the next attempt can be written there.
        log.warning("log files of %s stay where they are: %s", job.id, error)
        deps.set_aside[key] = True
    finally:
        if deps.set_aside.get(key):
            deps.hub.tell(SCHEDULE_BELL, "")
        else:
            deps.set_aside.pop(key, None)


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
    """False if it is not due any more. That is asked when the file is open: no later one is read
    then, however long the bucket is silent. What has been replaced since is not deleted."""
    with place.store.read(source) as reader:
        if not is_due():
            return False
        copied = place.store.write(target, reader, modified=reader.stat.modified)
        if copied.size != reader.length:
            raise Retry("body_cut", size=copied.size)
    with prompt_if(True):  # in minutes of waiting it could be replaced after the look at it
        now = place.store.stat(source)
        if now is not None and (now, now.tag) == (reader.stat, reader.stat.tag):
            place.store.delete(source)
    return True
