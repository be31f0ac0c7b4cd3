"""Plans as people see them: what is allowed and used, day by day, and an admin's changes.

Whether a job may run is not decided here (`quota`).
"""

from __future__ import annotations

from datetime import date, datetime, timedelta

from msgspec import UNSET

from paddlecloud.db.engine.base import Tx
from paddlecloud.db.tables import jobs, usage, users
from paddlecloud.db.tables.usage import Run
from paddlecloud.model.errors import Invalid, NotFound
from paddlecloud.model.policy.priority import CLASSES
from paddlecloud.model.policy.quota import (
    LIMITS,
    Override,
    Plan,
    changed,
    checked,
    day,
    day_of,
    in_minutes,
    minutes,
)
from paddlecloud.server.deps import Deps
from paddlecloud.server.events import SCHEDULE_CHANNEL
from paddlecloud.server.http.auth import Caller
from paddlecloud.server.schemas.quota import (
    DayRow,
    LimitRow,
    PlanRow,
    PlansAnswer,
    QuotaAnswer,
    QuotaChange,
    UsageAnswer,
)
from paddlecloud.server.services.accounts import quota
from paddlecloud.server.services.accounts.audit import record
from paddlecloud.server.services.jobs.views import iso

AS_THE_PLAN = "plan"
PLANS = "plans"
"""Channel of the users whose limits an admin has changed."""
NUMBERS = tuple(name for name in LIMITS if name != "max_priority")


def overview(deps: Deps, owner: str) -> QuotaAnswer:
    """Each limit of this user's plan and what is used of it now."""
    now = deps.clock()
    return deps.db.read(lambda tx: _overview(tx, deps, owner, now))


def of_user(deps: Deps, user_id: str) -> QuotaAnswer:
    """The same for any user, for an admin."""
    now = deps.clock()

    def read(tx: Tx) -> QuotaAnswer:
        _check_user(tx, user_id)
        return _overview(tx, deps, user_id, now)

    return deps.db.read(read)


def history(deps: Deps, owner: str, days: int) -> UsageAnswer:
    """The last `days` days on which anything ran, the newest first."""
    now = deps.clock()
    zone = deps.settings.zone
    last = day_of(now, zone)
    first = day(last.date - timedelta(days=days - 1), zone)
    runs = deps.db.read(lambda tx: usage.since(tx, owner, first.start))
    found: dict[date, list[Run]] = {}
    for run in runs:
        for each in _dates(run, first.date, now, deps):
            found.setdefault(each, []).append(run)
    rows = [_day_row(deps, each, found[each], now) for each in sorted(found, reverse=True)]
    return UsageAnswer(user_id=owner, days=rows)


def history_of_user(deps: Deps, user_id: str, days: int) -> UsageAnswer:
    deps.db.read(lambda tx: _check_user(tx, user_id))
    return history(deps, user_id, days)


def plans(deps: Deps) -> PlansAnswer:
    settings = deps.settings
    return PlansAnswer(
        plans=[
            PlanRow(
                name=name,
                default=name == settings.default_plan,
                limits={limit: getattr(plan, limit) for limit in NUMBERS},
                max_priority=plan.max_priority,
            )
            for name, plan in settings.plans.items()
        ]
    )


def change(deps: Deps, caller: Caller, user_id: str, asked: QuotaChange) -> QuotaAnswer:
    """Give a user another plan or limits of their own; waiting jobs are planned again at once."""
    now = deps.clock()

    def write(tx: Tx) -> QuotaAnswer:
        _check_user(tx, user_id)
        plan, limits = usage.plans(tx, (user_id,)).get(user_id, (None, {}))
        if asked.plan is not UNSET:
            plan = known(deps, asked.plan)
        limits = _with(limits, asked.limits)
        usage.set_plan(tx, user_id, plan, limits)
        record(tx, caller, now, "quota.set", user_id, {"plan": plan, **limits})
        notify_change(tx, user_id)
        return _overview(tx, deps, user_id, now)

    return deps.db.write(write)


def known(deps: Deps, name: str | None) -> str | None:
    """The name of a plan, if there is such a one; none at all is the default one."""
    if name and name not in deps.settings.plans:
        raise Invalid("plan_unknown", plan=name[:50], known=", ".join(deps.settings.plans))
    return name or None


def notify_change(tx: Tx, user_id: str) -> None:
    """Notify caches and the schedule loop that this user has other limits."""
    tx.notify(PLANS, user_id)
    tx.notify(SCHEDULE_CHANNEL, "")


def _check_user(tx: Tx, user_id: str) -> None:
    if users.get_user(tx, user_id) is None:
        raise NotFound("user_unknown", user_id=user_id[:100])


def _with(limits: dict[str, Override], asked: dict[str, Override]) -> dict[str, Override]:
    """The limits after these changes, each one checked."""
    kept = dict(limits)
    for name, value in asked.items():
        if value == AS_THE_PLAN:
            checked(name, None if name != "max_priority" else "low")
            kept.pop(name, None)
            continue
        if name == "max_priority" and value not in CLASSES:
            raise Invalid("quota_priority", value=str(value)[:50], known=", ".join(CLASSES))
        kept[name] = checked(name, value)
    changed(Plan(), kept)
    return kept


def _overview(tx: Tx, deps: Deps, owner: str, now: datetime) -> QuotaAnswer:
    mine = quota.plan_of(deps, tx, owner)
    found, today = quota.used_now(deps, tx, (owner,), now)
    used = found[owner]
    spent = in_minutes(used.today)
    taken: dict[str, int | float | None] = {
        "running_jobs": used.jobs,
        "minutes_a_day": round(spent, 2),
        "minutes_a_job": None,
        "cpu": used.resources.cpu,
        "memory": used.resources.memory,
        "gpu": used.resources.gpu,
        "storage": usage.stored_bytes(tx, owner),
        "waiting_jobs": jobs.count_waiting(tx, owner),
    }
    limit = mine.plan.minutes_a_day
    own = usage.plans(tx, (owner,)).get(owner, (None, {}))[1] if deps.settings.team else {}
    return QuotaAnswer(
        user_id=owner,
        plan=mine.name,
        own_limits=sorted(own),
        max_priority=mine.plan.max_priority,
        limits=[
            LimitRow(name=name, used=taken[name], limit=getattr(mine.plan, name))
            for name in NUMBERS
        ],
        minutes_left=None if limit is None else round(max(0.0, limit - spent), 2),
        renews=deps.settings.format_time(today.end),
        renews_at=iso(today.end),
    )


def _dates(run: Run, first: date, now: datetime, deps: Deps) -> list[date]:
    """The days that it ran on, not before the first, nor after today, even if a clock was wrong."""
    zone = deps.settings.zone
    begin = max(first, day_of(run.started_at, zone).date)
    last = day_of(min(run.ended_at or now, now), zone).date
    end = max(begin, last)
    return [begin + timedelta(days=number) for number in range((end - begin).days + 1)]


def _day_row(deps: Deps, which: date, runs: list[Run], now: datetime) -> DayRow:
    whole = day(which, deps.settings.zone)

    def ran(*, public: bool) -> float:
        spans = [(r.started_at, r.ended_at or now) for r in runs if r.public is public]
        return round(minutes(spans, whole.start, whole.end), 2)

    return DayRow(
        date=which.isoformat(),
        minutes=ran(public=True),
        private_minutes=ran(public=False),
        jobs=len({run.job_id for run in runs}),
    )
