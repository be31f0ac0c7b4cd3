"""What a user may use: plans, days, and how many minutes of a day were run.

Everything is counted from intervals of running, never from a counter, so that a crash, a repeat or
a day of 23 hours can neither lose a minute nor count one twice. Who ran when is the database's
business; which pools a plan binds on is the server's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from datetime import UTC, date, datetime, time, timedelta, tzinfo

from paddlecloud.model.errors import Invalid
from paddlecloud.model.jobs.job import NOTHING, ReplicaGroup, Resources
from paddlecloud.model.units import parse_size

GIB = 1 << 30
UNLIMITED_WORD = "unlimited"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The limits of one user on public pools; none is no limit."""

    running_jobs: int | None = None
    """Jobs at once."""
    minutes_a_day: int | None = None
    """Running minutes of all jobs together, from midnight to midnight."""
    minutes_a_job: int | None = None
    """The longest running time of one job."""
    cpu: float | None = None
    """CPUs of all running jobs together."""
    memory: int | None = None
    """Memory that all running jobs together asked for."""
    gpu: int | None = None
    """GPUs of all running jobs together."""
    storage: int | None = None
    """Submitted files, logs and outputs, on every pool."""
    waiting_jobs: int | None = None
    """Jobs that may wait at once, on every pool; a further one is answered with 429."""
    max_priority: str = "normal"
    """The highest class that --priority may name: low, normal, high or urgent."""


FREE = Plan(
    running_jobs=2,
    minutes_a_day=100,
    minutes_a_job=30,
    storage=20 * GIB,
    waiting_jobs=1000,
)
UNLIMITED = Plan(max_priority="urgent")
LIMITS: tuple[str, ...] = tuple(each.name for each in fields(Plan))
SIZES = frozenset({"memory", "storage"})
LARGEST = 2**53
MOST_MINUTES = 100 * 366 * 24 * 60
Override = int | float | str | None


@dataclass(frozen=True, kw_only=True)
class Used:
    """What a user has on public pools now, and has run there today."""

    jobs: int = 0
    resources: Resources = NOTHING
    today: timedelta = timedelta(0)

    def plus(self, asks: Resources) -> Used:
        """With one more job of this size."""
        return replace(self, jobs=self.jobs + 1, resources=self.resources + asks)


@dataclass(frozen=True, kw_only=True)
class Day:
    """From one midnight to the next, of whatever length the time zone makes it."""

    date: date
    start: datetime
    end: datetime


def day_of(now: datetime, zone: tzinfo | None) -> Day:
    """The day that `now` lies in; `zone` None is this machine's."""
    found = now.astimezone(zone).date()
    # A clock set back over midnight shows yesterday's date again: the new day has begun all the
    # same, or its first minutes would count for two days.
    if now >= midnight(found + timedelta(days=1), zone):
        found += timedelta(days=1)
    return day(found, zone)


def day(which: date, zone: tzinfo | None) -> Day:
    following = which + timedelta(days=1)
    return Day(date=which, start=midnight(which, zone), end=midnight(following, zone))


def midnight(which: date, zone: tzinfo | None) -> datetime:
    """When this date begins; where the clock skips midnight, the moment of the skip."""
    # Not astimezone: for the zone of this machine that is an hour early where midnight is skipped.
    return datetime.fromtimestamp(datetime.combine(which, time(), tzinfo=zone).timestamp(), UTC)


Interval = tuple[datetime, datetime]


def overlap(intervals: Iterable[Interval], start: datetime, end: datetime) -> timedelta:
    """How much of the intervals lies between `start` and `end`; one that is reversed is empty."""
    nothing = timedelta(0)
    return sum(
        (max(nothing, min(last, end) - max(first, start)) for first, last in intervals), nothing
    )


def minutes(intervals: Iterable[Interval], day_start: datetime, day_end: datetime) -> float:
    """How many minutes of the day were run; two jobs side by side count twice."""
    return in_minutes(overlap(intervals, day_start, day_end))


def in_minutes(ran: timedelta) -> float:
    return ran.total_seconds() / 60


def span(limit: int) -> timedelta:
    """So many minutes; a hundred years at most, because no clock counts much further."""
    return timedelta(minutes=min(limit, MOST_MINUTES))


def whole(groups: Iterable[ReplicaGroup]) -> Resources:
    """What a job asks for in all."""
    total = NOTHING
    for group in groups:
        ask = group.resources
        total += Resources(
            cpu=ask.cpu * group.count, memory=ask.memory * group.count, gpu=ask.gpu * group.count
        )
    return total


def short_of(plan: Plan, used: Used, asks: Resources) -> str | None:
    """The first limit that one more job of this size would break now; None: it may run."""
    if plan.running_jobs is not None and used.jobs >= plan.running_jobs:
        return "running_jobs"
    if plan.minutes_a_day is not None and used.today >= span(plan.minutes_a_day):
        return "minutes_a_day"
    return _too_much(plan, used.resources + asks)


def beyond(plan: Plan, asks: Resources) -> str | None:
    """The first limit that makes a job of this size impossible for ever; None: it may run some
    day."""
    for name in ("running_jobs", "minutes_a_day", "minutes_a_job"):
        if getattr(plan, name) == 0:
            return name
    return _too_much(plan, asks)


def job_limit(plan: Plan) -> timedelta | None:
    """How long one job may run."""
    return None if plan.minutes_a_job is None else span(plan.minutes_a_job)


def changed(plan: Plan, limits: Mapping[str, Override]) -> Plan:
    """The plan with some limits of one user's own; Invalid names what is not a limit."""
    return replace(plan, **{name: checked(name, value) for name, value in limits.items()})  # type: ignore[arg-type]


def checked(name: str, value: Override) -> Override:
    """A limit as the plan holds it: sizes may be given as 20Gi, no limit as None or a word."""
    if name not in LIMITS:
        raise Invalid("quota_limit_unknown", name=name[:50], known=", ".join(LIMITS))
    if name == "max_priority":
        return str(value)
    if value is None or value == UNLIMITED_WORD:
        return None
    number = _number(name, value)
    good = number is not None and 0 <= number <= LARGEST
    if not good or (name != "cpu" and not isinstance(number, int)):
        raise Invalid("quota_limit_value", name=name, value=str(value)[:50])
    return number


def _too_much(plan: Plan, resources: Resources) -> str | None:
    for name, hair in (("cpu", 1e-9), ("memory", 0), ("gpu", 0)):
        limit = getattr(plan, name)
        if limit is not None and getattr(resources, name) > limit + hair:
            return name
    return None


def _number(name: str, value: Override) -> int | float | None:
    if name in SIZES and isinstance(value, str):
        return parse_size(value)
    try:
        if isinstance(value, int):
            return value
        if value is None or (isinstance(value, str) and "_" in value):
            return None
        number = float(value)
        return number if name == "cpu" or number != int(number) else int(number)
    except (ValueError, OverflowError):
        return None
