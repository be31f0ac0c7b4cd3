"""Plans and days: every minute counts once, in the day it was run, however long that day is."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from time import tzset
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddlecloud.model.errors import Invalid
from paddlecloud.model.jobs.job import JobType, Resources
from paddlecloud.model.policy.admission import refused_by_plan
from paddlecloud.model.policy.pool import Pool
from paddlecloud.model.policy.quota import (
    FREE,
    GIB,
    LIMITS,
    UNLIMITED,
    Plan,
    Used,
    beyond,
    changed,
    checked,
    day,
    day_of,
    in_minutes,
    job_limit,
    minutes,
    overlap,
    short_of,
    whole,
)
from paddlecloud.testing import a_spec

ZONES = (
    "Asia/Shanghai",
    "America/New_York",
    "Asia/Beirut",  # skips midnight in spring
    "America/St_Johns",  # set its clock back at one minute past midnight until 2011
    "Pacific/Apia",  # left out a whole day in 2011
    "Australia/Lord_Howe",  # moves its clock by half an hour
    "UTC",
)
CHANGES = (
    (2026, 3, 7), (2026, 10, 31), (2026, 4, 4), (2026, 10, 3), (2024, 3, 30), (2009, 10, 31),
    (2011, 12, 29),
)  # fmt: skip
"""The days before the clocks of these zones were changed."""
MOMENTS = st.datetimes(
    min_value=datetime(2009, 1, 1),  # noqa: DTZ001 - hypothesis wants it naive
    max_value=datetime(2027, 1, 1),  # noqa: DTZ001 - hypothesis wants it naive
    timezones=st.just(UTC),
)
LENGTHS = st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=4))
INTERVALS = st.lists(st.builds(lambda at, long: (at, at + long), MOMENTS, LENGTHS), max_size=8)
HOUR = timedelta(hours=1)


def test_the_free_plan_is_the_documented_one() -> None:
    assert (FREE.minutes_a_day, FREE.running_jobs, FREE.minutes_a_job) == (100, 2, 30)
    assert (FREE.waiting_jobs, FREE.storage) == (1000, 20 * GIB)
    assert all(getattr(UNLIMITED, name) is None for name in LIMITS if name != "max_priority")


@pytest.mark.parametrize(
    ("zone", "which", "hours"),
    [
        ("Asia/Shanghai", date(2026, 3, 8), 24),
        ("America/New_York", date(2026, 3, 8), 23),
        ("America/New_York", date(2026, 11, 1), 25),
        ("Australia/Lord_Howe", date(2026, 4, 5), 24.5),
        ("Asia/Beirut", date(2024, 3, 31), 23),
        ("Pacific/Apia", date(2011, 12, 30), 0),
    ],
)
def test_a_day_is_as_long_as_its_zone_makes_it(zone: str, which: date, hours: float) -> None:
    found = day(which, ZoneInfo(zone))
    assert found.end - found.start == hours * HOUR


@pytest.mark.parametrize("name", ZONES)
def test_the_machines_own_zone_has_the_same_days(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every hour of the days on which its clock was changed, and of the days around them."""
    monkeypatch.setenv("TZ", name)
    tzset()
    try:
        for first in CHANGES:
            for hour in range(72):
                now = datetime(*first, tzinfo=UTC) + hour * HOUR
                assert day_of(now, None) == day_of(now, ZoneInfo(name)), now
    finally:
        monkeypatch.undo()
        tzset()


@given(MOMENTS, st.sampled_from(ZONES))
def test_every_moment_lies_in_its_day(now: datetime, name: str) -> None:
    found = day_of(now, ZoneInfo(name))
    assert found.start <= now < found.end
    assert day(found.date, ZoneInfo(name)) == found


def test_a_clock_set_back_over_midnight_does_not_bring_yesterday_back() -> None:
    zone = ZoneInfo("America/St_Johns")
    first = day_of(datetime(2009, 11, 1, 2, 30, 30, tzinfo=UTC), zone)
    again = day_of(datetime(2009, 11, 1, 2, 45, tzinfo=UTC), zone)
    assert again.date == first.date == date(2009, 11, 1)


@given(INTERVALS, st.sampled_from(ZONES))
def test_the_days_add_up_to_the_whole(
    intervals: list[tuple[datetime, datetime]], name: str
) -> None:
    zone = ZoneInfo(name)
    total = timedelta(0)
    for begin, end in intervals:
        which, last = day_of(begin, zone).date, day_of(end, zone).date
        while which <= last:
            found = day(which, zone)
            total += overlap([(begin, end)], found.start, found.end)
            which += timedelta(days=1)
    assert total == sum((end - begin for begin, end in intervals), timedelta(0))


@given(INTERVALS, MOMENTS, LENGTHS, LENGTHS)
def test_no_cut_counts_a_minute_twice(
    intervals: list[tuple[datetime, datetime]], start: datetime, one: timedelta, two: timedelta
) -> None:
    middle, end = start + one, start + one + two
    parts = overlap(intervals, start, middle) + overlap(intervals, middle, end)
    assert parts == overlap(intervals, start, end)


def test_a_reversed_interval_is_empty_and_jobs_side_by_side_count_each() -> None:
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    span = (noon, noon + timedelta(minutes=90))
    assert overlap([(noon + HOUR, noon)], noon - HOUR, noon + HOUR) == timedelta(0)
    assert minutes([span, span], noon, noon + HOUR) == 120.0
    assert in_minutes(timedelta(seconds=90)) == 1.5


CASES: list[tuple[Plan, Used, Resources, str | None]] = [
    (FREE, Used(jobs=1), Resources(), None),
    (FREE, Used(jobs=2), Resources(), "running_jobs"),
    (FREE, Used(today=timedelta(minutes=99, seconds=59)), Resources(), None),
    (FREE, Used(today=timedelta(minutes=100)), Resources(), "minutes_a_day"),
    (Plan(cpu=4), Used(resources=Resources(cpu=3)), Resources(cpu=1), None),
    (Plan(cpu=4), Used(resources=Resources(cpu=3.5)), Resources(cpu=1), "cpu"),
    (Plan(memory=GIB), Used(), Resources(memory=GIB + 1), "memory"),
    (Plan(gpu=1), Used(resources=Resources(gpu=1)), Resources(gpu=1), "gpu"),
    (UNLIMITED, Used(jobs=10**6, today=timedelta(days=9)), Resources(cpu=10**6), None),
]


@pytest.mark.parametrize(("plan", "used", "asks", "want"), CASES)
def test_which_limit_one_more_job_would_break(
    plan: Plan, used: Used, asks: Resources, want: str | None
) -> None:
    assert short_of(plan, used, asks) == want


def test_what_is_never_possible_is_not_what_is_used_up_today() -> None:
    assert beyond(FREE, Resources(cpu=1000, memory=2**50, gpu=64)) is None
    assert beyond(Plan(cpu=2), Resources(cpu=2.5)) == "cpu"
    assert beyond(Plan(running_jobs=0), Resources()) == "running_jobs"
    assert job_limit(FREE) == timedelta(minutes=30)
    assert job_limit(UNLIMITED) is None


def test_one_more_job_is_added_to_what_is_used() -> None:
    used = Used(jobs=1, resources=Resources(cpu=1)).plus(whole(a_spec(cpu=2, gpu=1).groups))
    assert (used.jobs, used.resources.cpu, used.resources.gpu) == (2, 3.0, 1)


def test_a_users_own_limits_change_the_plan() -> None:
    plan = changed(FREE, {"running_jobs": 5, "storage": "50Gi", "minutes_a_day": None})
    assert (plan.running_jobs, plan.storage, plan.minutes_a_day) == (5, 50 * GIB, None)
    assert plan.minutes_a_job == FREE.minutes_a_job
    assert checked("cpu", "unlimited") is None
    assert checked("cpu", "2.5") == 2.5


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("minutes", 5, "quota_limit_unknown"),
        ("running_jobs", "many", "quota_limit_value"),
        ("running_jobs", -1, "quota_limit_value"),
        ("running_jobs", 1.5, "quota_limit_value"),
        ("cpu", "nan", "quota_limit_value"),
        ("gpu", "inf", "quota_limit_value"),
        ("storage", "20 elephants", "quota_limit_value"),
    ],
)
def test_what_is_no_limit_is_named(name: str, value: int | float | str, code: str) -> None:
    with pytest.raises(Invalid) as caught:
        checked(name, value)
    assert caught.value.code == code


def a_pool(name: str, *, private: bool) -> Pool:
    return Pool(
        name=name, backend="local", private=private, job_types=frozenset({JobType.CPU, JobType.GPU})
    )


def test_only_public_pools_are_bound_by_a_plan() -> None:
    public, mine = a_pool("public", private=False), a_pool("mine", private=True)
    spec, plan = a_spec(cpu=8, memory=4 * GIB), Plan(cpu=4, gpu=0)
    refused = refused_by_plan(spec, (public,), plan, "small")
    assert refused is not None
    assert str(refused) == (
        "the job requests 8 CPU, 4 GiB in total, but plan small allows at most 4 CPU, 0 GPU on "
        "public pools; request less, or ask the administrator for another plan"
    )
    assert refused_by_plan(spec, (public, mine), plan, "small") is None
    none = refused_by_plan(a_spec(), (public,), Plan(minutes_a_day=0), "none")
    assert none is not None
    assert none.code == "quota_none"
