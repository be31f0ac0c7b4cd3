"""The job that a scripted server tells of, and the command as a program of its own."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from tests.unit.client.fake_server import Answer, FakeServer, ok

ID = "job-" + "0123456789abcdef" * 2
JOB = f"/api/v1/jobs/{ID}"
VIEW: dict[str, Any] = {
    "bos_url": "paddlecloud-public.local/me/plsc",
    "create_time": "2020-05-17 18:15:28",
    "error_msg": "",
    "finish_time": "",
    "instance_count": 1,
    "instance_ids_list": ["17", "18"],
    "job_id": ID,
    "job_name": "tmp_job",
    "job_status": "running",
    "job_type": "cpu",
    "kill_flag": 0,
    "public_bcc": 1,
    "public_bos": 1,
    "queue_reason": "",
    "start_cmd": "sh run.sh\nsh more.sh",
    "start_time": "2020-05-17 18:15:47",
    "wall_time": "00:30:00",
    "version": 3,
    "failure": None,
    "exit_code": None,
    "attempts": 1,
    "workers": [],
}
PLAIN = f"""\
bos_url: paddlecloud-public.local/me/plsc
create_time: 2020-05-17 18:15:28
error_msg:
finish_time:
instance_count: 1
instance_ids_list: 17,18
job_id: {ID}
job_name: tmp_job
job_status: running
job_type: cpu
kill_flag: 0
public_bcc: 1
public_bos: 1
queue_reason:
start_cmd: sh run.sh sh more.sh
start_time: 2020-05-17 18:15:47
wall_time: 00:30:00
"""
Captured = pytest.CaptureFixture[str]


def submits(server: FakeServer, *views: dict[str, Any]) -> None:
    """The routes of a job that goes through these views, with a log of one line."""
    server.routes["POST /api/v1/jobs"] = [ok({"job": VIEW, "notes": ["runs as cpu"]})]
    server.routes[f"GET {JOB}"] = [ok(view) for view in views]
    server.routes[f"GET {JOB}/logs"] = [Answer(b"one\n", 200, {"x-log-offset": "0"})]


def run_program(*words: str, **more: Any) -> subprocess.Popen[bytes]:
    program = [sys.executable, "-m", "paddlecloud", *words]
    return subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more)
