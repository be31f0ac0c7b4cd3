"""Machines that joined: how long a join takes, a job on one of them, a gang over four, 200 idle.

The machines of the first measures run real agents on this machine. The 200 are the pollers and
the lifecycle of the real agent, without processes of their own, in four processes.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from bench.home import cli, fresh_home, pss_megabytes, server_facts
from bench.row import Row
from paddlecloud.agent._join import run as run_machine_command
from paddlecloud.agent.config import read_config
from paddlecloud.agent.context import Context
from paddlecloud.agent.log import AgentLog
from paddlecloud.agent.outputs.shipper import Shippers
from paddlecloud.agent.replica.cleanup import Cleanup
from paddlecloud.agent.replica.lifecycle import Lifecycle
from paddlecloud.agent.replica.start import Starters
from paddlecloud.agent.server_link.poll import Poller

SIMULATED = 200
PROCESSES = 4
IDLE = 40.0
ROUNDS = 9
SETTINGS = """
team = true
default_plan = "unlimited"
[http]
host = "127.0.0.1"
port = {port}
insecure = true
public_url = "http://127.0.0.1:{port}"
[replica]
agent = {agent}
[pools.near]
kind = "local"
public = false
[pools.lab]
kind = "machines"
"""


class NoProcesses:
    """A spawner that starts nothing."""

    def __init__(self) -> None:
        self.enforces = {"cpu": True, "memory": True, "pids": True}

    def can_isolate(self) -> bool:
        return True

    def can_overlay(self, *_: str) -> bool:
        return False

    def close(self) -> None:
        pass


def machines() -> Iterator[Row]:
    with fresh_home() as home:
        _start_server(home, agent=True)
        four = [_join(home, f"m{number}") for number in range(4)]
        took = [seconds for seconds, _ in four]
        yield _row("join a machine until it is ready", max(took), 2.0, "s")
        near, far = (_to_running(home, cluster) for cluster in ("near", "lab"))
        what = "submit until it runs: joined machine, beyond a local one"
        yield _row(what, (far - near) * 1000, 10.0, "ms")
        yield _row("gang of 16 over four machines, submit until all run", _gang(home), 0.6, "s")
        for _, process in four:
            process.kill()
            process.wait()
    with fresh_home() as home:
        _start_server(home, agent=False)
        yield from _idle(home)


def _row(what: str, value: float, goal: float, unit: str) -> Row:
    measured, limit = f"{value:.2f} {unit}", f"<= {goal:g} {unit}"
    return Row(what=what, measured=measured, goal=limit, reached=value <= goal)


def _start_server(home: Path, *, agent: bool) -> None:
    port = 20_000 + os.getpid() % 10_000
    text = SETTINGS.format(port=port, agent=str(agent).lower())
    (home / "server.toml").write_text(text)
    cli("server", "start", f"--config={home / 'server.toml'}")


def _invite(uses: int = 1) -> dict[str, Any]:
    text = cli("admin", "machine", "invite", "--pool=lab", f"--uses={uses}", "--json")
    found: dict[str, Any] = json.loads(text)
    return found


def _join(home: Path, name: str) -> tuple[float, subprocess.Popen[bytes]]:
    invited = _invite()
    began = time.monotonic()
    words = ["join", invited["url"], f"--token={invited['token']}", f"--name={name}"]
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "paddlecloud.agent", *words, f"--directory={home / name}"],
        stderr=subprocess.DEVNULL,
    )
    while (name, "ready") not in {(each["name"], each["state"]) for each in _listed()}:
        assert time.monotonic() - began < 60, f"{name} does not join"
    return time.monotonic() - began, process


def _to_running(home: Path, cluster: str) -> float:
    """The median of submit until the command runs, by the clock that both processes share."""
    job = home / "job"
    job.mkdir(exist_ok=True)
    (job / "run.sh").write_text("date +%s.%N\n")
    took = []
    for _ in range(ROUNDS):
        began = time.time()
        words = [f"--files={job}", "--start_cmd=sh run.sh", f"--cluster={cluster}"]
        shown = cli("submit_job", *words, "--watch_mode=1").splitlines()
        took.append(float(shown[-1]) - began)
    return statistics.median(took[1:])


def _gang(home: Path) -> float:
    """From submit until the last of 16 has started, in the best of three."""
    took = []
    for _ in range(3):
        began = time.time()
        words = [f"--files={home / 'job'}", "--start_cmd=sh run.sh", "--cluster=lab"]
        words += ["--instance_count=16", "--distribute_job_type=NCCL2", "--cpu=0.5"]
        job = cli("submit_job", *words).split()[1]
        while json.loads(cli("query_job", job, "--json"))["job_status"] != "success":
            assert time.time() - began < 120
        lines = cli("logs", job).splitlines()
        took.append(max(float(line.rpartition(" ")[2]) for line in lines) - began)
    return min(took)


def _idle(home: Path) -> Iterator[Row]:
    invited = _invite(uses=SIMULATED)
    spawn = get_context("spawn")
    each = SIMULATED // PROCESSES
    workers = [
        spawn.Process(target=_simulate, args=(invited["url"], invited["token"], number, each))
        for number in range(PROCESSES)
    ]
    for worker in workers:
        worker.start()
    try:
        began = time.monotonic()
        while sum(m["state"] == "ready" for m in _listed()) < SIMULATED:
            assert time.monotonic() - began < 300, "the machines do not join"
            time.sleep(1)
        pid = int(str(server_facts(home)["pid"]))
        before = _cpu_seconds(pid)
        time.sleep(IDLE)
        share = (_cpu_seconds(pid) - before) / IDLE * 100
        yield _row(f"{SIMULATED} machines idle: server's CPU", share, 5.0, "% of a core")
        yield _row(f"{SIMULATED} machines idle: server's memory", pss_megabytes([pid]), 120.0, "MB")
    finally:
        for worker in workers:
            worker.kill()


def _listed() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(cli("admin", "machine", "list", "--json"))
    return found


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _simulate(url: str, token: str, number: int, count: int) -> None:
    """In a process of its own: this many machines join and poll until it is killed."""
    threading.stack_size(256 * 1024)
    home = Path(tempfile.mkdtemp(prefix="paddlecloud-bench-"))
    sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115 - until this process is killed
    # Everything but the end of a join, which is to go on as the agent.
    os.execv = lambda *_: None  # type: ignore[assignment]
    for index in range(count):
        name = f"sim-{number}-{index}"
        words = ["join", url, f"--token={token}", f"--name={name}", f"--directory={home / name}"]
        assert run_machine_command(words, {"PADDLECLOUD_LANG": "en"}) == 0
        config = read_config(home / name / "agent.json")
        context = Context(config, AgentLog(home / name / "agent.log"), NoProcesses(), {})  # type: ignore[arg-type]
        shippers = Shippers(context)
        lifecycle = Lifecycle(context, Starters(context), shippers, Cleanup(context, shippers))
        (home / name / "lock").touch()
        poller = Poller(context, lifecycle)
        threading.Thread(target=poller.work, daemon=True).start()
    threading.Event().wait()
