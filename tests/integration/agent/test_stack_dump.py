"""A replica that hangs: its Python processes write down where they stand before they are ended."""

from __future__ import annotations

import os
import shlex
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from paddlecloud.agent.replica import records
from paddlecloud.agent.replica.inspect import request_stop
from paddlecloud.agent.sandbox import isolation, workspace
from paddlecloud.agent.supervisor import stack_dump
from tests.integration.agent.replicas import Bench, ended, eventually, has_file

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="realtime signals are Linux's")

PUBLIC_PYTHON = "/usr/bin/python3"
PYTHON = shlex.quote(sys.executable)
STUCK = """
import threading, time
reading = threading.Event()
def waits_for_the_others():
    open("ready", "a").write("yes")
    time.sleep(600)
def reads_data():
    reading.set()
    time.sleep(600)
threading.Thread(target=reads_data, daemon=True).start()
reading.wait()
waits_for_the_others()
"""


def hung(bench: Bench, command: str, files: dict[str, str], **changes: Any) -> Path:
    """A replica under way that will be found hung."""
    launch = bench.order(command, **changes)
    root = Path(launch["root"])
    (root / "log").mkdir()
    for name, text in files.items():
        (root / "work" / name).parent.mkdir(parents=True, exist_ok=True)
        (root / "work" / name).write_text(text)
    launch["env"] = stack_dump.prepare(root, launch["env"], owner=None)
    bench.spawner.spawn(launch)
    has_file(root, "ready")
    return root


def stop(root: Path, grace: float = 30.0) -> records.ExitRecord:
    request_stop(root, grace=grace, now=time.time(), cause=records.CAUSE_HUNG)
    return ended(root)


def saved(root: Path) -> list[str]:
    return [file.read_text() for file in sorted((root / "log" / "stacks").iterdir())]


def test_every_thread_of_a_hung_python_is_written_down(bench: Bench) -> None:
    root = hung(bench, f"exec {PYTHON} train.py", {"train.py": STUCK})
    end = stop(root)
    assert (end["cause"], end["signal"]) == ("hung", 15)
    (text,) = saved(root)
    assert "train.py" in text.partition("\n")[0]
    assert "waits_for_the_others" in text
    assert "reads_data" in text


def test_python_below_a_shell_and_forked_workers_each_have_a_file(bench: Bench) -> None:
    forks = "import os\nif os.fork() == 0:\n    os.setsid()\n" + STUCK
    root = hung(bench, f"sleep 600 & {PYTHON} train.py; true", {"train.py": forks})
    eventually(lambda: has_file(root, "ready") == "yesyes")
    stop(root)
    texts = saved(root)
    assert len(texts) == 2
    assert all("waits_for_the_others" in text for text in texts)


def test_a_process_that_is_no_python_is_not_killed_by_the_question(bench: Bench) -> None:
    script = (
        "trap 'echo asked > asked; exit 3' TERM; echo yes > ready; while :; do sleep 0.05; done"
    )
    root = hung(bench, "exec sh run.sh", {"run.sh": script})
    end = stop(root)
    assert (end["exit_code"], has_file(root, "asked")) == (3, "asked")
    assert not (root / "log" / "stacks").exists()


def test_a_python_that_became_another_program_is_not_asked(bench: Bench) -> None:
    """Its file is there and its handler is gone."""
    turns = 'import os\nos.execv("/bin/sh", ["sh", "run.sh"])\n'
    script = "trap 'exit 4' TERM; echo yes > ready; while :; do sleep 0.05; done"
    root = hung(bench, f"exec {PYTHON} train.py", {"train.py": turns, "run.sh": script})
    assert list((root / "stacks" / "told").glob("*.txt"))
    assert stop(root)["exit_code"] == 4


def test_nothing_is_saved_of_a_job_that_is_only_stopped(bench: Bench) -> None:
    root = hung(bench, f"exec {PYTHON} train.py", {"train.py": STUCK})
    request_stop(root, grace=5.0, now=time.time())
    assert ended(root)["cause"] == "stopped"
    assert list((root / "log").iterdir()) == []


def test_a_sitecustomize_of_the_job_still_runs(bench: Bench) -> None:
    own = 'import builtins\nbuiltins.of_the_job = "yes"\n'
    train = 'open("ready", "w").write(of_the_job)\nimport time\ntime.sleep(600)\n'
    files = {"lib/sitecustomize.py": own, "train.py": train}
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": "lib"}
    root = hung(bench, f"exec {PYTHON} train.py", files, env=env)
    stop(root)
    assert len(saved(root)) == 1


@pytest.mark.parametrize("trap", ["log", "stacks"])
def test_a_link_of_the_job_leads_nowhere(bench: Bench, tmp_path: Path, trap: str) -> None:
    """An agent that is root must not write, move or delete outside of the replica."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("kept")
    swap = (
        f"import os\nos.rename('../{trap}', '../gone')\nos.symlink({str(outside)!r}, '../{trap}')"
    )
    root = hung(bench, f"exec {PYTHON} train.py", {"train.py": f"{swap}\n{STUCK}"})
    assert stop(root)["cause"] == "hung"
    assert [file.name for file in outside.iterdir()] == ["precious"]


def test_a_python_that_cannot_listen_runs_all_the_same(bench: Bench) -> None:
    launch = bench.order(f"{PYTHON} -c 'print(6 * 7)'")
    root = Path(launch["root"])
    env = stack_dump.prepare(root, launch["env"], owner=None)
    launch["env"] = {**env, stack_dump.VARIABLE: str(root / "nowhere")}
    bench.spawner.spawn(launch)
    assert ended(root)["exit_code"] == 0
    assert (root / records.STDOUT).read_text() == "42\n"


@pytest.mark.skipif(
    not Path(PUBLIC_PYTHON).exists() or not isolation.possible(),
    reason="needs the rights of root, Linux 5.12 and a Python that every user may run",
)
def test_a_user_in_a_view_of_their_own_is_seen_too(bench: Bench) -> None:
    uid = 1_000_000 + 10 * os.getpid() + 5
    launch = bench.order(f"exec {PUBLIC_PYTHON} train.py", uid=uid)
    root = Path(launch["root"])
    workspace.WorkspaceBuilder().create(root, None, lambda *_: -1, ("tmp", "home"), owner=uid)
    (root / "work" / "train.py").write_text(STUCK)
    os.chown(root / "work", uid, uid)
    launch["env"] = stack_dump.prepare(root, launch["env"], owner=uid)
    bench.spawner.spawn(launch)
    has_file(root, "ready")
    assert stop(root)["cause"] == "hung"
    (text,) = saved(root)
    assert "waits_for_the_others" in text
    assert next((root / "log" / "stacks").iterdir()).stat().st_uid == uid
