"""Files into replicas and results back: what laying out 10,000 files costs, and what downloads do.

How long a replica waits for its files is what the agent itself notes, from the order to the launch.
Copies and layers are compared in this process, with the same code and without a server, and so is
the place where one becomes faster than the other. Downloads are measured against `cp`.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from bench.home import fresh_home
from bench.row import Row
from paddlecloud import Client
from paddlecloud.agent.inputs import snapshot_tree
from paddlecloud.agent.inputs.snapshot_tree import SnapshotTrees
from paddlecloud.agent.replica.records import Launch
from paddlecloud.agent.sandbox import cgroups, hardlinks, overlay, workspace
from paddlecloud.agent.supervisor import spawn_child
from paddlecloud.client import local_server
from paddlecloud.model.files.snapshot import Entry, Snapshot, snapshot_of

MANY, SIZE = 10_000, 4096
LARGE = 256 * 1024 * 1024
ROUNDS = 7
_READ = os.O_RDONLY | os.O_CLOEXEC


def files_out() -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as scratch:
        yield from _copies_and_layers(Path(scratch))
    with fresh_home() as home, Client() as client, tempfile.TemporaryDirectory() as directory:
        client.list_jobs(limit=1)
        yield from _into_replicas(home, client, Path(directory))
        yield from _back(client, Path(directory))
        yield from _many_back(home, client, Path(directory))


def _into_replicas(home: Path, client: Client, directory: Path) -> Iterator[Row]:
    job = directory / "many"
    for number in range(MANY):
        place = job / str(number // 100)
        place.mkdir(parents=True, exist_ok=True)
        (place / str(number)).write_bytes(str(number).encode().ljust(SIZE, b"."))
    took = []
    for _ in range(4):
        submitted = client.submit_job(files=str(job), start_cmd="find . -type f | wc -l")
        ended = client.wait(submitted.id, timeout=120)
        assert ended.state == "success", ended
        assert b"".join(client.logs(submitted.id)).split() == [str(MANY).encode()]
        took.append(_launched_after(home, submitted.id))
    what = f"{MANY:,} files into a replica"
    first, again = took[0], statistics.median(took[1:])
    yield Row(
        what=f"{what}, first", measured=f"{first:.0f} ms", goal="< 300 ms", reached=first < 300
    )
    yield Row(what=f"{what}, again", measured=f"{again:.1f} ms", goal="< 30 ms", reached=again < 30)


def _launched_after(home: Path, job_id: str) -> float:
    """Milliseconds from the order to the launch, by the agent's own log."""
    log = (home / "agent" / "agent.log").read_text()
    found = re.search(rf"{job_id}.*launched ([0-9.]+) ms after its order", log) or re.search(
        rf"launched ([0-9.]+) ms after its order.*{job_id}", log
    )
    assert found is not None, "the agent's log does not tell"
    return float(found[1])


def _back(client: Client, directory: Path) -> Iterator[Row]:
    empty = directory / "empty"
    empty.mkdir()
    command = f"head -c {LARGE} /dev/urandom > $OUTPUT_PATH/model"
    job = client.submit_job(files=str(empty), start_cmd=command)
    assert client.wait(job.id, timeout=300).state == "success"
    result = directory / "result"
    took = _best(lambda: client.get_files(job.id, download_dir=str(result)), result)
    source, copy = directory / "source", directory / "copy"
    shutil.copyfile(result / job.id / "rank-0" / "model", source)
    plain = _best(lambda: subprocess.run(["cp", source, copy], check=True), copy)
    yield Row(
        what="download of 256 MiB, verified, against cp",
        measured=f"{took / plain:.1f} x ({took:.2f} s)",
        goal="<= 3 x",
        reached=took <= 3 * plain,
    )


def _many_back(home: Path, client: Client, directory: Path) -> Iterator[Row]:
    """The 10,000 files once more, as outputs; no goal was set for them."""
    many, result = directory / "many", directory / "result"
    plain = _best(lambda: subprocess.run(["cp", "-r", many, result], check=True), result)
    job = client.submit_job(files=str(many), start_cmd="cp -r . $OUTPUT_PATH && date +%s.%N")
    assert client.wait(job.id, timeout=300).state == "success"
    since = time.time() - float(b"".join(client.logs(job.id)))
    yield _told_beside_cp(f"{MANY:,} outputs of 4 KiB: from their last to the end", since, plain)
    private = local_server.find(str(home))
    assert private is not None
    with Client(host=private.url, ak=private.ak, sk=private.sk) as far:
        for who, where in ((client, "here"), (far, "by the network")):
            get = partial(who.get_files, job.id, download_dir=str(result))
            took = _best(get, result)
            assert len(list((result / job.id).rglob("*/[0-9]*"))) >= MANY
            yield _told_beside_cp(f"download of these, {where}", took, plain)


def _told_beside_cp(what: str, took: float, plain: float) -> Row:
    measured = f"{took:.1f} s (cp -r {plain:.1f})"
    return Row(what=what, measured=measured, goal="-", reached=True)


def _best(act: Callable[[], object], made: Path) -> float:
    """Seconds of the best of three; what was made by the last is left."""
    found = []
    for _ in range(3):
        shutil.rmtree(made, ignore_errors=True)
        made.unlink(missing_ok=True)
        began = time.perf_counter()
        act()
        found.append(time.perf_counter() - began)
    return min(found)


def _copies_and_layers(scratch: Path) -> Iterator[Row]:
    """From how many small files on two mounts are faster than copies."""
    store = scratch / "store"
    store.mkdir()
    for count in (16, snapshot_tree.WORTH_ENTRIES, 4 * snapshot_tree.WORTH_ENTRIES):
        snapshot = _snapshot(store, count)
        copied = _start_milliseconds(scratch, store, snapshot, None)
        tree = _tree(scratch, store, snapshot)
        if tree is None:
            yield Row(what="layers", measured="not possible here", goal="-", reached=True)
            return
        layered = _start_milliseconds(scratch, store, snapshot, tree)
        right = count < snapshot_tree.WORTH_ENTRIES or layered < copied
        yield Row(
            what=f"{count} small files and a start: copied, layered",
            measured=f"{copied:.1f}, {layered:.1f} ms",
            goal="-" if count < snapshot_tree.WORTH_ENTRIES else "layered wins",
            reached=right,
        )


def _snapshot(store: Path, count: int) -> Snapshot:
    entries = []
    for number in range(count):
        content = f"{count} {number}".encode().ljust(1000, b".")
        digest = hashlib.sha256(content).hexdigest()
        file = store / hardlinks.name_of(digest)
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(content)
        entries.append(Entry(path=f"{number % 8}/{number}", size=len(content), sha256=digest))
    return snapshot_of(entries)


def _tree(scratch: Path, store: Path, snapshot: Snapshot) -> str | None:
    kept = SnapshotTrees(
        scratch / "cache", workspace.WorkspaceBuilder(), overlay.possible, lambda size: None
    )
    if not kept._is_possible():
        return None
    place = scratch / f"tree-{len(snapshot.entries)}" / "files"
    place.parent.mkdir()
    (place.parent / overlay.NOTE).touch()
    find = _finder(store)
    workspace.WorkspaceBuilder().fill([str(place)], snapshot.entries, find, blobs_dir=str(store))
    return str(place)


def _finder(store: Path) -> Callable[[str, int], int]:
    return lambda sha256, _size: os.open(store / hardlinks.name_of(sha256), _READ)


def _start_milliseconds(scratch: Path, store: Path, snapshot: Snapshot, tree: str | None) -> float:
    """The median time to lay a replica out and run `true` in it."""
    layer, log = workspace.WorkspaceBuilder(), os.open(os.devnull, os.O_WRONLY)
    took = []
    for number in range(ROUNDS):
        root = scratch / f"replica-{number}"
        launch: Launch = {
            "replica_id": "bench", "root": str(root), "command": "true", "env": {}, "grace": 1.0,
            "tree": tree,
        }  # fmt: skip
        began = time.perf_counter()
        layer.create(root, snapshot, _finder(store), layered=tree is not None)
        started = spawn_child.start(root, launch, cgroups.Group(v2=None, v1={}), log=log)
        took.append((time.perf_counter() - began) * 1000)
        os.waitpid(started.pid, 0)
        workspace.remove(str(root))
    os.close(log)
    return statistics.median(took)
