"""The reason why a job has to wait for the quota of its owner, with the numbers of the plan."""

from __future__ import annotations

from paddlecloud.model.jobs.job import Reason
from paddlecloud.model.units import format_resources
from paddlecloud.scheduler.view import Allowance


def over_quota(allowance: Allowance, cpu: float, memory: int, gpu: int) -> Reason | None:
    """Why the owner's plan forbids one more job of this size; None if it allows it."""
    limit = allowance.minutes_limit
    if limit is not None and allowance.minutes_used >= limit:
        return Reason(
            code="queue_quota_minutes",
            params={
                "used": round(allowance.minutes_used, 1),
                "limit": limit,
                "renews": allowance.renews,
            },
        )
    if allowance.jobs is not None and allowance.jobs < 1:
        most = allowance.limits.get("jobs", 0)
        return Reason(code="queue_quota_running", params={"limit": most})
    short = (
        (allowance.cpu is not None and cpu > allowance.cpu + 1e-9)
        or (allowance.memory is not None and memory > allowance.memory)
        or (allowance.gpu is not None and gpu > allowance.gpu)
    )
    if not short:
        return None
    left = format_resources(
        cpu if allowance.cpu is None else max(0.0, allowance.cpu),
        memory if allowance.memory is None else max(0, allowance.memory),
        gpu if allowance.gpu is None else max(0, allowance.gpu),
    )
    return Reason(
        code="queue_quota_resources",
        params={"asks": format_resources(cpu, memory, gpu), "left": left},
    )
