"""Advice for jobs that requested much more CPU or memory than they used.

Only explicit requests of ended jobs count: a job that loads data for ten minutes has not shown its
needs yet.
"""

from __future__ import annotations

from collections.abc import Mapping

from paddlecloud.model.jobs.job import Job, Reason, Replica, Role

MIB = 1024 * 1024
LEAST_MEMORY = 1024 * MIB
"""Smaller requests get no advice."""
LEAST_SECONDS = 600.0
FAR_UNDER = 0.25


def advice(job: Job, replicas: tuple[Replica, ...], peaks: Mapping[str, int]) -> list[Reason]:
    """Reasons for requests far above the use; `peaks` are live samples, bytes by replica."""
    trainers = [one for one in replicas if one.role is Role.TRAINER]
    if not trainers or any(one.exit is None for one in trainers):
        return []
    asked = job.spec.asked_for(Role.TRAINER)
    found = []
    peak = max(peak_memory(one, peaks.get(one.id, 0)) for one in trainers)
    if asked.memory >= LEAST_MEMORY and 0 < peak < asked.memory * FAR_UNDER:
        asked_mib, used_mib = asked.memory // MIB, peak // MIB + 1
        params: dict[str, str | int] = {"job_id": job.id, "asked": asked_mib, "used": used_mib}
        found.append(Reason(code="asked_much_memory", params=params))
    cores = max(_cores(one) for one in trainers)
    if job.spec.cpu_limited and 0 <= cores < asked.cpu * FAR_UNDER:
        spent = {"asked": asked.cpu, "used": round(cores, 2)}
        found.append(Reason(code="asked_much_cpu", params={"job_id": job.id, **spent}))
    return found


def peak_memory(replica: Replica, sampled: int = 0) -> int:
    """The highest known memory use of a replica; 0: unknown."""
    record = replica.exit
    reported = (record.peak_memory or record.max_rss or 0) if record else 0
    return max(sampled, reported)


def _cores(replica: Replica) -> float:
    """Average CPUs in use; infinite if it ran too briefly, or was not measured."""
    record = replica.exit
    if record is None or not record.ran or record.ran < LEAST_SECONDS:
        return float("inf")
    return float("inf") if record.cpu_seconds is None else record.cpu_seconds / record.ran
