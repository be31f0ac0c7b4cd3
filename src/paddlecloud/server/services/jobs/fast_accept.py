"""The short way to accept a job: one statement that checks and stores, on what is known already.

Most submits come from somebody who submitted a moment ago, with the same plan and room left. What
was learned of them then is put into the statement as its condition, so nothing is taken on trust. A
submit that the statement does not store takes the long way (`jobs.storing`), which has every word
about the reason; afterwards the user is looked at again.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from paddlecloud.db.engine.base import Tx
from paddlecloud.db.tables import job_fast_insert
from paddlecloud.db.tables.job_fast_insert import Grounds, Standing
from paddlecloud.model.errors import Refused
from paddlecloud.model.fast_replace import with_changes
from paddlecloud.model.jobs.job import Job, JobSpec
from paddlecloud.model.policy import priority
from paddlecloud.model.policy.admission import refused_by_plan
from paddlecloud.model.policy.quota import UNLIMITED, Plan
from paddlecloud.server.deps import Deps
from paddlecloud.server.quota_snapshots import BRIEFLY, LASTS
from paddlecloud.server.schemas.jobs import SubmitRequest
from paddlecloud.server.services.accounts import quota
from paddlecloud.server.services.jobs import actions

Accepted = Callable[[], Job | None]
"""Asked once the write is over: the job, or None if it was not stored."""


def quick(
    deps: Deps, owner: str, request: SubmitRequest, spec: JobSpec
) -> Callable[[Tx], Accepted] | None:
    """The transaction that accepts this job at once if all is as it was; None: ask first."""
    now = deps.clock()
    grounds = _grounds(deps, owner, request, spec, now)
    if grounds is None:
        return None
    job = actions.new_job(owner, spec, now)

    def store(tx: Tx) -> Accepted:
        accepted, answer = job_fast_insert.accept(tx, job, grounds, now, actions.NOT_PLANNED)
        tx.notify(actions.SCHEDULE_BELL, "")

        def stored() -> Job | None:
            rows = answer()
            return with_changes(accepted, number=int(rows[0][0])) if rows else None

        return stored

    return store


def learn(deps: Deps, owner: str) -> None:
    """Look how a user stands, for the next submit. Tells the database nothing."""
    if not quota.binding(deps):
        return
    now = deps.clock()
    known = deps.standings.get(owner, now)
    if known is not None and _may_submit(known, _plan(deps, known)[1]) <= 0:
        return  # looked at a moment ago, and in vain
    most = max([1000, *(plan.waiting_jobs or 0 for plan in deps.settings.plans.values())])
    found = deps.db.read(lambda tx: job_fast_insert.standing(tx, owner, most))
    if found is not None:
        useful = _may_submit(found, _plan(deps, found)[1]) > 0
        deps.standings.keep(owner, found, now + (LASTS if useful else BRIEFLY))


def _grounds(
    deps: Deps, owner: str, request: SubmitRequest, spec: JobSpec, now: datetime
) -> Grounds | None:
    known, plan = None, UNLIMITED
    if quota.binding(deps):
        known = deps.standings.get(owner, now)
        if known is None:
            return None
        name, plan = _plan(deps, known)
        if not _allowed(deps, spec, plan, name) or _may_submit(known, plan) <= 0:
            return None
    limited = known is not None and plan.waiting_jobs is not None
    return Grounds(
        key=request.idempotency_key,
        request_hash=actions.digest(request),
        standing=known,
        last_number=known.number + _may_submit(known, plan) if known and limited else None,
        storage=plan.storage,
    )


def _may_submit(known: Standing, plan: Plan) -> int:
    """So many further jobs of anybody cannot be too many waiting ones of this user."""
    return 1 if plan.waiting_jobs is None else plan.waiting_jobs - known.live


def _plan(deps: Deps, known: Standing) -> tuple[str, Plan]:
    found = quota.standing_by(deps, known.plan, known.limits)
    return found.name, found.plan


def _allowed(deps: Deps, spec: JobSpec, plan: Plan, name: str) -> bool:
    """Whether the plan has nothing against this job; the long way tells what it has."""
    try:
        priority.check_allowed(spec.priority, plan.max_priority)
    except Refused:
        return False
    return refused_by_plan(spec, tuple(deps.pools.values()), plan, name) is None
