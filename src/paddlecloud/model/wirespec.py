"""Between the wire spec (JSON of a submit request) and `JobSpec`, the value everything works with.

Reading checks every rule of `submit.py` again: the server trusts no client. What a gang is made of
(which roles, how many of each, with what resources) is derived here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from paddlecloud.model.copies import with_changes
from paddlecloud.model.job import DistributeMode, JobSpec, JobType, ReplicaGroup, Resources, Role
from paddlecloud.model.submit import check_wire

DEFAULT_CPU = 1.0


def spec_from_wire(wire: Mapping[str, object]) -> JobSpec:
    """The spec that a submit request carries, or Invalid."""
    w: dict[str, Any] = check_wire(wire)
    job_type = _job_type(w["job_type"], w["gpu"])
    mode = w["distribute_job_type"]
    one = Resources(cpu=w["cpu"] or DEFAULT_CPU, memory=w["memory"] or 0, gpu=w["gpu"] or 0)
    spec = JobSpec(
        start_cmd=w["start_cmd"],
        groups=(ReplicaGroup(role=Role.TRAINER, count=w["instance_count"], resources=one),),
        job_name=w["job_name"],
        cluster=w["cluster"],
        public_bcc=bool(w["public_bcc"]),
        public_bos=bool(w["public_bos"]),
        distribute_mode=DistributeMode(mode) if mode else None,
        wall_time=None if w["wall_time"] is None else timedelta(seconds=w["wall_time"]),
        bos_url=w["bos_url"],
        snapshot=w["snapshot"],
        directory=w["directory"],
        env=w["env"],
        inherited_env=w["inherited_env"],
        description=w["description"],
        max_retries=w["max_retries"],
        priority=w["priority"],
        cpu_limited=w["cpu"] is not None,
    )
    return spec if job_type is None else with_job_type(spec, job_type)


def spec_to_wire(spec: JobSpec) -> dict[str, object]:
    """The wire spec that `spec_from_wire` reads back as the same spec."""
    one = _trainers(spec).resources
    return {
        "job_name": spec.job_name,
        "start_cmd": spec.start_cmd,
        "cluster": spec.cluster,
        "public_bcc": int(spec.public_bcc),
        "public_bos": int(spec.public_bos),
        "job_type": spec.job_type.value if spec.job_type else None,
        "instance_count": spec.instance_count,
        "wall_time": int(spec.wall_time.total_seconds()) if spec.wall_time else None,
        "bos_url": spec.bos_url,
        "snapshot": spec.snapshot,
        "directory": spec.directory,
        "env": dict(spec.env),
        "inherited_env": dict(spec.inherited_env),
        "description": spec.description,
        "max_retries": spec.max_retries,
        "priority": spec.priority,
        "cpu": one.cpu if spec.cpu_limited else None,
        "memory": one.memory or None,
        "gpu": one.gpu if spec.job_type else None,
        "distribute_job_type": spec.distribute_mode.value if spec.distribute_mode else None,
    }


def with_job_type(spec: JobSpec, job_type: JobType) -> JobSpec:
    """The spec once its job type is known: mode, roles and cards follow from it.

    One instance is one trainer and no gang. Several CPU instances are PSERVER mode, one pserver and
    one trainer each, and several GPU instances are NCCL2 mode, unless the user named the mode.
    """
    asked = _trainers(spec)
    gpu = max(asked.resources.gpu, 1) if job_type is JobType.GPU else 0
    trainers = with_changes(asked, resources=with_changes(asked.resources, gpu=gpu))
    if trainers.count == 1:
        return with_changes(spec, job_type=job_type, distribute_mode=None, groups=(trainers,))
    natural = DistributeMode.NCCL2 if job_type is JobType.GPU else DistributeMode.PSERVER
    mode = spec.distribute_mode or natural
    groups: tuple[ReplicaGroup, ...] = (trainers,)
    if mode is DistributeMode.PSERVER:
        room = with_changes(trainers.resources, gpu=0)
        groups = (ReplicaGroup(role=Role.PSERVER, count=trainers.count, resources=room), trainers)
    return with_changes(spec, job_type=job_type, distribute_mode=mode, groups=groups)


def _job_type(text: str | None, gpu: int | None) -> JobType | None:
    if text is not None:
        return JobType(text)
    if gpu is None:
        return None
    return JobType.GPU if gpu else JobType.CPU


def _trainers(spec: JobSpec) -> ReplicaGroup:
    return next(group for group in spec.groups if group.role is Role.TRAINER)
