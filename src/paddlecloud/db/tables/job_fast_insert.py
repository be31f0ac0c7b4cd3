"""A job is stored if everything holds that was known of its owner a moment ago, in one message.

What a submit has to ask (was this request here before, are its files there, how many wait already)
is asked by the very statement that stores the job, so nobody holds the line of writes while a
server thinks about the answers. Where anything differs nothing is stored, and the long way through
`coordination`, `usage` and `snapshots` tells why. How many wait is not counted there either: as
many live jobs as there were, and all that anybody submitted since, are never fewer than that.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from paddlecloud.db.engine.base import Answer, Tx, Value
from paddlecloud.db.engine.columns import to_micros
from paddlecloud.db.tables import jobs
from paddlecloud.db.tables.snapshots import USE_STEP
from paddlecloud.db.tables.usage import STORED
from paddlecloud.db.tables.user_buckets import IN_BUCKET
from paddlecloud.model.jobs.job import Job, Reason

_NO_KEY = "not exists (select 1 from idempotency where owner = ? and key = ?)"
_FILES = (
    "exists (select 1 from snapshots where owner = ? and id = ? and used_at > ?)"
    f" and not exists ({IN_BUCKET})"
)
_PLAN = (
    "exists (select 1 from users where id = ?"
    " and coalesce(plan, '') = ? and coalesce(limits, '') = ?)"
)
_STORED = f"{STORED} <= ?"
_NUMBER = "next.number <= ?"


@dataclass(frozen=True, kw_only=True)
class Standing:
    """What was found of a user: the plan as it is stored, and room for how many jobs."""

    plan: str
    limits: str
    """As stored, empty for none."""
    live: int
    """Jobs that wait or have a place, counted no further than `count_to` of either."""
    number: int
    """That of the last job of anybody at that moment."""


@dataclass(frozen=True, kw_only=True)
class Grounds:
    """What has to hold for a job to be accepted at once; None: that does not matter."""

    key: str
    request_hash: str
    standing: Standing | None
    last_number: int | None
    """The number up to which too many cannot wait, whoever submits."""
    storage: int | None


def standing(tx: Tx, owner: str, count_to: int) -> Standing | None:
    """How a user stands at one moment; None where there is no such user."""
    row = tx.one(
        "select coalesce(plan, ''), coalesce(limits, ''),"
        " (select count(*) from (select 1 from jobs where pool is null"
        " and state in ('schedule', 'queue') and owner = ?"
        " order by priority desc, number limit ?) as waiting)"
        " + (select count(*) from (select 1 from jobs where finished_at is null"
        " and pool is not null and owner = ? limit ?) as placed),"
        " coalesce((select value from counters where name = 'job'), 0) from users where id = ?",
        (owner, count_to, owner, count_to, owner),
    )
    if row is None:
        return None
    plan, limits, live, number = row
    return Standing(plan=plan, limits=limits, live=int(live), number=int(number))


def accept(tx: Tx, job: Job, grounds: Grounds, now: datetime, reason: Reason) -> tuple[Job, Answer]:
    """Store a new job on these grounds, and its idempotency key; see `jobs.insert_if`."""
    conditions, values = _conditions(job, grounds, now)
    accepted, answer = jobs.insert_if(tx, job, now, reason, " and ".join(conditions), values)
    tx.run(
        "insert into idempotency (owner, key, job_number, request_hash, created_at)"
        " select ?, ?, number, ?, cast(? as bigint) from jobs where id = ?",
        (job.owner, grounds.key, grounds.request_hash, to_micros(now), job.id),
    )
    return accepted, answer


def _conditions(job: Job, grounds: Grounds, now: datetime) -> tuple[list[str], list[Value]]:
    conditions = [_NO_KEY]
    found: list[Value] = [job.owner, grounds.key]
    if job.spec.snapshot is not None:
        conditions.append(_FILES)
        found += (job.owner, job.spec.snapshot, to_micros(now - USE_STEP))
        found += (job.owner, job.spec.snapshot)
    if grounds.standing is not None:
        conditions.append(_PLAN)
        found += (job.owner, grounds.standing.plan, grounds.standing.limits)
    if grounds.storage is not None:
        conditions.append(_STORED)
        found += (job.owner, grounds.storage)
    if grounds.last_number is not None:
        conditions.append(_NUMBER)
        found.append(grounds.last_number)
    return conditions, found
