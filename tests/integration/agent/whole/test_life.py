"""Orders are applied: run, stop, delete; and the agent's own start and end."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from paddlecloud import __version__
from paddlecloud.agent.replica import inspect, records
from paddlecloud.agent.replica.inspect import Phase
from tests.integration.agent.replicas import eventually
from tests.integration.agent.whole.world import COMMAND, World, alive, pids_of


@pytest.mark.parametrize(
    ("command", "code", "number"),
    [("exit 0", 0, None), ("exit 7", 7, None), ("kill -9 $$", None, 9)],
)
def test_exit_code_and_log_reach_the_server(
    world: World, command: str, code: int | None, number: int | None
) -> None:
    replica = world.run(f"echo one; echo two >&2; {command}")
    ended = world.ended(replica)
    assert (ended["exit_code"], ended["signal"], ended["cause"]) == (code, number, "exit")
    assert ended["log_size"] == 8
    assert world.text(replica) == "one\ntwo\n"
    assert world.stored(replica).started[0]["pid"] > 1
    assert world.stored(replica).puts == []


def test_start_and_log_are_told_while_it_runs(world: World) -> None:
    replica = world.run("echo here; sleep 600")
    world.says(replica, "here")
    world.server.wait(lambda: world.stored(replica).started)
    assert world.stored(replica).started[0]["pid"] == world.running(replica)
    assert not world.stored(replica).over


def test_the_first_question_says_what_this_machine_has(world: World) -> None:
    world.server.wait(lambda: world.server.polls)
    asked = world.server.polls[0]
    assert asked["agent"] == "local"
    assert asked["version"] == __version__
    assert asked["cursor"] == 0
    assert asked["wait"] == 0
    assert asked["capacity"]["cpu"] >= 1
    assert asked["capacity"]["memory"] > 2**20
    assert set(asked["enforces"]) == {"cpu", "memory", "pids"}


def test_the_environment_names_the_directories(world: World) -> None:
    replica = world.run(
        'pwd; echo "$OUTPUT_PATH $LOCAL_LOG_PATH $LOCAL_MOUNT_PATH $TMPDIR"; '
        'touch "$OUTPUT_PATH/a" "$LOCAL_LOG_PATH/b" "$LOCAL_MOUNT_PATH/c" "$TMPDIR/d" && echo fine'
    )
    assert world.ended(replica)["exit_code"] == 0
    root = world.root(replica)
    names = " ".join(str(root / name) for name in ("output", "log", "mount"))
    place, told, fine = world.text(replica).splitlines()
    assert (place, fine) == (str(root / "work"), "fine")
    assert told.startswith(f"{names} ")
    temporary = Path(told.rpartition(" ")[2])
    assert temporary.resolve() == (root / "tmp").resolve()


def test_a_socket_fits_into_the_temporary_directory(world: World) -> None:
    """Python's multiprocessing makes one, and an address of more than 107 bytes is refused."""
    program = "import multiprocessing as m; m.Manager().dict(); print('fine')"
    replica = world.run(f'{shlex.quote(sys.executable)} -I -c "{program}"')
    assert world.ended(replica)["exit_code"] == 0, world.text(replica)
    assert world.text(replica) == "fine\n"


def test_stop_ends_the_whole_tree(world: World) -> None:
    replica = world.run("(trap '' TERM; setsid sleep 600) & sleep 600 & echo up; wait")
    world.says(replica, "up")
    assert pids_of(replica)
    world.server.order(replica, "stop", grace=0.2)
    assert world.ended(replica)["cause"] == "stopped"
    assert pids_of(replica) == []


def test_a_stop_lets_it_save_its_work(world: World) -> None:
    replica = world.run(
        "trap 'echo saved > $OUTPUT_PATH/model; exit 0' TERM; echo up; while :; do sleep 0.05; done"
    )
    world.says(replica, "up")
    world.server.order(replica, "stop", grace=20.0)
    ended = world.ended(replica)
    assert (ended["cause"], ended["exit_code"]) == ("stopped", 0)
    assert world.stored(replica).files == {"output/model": b"saved\n"}


def test_the_cause_of_a_stop_is_kept(world: World) -> None:
    replica = world.run("echo up; sleep 600")
    world.says(replica, "up")
    world.server.order(replica, "stop", grace=0.0, cause="wall_time")
    assert world.ended(replica)["cause"] == "wall_time"


def test_wall_time_is_enforced_on_the_machine(world: World) -> None:
    replica = world.run("sleep 600", max_seconds=0.3)
    assert world.ended(replica)["cause"] == "wall_time"


@pytest.mark.slow
def test_the_end_of_the_wall_time_lets_it_save_its_work(idle_world: World) -> None:
    """For as long as the server's settings say; orders of an older server said 0 here."""
    world = idle_world
    world.server.settings["grace"] = 30.0
    saves = "sleep 0.3; echo saved > $OUTPUT_PATH/model; exit 0"
    replica = world.run(f"trap '{saves}' TERM; while :; do sleep 0.05; done", max_seconds=1.0)
    world.server.orders[replica]["grace"] = 0.0
    world.start_agent()
    ended = world.ended(replica)
    assert (ended["cause"], ended["exit_code"]) == ("wall_time", 0)
    assert world.stored(replica).files == {"output/model": b"saved\n"}
    assert records.read(world.root(replica) / records.ORDER)["grace"] == 30.0


def test_stop_of_one_never_started_is_told_without_running_it(idle_world: World) -> None:
    world = idle_world
    replica = world.run("touch $OUTPUT_PATH/ran")
    world.server.order(replica, "stop")
    world.start_agent()
    ended = world.ended(replica)
    assert (ended["cause"], ended["started_at"], ended["log_size"]) == ("stopped", None, 0)
    assert world.stored(replica).files == {}


def test_forget_deletes_what_is_over(world: World) -> None:
    replica = world.run("echo hi")
    world.ended(replica)
    assert world.root(replica).is_dir()
    world.server.order(replica, "forget")
    eventually(lambda: not world.root(replica).exists())
    eventually(lambda: not list((world.directory / "trash").iterdir()))


def test_forget_of_one_that_runs_ends_it_first(world: World) -> None:
    """A server that gave it up for lost while the agent was away has no other way to stop it."""
    replica = world.run("trap '' TERM; setsid sleep 600 & echo up; sleep 600")
    world.says(replica, "up")
    pid = world.running(replica)
    world.server.order(replica, "forget")
    eventually(lambda: not world.root(replica).exists())
    assert not alive(pid)
    assert pids_of(replica) == []


def test_one_that_began_before_and_left_nothing_is_lost_and_not_run_again(world: World) -> None:
    replica = world.run("touch $OUTPUT_PATH/ran; echo ran", began=True)
    world.server.wait(lambda: world.stored(replica).lost)
    assert world.text(replica) == ""
    assert not world.root(replica).exists()
    world.server.order(replica, "forget")
    world.ended(world.run("true"))


def test_a_job_that_deletes_its_own_records_is_ended_and_lost(world: World) -> None:
    replica = world.run('echo up; while ! test -e "$OUTPUT_PATH/../go"; do sleep 0.02; done; '
                        'cd /; rm -rf "$(dirname "$OUTPUT_PATH")"; sleep 600')  # fmt: skip
    world.says(replica, "up")
    world.server.wait(lambda: world.stored(replica).started)
    pid = world.running(replica)
    (world.root(replica) / "go").touch()
    world.server.wait(lambda: world.stored(replica).lost)
    assert not alive(pid)
    assert pids_of(replica) == []
    assert world.text(replica) == "up\n"
    assert "could not be started" not in world.agent_log()


def test_odd_directories_do_not_keep_the_agent_from_its_work(idle_world: World) -> None:
    replicas = idle_world.directory / "replicas"
    (replicas / "odd" / "order.json").mkdir(parents=True)
    (replicas / "torn").mkdir()
    (replicas / "torn" / "order.json").write_text(json.dumps({"replica_id": "torn", "fence": "x"}))
    (replicas / "list").mkdir()
    (replicas / "list" / "order.json").write_text(json.dumps({"replica_id": "list", "fence": 1}))
    (replicas / "list" / "exit.json").write_text("[]")
    (replicas / "empty").mkdir()
    idle_world.start_agent()
    assert idle_world.ended(idle_world.run("exit 3"))["exit_code"] == 3
    assert "cannot be adopted" in idle_world.agent_log()
    eventually(lambda: not (replicas / "empty").exists())
    (replicas / "odd" / "order.json").rmdir()


def test_an_order_that_a_loss_of_power_emptied_is_not_carried_out_again(idle_world: World) -> None:
    replica = idle_world.run("echo ran")
    root = idle_world.root(replica)
    root.mkdir(parents=True)
    (root / "order.json").touch()
    (root / "stdout.log").write_text("ran")
    idle_world.start_agent()
    idle_world.server.wait(lambda: idle_world.stored(replica).lost)
    assert idle_world.text(replica) == "ran"


def test_an_agent_that_cannot_begin_says_why_in_its_log(idle_world: World) -> None:
    (idle_world.directory / "replicas").write_text("in the way")
    agent = idle_world.start_agent()
    assert agent.wait(60) == 1
    assert "cannot start" in idle_world.agent_log()
    assert "FileExistsError" in idle_world.agent_log()
    (idle_world.directory / "replicas").unlink()


def test_what_lies_here_is_for_its_owner_alone(world: World) -> None:
    snapshot = world.server.files({"a": b"content"})
    replica = world.run("true", snapshot=snapshot, log_limit=5000)
    world.ended(replica)
    root = world.root(replica)
    private = [root.parent, root, world.directory / "cache", root / "stdout.log"]
    assert [oct(path.stat().st_mode & 0o077) for path in private] == ["0o0"] * 4
    assert json.loads((root / "order.json").read_text())["log_limit"] == 5000


def test_an_order_that_comes_twice_starts_once(world: World) -> None:
    replica = world.run("echo started; sleep 600")
    world.says(replica, "started")
    pid = world.running(replica)
    for _ in range(3):
        world.server.order(replica, "run")
    world.ended(world.run("true"))
    assert world.running(replica) == pid
    assert world.text(replica) == "started\n"


def test_a_replica_that_the_server_does_not_know_is_ended_and_deleted(world: World) -> None:
    replica = world.run("echo up; sleep 600")
    world.says(replica, "up")
    pid = world.running(replica)
    world.stored(replica).fence = 2
    world.server.orders.pop(replica)
    with (world.root(replica) / records.STDOUT).open("a") as log:
        log.write("more\n")
    eventually(lambda: not alive(pid))
    eventually(lambda: not world.root(replica).exists())


def test_a_killed_supervisor_means_lost_and_nothing_left(world: World) -> None:
    replica = world.run("echo up; sleep 600 & sleep 600")
    world.says(replica, "up")
    pid = world.running(replica)
    supervisor = inspect.inspect(world.root(replica)).supervisor_pid or 0
    subprocess.run(["kill", "-9", str(supervisor)], check=True)
    world.server.wait(lambda: world.stored(replica).lost)
    assert not alive(pid)
    assert pids_of(replica) == []
    assert world.text(replica) == "up\n"


def test_a_second_agent_says_so_and_ends(world: World) -> None:
    world.server.wait(lambda: world.server.polls)
    first = world.agent
    second = subprocess.run(
        [*COMMAND, "--config", str(world.directory / "agent.json")],
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert second.returncode == 0
    assert b"another agent already serves" in second.stderr
    assert first is not None
    assert first.poll() is None
    world.ended(world.run("true"))


def test_sigterm_ends_the_agent_and_not_the_job(world: World) -> None:
    replica = world.run("echo up; while ! test -e $OUTPUT_PATH/go; do sleep 0.02; done; exit 3")
    world.says(replica, "up")
    pid = world.running(replica)
    assert world.kill_agent(signal.SIGTERM) == 0
    assert alive(pid)
    world.start_agent()
    eventually(lambda: "adopted, launched" in world.agent_log())
    assert world.running(replica) == pid
    (world.root(replica) / "output" / "go").touch()
    assert world.ended(replica)["exit_code"] == 3
    assert {note["pid"] for note in world.stored(replica).started} == {pid}


def test_another_version_is_let_in(world: World) -> None:
    replica = world.run("echo up; sleep 600")
    world.says(replica, "up")
    world.server.restart = True
    world.server.order("job-none.1.trainer-0", "forget")
    assert world.agent is not None
    assert world.agent.wait(60) == 0
    assert inspect.inspect(world.root(replica)).phase is Phase.RUNNING


def test_without_server_and_work_it_ends(idle_world: World) -> None:
    idle_world.configure(linger=0.3)
    agent = idle_world.start_agent()
    replica = idle_world.run("echo hi")
    idle_world.ended(replica)
    eventually(lambda: "the server has all of it" in idle_world.agent_log())
    idle_world.server.stop()
    assert agent.wait(30) == 0


@pytest.mark.slow
def test_without_server_it_stays_until_its_work_is_over(idle_world: World) -> None:
    idle_world.configure(linger=0.1)
    agent = idle_world.start_agent()
    replica = idle_world.run("echo up; while ! test -e $OUTPUT_PATH/go; do sleep 0.02; done")
    idle_world.says(replica, "up")
    idle_world.server.stop()
    with pytest.raises(subprocess.TimeoutExpired):
        agent.wait(1.5)
    (idle_world.root(replica) / "output" / "go").touch()
    assert agent.wait(30) == 0
    idle_world.server.start()
    idle_world.start_agent()
    assert idle_world.ended(replica)["exit_code"] == 0
    assert idle_world.stored(replica).log == b"up\n"


def test_it_ends_when_its_directory_is_gone(idle_world: World) -> None:
    agent = idle_world.start_agent()
    idle_world.server.wait(lambda: idle_world.server.polls)
    idle_world.directory.rename(idle_world.home / "elsewhere")
    idle_world.server.stop()
    assert agent.wait(30) == 0


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "cannot read"),
        ("[]", "not a JSON object"),
        (json.dumps({"agent_id": "a", "ak": "x"}), "is missing sk, url"),
    ],
)
def test_a_wrong_configuration_is_named(idle_world: World, content: str, words: str) -> None:
    path = idle_world.directory / "agent.json"
    path.write_text(content)
    ran = subprocess.run(
        [*COMMAND, "--config", str(path)], capture_output=True, timeout=60, check=False
    )
    assert ran.returncode == 2
    assert words in ran.stderr.decode()
    assert str(path) in ran.stderr.decode()


def test_version_and_usage(idle_world: World) -> None:
    told = subprocess.run([*COMMAND, "--version"], capture_output=True, timeout=60, check=True)
    assert told.stdout.decode() == f"paddlecloud agent {__version__}\n"
    wrong = subprocess.run(COMMAND, capture_output=True, timeout=60, check=False)
    assert wrong.returncode == 2
    assert b"usage:" in wrong.stderr
