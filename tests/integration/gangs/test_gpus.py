"""Cards are given exclusively. The inventory is simulated: this machine need not have any."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from paddlecloud.model.errors import Refused
from tests.integration.faults.home import until
from tests.integration.gangs.gang_home import GangHome, a_gang_home

SETTINGS = "[local_pool]\ngpu = 4\ncpu = 64\n"
KNOWS = """
names = ("CUDA_VISIBLE_DEVICES", "FLAGS_selected_gpus", "PADDLE_USE_CUDA", "CUDA_DEVICE_ORDER")
say(**{name: env.get(name) for name in names})
while not os.path.exists(env["GO"]):
    time.sleep(0.02)
"""


@pytest.fixture(scope="module")
def gang_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GangHome]:
    with a_gang_home(tmp_path_factory.mktemp("cards"), SETTINGS) as found:
        yield found


def cards_of(gang_home: GangHome, job_id: str) -> list[list[int]]:
    return [worker["cards"] for worker in gang_home.client.query_job(job_id).workers]


def test_cards_are_held_by_one_replica_at_a_time(gang_home: GangHome) -> None:
    go = gang_home.files / "go"
    said: dict[str, Any] = {"env": {"GO": str(go)}}
    gang = gang_home.submit(KNOWS, instance_count=2, job_type="gpu", **said)
    pair = gang_home.submit(KNOWS, gpu=2, **said)
    third = gang_home.submit(KNOWS, gpu=1, **said)
    until(lambda: gang_home.client.query_job(pair.id).state == "running", "the pair")
    until(lambda: gang_home.client.query_job(gang.id).state == "running", "the gang")
    assert cards_of(gang_home, gang.id) == [[0], [1]]
    assert cards_of(gang_home, pair.id) == [[2, 3]]
    waiting = gang_home.client.query_job(third.id)
    assert waiting.state in ("schedule", "queue")
    go.write_text("")
    for job in (gang, pair, third):
        assert gang_home.end(job).state == "success"
    assert cards_of(gang_home, third.id) in ([[0]], [[1]], [[2]])
    first = gang_home.said(gang, "trainer-1")[0]
    assert (first["CUDA_VISIBLE_DEVICES"], first["FLAGS_selected_gpus"]) == ("1", "0")
    two = gang_home.said(pair, "trainer-0")[0]
    assert (two["CUDA_VISIBLE_DEVICES"], two["FLAGS_selected_gpus"]) == ("2,3", "0,1")
    assert (two["PADDLE_USE_CUDA"], two["CUDA_DEVICE_ORDER"]) == ("1", "PCI_BUS_ID")


def test_a_job_without_cards_sees_none(gang_home: GangHome) -> None:
    go = gang_home.files / "at-once"
    go.write_text("")
    job = gang_home.submit(KNOWS, job_type="cpu", env={"GO": str(go)})
    assert gang_home.end(job).state == "success"
    (said,) = gang_home.said(job, "trainer-0")
    assert said["CUDA_VISIBLE_DEVICES"] == ""
    assert (said["PADDLE_USE_CUDA"], said["FLAGS_selected_gpus"]) == ("0", None)
    assert cards_of(gang_home, job.id) == [[]]


def test_pservers_of_a_gpu_gang_have_no_cards(gang_home: GangHome) -> None:
    go = gang_home.files / "at-once"
    go.write_text("")
    asked: dict[str, Any] = {
        "instance_count": 2,
        "job_type": "gpu",
        "distribute_job_type": "PSERVER",
    }
    job = gang_home.end(gang_home.submit(KNOWS, env={"GO": str(go)}, **asked))
    assert job.state == "success", job.error_msg
    held = {worker["name"]: len(worker["cards"]) for worker in job.workers}
    assert held == {"trainer-0": 1, "trainer-1": 1, "pserver-0": 0, "pserver-1": 0}


def test_more_cards_than_there_are_is_refused(gang_home: GangHome) -> None:
    with pytest.raises(Refused) as refused:
        gang_home.submit("", instance_count=5, gpu=1)
    assert refused.value.code == "gang_never"
    assert "5 GPU" in str(refused.value)
