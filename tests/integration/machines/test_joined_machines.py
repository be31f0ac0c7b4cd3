"""Machines that join a team server over a network: gangs, losses, partitions, upgrades.

Each host is a network namespace with an address of its own; server, agents and commands are the
real ones. They share this machine's disk, but no path of it.
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import paddlecloud
from paddlecloud import __version__
from paddlecloud.server.services.agents import package
from tests.integration.machines.hosts import PORT, PROGRAM, Host, is_possible, network, until

pytestmark = [
    pytest.mark.slow(seconds=120),
    pytest.mark.skipif(not is_possible(), reason="needs Linux, root and iproute2"),
]

SETTINGS = """
team = true
[http]
host = "0.0.0.0"
port = {port}
insecure = true
public_url = "http://10.77.0.1:{port}"
[replica]
agent = false
[pools.lab]
kind = "machines"
lost_after = "2s"
"""
RING = """
import os, socket, sys, time
rank = int(os.environ["PADDLE_TRAINER_ID"])
hosts = os.environ["PADDLE_TRAINER_ENDPOINTS"].split(",")
address, port = os.environ["PADDLE_CURRENT_ENDPOINT"].rsplit(":", 1)
server = socket.create_server((address, int(port)))
peer, number = hosts[(rank + 1) % len(hosts)].rsplit(":", 1)
for _ in range(200):
    try:
        out = socket.create_connection((peer, int(number)), timeout=5)
        break
    except OSError:
        time.sleep(0.05)
out.sendall(str(rank).encode())
heard, _ = server.accept()
print("rank", rank, "at", address, "heard", heard.recv(9).decode(), flush=True)
"""


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Host]]:
    with network(tmp_path_factory.mktemp("net"), 4) as found:
        server = found[0]
        settings = server.home / "server.toml"
        settings.write_text(SETTINGS.format(port=PORT))
        server.start(PROGRAM, "server", "run", f"--config={settings}")
        until(lambda: "ready at" in server_log(server), "the server")
        yield found


@pytest.fixture(scope="module")
def lab(hosts: list[Host]) -> list[Host]:
    """The server and three machines that joined it."""
    for host in hosts[1:]:
        join(hosts[0], host)
    return hosts


def server_log(server: Host) -> str:
    path = server.home / "pc" / "server" / "server.log"
    return path.read_text() if path.exists() else server.output


def join(server: Host, host: Host, *more: str) -> None:
    """Join with the line for machines that have nothing of ours."""
    lines = server.client("admin", "machine", "invite", "--pool=lab").stdout.splitlines()
    began = time.monotonic()
    host.start("sh", "-c", f"exec {lines[1].split(' && ')[0]}").wait(60)
    words = lines[1].split(" && ")[2].split()
    host.start(*words, f"--name=m{host.number}", f"--label=n=h{host.number}", *more)
    until(lambda: state(server, host) == "ready", f"{host.name}: {host.output}")
    assert time.monotonic() - began < 20


def state(server: Host, host: Host) -> str:
    found = {each["name"]: each["state"] for each in server.json("admin", "machine", "list")}
    return str(found.get(f"m{host.number}", "none"))


def submit(server: Host, files: dict[str, str], *words: str) -> str:
    folder = server.home / f"job-{time.monotonic_ns()}"
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text)
    done = server.client("submit_job", f"--files={folder}", *words)
    found = re.search(r"job-[0-9a-f]{32}", done.stdout)
    assert found, done.stdout + done.stderr
    return found.group()


def ended(server: Host, job: str, seconds: float = 60.0) -> dict[str, object]:
    def view() -> dict[str, object] | None:
        found: dict[str, object] = server.json("query_job", job)
        over = found["job_status"] in ("success", "failed", "killed", "timeout")
        return found if over else None

    return until(view, f"the end of {job}", seconds) or {}


def test_files_logs_and_results_travel_through_the_server(lab: list[Host]) -> None:
    server = lab[0]
    files = {"run.sh": "cat data; echo result > $OUTPUT_PATH/r\n", "data": "from the laptop\n"}
    job = submit(server, files, "--start_cmd=sh run.sh", "--require=n=h3")
    assert ended(server, job)["job_status"] == "success"
    assert server.client("logs", job).stdout == "from the laptop\n"
    server.client("get_files", job, "--download=1")
    assert next(server.home.glob("output/*/rank-0/r")).read_text() == "result\n"


def test_a_gang_runs_over_three_hosts(lab: list[Host]) -> None:
    server = lab[0]
    job = submit(
        server,
        {"ring.py": RING},
        "--start_cmd=python3 ring.py",
        "--instance_count=3",
        "--distribute_job_type=NCCL2",
        "--cpu=1.5",
    )
    assert ended(server, job)["job_status"] == "success", server.client("logs", job).stdout
    lines = sorted(server.client("logs", job).stdout.splitlines())
    found = [re.search(r"rank (\d) at (\S+) heard (\d)", line) for line in lines]
    assert [(m[1], m[3]) for m in found if m] == [("0", "2"), ("1", "0"), ("2", "1")]
    assert {m[2] for m in found if m} == {host.address for host in lab[1:]}


def test_a_machine_that_goes_away_is_shown_and_its_job_runs_elsewhere(lab: list[Host]) -> None:
    server, first = lab[0], lab[1]
    start = "test -e $OUTPUT_PATH/ckpt && exit 0; echo 1 > $OUTPUT_PATH/ckpt; echo up; sleep 600"
    job = submit(server, {"run.sh": start}, "--start_cmd=sh run.sh", "--max_retries=1")
    until(lambda: "up" in server.client("logs", job, check=False).stdout, "the first attempt")
    worker = server.json("query_job", job)["workers"][0]
    victim = next(host for host in lab[1:] if f"m{host.number}" in str(worker))
    until(lambda: list(server.home.glob(f"pc/store/users/*/output/{job}/rank-0/ckpt")), "ckpt", 30)
    victim.cut()
    try:
        until(lambda: state(server, victim) == "unreachable", "unreachable", 35)
        view = ended(server, job, 120)
        assert (view["job_status"], view["attempts"]) == ("success", 2), view
    finally:
        victim.repair()
    until(lambda: state(server, victim) == "ready", "its return")
    until(lambda: not victim_runs(victim, job), "the end of what was lost")
    assert first in lab


def victim_runs(host: Host, job: str) -> bool:
    return any(host.home.glob(f"pc/machine/replicas/{job}*/run.json"))


def test_an_older_agent_is_upgraded_under_a_running_job(lab: list[Host], tmp_path: Path) -> None:
    server, host = lab[0], lab[3]
    server.client("admin", "machine", "remove", "m4")
    host.close_processes()
    shutil.rmtree(host.home / "pc")
    sources = tmp_path / "src"
    shutil.copytree(Path(paddlecloud.__file__).parent, sources / "paddlecloud")
    init = sources / "paddlecloud" / "__init__.py"
    text = init.read_text()
    assert __version__ in text
    init.write_text(text.replace(__version__, "0.0.9"))
    packed = host.home / "old.pyz"
    packed.write_bytes(package.pack(sources))
    line = server.client("admin", "machine", "invite", "--pool=lab").stdout.splitlines()[0]
    words = line.split()[3:]
    host.start("python3", str(packed), "join", *words, "--name=m4", "--label=n=h4")
    until(lambda: state(server, host) == "ready", f"m4: {host.output}")
    count = "i=0; while [ $i -lt 60 ]; do echo n$i; i=$((i+1)); sleep 0.1; done; exit 7"
    job = submit(server, {"run.sh": count}, "--start_cmd=sh run.sh", "--require=n=h4")

    def version() -> str:
        return str(server.json("admin", "machine", "show", "m4")["version"])

    until(lambda: version() == __version__, "the upgrade")
    view = ended(server, job)
    assert view["exit_code"] == 7
    assert server.client("logs", job).stdout.split() == [f"n{i}" for i in range(60)]


def test_an_admin_labels_drains_and_removes_a_machine(lab: list[Host]) -> None:
    server, host = lab[0], lab[2]
    server.client("admin", "machine", "label", "m3", "--label=rack=7")
    assert server.json("admin", "machine", "show", "m3")["labels"] == {"n": "h3", "rack": "7"}
    server.client("admin", "machine", "drain", "m3", "--reason=new driver")
    assert state(server, host) == "drained"
    server.client("admin", "machine", "undrain", "m3")
    assert state(server, host) == "ready"
    packed = host.home / "pc" / "machine" / "agent.pyz"
    shown = host.run("python3", str(packed), "status").stdout
    assert '"agent_running": true' in shown
    host.run("python3", str(packed), "leave")
    assert state(server, host) == "none"
    until(lambda: "removed from its pool" in agent_log(host), "the end of the agent")
    join(server, host)
    server.client("admin", "machine", "remove", "m3")
    assert state(server, host) == "none"


def agent_log(host: Host) -> str:
    return (host.home / "pc" / "machine" / "agent.log").read_text()
