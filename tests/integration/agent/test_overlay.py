"""Files that many replicas share: each may do anything to its own view, and nothing to a tree."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from paddlecloud.agent.inputs import snapshot_tree
from paddlecloud.agent.inputs.snapshot_tree import SnapshotTrees
from paddlecloud.agent.replica.records import ROOT, ExitRecord, Launch
from paddlecloud.agent.sandbox import _mounts, cgroups, hardlinks, overlay, workspace
from paddlecloud.agent.supervisor import spawn_child
from paddlecloud.agent.supervisor.zygote import Spawner
from paddlecloud.model.files.snapshot import Entry, EntryKind, Snapshot, snapshot_of
from tests.integration.agent.replicas import Bench, ended, running

PR_SET_DUMPABLE = 4
ALICE = 3_000_000 + 10 * os.getpid()
CONTENTS = {
    "run.sh": b"#!/bin/sh\necho ran\n",
    "data/part-0": b"zero\n",
    "data/part-1": b"zero\n",
    "data/deep/er": b"",
    "large": bytes(300_000),
}


def snapshot() -> Snapshot:
    def entry(path: str, content: bytes) -> Entry:
        digest = hashlib.sha256(content).hexdigest()
        script = path.endswith(".sh")
        return Entry(path=path, size=len(content), sha256=digest, executable=script)

    found = [entry(path, content) for path, content in CONTENTS.items()]
    found.append(Entry(path="empty", kind=EntryKind.DIRECTORY))
    found.append(Entry(path="link", kind=EntryKind.LINK, target="data/part-0"))
    return snapshot_of(found)


class Store:
    """A directory of contents as the server has it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.opened = 0
        for content in CONTENTS.values():
            file = self.file(content)
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(content)

    def find(self, sha256: str, _size: int) -> int:
        self.opened += 1
        return os.open(self.folder / hardlinks.name_of(sha256), os.O_RDONLY)

    def file(self, content: bytes) -> Path:
        return self.folder / hardlinks.name_of(hashlib.sha256(content).hexdigest())

    def is_unchanged(self) -> bool:
        found = {path.read_bytes() for path in self.folder.glob("*/*")}
        return found == set(CONTENTS.values())


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


@pytest.fixture
def every_snapshot_is_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot_tree, "WORTH_ENTRIES", 1)


def trees_in(bench: Bench, spawner: Spawner | None = None) -> SnapshotTrees:
    ask = (spawner or bench.spawner).can_overlay
    return SnapshotTrees(
        bench.folder / "cache", workspace.WorkspaceBuilder(), ask, lambda size: None
    )


def is_able(folder: Path) -> bool:
    """Whether this machine lets us lay files below replicas."""
    spawner = Spawner.start()
    try:
        kept = SnapshotTrees(
            folder, workspace.WorkspaceBuilder(), spawner.can_overlay, lambda size: None
        )
        return kept._is_possible()
    finally:
        spawner.close()


@pytest.fixture(autouse=True)
def able(tmp_path: Path, every_snapshot_is_worth_it: None) -> None:
    if sys.platform != "linux" or not is_able(tmp_path / "probe"):
        pytest.skip("needs Linux with overlayfs, and to be allowed to mount")


def start(
    bench: Bench, store: Store, command: str, uid: int | None = None, *, rooted: bool = False
) -> Path:
    tree = trees_in(bench).make(snapshot(), store.find, uid, str(store.folder))
    assert tree is not None
    launch = bench.order(command, uid=uid, tree=tree.path, private_root=rooted)
    root = Path(launch["root"])
    (root / "work").rmdir()
    own = [workspace.TEMPORARY, workspace.HOME, *([ROOT] if rooted else [])]
    workspace.WorkspaceBuilder().create(root, None, store.find, own, owner=uid, layered=True)
    bench.spawner.spawn(launch)
    return root


def run(
    bench: Bench, store: Store, command: str, uid: int | None = None, *, rooted: bool = False
) -> tuple[str, ExitRecord, Path]:
    root = start(bench, store, command, uid, rooted=rooted)
    end = ended(root)
    return (root / "stdout.log").read_text(), end, root


USERS = pytest.mark.parametrize(
    ("uid", "rooted"),
    [(None, False), (None, True), (ALICE, False), (ALICE, True)],
    ids=["our own user", "with a root of its own", "another user", "another with its own root"],
)
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs the rights of root")


@needs_root
@USERS
def test_a_replica_may_do_anything_to_its_files(
    bench: Bench, store: Store, uid: int | None, rooted: bool
) -> None:
    text, end, root = run(
        bench,
        store,
        "./run.sh; cat link; echo more >> data/part-0; cat data/part-0 data/part-1; "
        "rm large; mv data moved && cat moved/part-1; rm -r moved; mkdir data; ls data empty; "
        "cat ../mount/data/part-0; test -e ../mount/large && echo there; ls",
        uid,
        rooted=rooted,
    )
    assert text.splitlines() == [
        *("ran", "zero", "zero", "more", "zero", "zero", "data:", "", "empty:", "zero", "there"),
        *("data", "empty", "link", "run.sh"),
    ]
    assert end["exit_code"] == 0
    assert store.is_unchanged()
    again, _, _ = run(bench, store, "cat data/part-0; stat -c %a run.sh large", uid, rooted=rooted)
    assert again == "zero\n755\n644\n"
    workspace.remove(str(root))
    assert not root.exists()


def test_a_second_replica_needs_nothing_of_the_store(bench: Bench, store: Store) -> None:
    start(bench, store, "true")
    opened = store.opened
    text, _, _ = run(bench, store, "cat data/part-1")
    assert (text, store.opened) == ("zero\n", opened)


def test_bytes_are_not_copied_and_yet_they_cannot_be_changed(bench: Bench, store: Store) -> None:
    tree = trees_in(bench).make(snapshot(), store.find, None, str(store.folder))
    assert tree is not None
    assert Path(tree.path, "large").samefile(store.file(CONTENTS["large"]))
    text, _, _ = run(
        bench, store, "python3 -c \"open('large', 'r+b').write(b'mine')\"; wc -c large"
    )
    assert text == "300000 large\n"
    assert store.is_unchanged()


def test_a_tree_stays_while_a_replica_uses_it(bench: Bench, store: Store) -> None:
    root = start(bench, store, "while ! test -e ../output/go; do sleep 0.01; done; cat data/part-0")
    running(root)
    ((_, size, delete),) = trees_in(bench).evictable()
    assert size > sum(map(len, CONTENTS.values()))
    with pytest.raises(BlockingIOError):
        delete()
    (root / "output" / "go").touch()
    ended(root)
    assert (root / "stdout.log").read_text() == "zero\n"
    bench.check_nothing_is_left()
    delete()
    assert list(trees_in(bench).evictable()) == []
    assert list((bench.folder / "cache" / "trees").iterdir()) == []


def test_a_tree_that_is_gone_is_an_error_in_words(bench: Bench, store: Store) -> None:
    launch = bench.order("true", tree=f"{bench.folder}/never/files")
    bench.spawner.spawn(launch)
    end = ended(Path(launch["root"]))
    assert (end["cause"], end["start_errno"]) == ("start_failed", 2)


def test_a_tree_of_an_earlier_start_of_the_machine_is_made_anew(bench: Bench, store: Store) -> None:
    kept = trees_in(bench)
    tree = kept.make(snapshot(), store.find, None)
    assert tree is not None
    note = Path(tree.path).parent / overlay.NOTE
    tree.release()
    note.write_text(note.read_text().replace('"boot": "', '"boot": "earlier-'))
    assert kept.ready(snapshot().id, None) is None
    opened = store.opened
    again = kept.make(snapshot(), store.find, None)
    assert again is not None
    assert again.path == tree.path
    assert store.opened == 2 * opened


def test_what_could_not_be_made_is_not_there(bench: Bench, store: Store) -> None:
    kept = trees_in(bench)

    def fail(_sha256: str, _size: int) -> int:
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="space"):
        kept.make(snapshot(), fail, None)
    assert list((bench.folder / "cache" / "trees").iterdir()) == []
    assert kept.ready(snapshot().id, None) is None


def test_where_nobody_may_mount_there_are_copies(bench: Bench, store: Store) -> None:
    def no(_root: str, _tree: str) -> bool:
        return False

    kept = SnapshotTrees(
        bench.folder / "cache", workspace.WorkspaceBuilder(), no, lambda size: None
    )
    assert kept.make(snapshot(), store.find, None) is None
    root = bench.folder / "copied"
    workspace.WorkspaceBuilder().create(root, snapshot(), store.find)
    assert (root / "work" / "data" / "part-0").read_bytes() == b"zero\n"
    assert (root / "mount" / "large").read_bytes() == CONTENTS["large"]
    assert not (root / overlay.DIRECTORY).exists()


def test_few_small_files_are_copied(
    bench: Bench, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot_tree, "WORTH_ENTRIES", 1000)
    assert trees_in(bench).make(snapshot(), store.find, None) is None
    monkeypatch.setattr(snapshot_tree, "WORTH_BYTES", 300_000)
    assert trees_in(bench).make(snapshot(), store.find, None) is not None


@needs_root
@pytest.mark.parametrize("rooted", [False, True], ids=["", "with a root of its own"])
def test_a_plain_user_takes_a_user_namespace(tmp_path: Path, rooted: bool) -> None:
    """The agent of an embedded server is seldom root's."""
    if subprocess.run(["setpriv", "--reuid=65534", "unshare", "-Ur", "true"]).returncode != 0:
        pytest.skip("this machine gives no user namespace to plain users")
    command = (
        "./run.sh; echo more >> data/part-0; cat data/part-0 ../mount/data/part-0; rm -r data;"
        " mkdir data; ls data; id -u; stat -c %U:%a run.sh large | sed s/[0-9A-Z]*://"
    )
    text = as_plain_user(tmp_path / "said", command, rooted=rooted)
    assert text == f"ran\nzero\nmore\nzero\n{ALICE}\n755\n644\n"


def as_plain_user(said: Path, command: str, *, rooted: bool) -> str:
    """What a replica prints whose agent is a plain user. Forked, because the
    interpreter may be in a home that no other user may read."""
    top = Path(f"/tmp/paddlecloud-layers-{os.getpid()}")
    top.mkdir(mode=0o755)
    os.chown(top, ALICE, ALICE)
    log = os.open(said, os.O_RDWR | os.O_CREAT | os.O_APPEND)
    try:
        pid = os.fork()
        if pid == 0:
            try:
                os.dup2(log, 2)
                os._exit(_be_the_agent_and_the_supervisor(top, command, log, rooted=rooted))
            finally:
                os._exit(99)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, said.read_text()
        return said.read_text()
    finally:
        os.close(log)
        workspace.remove(str(top))


def _be_the_agent_and_the_supervisor(top: Path, command: str, log: int, *, rooted: bool) -> int:
    os.setgroups([])
    os.setresgid(ALICE, ALICE, ALICE)
    os.setresuid(ALICE, ALICE, ALICE)
    _mounts.libc.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)
    store = Store(top / "store")
    kept = SnapshotTrees(
        top / "cache", workspace.WorkspaceBuilder(), overlay.possible, lambda size: None
    )
    tree = kept.make(snapshot(), store.find, None, str(store.folder))
    assert tree is not None
    root = top / "one"
    workspace.WorkspaceBuilder().create(root, None, store.find, [ROOT], layered=True)
    launch: Launch = {
        "replica_id": "one", "root": str(root), "command": command, "grace": 1.0,
        "tree": tree.path,
        "env": {"PATH": os.environ["PATH"]}, "private_root": rooted,
    }  # fmt: skip
    started = spawn_child.start(root, launch, cgroups.Group(v2=None, v1={}), log=log)
    if started.message or started.rooted is not (rooted or None):
        return 98
    code = os.waitstatus_to_exitcode(os.waitpid(started.pid, 0)[1])
    workspace.remove(str(root))
    return code if store.is_unchanged() and not root.exists() else 97
