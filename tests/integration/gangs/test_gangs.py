"""Jobs of several replicas with the real server and agent: both modes, how they end and stop."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from contextlib import closing
from datetime import datetime
from typing import Any

import pytest

from paddlecloud.client.sdk import Job
from paddlecloud.model.errors import Refused
from tests.integration.faults.home import until
from tests.integration.gangs.gang_home import GangHome

BOTH = {"collective": {"distribute_job_type": "NCCL2"}, "pserver": {}}
MEETS = """
held = listen()
if role == "PSERVER":
    say(**env)
    time.sleep(600)
meet(held)
say(**env)
"""
SAME = (
    "PADDLE_TRAINER_ENDPOINTS",
    "PADDLE_PSERVERS_IP_PORT_LIST",
    "PADDLE_TRAINERS_NUM",
    "PADDLE_TRAINER_IPS",
    "PADDLE_PSERVER_IPS",
    "PADDLE_INIT_PSERVERS",
    "PADDLE_GLOO_HTTP_ENDPOINT",
    "DISTRIBUTE_JOB_TYPE",
)


def records(gang_home: GangHome, job: Job) -> dict[str, dict[str, Any]]:
    """The rows of a job's replicas, by worker, as the server keeps them."""
    with closing(sqlite3.connect(gang_home.home.path / "server" / "paddlecloud.db")) as database:
        database.row_factory = sqlite3.Row
        rows = database.execute("select * from replicas where job_id = ?", (job.id,)).fetchall()
    return {f"{row['role'].lower()}-{row['rank']}": dict(row) for row in rows}


@pytest.mark.parametrize("mode", BOTH)
def test_two_instances_meet_each_other_and_succeed(gang_home: GangHome, mode: str) -> None:
    job = gang_home.end(gang_home.submit(MEETS, instance_count=2, **BOTH[mode]))
    assert job.state == "success", job.error_msg
    workers = {worker["name"]: worker for worker in job.workers}
    known = {name: gang_home.said(job, name)[0] for name in workers}
    pservers = [] if mode == "collective" else ["pserver-0", "pserver-1"]
    assert sorted(workers) == [*pservers, "trainer-0", "trainer-1"]
    for name in SAME:
        assert len({each.get(name) for each in known.values()}) == 1, f"{name} differs"
    assert len({each["POD_IP"] for each in known.values()}) == len(workers)
    assert len({each["PADDLE_PORT"] for each in known.values()}) == len(workers)
    assert all(each["POD_IP"].startswith("127.0.") for each in known.values())
    for name, each in known.items():
        assert workers[name]["endpoint"] == f"{each['POD_IP']}:{each['PADDLE_PORT']}"
        assert each["PADDLE_INIT_TRAINER_ID"] == each["PADDLE_TRAINER_ID"]
        assert each["PADDLE_INIT_NUM_GRADIENT_SERVERS"] == each["PADDLE_TRAINERS_NUM"] == "2"


def test_the_current_endpoint_stands_at_the_place_of_the_rank(gang_home: GangHome) -> None:
    job = gang_home.end(gang_home.submit(MEETS, instance_count=3, distribute_job_type="NCCL2"))
    assert job.state == "success", job.error_msg
    for rank in range(3):
        env = gang_home.said(job, f"trainer-{rank}")[0]
        endpoints = env["PADDLE_TRAINER_ENDPOINTS"].split(",")
        assert endpoints[int(env["PADDLE_TRAINER_ID"])] == env["PADDLE_CURRENT_ENDPOINT"]
        assert env["PADDLE_DISTRI_BACKEND"] == "gloo"
        assert "PADDLE_PSERVERS_IP_PORT_LIST" not in env


def test_pservers_of_another_number_and_size_are_stopped_after_the_trainers(
    gang_home: GangHome,
) -> None:
    job = gang_home.submit(
        MEETS, instance_count=2, pservers=1, pserver_cpu=0.5, pserver_memory="64Mi"
    )
    job = gang_home.end(job)
    assert job.state == "success", job.error_msg
    rows = records(gang_home, job)
    assert sorted(rows) == ["pserver-0", "trainer-0", "trainer-1"]
    assert rows["pserver-0"]["memory"] == 64 * 2**20
    assert rows["trainer-0"]["cpu"] > rows["pserver-0"]["cpu"]
    assert rows["trainer-0"]["memory"] == 0
    gone = next(worker for worker in job.workers if worker["name"] == "pserver-0")
    assert (gone["state"], gone["signal"]) == ("exited", 15)
    assert job.exit_code == 0


FAILS = """
def told(number, frame):
    say(signal=number, at=time.time())
    sys.exit(0)


signal.signal(signal.SIGTERM, told)
held = listen()
if env["PADDLE_TRAINER_ID"] == "1":
    reach()
    sys.exit(7)
time.sleep(600)
"""


def test_when_one_rank_dies_the_others_are_told(gang_home: GangHome) -> None:
    """How soon is measured by `python -m bench gangs`; here, that nothing is waited for."""
    job = gang_home.end(gang_home.submit(FAILS, instance_count=3, distribute_job_type="NCCL2"))
    assert job.state == "failed"
    assert (job.failure["worker"], job.exit_code) == ("trainer-1", 7)
    dead = records(gang_home, job)["trainer-1"]
    (end,) = [worker for worker in job.workers if worker["name"] == "trainer-1"]
    assert end["exit_code"] == 7
    ended = _finished(dead)
    for name in ("trainer-0", "trainer-2"):
        (said,) = gang_home.said(job, name)
        assert said["signal"] == 15
        assert -0.1 < said["at"] - ended < 20.0, f"{name} was told after {said['at'] - ended:.2f} s"


def test_the_place_of_a_failed_gang_is_free_again(gang_home: GangHome) -> None:
    job = gang_home.end(gang_home.submit("raise SystemExit(7)\n", instance_count=2))
    assert job.state == "failed"
    with closing(sqlite3.connect(gang_home.home.path / "server" / "paddlecloud.db")) as database:
        live = "select count(*) from replicas where state in ('ordered', 'running')"
        assert database.execute(live).fetchone() == (0,)


STARTS = """
say(began=time.time())
time.sleep(600)
"""


def test_a_gang_is_running_when_all_of_it_is_and_a_kill_ends_all_of_it(gang_home: GangHome) -> None:
    job = gang_home.submit(STARTS, instance_count=3)
    until(lambda: gang_home.client.query_job(job.id).state == "running", "the gang")
    workers = gang_home.client.query_job(job.id).workers
    assert [worker["state"] for worker in workers] == ["running"] * 6
    gang_home.client.kill_job(job.id)
    done = gang_home.end(job)
    assert done.state == "killed"
    assert not gang_home.home.of_kind("job")


SAVES = """
def save(number, frame):
    time.sleep(0.3)
    with open(env["OUTPUT_PATH"] + "/model", "w") as file:
        file.write("saved by " + env["PADDLECLOUD_WORKER"])
    sys.exit(0)


signal.signal(signal.SIGTERM, save)
say(ready=True)
time.sleep(600)
"""


def test_a_kill_leaves_time_to_save(gang_home: GangHome) -> None:
    job = gang_home.submit(SAVES, instance_count=2, distribute_job_type="NCCL2")
    names = ("trainer-0", "trainer-1")
    until(lambda: all(gang_home.said(job, name) for name in names), "both ranks")
    gang_home.client.kill_job(job.id)
    assert gang_home.end(job).state == "killed"
    gang_home.client.get_files(job.id, download_dir=str(gang_home.files / "saved"))
    for rank, name in enumerate(names):
        place = gang_home.files / "saved" / job.id / f"rank-{rank}" / "model"
        assert place.read_text() == f"saved by {name}"


def test_a_gang_that_cannot_start_whole_does_not_start(gang_home: GangHome) -> None:
    job = gang_home.submit("time.sleep(600)\n", instance_count=2, start_cmd="./missing")
    done = gang_home.end(job)
    assert (done.state, done.exit_code) == ("failed", 127)
    assert not gang_home.home.of_kind("job")


def test_what_never_fits_is_refused_with_the_numbers(gang_home: GangHome) -> None:
    with pytest.raises(Refused) as refused:
        gang_home.submit("", instance_count=64, memory="1T")
    assert refused.value.code == "resources_never"
    with pytest.raises(Refused) as refused:
        gang_home.submit("", instance_count=1000, memory="1G")
    assert refused.value.code == "replicas_too_many"
    with pytest.raises(Refused) as refused:
        gang_home.submit("", instance_count=400, memory="1G", pserver_memory="1G")
    assert refused.value.code == "gang_never"
    assert "800 replicas" in str(refused.value)


def test_a_gang_may_oversubscribe_the_cpus(gang_home: GangHome) -> None:
    began = time.monotonic()
    job = gang_home.end(gang_home.submit(MEETS, instance_count=5))
    assert job.state == "success", job.error_msg
    rows = records(gang_home, job)
    assert len(rows) == 10
    assert sum(row["cpu"] for row in rows.values()) <= _cpus() + 1e-6
    assert time.monotonic() - began < 60


def _finished(row: dict[str, Any]) -> float:
    return datetime.fromisoformat(json.loads(row["exit_record"])["finished_at"]).timestamp()


def _cpus() -> float:
    return float(len(os.sched_getaffinity(0)))
