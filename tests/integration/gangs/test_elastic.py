"""An elastic job of real processes: the key that they get, and a trainer that is killed."""

from __future__ import annotations

import os
import shlex
import signal
import stat
import sys
from pathlib import Path

import pytest

from paddlecloud.data import recordio
from tests.integration.faults.home import until
from tests.integration.gangs.gang_home import GangHome

pytestmark = pytest.mark.slow

PROGRAM = """
import json, os, sys, time
from paddlecloud.data import task_reader

path = os.environ["PADDLECLOUD_TOKEN_FILE"]
token = json.load(open(path))
found = os.stat(path)
leaked = [name for name, value in os.environ.items() if token["sk"] in value]
print(json.dumps({"mode": found.st_mode, "uid": found.st_uid, "leaked": leaked, "ak": token["ak"],
                  "worker": token["worker"]}), flush=True)
records = []
for record in task_reader(sys.argv[1], passes=2, lease=5):
    records.append(record.decode())
    time.sleep(0.01 if os.path.exists(sys.argv[2]) else 0.3)
print(json.dumps({"records": records}), flush=True)
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "train.recordio"
    with recordio.Writer(str(path), max_chunk_bytes=60) as writer:
        for number in range(60):
            writer.write(b"record %02d" % number)
    return path


def test_a_killed_trainer_is_replaced_and_every_record_is_read(
    gang_home: GangHome, file: Path, tmp_path: Path
) -> None:
    hurry = tmp_path / "hurry"
    job = gang_home.submit(
        PROGRAM,
        before="",
        start_cmd=f"{shlex.quote(sys.executable)} rank.py {file} {hurry}",
        job_type="cpu",
        cpu=0.1,
        min_instance=2,
        max_instance=2,
    )
    until(lambda: gang_home.client.query_job(job.id).state == "running", "its start")
    until(lambda: len(gang_home.said(job, "trainer-1")) == 1, "the second trainer")
    (told,) = gang_home.said(job, "trainer-1")
    assert stat.S_IMODE(told["mode"]) == 0o600
    assert told["uid"] == os.getuid()
    assert told["leaked"] == []
    assert told["ak"].endswith(".trainer-1") and told["worker"] == "trainer-1"
    worker = next(w for w in gang_home.client.query_job(job.id).view["workers"] if w["pid"])
    os.kill(worker["pid"], signal.SIGKILL)
    hurry.touch()
    ended = gang_home.end(job)
    assert ended.state == "success", ended.view["error_msg"]
    assert ended.view["attempts"] == 1
    names = {w["name"]: w["signal"] for w in ended.view["workers"]}
    assert names.keys() == {"trainer-0", "trainer-1", "trainer-2"}
    assert names[worker["name"]] == signal.SIGKILL
    (tasks,) = ended.view["tasks"]
    assert tasks["finished_in_all"] == 2 * tasks["total"]
    read = [
        record
        for name in names
        for line in gang_home.said(job, name)[1:]
        for record in line["records"]
    ]
    assert len(read) >= 60
