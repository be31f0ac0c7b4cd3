"""Every example that needs PaddlePaddle, submitted by its own submit.sh to an embedded server.

All trainers of a job see different data, so equal checksums of their weights show that they
exchanged gradients: trainers that ran side by side, each alone, would have printed different ones.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.paddle.researcher import Researcher

CHECKSUM = r"(?m)^checksum (\S+)$"


def test_fit_a_line_learns_and_keeps_every_epoch(researcher: Researcher, modern: Path) -> None:
    job = researcher.submits("fit_a_line", modern)
    assert job.code == 0, job.told
    losses = [float(loss) for loss in re.findall(r"(?m)^epoch \d+ loss (\S+)$", job.told)]
    assert len(losses) == 20
    assert losses[-1] < losses[0] / 100
    for epoch in range(20):
        assert f"rank-0/{epoch}/model.pdparams" in job.files
    assert not [name for name in job.files if ".saving" in name]


@pytest.mark.parametrize("example", ["collective", "launch", "fleet"])
def test_two_trainers_end_with_the_same_weights(
    example: str, researcher: Researcher, modern: Path
) -> None:
    job = researcher.submits(example, modern)
    assert job.code == 0, job.told
    checksums = job.every(CHECKSUM)
    assert set(checksums) == {"trainer-0", "trainer-1"}
    assert len(set(checksums.values())) == 1
    assert job.view["instance_count"] == 2
    assert [worker["exit_code"] for worker in job.view["workers"]] == [0, 0]
    assert "rank-0/model.pdparams" in job.files
    assert "rank-1/model.pdparams" not in job.files


def test_a_launcher_leaves_the_logs_of_each_of_its_processes(
    researcher: Researcher, modern: Path
) -> None:
    job = researcher.submits("launch", modern, "--env", "NPROC=2")
    assert job.code == 0, job.told
    for rank in (0, 1):
        for process in (0, 1):
            assert f"log/rank-{rank}/workerlog.{process}" in job.files
    assert "process 0 of 4 is ready" in job.logs["trainer-0"]


def test_parameter_servers_share_one_model(researcher: Researcher, older: Path) -> None:
    job = researcher.submits("ps", older)
    assert job.code == 0, job.told
    losses = job.every(r"(?m)^loss over all features (\S+)$")
    assert set(losses) == {"trainer-0", "trainer-1"}
    assert all(float(loss) < 0.01 for loss in losses.values())
    for server in (0, 1):
        assert f"pserver-{server}/model/000/part-00{server}.gz" in job.files
    assert job.view["job_status"] == "success"


def test_without_a_parameter_server_the_way_out_is_named(
    researcher: Researcher, modern: Path
) -> None:
    job = researcher.submits("ps", modern)
    assert job.code == 1
    assert job.view["job_status"] == "failed"
    assert "has no parameter server" in job.logs[job.view["failure"]["worker"]]
    assert "--distribute_job_type=NCCL2" in job.told
