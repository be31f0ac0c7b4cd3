"""Converts the wire spec (JSON of a submit request) to a `JobSpec` and back.

Reading checks every rule of `params` again: the server trusts no client. The replica groups of a
job (roles, counts, resources) are derived only here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

from paddlecloud.model.jobs.job import (
    RESTART_CODES,
    DistributeMode,
    Elastic,
    JobSpec,
    JobType,
    ReplicaGroup,
    Resources,
    Role,
    with_changes,
)
from paddlecloud.model.jobs.param_checks import ANY_EXIT
from paddlecloud.model.jobs.params import check_wire

DEFAULT_CPU = 1.0


def spec_from_wire(wire: Mapping[str, object]) -> JobSpec:
    """The spec that a submit request carries, or Invalid."""
    w: dict[str, Any] = check_wire(wire)
    job_type = None if w["job_type"] is None else JobType(w["job_type"])
    if job_type is None and w["gpu"] is not None:
        job_type = JobType.GPU if w["gpu"] else JobType.CPU
    mode = w["distribute_job_type"]
    least, most = w["min_instance"], w["max_instance"]
    retry_any = w["retry_exit_codes"] == ANY_EXIT
    codes: tuple[int, ...] = RESTART_CODES
    if w["retry_exit_codes"] is not None and not retry_any:
        codes = tuple(int(word) for word in w["retry_exit_codes"].split(",") if word)
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
        secrets=w["secret"],
        inherited_env=w["inherited_env"],
        description=w["description"],
        max_retries=w["max_retries"],
        priority=w["priority"],
        cpu_limited=w["cpu"] is not None,
        pservers=w["pservers"],
        pserver_cpu=w["pserver_cpu"],
        pserver_memory=w["pserver_memory"],
        requirements=w["requirements"],
        retry_exit_codes=codes,
        retry_any_exit=retry_any,
        hang_timeout=None if w["hang_timeout"] is None else timedelta(seconds=w["hang_timeout"]),
        elastic=None if least is None or most is None else Elastic(least=least, most=most),
        git=w.get("git", {}),
        require=tuple(to_label(row) for row in w["require"].split(",") if row),
    )
    return spec if job_type is None else with_job_type(spec, job_type)


def spec_to_wire(spec: JobSpec) -> dict[str, object]:
    """The wire spec that `spec_from_wire` reads back as the same spec."""
    one = _trainers(spec).resources
    codes = None
    if spec.retry_any_exit:
        codes = ANY_EXIT
    elif spec.retry_exit_codes != RESTART_CODES:
        codes = ",".join(str(code) for code in spec.retry_exit_codes)
    return {
        "job_name": spec.job_name,
        "start_cmd": spec.start_cmd,
        "cluster": spec.cluster,
        "public_bcc": int(spec.public_bcc),
        "public_bos": int(spec.public_bos),
        "job_type": spec.job_type.value if spec.job_type else None,
        "instance_count": spec.instance_count,
        "min_instance": spec.elastic.least if spec.elastic else None,
        "max_instance": spec.elastic.most if spec.elastic else None,
        "wall_time": int(spec.wall_time.total_seconds()) if spec.wall_time else None,
        "bos_url": spec.bos_url,
        "snapshot": spec.snapshot,
        "directory": spec.directory,
        "env": dict(spec.env),
        **({"secret": dict(spec.secrets)} if spec.secrets else {}),
        "inherited_env": dict(spec.inherited_env),
        "description": spec.description,
        "max_retries": spec.max_retries,
        "priority": spec.priority,
        "cpu": one.cpu if spec.cpu_limited else None,
        "memory": one.memory or None,
        "gpu": one.gpu if spec.job_type else None,
        "distribute_job_type": spec.distribute_mode.value if spec.distribute_mode else None,
        "pservers": spec.pservers,
        "pserver_cpu": spec.pserver_cpu,
        "pserver_memory": spec.pserver_memory,
        "requirements": spec.requirements,
        "retry_exit_codes": codes,
        "hang_timeout": int(spec.hang_timeout.total_seconds()) if spec.hang_timeout else None,
        **({"git": dict(spec.git)} if spec.git else {}),
        **({"require": labels_text(spec.require)} if spec.require else {}),
    }


def to_label(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name, value


def labels_text(labels: Iterable[tuple[str, str]]) -> str:
    return ",".join(f"{name}={value}" for name, value in labels)


def with_job_type(spec: JobSpec, job_type: JobType) -> JobSpec:
    """The spec once its job type is known: mode, roles and cards follow from it.

    One instance is one trainer and no gang. Several CPU instances are PSERVER mode, one pserver and
    one trainer each, and several GPU instances are NCCL2 mode, unless the user gave the mode or
    parameters of pservers. Pservers have no GPUs. Elastic trainers do not connect to each other, so
    they have no mode, except with pservers.
    """
    asked = _trainers(spec)
    gpu = max(asked.resources.gpu, 1) if job_type is JobType.GPU else 0
    trainers = with_changes(asked, resources=with_changes(asked.resources, gpu=gpu))
    mode = spec.distribute_mode
    describes_pservers = (spec.pservers, spec.pserver_cpu, spec.pserver_memory) != (None,) * 3
    if spec.elastic is not None:
        wants_pservers = mode is DistributeMode.PSERVER or describes_pservers
    else:
        wants_pservers = spec.pservers is not None
    if (trainers.count == 1 or spec.elastic is not None) and not wants_pservers:
        return with_changes(spec, job_type=job_type, distribute_mode=None, groups=(trainers,))
    if spec.elastic is not None:
        mode = DistributeMode.PSERVER
    elif mode is None:
        with_pservers = job_type is JobType.CPU or describes_pservers
        mode = DistributeMode.PSERVER if with_pservers else DistributeMode.NCCL2
    groups: tuple[ReplicaGroup, ...] = (trainers,)
    if mode is DistributeMode.PSERVER:
        groups = (_pservers(spec, trainers), trainers)
    return with_changes(spec, job_type=job_type, distribute_mode=mode, groups=groups)


def limits_cpu(spec: JobSpec, role: Role) -> bool:
    """Whether the CPUs that a replica of this role asks for are a limit too."""
    return spec.cpu_limited or (role is Role.PSERVER and spec.pserver_cpu is not None)


def _pservers(spec: JobSpec, trainers: ReplicaGroup) -> ReplicaGroup:
    own = trainers.resources
    cpu = own.cpu if spec.pserver_cpu is None else spec.pserver_cpu
    memory = own.memory if spec.pserver_memory is None else spec.pserver_memory
    return ReplicaGroup(
        role=Role.PSERVER,
        count=spec.pservers or trainers.count,
        resources=Resources(cpu=cpu, memory=memory, gpu=0),
    )


def _trainers(spec: JobSpec) -> ReplicaGroup:
    return next(group for group in spec.groups if group.role is Role.TRAINER)
