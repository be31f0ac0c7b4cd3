"""Replicas with a root of their own, as real processes: by root, by a plain user, and refused."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import traceback
from pathlib import Path

import pytest

from paddlecloud.agent.replica import records
from paddlecloud.agent.replica.records import ROOT, ExitRecord, Launch
from paddlecloud.agent.sandbox import cgroups, rootfs, workspace
from paddlecloud.agent.supervisor import spawn_child
from paddlecloud.model.jobs.environment import TRAINER_COUNT, TRAINER_ID
from tests.integration.agent.replicas import Bench, ended, eventually

CAP_SYS_ADMIN = 21
PR_SET_DUMPABLE, PR_CAPBSET_DROP = 4, 24
ALICE = 2_000_000 + 10 * os.getpid()
#: The way in which programs of 2017 find their part of the data.
READ = (
    'python3 -c \'i = int(open("/trainer_id").readline()[:-1]);'
    ' n = int(open("/trainer_count").readline()[:-1]); print(i, n)\''
)


def can_mount() -> bool:
    """Whether this test itself may do what the replicas do."""
    tried = subprocess.run(["unshare", "-m", "true"], capture_output=True, timeout=60)
    return tried.returncode == 0


able = pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0 or not can_mount(),
    reason="needs Linux and the rights of root, and to be allowed to mount",
)


def start(bench: Bench, command: str, rank: int = 0, uid: int | None = None) -> Path:
    launch = bench.order(command, private_root=True, uid=uid)
    root = Path(launch["root"])
    (root / "work").rmdir()
    own = (workspace.TEMPORARY, workspace.HOME, ROOT)
    workspace.WorkspaceBuilder().create(root, None, lambda *_: -1, own, owner=uid)
    files = {TRAINER_ID: f"{rank}\n", TRAINER_COUNT: "2\n"}
    workspace.write_in_root(root, files, owner=uid)
    launch["env"]["PADDLECLOUD_TRAINER_ID_FILE"] = f"{root}/{ROOT}/{TRAINER_ID}"
    bench.spawner.spawn(launch)
    return root


def run(bench: Bench, command: str, uid: int | None = None) -> tuple[str, ExitRecord, Path]:
    root = start(bench, command, uid=uid)
    end = ended(root)
    return (root / "stdout.log").read_text(), end, root


@able
@pytest.mark.parametrize("uid", [None, ALICE], ids=["as root", "under a uid"])
def test_it_reads_and_writes_in_its_root_and_the_machine_keeps_its_own(
    bench: Bench, uid: int | None
) -> None:
    text, end, root = run(
        bench,
        f"{READ}; cat $PADDLECLOUD_TRAINER_ID_FILE; echo part-0 > /train.list && cat /train.list;"
        " mkdir /data.mine && touch /data.mine/x && pwd",
        uid=uid,
    )
    assert text == f"0 2\n0\npart-0\n{root}/work\n"
    assert end["exit_code"] == 0
    assert end["enforced"]["root"] is True
    made = ("train.list", "data.mine", TRAINER_ID, TRAINER_COUNT)
    assert [name for name in made if Path("/", name).exists()] == []
    assert (root / ROOT / "train.list").read_text() == "part-0\n"
    # What it left is a plain directory, and deleting it deletes nothing of the machine.
    workspace.remove(str(root / ROOT))
    assert not (root / ROOT).exists()
    assert Path("/usr/bin/env").exists()


@able
def test_two_ranks_do_not_see_what_the_other_makes_in_its_root(bench: Bench) -> None:
    wait = "touch up; until [ -e go ]; do sleep 0.02; done"
    command = f"cat /trainer_id > /train.list; {wait}; cat /train.list"
    roots = [start(bench, command, rank) for rank in (0, 1)]
    eventually(lambda: all((root / "work" / "up").exists() for root in roots))
    for root in roots:
        (root / "work" / "go").touch()
    assert [ended(root)["exit_code"] for root in roots] == [0, 0]
    assert [(root / "stdout.log").read_text() for root in roots] == ["0\n", "1\n"]
    assert not Path("/train.list").exists()


@able
def test_the_rest_of_the_machine_is_as_it_is(bench: Bench, tmp_path: Path) -> None:
    outside = tmp_path / "kept"
    text, end, _ = run(
        bench, f"echo told > {outside}; ls -d /proc/self /dev/null /sys/kernel; /bin/echo done"
    )
    assert text.split() == ["/dev/null", "/proc/self", "/sys/kernel", "done"]
    assert outside.read_text() == "told\n"
    assert end["exit_code"] == 0


@able
def test_a_user_of_its_own_writes_in_its_root_and_nowhere_else(bench: Bench) -> None:
    others = "/etc /usr /root /var /run /dev /proc /sys ../.. .."
    text, end, _ = run(
        bench,
        f"for d in {others}; do (echo x > $d/mine) 2>&- && echo wrote $d; done;"
        " (mknod /null c 1 3 && echo made a device) 2>&-; id -u; ls ../..",
        uid=ALICE,
    )
    assert text.split() == [str(ALICE), Path(bench.launches[-1]["root"]).name]
    assert end["enforced"]["root"] is True


@able
def test_a_second_process_of_the_replica_finds_the_same_root(bench: Bench) -> None:
    root = start(bench, "echo first > /made; touch up; until [ -e go ]; do sleep 0.02; done")
    eventually(lambda: (root / "work" / "up").exists())
    pid = os.fork()
    if pid == 0:
        try:
            rootfs.enter(str(root / ROOT))
            text = Path("/made").read_text() + ("" if Path("/usr/bin/env").exists() else "no")
            os._exit(0 if text == "first\n" else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    (root / "work" / "go").touch()
    assert ended(root)["exit_code"] == 0


@able
def test_a_plain_user_has_one_too_where_user_namespaces_are_allowed(tmp_path: Path) -> None:
    if subprocess.run(["setpriv", "--reuid=65534", "unshare", "-Ur", "true"]).returncode != 0:
        pytest.skip("this machine gives no user namespace to plain users")
    text, rooted = as_plain_user(tmp_path, f"{READ}; echo x > /train.list && id -u", allowed=True)
    assert (text, rooted) == (f"1 2\n{ALICE}\n", True)
    assert not Path("/train.list").exists()


@able
def test_where_it_is_not_allowed_the_command_runs_and_knows_other_paths(tmp_path: Path) -> None:
    text, rooted = as_plain_user(tmp_path, "cat $ID_FILE; cat /trainer_id 2>&-", allowed=False)
    assert (text, rooted) == ("1\n", False)


@able
def test_root_without_the_right_to_mount_is_told_so_in_the_record(tmp_path: Path) -> None:
    root = tmp_path / "one"
    workspace.WorkspaceBuilder().create(root, None, lambda *_: -1, (ROOT,))
    workspace.write_in_root(root, {TRAINER_ID: "0\n"})
    order = {
        "replica_id": "one", "root": str(root), "command": f"cat {root}/{ROOT}/trainer_id",
        "env": {"PATH": os.environ["PATH"]}, "grace": 1.0, "private_root": True,
    }  # fmt: skip
    records.write(root / records.ORDER, order)
    boot = (
        f"import ctypes; ctypes.CDLL(None).prctl({PR_CAPBSET_DROP}, {CAP_SYS_ADMIN}, 0, 0, 0);"
        "import os, sys; os.execv(sys.executable, [sys.executable, '-m',"
        f" 'paddlecloud.agent.supervisor.supervisor', {str(root)!r}])"
    )
    subprocess.run([sys.executable, "-c", boot], check=True, timeout=60)
    end = ended(root)
    assert (end["exit_code"], end["enforced"]["root"]) == (0, False)
    assert (root / "stdout.log").read_text() == "0\n"


def as_plain_user(folder: Path, command: str, *, allowed: bool) -> tuple[str, bool | None]:
    """What a replica prints whose agent is a plain user, and whether it had its own root.

    Forked, because the interpreter may be in a home that no other user may read.
    """
    top = Path(f"/tmp/paddlecloud-test-{os.getpid()}-{allowed:d}")
    top.mkdir(mode=0o755)
    workspace.WorkspaceBuilder().create(top / "one", None, lambda *_: -1, (ROOT,), owner=ALICE)
    root = top / "one"
    workspace.write_in_root(root, {TRAINER_ID: "1\n", TRAINER_COUNT: "2\n"}, owner=ALICE)
    os.chown(root, ALICE, ALICE)
    log = os.open(folder / "said", os.O_RDWR | os.O_CREAT | os.O_APPEND)
    try:
        pid = os.fork()
        if pid == 0:
            _be_the_supervisor(root, command, log, allowed=allowed)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        return (folder / "said").read_text(), {10: True, 11: False}.get(code)
    finally:
        os.close(log)
        workspace.remove(str(top))


def _be_the_supervisor(root: Path, command: str, log: int, *, allowed: bool) -> None:
    try:
        os.setgroups([])
        os.setresgid(ALICE, ALICE, ALICE)
        os.setresuid(ALICE, ALICE, ALICE)
        if allowed:
            # A program that a plain user starts is so from the beginning.
            ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)
        env = {"PATH": os.defpath, "ID_FILE": f"{root}/{ROOT}/{TRAINER_ID}"}
        launch: Launch = {
            "replica_id": "one",
            "root": str(root),
            "command": command,
            "env": env,
            "grace": 1.0,
            "private_root": True,
        }
        started = spawn_child.start(root, launch, cgroups.Group(v2=None, v1={}), log=log)
        os.waitpid(started.pid, 0)
        os._exit(10 if started.rooted else 11)
    except Exception:  # noqa: BLE001 - the parent shows it
        os.write(log, traceback.format_exc().encode())
    finally:
        os._exit(1)


def test_the_directory_around_it_comes_first() -> None:
    names = ["var", "usr", "home", "etc"]
    assert rootfs.mount_order("/home/me/root", names) == ["home", "etc", "usr", "var"]
