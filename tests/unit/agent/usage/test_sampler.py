"""What replicas use: the arithmetic with made-up processes, and a look at real ones."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from typing import Any

import pytest

from paddlecloud.agent.usage import sampler
from paddlecloud.agent.usage.gpu import Cards, visible
from paddlecloud.agent.usage.sampler import Process, _History, _tree, children

MIB = 1024 * 1024


def a_process(parent: int, cpu: float = 0.0, children_cpu: float = 0.0) -> Process:
    return Process(parent=parent, cpu=cpu, children_cpu=children_cpu)


def test_a_replica_is_everything_below_its_supervisor_and_what_those_left() -> None:
    table = {
        1: a_process(0, cpu=99),
        10: a_process(1, cpu=5, children_cpu=2),  # the supervisor: it buried 2 seconds
        11: a_process(10, cpu=3, children_cpu=1),
        12: a_process(11, cpu=0.5),
        20: a_process(1, cpu=50),
        21: a_process(20, cpu=40),
    }
    tree = _tree(10, table, children(table))
    assert sorted(tree.pids) == [11, 12]
    assert tree.cpu == pytest.approx(3 + 1 + 0.5 + 2)
    assert _tree(99, table, children(table)).pids == []


def test_the_rate_is_since_the_last_look_and_at_first_since_the_start() -> None:
    seen = _History()
    assert seen.cpu_rate(3.0, now=100.0, age=2.0) == 1.5
    assert seen.cpu_rate(5.0, now=102.0, age=4.0) == 1.0
    assert seen.cpu_rate(5.0, now=104.0, age=6.0) == 0.0
    assert seen.cpu_rate(4.0, now=106.0, age=8.0) == 0.0, "time never runs backwards"


def test_quiet_is_without_log_and_without_cpu() -> None:
    seen = _History()
    assert seen.idle_seconds(1.0, log=0, now=10.0) == 0.0
    assert seen.idle_seconds(0.0, log=0, now=12.0) == 2.0
    assert seen.idle_seconds(0.009, log=0, now=14.0) == 4.0
    assert seen.idle_seconds(0.0, log=7, now=16.0) == 0.0, "it wrote"
    assert seen.idle_seconds(0.5, log=7, now=18.0) == 0.0, "it computes"
    assert seen.idle_seconds(0.0, log=7, now=20.0) == 2.0


def test_the_same_again_is_no_news_for_ten_seconds() -> None:
    seen = _History()
    use = {"cpu": 0.0, "memory": 100 * MIB, "quiet": 4.0}
    assert seen.is_new(use, 0.0)
    assert not seen.is_new({**use, "quiet": 6.0}, 2.0)
    assert seen.is_new({**use, "cpu": 0.5, "quiet": 0.0}, 4.0)
    assert seen.is_new({**use, "cpu": 0.5, "memory": 110 * MIB, "quiet": 0.0}, 6.0)
    assert not seen.is_new({**use, "cpu": 0.5, "memory": 110 * MIB, "quiet": 0.0}, 15.9)
    assert seen.is_new({**use, "cpu": 0.5, "memory": 110 * MIB, "quiet": 0.0}, 16.1)


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_real_processes_are_seen_with_their_memory_and_their_time() -> None:
    program = (
        "import os, time\nx = bytearray(64 * 2**20)\n"
        "while time.process_time() < 0.3: pass\n"
        "print(time.process_time(), flush=True)\ntime.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            spent = float(process.stdout.readline())
            found = sampler.processes()
            assert found[process.pid].parent == os.getpid()
            assert found[process.pid].cpu == pytest.approx(spent, abs=0.05)
            assert process.pid in children(found)[os.getpid()]
            memory = sampler.resident([process.pid])
            assert 64 * MIB < memory < 100 * MIB
        finally:
            process.kill()
    assert sampler.resident([process.pid]) == 0, "who is gone holds nothing"


class _Library:
    """Two cards that are half and fully busy, as NVIDIA's library would tell it."""

    def nvmlDeviceGetHandleByIndex_v2(self, index: ctypes.c_uint, handle: Any) -> int:
        handle._obj.value = index.value + 1
        return 0 if index.value < 2 else 2

    def nvmlDeviceGetUtilizationRates(self, handle: ctypes.c_void_p, rates: Any) -> int:
        rates._obj.gpu = 50 * (handle.value or 0)
        return 0

    def nvmlDeviceGetMemoryInfo(self, handle: ctypes.c_void_p, memory: Any) -> int:
        memory._obj.used = (handle.value or 0) * MIB
        return 0


@pytest.mark.parametrize(
    ("indexes", "want"),
    [
        ((0,), {"gpu": 0.5, "gpu_memory": MIB}),
        ((0, 1), {"gpu": 1.5, "gpu_memory": 3 * MIB}),
        ((), {}),
        ((7,), {}),
    ],
)
def test_cards_are_summed_up(indexes: tuple[int, ...], want: dict[str, object]) -> None:
    assert Cards(_Library()).use(indexes) == want


def test_which_cards_a_replica_was_given() -> None:
    assert visible({"CUDA_VISIBLE_DEVICES": "2, 3"}) == (2, 3)
    assert visible({"CUDA_VISIBLE_DEVICES": ""}) == ()
    assert visible({}) == ()
