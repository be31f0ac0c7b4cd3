"""Ports of gangs: never shared between jobs, and a program that has one breaks no start."""

from __future__ import annotations

import os
import socket
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Any

import pytest

from paddlecloud.server.services.placement._allocate import FIRST_PORT, PORTS
from tests.integration.gangs.gang_home import GangHome, a_gang_home

#: Nothing else runs beside these: what squats here could take a port from a job of another test.
pytestmark = pytest.mark.slow

MANY = """
import _socket, os, time

env = os.environ
held = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
held.setsockopt(_socket.SOL_SOCKET, _socket.SO_REUSEADDR, 1)
held.bind(("", int(env["PADDLE_PORT"])))
held.listen()
known = [env[name] for name in ("PADDLE_PORT", "POD_IP", "PADDLE_TRAINER_ENDPOINTS")]
print('{"port": %s, "host": "%s", "list": "%s"}' % tuple(known), flush=True)
with open(env["ALL"], "a") as file:
    file.write("x")
while os.path.getsize(env["ALL"]) < 64:
    time.sleep(0.05)
"""
ALONE = "held = listen()\nsay(own=ports())\n"
PAIR: dict[str, Any] = {"instance_count": 2, "distribute_job_type": "NCCL2"}


@pytest.fixture(scope="module")
def gang_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GangHome]:
    """It claims to have CPUs for all of them at once."""
    with a_gang_home(tmp_path_factory.mktemp("ports"), "[local_pool]\ncpu = 64\n") as found:
        yield found


def next_port(gang_home: GangHome) -> int:
    """Where the server will look for the next free ports; the first of all it takes anywhere."""
    assert gang_home.end(gang_home.submit(ALONE, **PAIR)).state == "success"
    with closing(sqlite3.connect(gang_home.home.path / "server" / "paddlecloud.db")) as database:
        found = database.execute("select value from counters where name = 'port'").fetchone()
    return FIRST_PORT + int(found[0]) % PORTS


@contextmanager
def squatters(first: int, count: int) -> Iterator[None]:
    """Other programs on these ports, unless they are taken already."""
    with ExitStack() as stack:
        for step in range(count):
            place = stack.enter_context(closing(socket.socket()))
            try:
                place.bind(("127.0.0.1", FIRST_PORT + (first - FIRST_PORT + step) % PORTS))
            except OSError:
                continue
            place.listen()
        yield


def test_eight_jobs_of_eight_ranks_at_once_share_no_port(gang_home: GangHome) -> None:
    together = gang_home.files / "together"
    together.write_text("")
    asked: dict[str, Any] = {
        "instance_count": 8,
        "distribute_job_type": "NCCL2",
        "env": {"ALL": str(together)},
    }
    jobs = [gang_home.submit(MANY, before="", **asked) for _ in range(8)]
    assert [gang_home.end(job).state for job in jobs] == ["success"] * 8
    ports: set[int] = set()
    hosts: set[str] = set()
    for job in jobs:
        said = [gang_home.said(job, f"trainer-{rank}")[0] for rank in range(8)]
        assert {each["list"] for each in said} == {
            ",".join(f"{each['host']}:{each['port']}" for each in said)
        }
        ports |= {each["port"] for each in said}
        hosts |= {each["host"] for each in said}
    assert (len(ports), len(hosts)) == (64, 64)


def test_a_squatter_does_not_break_a_start(gang_home: GangHome) -> None:
    with squatters(next_port(gang_home), 1):
        job = gang_home.end(gang_home.submit(ALONE, **PAIR))
    assert job.state == "success", job.error_msg
    assert job.attempts == 2
    assert job.failure is None


def test_ports_that_are_always_taken_are_told_with_who_has_them(gang_home: GangHome) -> None:
    with squatters(next_port(gang_home), 40):
        job = gang_home.end(gang_home.submit(ALONE, **PAIR))
    assert job.state == "failed"
    assert job.attempts == 5
    assert f"pid {os.getpid()}" in job.error_msg
    assert job.failure["advice"]
