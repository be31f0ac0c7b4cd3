"""The agent as one file, on a machine that has nothing of ours."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from paddlecloud import __version__
from paddlecloud.agent.replica import inspect
from paddlecloud.agent.replica.inspect import Phase
from paddlecloud.agent.supervisor import processes
from paddlecloud.server.services.agents.package import needed
from scripts.pack_agent import main, pack_file
from tests.integration.agent.whole.world import World


def isolated(packed: Path, *arguments: str) -> list[str]:
    """Python without site packages, environment or current directory on its path."""
    return [sys.executable, "-I", "-S", str(packed), *arguments]


def test_it_says_its_version(tmp_path: Path) -> None:
    packed = tmp_path / "agent.pyz"
    pack_file(packed)
    modules = needed()
    told = subprocess.run(
        isolated(packed, "--version"), cwd="/", capture_output=True, timeout=60, check=True
    )
    assert told.stdout.decode() == f"paddlecloud agent {__version__}\n"
    assert "paddlecloud.net.http1" in modules
    packages = {name.split(".")[1] for name in modules if "." in name}
    assert packages == {"agent", "messages", "model", "net", "transfer"}


def test_the_same_sources_give_the_same_file(tmp_path: Path) -> None:
    pack_file(tmp_path / "a.pyz")
    assert main([str(tmp_path / "b.pyz")]) == 0
    assert (tmp_path / "a.pyz").read_bytes() == (tmp_path / "b.pyz").read_bytes()
    assert main([]) == 2


def test_it_runs_a_job_also_when_its_zygote_was_killed(idle_world: World, tmp_path: Path) -> None:
    packed = tmp_path / "agent.pyz"
    pack_file(packed)
    config = str(idle_world.directory / "agent.json")
    idle_world.agent = subprocess.Popen(isolated(packed, "--config", config), cwd="/")
    snapshot = idle_world.server.files({"run.sh": b"echo packed; exit 3"})
    replica = idle_world.run("sh run.sh", snapshot=snapshot)
    assert idle_world.ended(replica)["exit_code"] == 3
    assert idle_world.text(replica) == "packed\n"
    running = idle_world.run("echo up; sleep 600")
    idle_world.says(running, "up")
    subprocess.run(["kill", "-9", str(_zygote(idle_world.root(running)))], check=True)
    assert idle_world.ended(idle_world.run("exit 4"))["exit_code"] == 4
    assert inspect.inspect(idle_world.root(running)).phase is Phase.RUNNING


def _zygote(root: Path) -> int:
    """The parent of the replica's supervisor."""
    fields = processes.stat_fields(inspect.inspect(root).supervisor_pid or 0)
    assert fields is not None
    return int(fields[1])
