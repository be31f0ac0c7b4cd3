"""What a job meets on one's own machine: its environment, its files, its limits and its end."""

from __future__ import annotations

import contextlib
import shlex
import sys
from pathlib import Path

import pytest

from tests.integration.cli.person import Person, until


@pytest.fixture(scope="module")
def person(shared: Person) -> Person:
    shared.home.mkdir()
    (shared.home / "server.toml").write_text("[running]\ngrace = 0.5\n")
    return shared


def logged(person: Person, job_id: str) -> str:
    person.waits_for(job_id)
    return person.types("logs", job_id).out


def test_the_environment_is_the_documented_one(person: Person) -> None:
    """Exactly the table for a job of one instance: no name of a gang, no key, nothing stray."""
    job_id = person.submits("env -0", "--cpu=2", "--env", "MINE=a b")
    rows = logged(person, job_id).rstrip("\0").split("\0")
    env = dict(row.split("=", 1) for row in rows)
    table = {
        "PADDLE_TRAINER_ID": "0",
        "PADDLE_TRAINERS_NUM": "1",
        "PADDLE_USE_CUDA": "0",
        "PADDLE_IS_LOCAL": "1",
        "POD_IP": "127.0.0.1",
        "TRAINING_ROLE": "TRAINER",
        "JOB_ID": job_id,
        "MINE": "a b",
        "PADDLE_INIT_TRAINER_COUNT": "2",
        "PADDLE_INIT_TRAINER_ID": "0",
        "PADDLE_INIT_NUM_GRADIENT_SERVERS": "1",
        "PADDLECLOUD_WORKER": "trainer-0",
        "HOME": str(person.here),
        "PADDLECLOUD_HOME": str(person.home),
        "PATH": person.environ()["PATH"],
    }
    assert {name: env.get(name) for name in table} == table
    assert env["PADDLE_PORT"].isdigit()
    for name in ("OUTPUT_PATH", "LOCAL_LOG_PATH", "LOCAL_MOUNT_PATH", "PWD"):
        assert env[name].startswith(str(person.home / "agent" / "replicas")), name
    assert env["TMPDIR"].startswith(str(person.home / "agent"))
    gangs_only = {
        "DISTRIBUTE_JOB_TYPE", "PADDLE_PSERVERS_IP_PORT_LIST", "PADDLE_TRAINER_ENDPOINTS",
        "PADDLE_CURRENT_ENDPOINT",
    }  # fmt: skip
    trap = {"PADDLE_TRAINER_NUM", "PADDLE_TRAINERS_ENDPOINTS", "PADDLE_MASTER"}
    assert not (gangs_only | trap) & set(env)
    assert not {"PADDLECLOUD_LANG", "PADDLECLOUD_CONFIG"} & set(env)
    secrets = (person.home / "server" / "credentials.json").read_text()
    assert not any(len(value) > 20 and value in secrets for value in env.values())


def test_a_job_gets_the_python_of_its_person_and_never_ours(person: Person, tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "python3").write_text("#!/bin/sh\necho this is mine\n")
    (own / "python3").chmod(0o755)
    ours = Path(sys.prefix)
    path = f"{ours}/bin:{own}:/usr/bin:/bin"
    words = ("submit_job", f"--files={own}", "--job_type=cpu", "--start_cmd=python3", "--json")
    done = person.types(*words, PATH=path, VIRTUAL_ENV=str(ours / "elsewhere"))
    assert f"the job's Python is {own}/python3: {ours} belongs to PaddleCloud" in done.err
    assert logged(person, done.json["job_id"]) == "this is mine\n"


def test_the_published_examples_find_their_data(person: Person, tmp_path: Path) -> None:
    """`ln -s` and `cp` from LOCAL_MOUNT_PATH, in a directory that holds the same files already."""
    (tmp_path / "train_data").mkdir()
    (tmp_path / "train_data" / "part-0").write_text("0\n")
    (tmp_path / "data" / "train_data").mkdir(parents=True)
    (tmp_path / "data" / "train_data" / "part-1").write_text("1\n")
    (tmp_path / "x").write_text("x\n")
    (tmp_path / "run.sh").write_text(
        "set -e\n"
        "ln -s $LOCAL_MOUNT_PATH/train_data train_data\n"
        "ln -s $LOCAL_MOUNT_PATH/data/train_data linked\n"
        "cp $LOCAL_MOUNT_PATH/x .\n"
        "cat train_data/part-0 linked/part-1 x\n"
        "echo changed > $LOCAL_MOUNT_PATH/x; echo mine > x; cat $LOCAL_MOUNT_PATH/x x\n"
    )
    words = (f"--files={tmp_path}", "--start_cmd=sh run.sh", "--watch_mode=1")
    done = person.runs("submit_job", *words)
    assert done.code == 0, done.err
    assert done.out.splitlines()[1:] == ["0", "1", "x", "changed", "mine"]
    assert (tmp_path / "x").read_text() == "x\n", "the submitted files are never touched"
    again = person.runs("submit_job", *words)
    assert again.out.splitlines()[1:] == ["0", "1", "x", "changed", "mine"]


def test_wall_time_ends_as_timeout(person: Person) -> None:
    (person.here / "empty").mkdir(exist_ok=True)
    words = ("--files=empty", "--start_cmd=echo begun; sleep 60", "--wall_time=00:00:05")
    done = person.runs("submit_job", *words, "--watch_mode=1")
    assert done.code == 1
    first, *log = done.out.splitlines()
    assert log == ["begun"]
    view = person.sees(first.removeprefix("job_id: "))
    assert (view["job_status"], view["wall_time"]) == ("timeout", "00:00:05")
    assert view["error_msg"] == ("the job exceeded its wall_time of 00:00:05 and was stopped")
    assert "--wall_time" in view["failure"]["advice"]


@pytest.mark.parametrize(
    ("start_cmd", "code", "says", "advice"),
    [
        ("no_such_program --x", 127, "could not find no_such_program", "PATH"),
        ("./plain.txt", 126, "has no permission to execute ./plain.txt", "chmod +x ./plain.txt"),
        ("exit 3", 3, "exited with code 3", "printed nothing"),
        ("echo x; exit 3", 3, "exited with code 3", "logs"),
        ("kill -SEGV $$", 139, "segmentation fault", "PYTHONFAULTHANDLER"),
        ("kill -KILL $$", 137, "killed by something outside", ""),
    ],
)
def test_ends_are_told_apart(
    person: Person, tmp_path: Path, start_cmd: str, code: int, says: str, advice: str
) -> None:
    (tmp_path / "plain.txt").write_text("text\n")
    done = person.types("submit_job", f"--files={tmp_path}", f"--start_cmd={start_cmd}")
    view = person.waits_for(done.out.removeprefix("job_id: ").strip())
    assert (view["job_status"], view["exit_code"]) == ("failed", code)
    assert says in view["error_msg"]
    assert advice in view["failure"]["advice"]


def test_memory_death_is_told_apart(person: Person) -> None:
    greedy = f"{shlex.quote(sys.executable)} -c 'bytearray(200_000_000)'"
    job_id = person.submits(greedy, "--memory=32Mi")
    view = person.waits_for(job_id)
    if not view["workers"][0]["enforced"].get("memory"):
        pytest.skip("memory limits cannot be enforced on this machine")
    assert view["job_status"] == "failed", view
    assert view["error_msg"] == (
        "trainer-0 was killed because it exceeded its memory limit of 32 MiB"
    )
    assert "--memory" in view["failure"]["advice"]


STUBBORN = """\
trap '' TERM
(trap '' TERM; echo $$ > {here}/shell; exec sleep 600) &
setsid sh -c 'trap "" TERM; echo $$ > {here}/session; while :; do sleep 1; done' &
(setsid sh -c 'echo $$ > {here}/orphan; exec sleep 600' &) &
echo ready
while :; do sleep 1; done
"""


def test_kill_ends_the_whole_tree(person: Person, tmp_path: Path) -> None:
    """Children that ignore SIGTERM, that left the session, that were given away: all of them."""
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "run.sh").write_text(STUBBORN.format(here=tmp_path))
    done = person.types("submit_job", f"--files={tmp_path / 'job'}", "--start_cmd=sh run.sh")
    job_id = done.out.removeprefix("job_id: ").strip()
    until(lambda: all(_pid(tmp_path / name) for name in ("shell", "session", "orphan")))
    pids = [_pid(tmp_path / name) for name in ("shell", "session", "orphan")]
    pids += [int(pid) for pid in person.sees(job_id)["instance_ids_list"]]
    until(lambda: person.types("logs", job_id).out == "ready\n")
    asked = person.runs("kill_job", job_id)
    assert (asked.code, asked.out) == (0, "")
    assert asked.err.startswith(f"{job_id}: kill")
    assert person.types("kill_job", job_id).code == 0, "asking twice does no harm"
    view = person.waits_for(job_id)
    assert (view["job_status"], view["kill_flag"]) == ("killed", 1)
    assert not [pid for pid in pids if _lives(pid)], "killed means that nothing runs any more"
    assert person.types("logs", job_id).out == "ready\n"
    again = person.runs("kill_job", job_id)
    assert (again.code, again.out) == (0, "")


def _pid(path: Path) -> int:
    with contextlib.suppress(OSError, ValueError):
        return int(path.read_text())
    return 0


def _lives(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    return False
