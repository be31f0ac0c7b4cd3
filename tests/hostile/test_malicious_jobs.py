"""A job with a user of its own turns on the agent, which is root and handles what the job made."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from paddlecloud.agent.outputs import scan
from paddlecloud.agent.registry import Stage, Tracked
from paddlecloud.agent.replica import preflight
from paddlecloud.agent.replica.inspect import request_stop
from paddlecloud.agent.replica.records import ExitRecord
from paddlecloud.agent.sandbox import workspace
from tests.integration.agent.replicas import Bench, ended
from tests.integration.agent.test_isolation import ALICE, able, has_file_named, processes_of, run
from tests.integration.agent.test_isolation import start as start_replica
from tests.integration.server.test_isolation import Team
from tests.integration.server.world import eventually
from tests.unit.agent.replica.test_preflight import install
from tests.unit.agent.replica.test_restore_outputs import WHEN, Server, fill, replica
from tests.unit.agent.runs import a_run

SECRET = b"a secret of root"
PYTHON = shutil.which("python3", path="/usr/bin:/bin:/usr/local/bin")
ZOO = r"""
cd $OUTPUT_PATH; echo begun
echo good > good; mkdir -p a/b; echo deep > a/b/c; ln -s a/b inside; ln -s good again
ln -s SECRET stolen; ln -s / all; ln -s . round; ln -s missing dangling; ln -s loop loop
ln -s /proc/self/environ mine; ln -s /dev/zero zero; ln -s ../../.. up
mkfifo pipe; mkdir shut; echo x > shut/x; chmod 0 shut good
truncate -s 4T huge; : > "$(printf 'no\377text')"; : > "$(printf 'two\nlines')"
: > 'back\slash'; : > "$(printf 'esc\033[2J')"
i=0; while [ $i -lt 230 ]; do mkdir d; cd d; i=$((i + 1)); done; echo x > bottom
"""


@contextmanager
def swapping(place: Path, target: Path) -> Iterator[None]:
    """While inside, `place` is by turns what it was and a link to `target`."""
    aside, link = place.with_name("aside"), place.with_name("link")
    done = threading.Event()

    def swap() -> None:
        while not done.is_set():
            with suppress(OSError):  # it may be gone by now
                link.symlink_to(target)
                place.rename(aside)
                link.rename(place)
                place.unlink()
                aside.rename(place)
            link.unlink(missing_ok=True)

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join(20)


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    folder = tmp_path / "secrets"
    folder.mkdir()
    (folder / "key").write_bytes(SECRET)
    return folder


# -- what it leaves in its outputs ----------------------------------------------------------------


@pytest.mark.slow
@able
def test_whatever_lies_in_its_outputs_the_job_ends_and_nothing_leaks(team: Team) -> None:
    key = team.home / "server" / "server.key"
    job = team.submit("alice", ZOO.replace("SECRET", shlex.quote(str(key))))
    team.finished(job)
    store = team.world.deps.settings.store_dir / f"users/alice/output/{job}/rank-0"
    found = {
        path.relative_to(store).as_posix(): path.read_bytes()
        for path in store.rglob("*")
        if path.is_file()
    }
    want = {"good": b"good\n", "a/b/c": b"deep\n", "inside/c": b"deep\n", "again": b"good\n"}
    assert want.items() <= found.items()
    assert found["shut/x"] == b"x\n"
    assert not {"stolen", "mine", "zero", "huge", "pipe"} & found.keys()
    assert not any(name.startswith(("all/", "up/", "round/round")) for name in found)
    assert b"canary" not in b"".join(found.values())
    assert "output/huge is not sent: output/huge has 4398046511104 bytes" in team.journal()
    log = team.log(job)
    assert ": rank-0/huge (it has 4398046511104 bytes" in log
    assert "is 201 directories deep" in log
    assert "are not regular files: rank-0/dangling, rank-0/loop, rank-0/pipe, rank-0/round;" in log
    assert " error " not in team.journal()
    eventually(lambda: team.world.release() >= 0 and not team.place(job).exists(), 60)


@able
def test_no_race_makes_the_agent_read_outside(tmp_path: Path, secret: Path) -> None:
    place = tmp_path / "one" / "output" / "folder"
    place.mkdir(parents=True)
    (place / "key").write_bytes(b"mine")
    root, read = tmp_path / "one", set()
    with swapping(place, secret):
        for _ in range(1500):
            for found in scan.scan(root):
                with suppress(OSError):
                    file = scan.open_inside(found, root)
                    if file is not None:
                        with file:
                            read.add(file.read())
    assert read == {b"mine"}


@able
def test_a_device_in_the_place_of_a_file_is_not_even_opened(tmp_path: Path) -> None:
    root = tmp_path / "one"
    (root / "output").mkdir(parents=True)
    (root / "output" / "f").write_bytes(b"x")
    (found,) = scan.scan(root)
    for kind in (0o010644, 0o020644):
        found.where.unlink()
        os.mknod(found.where, kind, os.makedev(1, 7))  # a pipe; /dev/full
        assert scan.open_inside(found, root) is None
    found.where.unlink()
    assert scan.open_inside(found, root) is None


def test_no_race_makes_the_agent_delete_outside(tmp_path: Path, secret: Path) -> None:
    for number in range(100):
        top = tmp_path / f"r{number}"
        place = top / "work" / "folder"
        place.mkdir(parents=True)
        (place / "key").write_bytes(b"mine")
        with swapping(place, secret), suppress(OSError):
            workspace.remove(f"{top}/work")
        workspace.remove(f"{top}/work")
        assert not (top / "work").exists()
    assert (secret / "key").read_bytes() == SECRET


# -- what the next attempt is given ---------------------------------------------------------------


@pytest.mark.parametrize("name", ["folder/key", "key"])
def test_outputs_do_not_come_back_through_a_link(tmp_path: Path, secret: Path, name: str) -> None:
    """An attempt left links where the server has files; the fetched ones must not follow them."""
    tracked = replica(tmp_path, "two")
    place = tracked.root / "output" / name.partition("/")[0]
    place.symlink_to(secret if "/" in name else secret / "key")
    with suppress(OSError):
        fill(Server({name: b"written by root"}), tracked)
    assert (secret / "key").read_bytes() == SECRET
    assert [path.name for path in secret.iterdir()] == ["key"]


def test_a_link_of_the_same_size_and_time_is_no_file(tmp_path: Path, secret: Path) -> None:
    os.utime(secret / "key", (WHEN, WHEN))
    tracked = replica(tmp_path, "two")
    (tracked.root / "output" / "key").symlink_to(secret / "key")
    fill(Server({"key": b"x" * len(SECRET)}), tracked)
    assert (tracked.root / "output" / "key").read_bytes() == b"x" * len(SECRET)
    assert (secret / "key").read_bytes() == SECRET


def test_a_move_that_was_cut_short_is_not_begun_anew(tmp_path: Path) -> None:
    """The agent died after the move: what lies there is the job's and is not written into."""
    server, tracked, earlier = Server({"n": b"shipped"}), replica(tmp_path, "two"), _over(tmp_path)
    (earlier.root / "output" / "n").write_bytes(b"here")
    assert fill(server, tracked, earlier) == fill(server, tracked, earlier)
    assert server.sent == []
    assert (tracked.root / "output" / "n").read_bytes() == b"here"


def test_a_move_that_cannot_be_noted_is_as_good_as_a_fetch(tmp_path: Path) -> None:
    server, tracked, earlier = Server({"n": b"shipped"}), replica(tmp_path, "two"), _over(tmp_path)
    (earlier.root / "output" / "n").write_bytes(b"here")
    (tracked.root / "shipped.json").mkdir()
    with pytest.raises(OSError, match="directory"):
        fill(server, tracked, earlier)
    assert (tracked.root / "output" / "n").read_bytes() == b"shipped", "as the server has it"


def _over(folder: Path) -> Tracked:
    earlier = replica(folder, "one")
    earlier.stage, earlier.started, earlier.shipped = Stage.OVER, {"pid": 1, "at": 1.0}, True
    return earlier


# -- what it does to the machine and to those who watch over it -----------------------------------


# -- where it makes the agent look for PaddlePaddle ------------------------------------------------

LEAVES_ITS_UID = "import os; open('{file}', 'a').write(str(os.getuid()) + chr(10))\n"


def run_with_pservers(bench: Bench, *paths: str) -> tuple[Path, str, ExitRecord]:
    """A job in PSERVER mode that runs Python, with a PaddlePaddle and a sitecustomize of its own in
    `work/own`, and these on its PYTHONPATH."""
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": ":".join(paths)}
    order = bench.order(f"{PYTHON} -c 'print(1)'; exit 3", uid=ALICE, env=env)
    root = Path(order["root"])
    (root / "work").rmdir()
    own = (workspace.TEMPORARY, workspace.HOME)
    workspace.WorkspaceBuilder().create(root, None, lambda *_: -1, own, owner=ALICE)
    install(root / "work" / "own")
    left = root / "work" / "uids"
    (root / "work" / "own" / "sitecustomize.py").write_text(LEAVES_ITS_UID.format(file=left))
    for path in (root / "work" / "own").rglob("*"):
        path.chmod(0o755)
    (root / "work" / "own").chmod(0o755)
    bench.spawner.spawn(preflight.complete(order, a_run(pserver_mode=True, uid=ALICE)))
    end = ended(root)
    return root, (root / "stdout.log").read_text(), end


@able
@pytest.mark.parametrize("how", ["a path", "a link"])
def test_root_does_not_look_where_its_pythonpath_leads(
    bench: Bench, tmp_path: Path, how: str
) -> None:
    """The answer would say what lies in directories that are closed to the job."""
    install(tmp_path / "closed")
    link = Path("/var/lib") / f"paddlecloud-test-{os.getpid()}"
    link.symlink_to(tmp_path / "closed")
    try:
        path = link if how == "a link" else tmp_path / "closed"
        _, text, end = run_with_pservers(bench, str(path))
    finally:
        link.unlink()
    assert text == "1\n"
    assert "hint" not in end


@able
def test_its_own_paddle_is_found_by_its_own_process_and_not_run(bench: Bench) -> None:
    root, text, end = run_with_pservers(bench, "own")
    assert text.startswith("[paddlecloud] this job runs in PSERVER mode")
    assert text.endswith("\n1\n")
    assert end["hint"] == "no_pserver"
    assert (root / "work" / "uids").read_text().split() == [str(ALICE)]


@able
def test_it_inherits_nothing_but_its_streams(bench: Bench) -> None:
    text, _ = run(bench, "for fd in /proc/self/fd/*; do echo ${fd##*/}; done; ulimit -c")
    *numbers, core = text.split()
    assert {int(n) for n in numbers} - {0, 1, 2} <= {3}, "the shell's own view of the directory"
    assert core == "0"


@able
def test_its_supervisor_is_out_of_its_reach(bench: Bench) -> None:
    tries = "kill -9 $PPID; kill -USR1 $PPID; kill -STOP $PPID; cat /proc/$PPID/environ;"
    if PYTHON:
        attach = "import ctypes, os; print(ctypes.CDLL(None).ptrace(16, os.getppid(), 0, 0))"
        tries += f" exec {PYTHON} -c '{attach}'"
    text, end = run(bench, f"{tries} 2>&1")
    assert end["cause"] == "exit"
    assert "PATH" not in text
    assert not PYTHON or text.splitlines()[-1] == "-1"


@able
def test_many_processes_are_refused_and_all_of_them_end(bench: Bench) -> None:
    # A shell that cannot fork any more ends; the one that began it needs no process to go on.
    many = "while :; do setsid sleep 60 2>/dev/null & done"
    command = f"touch up; sh -c '{many}'; exec sleep 60"
    root = start_replica(bench, command, ALICE, pids_limit=60)
    has_file_named(root, "up")
    request_stop(root, grace=0.1, now=0.0)
    assert ended(root)["cause"] == "stopped"
    assert processes_of(ALICE) == []


@able
def test_without_control_groups_its_user_has_a_limit_of_processes(tmp_path: Path) -> None:
    root = tmp_path / "one"
    own = (workspace.TEMPORARY, workspace.HOME)
    workspace.WorkspaceBuilder().create(root, None, lambda *_: -1, own, owner=ALICE)
    command = "n=0; while [ $n -lt 50 ]; do sleep 5 & n=$((n + 1)); echo $n >&2; done"
    script = f"""
import os
from pathlib import Path
from paddlecloud.agent.sandbox import cgroups
from paddlecloud.agent.supervisor import processes, spawn_child
processes.become_subreaper()
launch = {{"replica_id": "r", "root": {str(root)!r}, "command": {command!r},
          "env": {{"PATH": os.environ["PATH"]}}, "grace": 1.0, "uid": {ALICE}}}
log = os.open({str(tmp_path / "log")!r}, os.O_WRONLY | os.O_CREAT)
group = cgroups.Group(v2=None, v1={{}})
started = spawn_child.start(Path({str(root)!r}), launch, group, log=log, most=20)
assert not started.message, started.message
os.waitpid(started.pid, 0)
processes.kill_groups(os.getpid())
"""
    ran = subprocess.run([sys.executable, "-c", script], timeout=60, check=False)
    assert ran.returncode == 0
    counted = [int(line) for line in (tmp_path / "log").read_text().split() if line.isdigit()]
    assert 0 < max(counted, default=0) < 21
    eventually(lambda: processes_of(ALICE) == [])
