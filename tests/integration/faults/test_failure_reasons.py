"""Fourteen ways to fail, staged with real processes, each told apart from the others.

Every row of the table is a job; what is expected is what the person is told: the state, the worker
that is to blame, the exit code, the sentence, what to do, and the last lines of the right log. In a
gang of two the peer ends only because of the other one. The PaddlePaddle of the PSERVER row is the
real one of today where the tests have it (`scripts/paddle.py`), else a stand-in with a native
library that has as little of a parameter server in it.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from paddlecloud import Client
from paddlecloud.agent.sandbox import cgroups
from scripts import paddle
from tests.integration.faults.home import WAIT, Home, until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

GANG = {"instance_count": 2, "distribute_job_type": "NCCL2"}
REAL_PADDLE = paddle.PLACE / "3.3" / "bin"

AWAITS_ITS_PEER = """
while [ ! -e "$SHARED/dead" ]; do sleep 0.02; done
sleep 0.1
echo "[rank 0] peer is gone"
kill -ABRT $$
"""
"""What PaddlePaddle does: a rank whose peer is gone aborts within a third of a second."""


@dataclass(frozen=True, kw_only=True)
class Staged:
    """One failure: what is submitted, what is done to it, and what has to be told."""

    name: str
    script: str = ""
    """What rank 1 of a gang does, or the only rank."""
    peer: str = AWAITS_ITS_PEER
    files: dict[str, str] = field(default_factory=dict)
    how: dict[str, Any] = field(default_factory=dict)
    act: Callable[[Stage, str], None] | None = None
    """What is done to it while it runs."""
    check: Callable[[Stage, str], None] | None = None
    """What else has to hold when it is over."""
    state: str = "failed"
    worker: str = "trainer-0"
    code: int | None = None
    says: str
    advises: str
    last: str = ""


class Stage:
    """An embedded server with room for every gang, and its person."""

    def __init__(self, home: Home, place: Path) -> None:
        self.home = home
        self.place = place
        self.client = Client()

    def submit(self, case: Staged) -> str:
        shared, job = self.place / "shared", self.place / "job"
        for folder in (shared, job):
            folder.mkdir(parents=True)
        (job / "run.sh").write_text(case.script)
        (job / "peer.sh").write_text(case.peer)
        for name, text in case.files.items():
            (job / name).write_text(text)
        env = {"SHARED": str(shared), **case.how.get("env", {})}
        plain = {"files": str(job), "job_type": "cpu", "start_cmd": "sh run.sh"}
        if case.how.get("instance_count") == 2 and "start_cmd" not in case.how:
            chosen = 'if [ "$PADDLE_TRAINER_ID" = 1 ]; then . ./run.sh; else . ./peer.sh; fi'
            plain["start_cmd"] = chosen
        return str(self.client.submit_job(**{**plain, **case.how, "env": env}).id)

    def await_line(self, job_id: str, line: bytes, worker: str = "trainer-0") -> None:
        until(lambda: line in b"".join(self.client.logs(job_id, worker=worker)), repr(line))


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    place = Home(tmp_path_factory.mktemp("fourteen") / "home")
    place.path.mkdir(mode=0o700)
    # Room for every gang at once, and time to save on a busy machine: what is stopped ends at once.
    (place.path / "server.toml").write_text("[local_pool]\ncpu = 64\n[running]\ngrace = 30\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PADDLECLOUD_HOME", str(place.path))
        yield place
        place.clear()


@pytest.fixture
def stage(home: Home, tmp_path: Path) -> Iterator[Stage]:
    made = Stage(home, tmp_path)
    yield made
    made.client.close()


def holds_a_port(stage: Stage, job_id: str) -> None:
    """Listen on a port, and tell the job which."""
    squatter = socket.create_server(("127.0.0.1", 0))
    (stage.place / "shared" / "port").write_text(str(squatter.getsockname()[1]))
    stage.client.wait(job_id, WAIT)
    squatter.close()


def kills_it(stage: Stage, job_id: str) -> None:
    stage.await_line(job_id, b"begun")
    stage.client.kill_job(job_id)


def loses_it(stage: Stage, job_id: str) -> None:
    """The agent and the supervisor beside the replica die at once, as with their machine."""
    stage.await_line(job_id, b"begun")
    stage.home.kill("agent", "zygote", "spare", "supervisor")


def the_paddle(place: Path) -> dict[str, str]:
    """An environment whose Python finds a PaddlePaddle without parameter servers."""
    if (REAL_PADDLE / "python3").exists():
        return {"PATH": f"{REAL_PADDLE}:{os.environ['PATH']}"}
    package = place / "site" / "paddle"
    (package / "base").mkdir(parents=True)
    (package / "version").mkdir()
    (package / "__init__.py").write_text("")
    (package / "version" / "__init__.py").write_text("full_version = '3.3.1'\n")
    (package / "base" / "libpaddle.so").write_bytes(b"\x7fELF" + bytes(4096))
    return {"PYTHONPATH": str(package.parent)}


def has_twenty_lines(stage: Stage, job_id: str) -> None:
    job = stage.client.query_job(job_id)
    assert job.failure["last_lines"] == [*(str(n) for n in range(22, 41)), "boom"]


def has_stacks(stage: Stage, job_id: str) -> None:
    """Both ranks wrote down where they stood, and it came back with their logs."""
    back = stage.place / "back"
    stage.client.get_files(job_id, download_dir=str(back))
    for rank in (0, 1):
        (file,) = back.rglob(f"rank-{rank}/stacks/*.txt")
        assert "waits_for_a_message" in file.read_text()
        assert "train.py" in file.read_text()


def has_its_checkpoint(stage: Stage, job_id: str) -> None:
    """What was written between SIGTERM and the end came back."""
    back = stage.place / "back"
    stage.client.get_files(job_id, download_dir=str(back))
    (file,) = back.rglob("model")
    assert file.read_text() == "all\n"


def warns_first(stage: Stage, job_id: str) -> None:
    """The first line of every log says so, whatever the program prints."""
    for worker in ("trainer-0", "pserver-1"):
        first = b"".join(stage.client.logs(job_id, worker=worker)).partition(b"\n")[0]
        assert b"this job runs in PSERVER mode, but PaddlePaddle 3.3" in first


HANGS = """
import time
def waits_for_a_message():
    print("begun", flush=True)
    time.sleep(600)
waits_for_a_message()
"""

SAVES = """
trap 'sleep 1; echo all > "$OUTPUT_PATH/model"; exit 0' TERM
echo begun
sleep 60 & wait
"""

MEETS_ITS_PSERVERS = """
if [ "$TRAINING_ROLE" = PSERVER ]; then touch "$SHARED/$PADDLECLOUD_WORKER"; sleep 60; fi
until [ -e "$SHARED/pserver-0" ] && [ -e "$SHARED/pserver-1" ]; do sleep 0.02; done
exit 1
"""

SERVES = """
import os, socket
with open(os.environ["SHARED"] + "/port") as told:
    socket.create_server(("127.0.0.1", int(told.read())))
"""

CRASHES = """
import ctypes, os
open(os.environ["SHARED"] + "/dead", "w").close()
ctypes.string_at(0)
"""

FOURTEEN = [
    Staged(
        name="exit code",
        script='seq 1 40; echo boom; touch "$SHARED/dead"; exit 3',
        how=GANG,
        worker="trainer-1",
        code=3,
        says="trainer-1 exited with code 3",
        advises="the whole log: paddlecloud logs job-",
        last="boom",
        check=has_twenty_lines,
    ),
    Staged(
        name="signal",
        script='echo shot; touch "$SHARED/dead"; kill -KILL $$',
        how=GANG,
        worker="trainer-1",
        code=137,
        says="trainer-1 was killed by something outside PaddleCloud (SIGKILL, exit code 137)",
        advises="ran out of memory",
        last="shot",
    ),
    Staged(
        name="segmentation fault",
        script="exec python3 crash.py",
        files={"crash.py": CRASHES},
        how=GANG,
        worker="trainer-1",
        code=139,
        says="trainer-1 was terminated by a segmentation fault (SIGSEGV, exit code 139)",
        advises="PYTHONFAULTHANDLER=1",
    ),
    Staged(
        name="memory death",
        script='echo more; exec python3 -c "b = bytearray(500_000_000); print(len(b))"',
        peer="sleep 60",
        how={**GANG, "memory": "64Mi"},
        worker="trainer-1",
        code=137,
        says="trainer-1 was killed because it exceeded its memory limit of 64 MiB",
        advises="request more than 64 MiB with --memory",
        last="more",
    ),
    Staged(
        name="missing command",
        how={"start_cmd": "pyhton train.py"},
        code=127,
        says="trainer-0 could not find pyhton (exit code 127)",
        advises="check the spelling of pyhton",
        last="not found",
    ),
    Staged(
        name="not executable",
        files={"train.sh": "echo hi"},
        how={"start_cmd": "./train.sh"},
        code=126,
        says="trainer-0 has no permission to execute ./train.sh (exit code 126)",
        advises="chmod +x ./train.sh",
        last="Permission denied",
    ),
    Staged(
        name="missing module",
        script="python3 -c 'import no_such_module'",
        code=1,
        says="trainer-0 exited with code 1: ModuleNotFoundError: No module named 'no_such_module'",
        advises="install the module no_such_module",
        last="ModuleNotFoundError: No module named 'no_such_module'",
    ),
    Staged(
        name="disk full",
        script="dd if=/dev/zero of=/dev/full bs=4096 count=1",
        code=1,
        says="because a disk was full",
        advises="free disk space on the machine",
    ),
    Staged(
        name="port taken",
        script='while [ ! -s "$SHARED/port" ]; do sleep 0.02; done\npython3 serve.py',
        files={"serve.py": SERVES},
        act=holds_a_port,
        code=1,
        says="a port it needs was in use",
        advises="PADDLE_PORT",
        last="Address already in use",
    ),
    Staged(
        name="wall time",
        script="echo begun; sleep 60",
        peer=SAVES,
        how={**GANG, "wall_time": "00:00:06"},
        state="timeout",
        worker="",
        says="the job exceeded its wall_time of 00:00:06 and was stopped",
        advises="--wall_time",
        last="begun",
        check=has_its_checkpoint,
    ),
    Staged(
        name="user kill",
        script="echo begun; sleep 60",
        peer="echo begun; sleep 60",
        how=GANG,
        act=kills_it,
        state="killed",
        code=143,
        says="killed on request while running",
        advises="",
        last="begun",
    ),
    Staged(
        name="lost agent",
        script="echo begun; sleep 60",
        act=loses_it,
        says="the supervisor of trainer-0",
        advises="--max_retries (now 0)",
        last="begun",
    ),
    Staged(
        name="hang",
        files={"train.py": HANGS},
        how={**GANG, "start_cmd": "python3 train.py", "hang_timeout": "00:00:08"},
        worker="",
        code=143,
        says="no worker printed anything or used the CPU for 00:00:08",
        advises="log/*/stacks/*",
        last="begun",
        check=has_stacks,
    ),
    Staged(
        name="no parameter server",
        script="",
        how={
            "instance_count": 2,
            "start_cmd": MEETS_ITS_PSERVERS,
        },
        worker="",
        code=1,
        says="its PaddlePaddle has no parameter server",
        advises="--distribute_job_type=NCCL2",
        last="--distribute_job_type=NCCL2",
        check=warns_first,
    ),
]


@pytest.mark.parametrize("case", FOURTEEN, ids=[case.name for case in FOURTEEN])
def test_each_failure_is_told_as_what_it_is(stage: Stage, case: Staged) -> None:
    if case.name == "memory death" and not limits_memory():
        pytest.skip("this machine cannot limit the memory of a process group")
    if case.name == "no parameter server":
        case.how["env"] = the_paddle(stage.place)
    job_id = stage.submit(case)
    if case.act is not None:
        case.act(stage, job_id)
    job = stage.client.wait(job_id, 2 * WAIT)
    failure = job.failure or {}
    assert (job.state, job.exit_code) == (case.state, case.code or job.exit_code), job.error_msg
    assert case.says in job.error_msg
    assert case.advises in failure["advice"]
    assert failure["worker"] == (case.worker or failure["worker"])
    assert len(failure["last_lines"]) <= 20
    assert any(case.last in line for line in failure["last_lines"]) or not case.last
    assert all(worker["state"] in ("exited", "lost") for worker in job.workers)
    if case.check is not None:
        case.check(stage, job_id)


def limits_memory() -> bool:
    return cgroups.detect().enforces()["memory"]


def test_the_rest_of_a_failed_gang_is_told_and_not_waited_for(stage: Stage) -> None:
    """How soon is measured by `python -m bench gangs`."""
    case = Staged(
        name="",
        script='until [ -e "$SHARED/up" ]; do sleep 0.02; done; exit 3',
        peer='touch "$SHARED/up"; sleep 600',
        how=GANG,
        says="",
        advises="",
    )
    job = stage.client.wait(stage.submit(case), WAIT)
    assert (job.state, job.failure["worker"]) == ("failed", "trainer-1")
    assert [worker["signal"] for worker in job.workers] == [15, None]


def test_a_gang_that_asks_for_it_goes_on_from_what_it_saved(stage: Stage) -> None:
    saves = """
echo "attempt $PADDLECLOUD_ATTEMPT finds $(cat "$OUTPUT_PATH/checkpoint" 2>&1)"
[ "$PADDLECLOUD_ATTEMPT" = 2 ] && exit 0
echo "step 7 of rank $PADDLE_TRAINER_ID" > "$OUTPUT_PATH/checkpoint"
touch "$SHARED/saved-$PADDLE_TRAINER_ID"
[ "$PADDLE_TRAINER_ID" = 0 ] && sleep 60
until [ -e "$SHARED/saved-0" ]; do sleep 0.02; done; exit 101
"""
    how = {**GANG, "start_cmd": "sh run.sh", "max_retries": 1}
    job_id = stage.submit(Staged(name="", script=saves, how=how, says="", advises=""))
    job = stage.client.wait(job_id, WAIT)
    assert (job.state, job.attempts, job.error_msg) == ("success", 2, "")
    for rank in (0, 1):
        worker = f"trainer-{rank}"
        first = b"".join(stage.client.logs(job_id, worker=worker, attempt=1))
        second = b"".join(stage.client.logs(job_id, worker=worker))
        assert b"attempt 1 finds" in first
        assert second == f"attempt 2 finds step 7 of rank {rank}\n".encode()
