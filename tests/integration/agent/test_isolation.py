"""A replica with a user of its own tries, as a real process, what it must not be able to do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from paddlecloud.agent.config import AgentConfig
from paddlecloud.agent.replica import _secret_files, _token_file
from paddlecloud.agent.replica.inspect import request_stop
from paddlecloud.agent.replica.records import ROOT, SECRETS, STACKS, TOKEN, ExitRecord
from paddlecloud.agent.sandbox import isolation, workspace
from paddlecloud.agent.server_link.channel import Channel, Link
from paddlecloud.agent.supervisor import processes
from tests.integration.agent.replicas import Bench, ended, eventually, running
from tests.unit.agent.runs import a_run

# Of this process alone: other tests run beside it, and some look for whatever a user has left.
ALICE = 1_000_000 + 10 * os.getpid()
BOB = ALICE + 1
CAP_SYS_RESOURCE = 24
able = pytest.mark.skipif(
    sys.platform != "linux" or not isolation.possible(),
    reason="needs Linux 5.12 and the rights of root",
)


@pytest.fixture
def secret(tmp_path: Path) -> Iterator[Path]:
    """A file that every user of the machine may read, in a directory that is to be hidden."""
    folder = tmp_path / "server"
    folder.mkdir()
    file = folder / "server.key"
    file.write_text("the key")
    yield file


def start(bench: Bench, command: str, uid: int, **changes: object) -> Path:
    """A replica of this user with all of its directories, as the agent lays them out."""
    launch = bench.order(command, uid=uid, **changes)
    root = Path(launch["root"])
    (root / "work").rmdir()
    own = (workspace.TEMPORARY, workspace.HOME)
    workspace.WorkspaceBuilder().create(root, None, lambda *_: -1, own, owner=uid)
    bench.spawner.spawn(launch)
    return root


def run(bench: Bench, command: str, uid: int = ALICE, **changes: object) -> tuple[str, ExitRecord]:
    root = start(bench, command, uid, **changes)
    end = ended(root)
    return (root / "stdout.log").read_text(), end


def has_capability(number: int) -> bool:
    (held,) = (
        line.split()[1]
        for line in Path("/proc/self/status").read_text().splitlines()
        if line.startswith("CapEff")
    )
    return bool(int(held, 16) >> number & 1)


def test_the_directories_of_a_view_are_those_that_are_laid_out() -> None:
    laid_out = (workspace.WORK, workspace.MOUNT, workspace.OUTPUT, workspace.LOG)
    own = (workspace.TEMPORARY, workspace.HOME, ROOT, STACKS, TOKEN, SECRETS)
    assert (*laid_out, *own) == isolation.OWN


@able
def test_it_is_its_user_and_nothing_more(bench: Bench) -> None:
    text, end = run(bench, "id -u; id -g; id -G; umask; grep -E 'Cap|NoNewPrivs' /proc/self/status")
    uid, gid, groups, umask, *rights = text.splitlines()
    assert (uid, gid, groups, umask) == (str(ALICE), str(ALICE), str(ALICE), "0077")
    assert {line.split()[1] for line in rights if line.startswith("Cap")} == {"0" * 16}
    assert "NoNewPrivs:\t1" in rights
    assert end["exit_code"] == 0
    assert end["ran"] is not None and 0 < end["ran"] < 20


@able
def test_it_is_ended_before_the_server_when_the_machine_has_no_memory_left(bench: Bench) -> None:
    lower = "(echo 400 > /proc/self/oom_score_adj) 2>&- && echo lowered"
    text, _ = run(bench, f"cat /proc/self/oom_score_adj; {lower}")
    assert text.splitlines()[0] == "500"
    # Containers often take this right from root; then the job may take it back, down to 0.
    assert ("lowered" in text) is not has_capability(CAP_SYS_RESOURCE)


@able
def test_it_writes_in_its_own_directories_and_nowhere_else(bench: Bench) -> None:
    own = "for d in . ../mount ../output ../log ../tmp ../home /tmp /var/tmp /dev/shm; do"
    text, _ = run(bench, f"{own} echo x > $d/mine || echo no $d; done; cat ../output/mine")
    assert text == "x\n"
    others = "/ /etc /var/lock /run/lock /usr/local /root .. ../.. /dev /dev/mqueue /proc /sys"
    text, _ = run(bench, f"for d in {others}; do (echo x > $d/mine) 2>&- && echo wrote $d; done")
    assert text == ""
    written = [
        place for place in others.split() if place[0] == "/" and Path(place, "mine").exists()
    ]
    assert written == []


@able
def test_it_does_not_see_records_or_replicas(bench: Bench) -> None:
    start(bench, "sleep 60", BOB)
    for launch in bench.launches:
        running(Path(launch["root"]))
    text, _ = run(bench, "ls ..; ls ../..")
    own = sorted(set(isolation.OWN) - {ROOT, STACKS, TOKEN, SECRETS})
    assert text.split() == [*own, Path(bench.launches[-1]["root"]).name]
    request_stop(Path(bench.launches[0]["root"]), grace=0.0, now=0.0)


@able
def test_it_reads_its_own_secrets_and_nobody_elses(bench: Bench) -> None:
    class OneValue:
        """A channel to a server that has one secret."""

        def confidential(self, path: str) -> dict[str, dict[str, str]]:
            return {"secrets": {"wandb": "dmFsdWU="}}

    channel = cast("Channel", OneValue())
    for uid in (BOB, ALICE):
        launch = bench.order("cat ../secrets/wandb; echo; echo $KEY; ls ../../*/secrets", uid=uid)
        launch["secrets"] = {"KEY": "wandb"}
        root = Path(launch["root"])
        (root / "work").rmdir()
        own = (workspace.TEMPORARY, workspace.HOME, SECRETS)
        workspace.WorkspaceBuilder().create(root, None, lambda *_: -1, own, owner=uid)
        _secret_files.write(root, a_run(secrets={"wandb": "KEY"}, uid=uid), root.name, channel)
        found = [(root / SECRETS).stat(), (root / SECRETS / "wandb").stat()]
        assert [(each.st_mode & 0o777, each.st_uid) for each in found] == [
            (0o700, uid),
            (0o600, uid),
        ]
        bench.spawner.spawn(launch)
        ended(root)
        assert (root / "stdout.log").read_text().split() == ["value", "value", "wandb"]


@able
def test_it_reads_its_own_key_and_nobody_elses(bench: Bench, tmp_path: Path) -> None:
    path, url = tmp_path / "agent.json", "http://127.0.0.1:1"
    link = Link(AgentConfig(path=path, agent_id="n", ak="agent", sk="of the agent", url=url))
    for uid in (BOB, ALICE):
        launch = bench.order("cat ../token/token.json; ls ../../*/token", uid=uid)
        root = Path(launch["root"])
        (root / "work").rmdir()
        own = (workspace.TEMPORARY, workspace.HOME, TOKEN)
        workspace.WorkspaceBuilder().create(root, None, lambda *_: -1, own, owner=uid)
        run_order = a_run(secret=f"of {uid}", uid=uid, env={"JOB_ID": "job-1"})
        path = Path(_token_file.write(root, run_order, root.name, link))
        assert (path.stat().st_mode & 0o777, path.stat().st_uid) == (0o600, uid)
        bench.spawner.spawn(launch)
        ended(root)
        text = (root / "stdout.log").read_text()
        assert json.loads(text[: text.index("}") + 1])["sk"] == f"of {uid}"
        assert text[text.index("}") + 1 :].split() == ["token.json"]
        assert "of the agent" not in text


@able
def test_it_does_not_see_what_is_to_be_hidden(bench: Bench, secret: Path) -> None:
    away = Path("/var/lib") / f"paddlecloud-test-{os.getpid()}"
    away.mkdir(mode=0o755)
    try:
        (away / "open").write_text("to all")
        command = f"cat {secret} {away}/open; ls {secret.parent} {away}"
        text, end = run(bench, command, hide=[str(secret.parent), str(away)])
    finally:
        (away / "open").unlink()
        away.rmdir()
    assert "the key" not in text and "to all" not in text
    assert end["exit_code"] != 0


@able
def test_it_neither_sees_nor_signals_processes_of_others(bench: Bench) -> None:
    other = running(start(bench, "exec env SECRET=canary sleep 60", BOB))
    target = f"{other.pid} {other.supervisor_pid} {os.getpid()} 1"
    text, _ = run(
        bench,
        f"for p in {target}; do kill -0 $p 2>&- && echo reached $p; ls -d /proc/$p 2>&-;"
        " cat /proc/$p/environ /proc/$p/cmdline 2>&-; done; cat /proc/*/environ | tr '\\0' '\\n'",
    )
    assert "reached" not in text and "/proc/" not in text and "canary" not in text
    assert "PADDLECLOUD_REPLICA=" in text
    assert other.pid is not None and processes.alive(other.pid)
    request_stop(Path(bench.launches[0]["root"]), grace=0.0, now=0.0)


@able
def test_temporary_places_are_its_own(bench: Bench) -> None:
    left = start(bench, "touch /tmp/a /var/tmp/b /dev/shm/c && touch done && sleep 60", BOB)
    has_file_named(left, "done")
    text, _ = run(bench, "ls /tmp /var/tmp /dev/shm; ls ../tmp")
    assert not {"a", "b", "c"} & set(text.split())
    assert (left / "tmp" / "a").exists()
    request_stop(left, grace=0.0, now=0.0)


@able
def test_a_program_with_the_rights_of_root_gives_none(bench: Bench) -> None:
    command = "cp /usr/bin/id mine; chmod u+s mine; ./mine -u; /bin/su -c id 2>&-; echo over"
    text, _ = run(bench, command)
    assert text.splitlines() == [str(ALICE), "over"]


@able
def test_it_may_open_its_streams_anew(bench: Bench) -> None:
    text, _ = run(bench, "echo one > /dev/stderr; echo two > /dev/stdout")
    assert text == "one\ntwo\n"


@able
def test_nothing_of_it_survives_the_stop(bench: Bench) -> None:
    deaf = "echo 'trap \"\" TERM HUP; touch $1; sleep 60' > deaf"
    root = start(
        bench, f"{deaf}; setsid env -i sh deaf a & (setsid sh deaf b &); touch up; sleep 60", ALICE
    )
    for name in ("up", "a", "b"):
        has_file_named(root, name)
    request_stop(root, grace=0.1, now=0.0)
    assert ended(root)["cause"] == "stopped"
    assert processes_of(ALICE) == []


@able
def test_it_does_not_reach_out_through_a_namespace_of_its_own(bench: Bench, secret: Path) -> None:
    attempt = f"umount {secret.parents[1]}; umount /proc; cat {secret}; mount -o remount,rw /;"
    command = f"unshare -Urm sh -c '{attempt} touch /etc/mine' 2>&1; echo over"
    text, _ = run(bench, command, hide=[str(secret.parent)])
    assert "the key" not in text
    assert "over" in text
    assert not Path("/etc/mine").exists()


@able
def test_a_stop_for_a_preemption_keeps_its_cause(bench: Bench) -> None:
    root = start(
        bench, "trap 'echo saved; exit 0' TERM; touch up; while :; do sleep 0.05; done", BOB
    )
    has_file_named(root, "up")
    request_stop(root, grace=60.0, now=1.0, cause="preempted")
    end = ended(root)
    assert (end["cause"], end["exit_code"], end["stop_requested_at"]) == ("preempted", 0, 1.0)


def test_without_rights_it_is_not_possible() -> None:
    if os.geteuid() != 0:
        assert not isolation.possible()
        return
    # Imported before the user changes: the files may be in a home that no other user may read.
    script = (
        "import os; from paddlecloud.agent.sandbox import isolation;"
        "os.setresuid(65534, 65534, 65534); print(isolation.possible())"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert ran.stdout.strip() == "False", ran.stderr


def has_file_named(root: Path, name: str) -> None:
    eventually(lambda: (root / "work" / name).exists())


def processes_of(uid: int) -> list[int]:
    found = []
    for pid in processes.pids():
        try:
            owner = Path(f"/proc/{pid}").stat().st_uid
        except OSError:
            continue
        if owner == uid and processes.alive(pid):
            found.append(pid)
    return found
