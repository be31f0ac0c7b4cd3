"""Whether a job asked for much more than it used, and what to tell its owner then.

Only what the person asked for by a number counts, and only once it is over: a job that loads its
data for ten minutes has not shown yet what it needs.
"""

from __future__ import annotations

from collections.abc import Mapping

from paddlecloud.model.jobs.job import Job, Reason, Replica, Role

MIB = 1024 * 1024
LEAST_MEMORY = 1024 * MIB
"""A smaller claim is not worth a word."""
LEAST_SECONDS = 600.0
FAR_UNDER = 0.25


def advice(job: Job, replicas: tuple[Replica, ...], peaks: Mapping[str, int]) -> list[Reason]:
    """Sentences about claims far above the use; `peaks` are bytes by replica, as seen live."""
    trainers = [one for one in replicas if one.role is Role.TRAINER]
    if not trainers or any(one.exit is None for one in trainers):
        return []
    asked = job.spec.asked_for(Role.TRAINER)
    found = []
    peak = max(peak_memory(one, peaks.get(one.id, 0)) for one in trainers)
    if asked.memory >= LEAST_MEMORY and 0 < peak < asked.memory * FAR_UNDER:
        asked_mib, used_mib = asked.memory // MIB, peak // MIB + 1
        told = {"asked": asked_mib, "used": used_mib}
        found.append(Reason(code="asked_much_memory", params={"job_id": job.id, **told}))
    cores = max(_cores(one) for one in trainers)
    if job.spec.cpu_limited and 0 <= cores < asked.cpu * FAR_UNDER:
        spent = {"asked": asked.cpu, "used": round(cores, 2)}
        found.append(Reason(code="asked_much_cpu", params={"job_id": job.id, **spent}))
    return found


def peak_memory(replica: Replica, seen: int = 0) -> int:
    """The most memory that is known of a replica; 0 when nothing is."""
    record = replica.exit
    told = (record.peak_memory or record.max_rss or 0) if record else 0
    return max(seen, told)


def _cores(replica: Replica) -> float:
    """CPUs in use on average; infinite where it ran too short to tell, or nobody counted."""
    record = replica.exit
    if record is None or not record.ran or record.ran < LEAST_SECONDS:
        return float("inf")
    return float("inf") if record.cpu_seconds is None else record.cpu_seconds / record.ran
