"""A command beside a replica is what the replica is: the same user, the same view, and no more."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from paddlecloud.agent.exec import _spool, runner
from paddlecloud.agent.replica import records
from paddlecloud.agent.replica.inspect import request_stop
from paddlecloud.agent.sandbox import isolation, workspace
from paddlecloud.agent.supervisor import processes
from tests.integration.agent.replicas import Bench, ended, eventually, has_file, running

# Of this process alone: other tests run beside it, and some look for whatever a user has left.
USER = 2_000_000 + 10 * os.getpid()
able = pytest.mark.skipif(
    sys.platform != "linux" or not isolation.possible(),
    reason="needs Linux 5.12 and the rights of root",
)


def start(bench: Bench, command: str, **changes: Any) -> Path:
    """A running replica with a user of its own."""
    launch = bench.order(command, uid=USER, **changes)
    root = Path(launch["root"])
    (root / "work").rmdir()
    own = (workspace.TEMPORARY, workspace.HOME, records.ROOT)
    workspace.WorkspaceBuilder().create(root, None, lambda *_: -1, own, owner=USER)
    bench.spawner.spawn(launch)
    running(root)
    return root


def begin(bench: Bench, place: Path, root: Path, *argv: str) -> int:
    """Run a command beside it; the process that watches over the command."""
    place.mkdir()
    asked = {"beside": str(root), "argv": list(argv), "timeout": 100.0}
    records.write(place / runner.COMMAND, asked)
    return bench.spawner.spawn_root(place, "command")


def run(bench: Bench, place: Path, root: Path, script: str) -> tuple[str, dict[str, Any]]:
    begin(bench, place, root, "sh", "-c", script)
    end = eventually(lambda: records.read(place / records.EXIT))
    return (place / "out").read_text(), end


def stop(root: Path) -> None:
    request_stop(root, grace=0.0, now=0.0)
    ended(root)


@able
def test_it_has_the_user_and_the_view_of_its_replica(bench: Bench, tmp_path: Path) -> None:
    hidden = tmp_path / "server"
    hidden.mkdir()
    (hidden / "key").write_text("the key")
    looks = (
        "id -u; id -g; id -G; grep -E 'Cap|NoNewPrivs' /proc/self/status; ls ..; ls -d /proc/1;"
        f" cat {hidden}/key; cat /mark"
    )
    script = f"echo mine > /mark; ({looks}) > said 2>&1; touch done; sleep 600"
    root = start(bench, script, hide=[str(hidden)], private_root=True)
    eventually(lambda: (root / "work" / "done").exists())
    text, end = run(bench, tmp_path / "command", root, f"({looks}) 2>&1")
    assert text == has_file(root, "said") + "\n"
    assert text.splitlines()[:3] == [str(USER)] * 3
    assert "NoNewPrivs:\t1" in text
    assert text.endswith("mine\n")
    assert "the key" not in text
    assert (end["cause"], end["exit_code"]) == ("exit", 0)
    stop(root)


@able
def test_a_replica_that_calls_itself_root_gives_nobody_its_rights(
    bench: Bench, tmp_path: Path
) -> None:
    root = start(bench, "exec unshare -Urm sh -c 'id -u > said; exec sleep 600'")
    if has_file(root, "said") != "0":
        pytest.skip("a user may not have a user namespace here")
    text, end = run(bench, tmp_path / "command", root, "id -u")
    assert (text, end["exit_code"]) == ("", 125)
    stop(root)


def test_one_whose_output_nobody_takes_waits_and_can_be_stopped(
    bench: Bench, tmp_path: Path
) -> None:
    root = bench.start("while [ ! -e go ]; do sleep 0.1; done")
    running(root)
    place, most = tmp_path / "command", _spool.MAX_CHUNKS * _spool.CHUNK_BYTES
    begin(bench, place, root, "yes")
    eventually(lambda: sum(path.stat().st_size for path in place.glob("out*")) == most)
    request_stop(place, grace=0.0, now=0.0)
    end = eventually(lambda: records.read(place / records.EXIT))
    assert (end["cause"], end["exit_code"]) == ("stopped", 143)
    printed = [path.stat().st_size for path in place.glob("out*")]
    assert most <= sum(printed) <= most + _spool.CHUNK_BYTES, "what was in the pipe is here as well"
    (root / "work" / "go").touch()
    assert ended(root)["exit_code"] == 0


def test_one_whose_directory_is_gone_ends(bench: Bench, tmp_path: Path) -> None:
    root = bench.start("while [ ! -e go ]; do sleep 0.1; done")
    running(root)
    pid = begin(bench, tmp_path / "command", root, "sleep", "600")
    eventually(lambda: len(processes.descendants(pid)) == 1)
    shutil.rmtree(tmp_path / "command")
    eventually(lambda: not processes.alive(pid))
    (root / "work" / "go").touch()
    assert ended(root)["exit_code"] == 0
