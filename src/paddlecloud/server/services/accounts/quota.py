"""Checks the limits of plans when a job is submitted, planned and placed, and while it runs.

Limits apply on public pools; those of waiting jobs and storage everywhere. The planner works with
`allowances`, so the reason of a waiting job has the numbers. `Ledger` decides: it checks again in
the transaction that places jobs. Writes are serialized over all servers, so what it reads is true
until it commits. Without a team and without limits nothing is queried.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from paddlecloud.db.engine.base import Tx
from paddlecloud.db.tables import jobs, usage, users
from paddlecloud.db.tables.usage import Run
from paddlecloud.db.tables.users import UserRole
from paddlecloud.model.errors import Refused, TooMany
from paddlecloud.model.jobs.job import Failure, Job, JobSpec, Reason
from paddlecloud.model.policy import priority
from paddlecloud.model.policy.admission import pools_for, refused_by_plan
from paddlecloud.model.policy.quota import (
    UNLIMITED,
    Day,
    Override,
    Plan,
    Used,
    changed,
    day_of,
    in_minutes,
    job_limit,
    short_of,
    span,
    whole,
)
from paddlecloud.model.units import format_size
from paddlecloud.scheduler.quota_reason import over_quota
from paddlecloud.scheduler.view import Allowance
from paddlecloud.server.deps import Deps

RETRY_AFTER = 60
"""Seconds that a user with a full queue should wait before the next submit."""
DAY_IS_SPENT = "fail_minutes_a_day"


@dataclass(frozen=True, kw_only=True)
class UserPlan:
    """The plan of one user: the one called `name`, with the limits of their own."""

    name: str
    plan: Plan


@dataclass(frozen=True, kw_only=True)
class Today:
    """The minutes of a day: used, at most, and when they start again, as a text for people."""

    used: float
    limit: int | None
    renews: str
    renews_at: datetime


def binding(deps: Deps) -> bool:
    """Whether there are limits on this server."""
    settings = deps.settings
    return settings.team or settings.plans[settings.default_plan] != UNLIMITED


def is_metered(deps: Deps, pool: str) -> bool:
    known = deps.pools.get(pool)
    return known is not None and known.metered


def public_pools(deps: Deps) -> list[str]:
    return [name for name, pool in deps.pools.items() if pool.metered]


def plan_of(deps: Deps, tx: Tx, owner: str) -> UserPlan:
    return plans_of(deps, tx, (owner,))[owner]


def plans_of(deps: Deps, tx: Tx, owners: Collection[str]) -> dict[str, UserPlan]:
    """The plan of each of these users; without a team all have the default plan."""
    own = usage.plans(tx, owners) if deps.settings.team else {}
    return {owner: _user_plan(deps, *own.get(owner, (None, {}))) for owner in owners}


def used_now(
    deps: Deps, tx: Tx, owners: Collection[str], now: datetime
) -> tuple[dict[str, Used], Day]:
    """What each of these users has in use on public pools and has run there today."""
    today = day_of(now, deps.settings.zone)
    held = usage.resources_held(tx, owners, public_pools(deps))
    ran = usage.ran_today(tx, owners, today.start, now)
    found = {
        owner: replace(held.get(owner, Used()), today=ran.get(owner, timedelta(0)))
        for owner in owners
    }
    return found, today


def allowances(deps: Deps, tx: Tx, owners: Iterable[str], now: datetime) -> dict[str, Allowance]:
    """What the plans leave to these users now; who has no limits is absent."""
    if not binding(deps) or not public_pools(deps):
        return {}
    plans = {
        owner: each.plan
        for owner, each in plans_of(deps, tx, set(owners)).items()
        if _limits_running(each.plan)
    }
    used, today = used_now(deps, tx, plans.keys(), now) if plans else ({}, None)
    if today is None:
        return {}
    renews = deps.settings.format_time(today.end)
    return {owner: _allowance(plan, used[owner], renews) for owner, plan in plans.items()}


class Ledger:
    """What users have while one transaction gives out places: exact, because it is in that one."""

    def __init__(self, deps: Deps, tx: Tx, owners: Iterable[str], now: datetime) -> None:
        self._public = frozenset(public_pools(deps)) if binding(deps) else frozenset()
        asked = set(owners) if self._public else set()
        self._plans = plans_of(deps, tx, asked)
        self._used = used_now(deps, tx, asked, now)[0] if asked else {}

    def allows(self, job: Job, pool: str) -> bool:
        """Whether this job may have a place in this pool now."""
        if pool not in self._public:
            return True
        plan, used = self._plans[job.owner].plan, self._used[job.owner]
        return short_of(plan, used, whole(job.spec.groups)) is None

    def count(self, job: Job, pool: str) -> None:
        """It has got the place."""
        if pool in self._public:
            self._used[job.owner] = self._used[job.owner].plus(whole(job.spec.groups))

    def time_limit(self, job: Job, pool: str) -> timedelta | None:
        """How long it may run there."""
        return job_limit(self._plans[job.owner].plan) if pool in self._public else None


def check_submit(tx: Tx, deps: Deps, owner: str, spec: JobSpec) -> Plan:
    """The plan of this user. Raises if it never allows such a job, or has no more left now."""
    if not binding(deps):
        return UNLIMITED
    mine = plan_of(deps, tx, owner)
    plan = mine.plan
    _check_priority(tx, owner, spec, plan)
    never = refused_by_plan(spec, tuple(deps.pools.values()), plan, mine.name)
    if never is not None:
        raise never
    if plan.waiting_jobs is not None:
        waiting = jobs.count_waiting(tx, owner, plan.waiting_jobs)
        if waiting >= plan.waiting_jobs:
            limit = plan.waiting_jobs
            raise TooMany("too_many_waiting", waiting=waiting, limit=limit, seconds=RETRY_AFTER)
    if plan.storage is not None:
        stored = usage.stored_bytes(tx, owner)
        if stored > plan.storage:
            used, limit_text = format_size(stored), format_size(plan.storage)
            raise Refused("quota_storage_over", used=used, limit=limit_text)
    return plan


def why_waits(tx: Tx, deps: Deps, owner: str, spec: JobSpec, now: datetime) -> Reason | None:
    """Why a job of this user, submitted now, would have to wait for the user's quota; None: it
    would not."""
    allowance = allowances(deps, tx, (owner,), now).get(owner)
    if allowance is None:
        return None
    asks = whole(spec.groups)
    reason = over_quota(allowance, asks.cpu, asks.memory, asks.gpu)
    served = [pool for pool in deps.pools.values() if pool.serves(owner)]
    if reason is None or any(pool.private for pool in pools_for(spec, served, deps.nodes(owner))):
        return None
    return reason


def storage_left(deps: Deps, owner: str) -> tuple[int, int] | None:
    """Bytes that are used and the limit; None: there is none."""
    if not binding(deps):
        return None

    def read(tx: Tx) -> tuple[int, int] | None:
        limit = plan_of(deps, tx, owner).plan.storage
        return None if limit is None else (usage.stored_bytes(tx, owner), limit)

    return deps.db.read(read)


def check_fits(used: int, size: int, limit: int, held: int = 0) -> None:
    """Refuse what does not fit beside what is used, and held for unfinished uploads."""
    if used + held + size > limit:
        values = {"size": size, "used": used, "limit": limit} | ({"held": held} if held else {})
        code = "quota_storage_open" if held else "quota_storage"
        raise Refused(code, **{name: format_size(number) for name, number in values.items()})


def today(deps: Deps, tx: Tx, owner: str, now: datetime) -> Today:
    """The minutes of this user's day."""
    plan = plan_of(deps, tx, owner).plan
    found = day_of(now, deps.settings.zone)
    ran = usage.ran_today(tx, (owner,), found.start, now).get(owner, timedelta(0))
    return Today(
        used=round(in_minutes(ran), 2),
        limit=plan.minutes_a_day,
        renews=deps.settings.format_time(found.end),
        renews_at=found.end,
    )


def spent(deps: Deps, tx: Tx, now: datetime) -> list[tuple[Run, Failure]]:
    """Jobs that run on public pools although their owner's minutes of the day are used up, each
    with the failure that it ends with."""
    runs = usage.running(tx) if binding(deps) else []
    plans = plans_of(deps, tx, {run.owner for run in runs})
    limited = {owner for owner, each in plans.items() if each.plan.minutes_a_day is not None}
    found = day_of(now, deps.settings.zone)
    ran = usage.ran_today(tx, limited, found.start, now)
    over = {
        owner: _day_is_spent(plans[owner].plan, ran[owner], deps.settings.format_time(found.end))
        for owner in ran
        if ran[owner] >= span(plans[owner].plan.minutes_a_day or 0)
    }
    return [(run, over[run.owner]) for run in runs if run.owner in over]


def is_over_quota(job: Job) -> bool:
    """Whether it already failed because the minutes of the day are used up."""
    return job.failure is not None and job.failure.reason.code == DAY_IS_SPENT


def in_use(deps: Deps, only: str | None) -> dict[str, dict[str, float]]:
    """Use of public pools by user, for who uses any now; for one alone if that is asked for."""
    now = deps.clock()

    def read(tx: Tx) -> dict[str, Used]:
        owners = {run.owner for run in usage.running(tx) if only in (None, run.owner)}
        return used_now(deps, tx, owners, now)[0] if owners else {}

    return {
        owner: {
            "running_jobs": float(used.jobs),
            "minutes_today": round(in_minutes(used.today), 3),
            "cpu": used.resources.cpu,
            "gpu": float(used.resources.gpu),
        }
        for owner, used in (deps.db.read(read) if binding(deps) else {}).items()
    }


def _check_priority(tx: Tx, owner: str, spec: JobSpec, plan: Plan) -> None:
    """Refuse a class above the plan's, except for an admin; few jobs have one."""
    try:
        priority.check_allowed(spec.priority, plan.max_priority)
    except Refused:
        user = users.get_user(tx, owner)
        if user is None or user.role is not UserRole.ADMIN:
            raise


def _user_plan(deps: Deps, name: str | None, limits: dict[str, Override]) -> UserPlan:
    plans = deps.settings.plans
    # A plan that the settings no longer have: the default one, rather than no limit at all.
    chosen = name if name is not None and name in plans else deps.settings.default_plan
    plan = plans[chosen]
    return UserPlan(name=chosen, plan=changed(plan, limits) if limits else plan)


def _limits_running(plan: Plan) -> bool:
    limits = (plan.running_jobs, plan.minutes_a_day, plan.cpu, plan.memory, plan.gpu)
    return any(limit is not None for limit in limits)


def _allowance(plan: Plan, used: Used, renews: str) -> Allowance:
    held = used.resources
    return Allowance(
        jobs=None if plan.running_jobs is None else max(0, plan.running_jobs - used.jobs),
        cpu=None if plan.cpu is None else max(0.0, plan.cpu - held.cpu),
        memory=None if plan.memory is None else max(0, plan.memory - held.memory),
        gpu=None if plan.gpu is None else max(0, plan.gpu - held.gpu),
        minutes_used=in_minutes(used.today),
        minutes_limit=plan.minutes_a_day,
        renews=renews,
        limits={
            "jobs": plan.running_jobs,
            "cpu": plan.cpu,
            "memory": plan.memory,
            "gpu": plan.gpu,
        },
    )


def _day_is_spent(plan: Plan, ran: timedelta, renews: str) -> Failure:
    used = round(in_minutes(ran), 1)
    limit = plan.minutes_a_day
    return Failure(
        reason=Reason(code=DAY_IS_SPENT, params={"limit": limit, "used": used, "renews": renews}),
        advice=Reason(code="advice_minutes_a_day", params={"renews": renews}),
    )
