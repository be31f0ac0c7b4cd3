"""The types of parameters for methods that pass them on: those of a job, and of a quota.

`Client.submit_job` lists the same names one by one, with what each means; a test compares the two
with the flags of the command line.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TypedDict


class JobParameters(TypedDict, total=False):
    """The parameters of `submit_job` that a `rerun` may change."""

    files: str | os.PathLike[str] | None
    start_cmd: str | None
    job_name: str | None
    env: Mapping[str, str] | Sequence[str] | None
    secret: Mapping[str, str] | Sequence[str] | None
    requirements: str | os.PathLike[str] | None
    job_type: str | None
    cpu: float | None
    memory: str | int | None
    gpu: int | None
    instance_count: int | None
    distribute_job_type: str | None
    pservers: int | None
    pserver_cpu: float | None
    pserver_memory: str | int | None
    min_instance: int | None
    max_instance: int | None
    cluster: str | None
    require: str | Mapping[str, str] | None
    priority: str | int | None
    wall_time: str | int | None
    hang_timeout: str | int | None
    max_retries: int | None
    retry_exit_codes: str | Sequence[int] | None
    public_bcc: bool | int | None
    public_bos: bool | int | None
    bos_url: str | None
    description: str | None
    yes: bool


class SubmitParameters(JobParameters, total=False):
    """The parameters of `submit_job`."""

    snapshot: str | None
    job_file: str | os.PathLike[str] | None


class QuotaChange(TypedDict, total=False):
    """What `set_quota` may change; what is not given stays."""

    plan: str | None
    limits: Mapping[str, int | float | str | None]
