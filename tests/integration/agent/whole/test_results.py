"""Outputs come back whole: only what grew, a list at the end, and trees that replicas share."""

from __future__ import annotations

import hashlib
import os
import shlex
import sys
from pathlib import Path

import pytest

from paddlecloud.agent.inputs import snapshot_tree
from tests.integration.agent.replicas import eventually
from tests.integration.agent.whole.test_files import put_blobs
from tests.integration.agent.whole.world import World

LINE = "0123456789abcdef" * 64 + "\n"
MANY = {
    f"data/{n % 7}/part-{n}": f"content {n}\n".encode() for n in range(snapshot_tree.WORTH_ENTRIES)
}


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def grow(world: World, replica: str, *, name: str = "events") -> Path:
    """Once the first part of a growing file is at the server: where the file is."""
    world.server.wait(lambda: f"output/{name}" in world.stored(replica).files)
    return world.root(replica) / "output" / name


@pytest.fixture
def quick(idle_world: World) -> World:
    """Shipped every tenth of a second."""
    idle_world.server.settings["ship_interval"] = 0.1
    idle_world.start_agent()
    return idle_world


def a_growing_job(world: World) -> tuple[str, bytes]:
    """A job that waits after its first 100 KiB or so of output until `go` is there.

    It has its name when it is whole: what else is written to it must not meet the job's own bytes.
    """
    first = LINE * 100
    script = (
        f"for i in $(seq 100); do printf '%s' '{LINE}'; done > events;"
        " mv events $OUTPUT_PATH/events;"
        " until test -e go; do sleep 0.02; done"
    )
    return world.run(script), first.encode()


def test_of_a_file_that_grows_only_the_rest_is_sent(quick: World) -> None:
    replica, first = a_growing_job(quick)
    events = grow(quick, replica)
    with events.open("ab") as file:
        file.write(b"and more\n")
    quick.server.wait(lambda: len(quick.stored(replica).files["output/events"]) > len(first))
    stored = quick.stored(replica)
    assert stored.files["output/events"] == first + b"and more\n"
    assert stored.sent == len(first) + len(b"and more\n")
    (quick.root(replica) / "work" / "go").touch()
    quick.ended(replica)
    assert stored.listing == {"output/events": sha256(first + b"and more\n")}


def test_a_file_whose_beginning_changed_is_sent_whole(quick: World) -> None:
    replica, first = a_growing_job(quick)
    events = grow(quick, replica)
    with events.open("r+b") as file:
        file.write(b"other")
        file.seek(0, os.SEEK_END)
        file.write(b"and more\n")
    want = b"other" + first[5:] + b"and more\n"
    quick.server.wait(lambda: quick.stored(replica).files["output/events"] == want)
    (quick.root(replica) / "work" / "go").touch()
    quick.ended(replica)
    assert quick.stored(replica).listing == {"output/events": sha256(want)}


MAPPED = f"""exec {shlex.quote(sys.executable)} -c '
import mmap, os, time
path = os.environ["OUTPUT_PATH"] + "/emb"
file = open(path, "w+b")
file.truncate(100_000)
mapped = mmap.mmap(file.fileno(), 0)
file.close()
mapped[:] = b"1" * 100_000
while not os.path.exists("go"): time.sleep(0.02)
mapped[:] = b"2" * 100_000
'"""


def test_what_a_job_wrote_last_through_a_mapping_comes_back(quick: World) -> None:
    replica = quick.run(MAPPED)
    grow(quick, replica, name="emb")
    (quick.root(replica) / "work" / "go").touch()
    quick.ended(replica)
    stored, want = quick.stored(replica), b"2" * 100_000
    assert stored.files["output/emb"] == want
    assert stored.listing == {"output/emb": sha256(want)}


def test_a_server_that_has_less_than_was_sent_gets_the_whole_file(quick: World) -> None:
    replica, first = a_growing_job(quick)
    events = grow(quick, replica)
    quick.stored(replica).files["output/events"] = first[:10]
    with events.open("ab") as file:
        file.write(b"and more\n")
    want = first + b"and more\n"
    quick.server.wait(lambda: quick.stored(replica).files["output/events"] == want)
    (quick.root(replica) / "work" / "go").touch()
    quick.ended(replica)


def test_what_the_server_misses_at_the_end_is_sent_again(quick: World) -> None:
    replica, first = a_growing_job(quick)
    grow(quick, replica)
    stored = quick.stored(replica)
    del stored.files["output/events"]
    (quick.root(replica) / "work" / "go").touch()
    quick.ended(replica)
    assert stored.files == {"output/events": first}
    assert "the server misses output/events" in quick.agent_log()


def test_a_job_without_outputs_sends_no_list(world: World) -> None:
    assert world.ended(world.run("true"))["exit_code"] == 0
    assert world.server.count("/listing") == 0


def test_a_killed_job_keeps_what_it_had(quick: World) -> None:
    replica, first = a_growing_job(quick)
    eventually(lambda: (quick.root(replica) / "output" / "events").exists())
    quick.server.order(replica, "stop")
    assert quick.ended(replica)["cause"] == "stopped"
    assert first.startswith(quick.stored(replica).files.get("output/events", b""))
    assert set(quick.stored(replica).listing) == set(quick.stored(replica).files)


def trees_of(world: World) -> list[Path]:
    return sorted((world.directory / "cache" / "trees").glob("*"))


@pytest.mark.skipif(sys.platform != "linux", reason="needs overlayfs")
@pytest.mark.parametrize("local", [True, False], ids=["from the store", "over HTTP"])
def test_many_files_are_laid_out_once_for_all_replicas(world: World, local: bool) -> None:
    snapshot = world.server.files(MANY)
    blobs = str(put_blobs(world)) if local else None
    command = (
        "echo changed > data/1/part-1; rm data/2/part-2; cat data/*/part-? $LOCAL_MOUNT_PATH/data/"
        "1/part-1; find . -type f | wc -l; cp data/1/part-1 $OUTPUT_PATH"
    )
    first = world.run(command, snapshot=snapshot, blobs_dir=blobs)
    assert world.ended(first)["exit_code"] == 0
    if not trees_of(world):
        pytest.skip("this machine does not let us mount")
    assert world.text(first).endswith(f"content 1\n{len(MANY) - 1}\n")
    assert world.stored(first).files == {"output/part-1": b"changed\n"}
    asked = len(world.server.calls)
    again = world.run("cat data/1/part-1; ls data/2 | wc -l", snapshot=snapshot, blobs_dir=blobs)
    assert world.ended(again)["exit_code"] == 0
    assert world.text(again) == f"content 1\n{len([n for n in MANY if n.startswith('data/2/')])}\n"
    assert not [c for c in world.server.calls[asked:] if "/blobs/" in c or "/snapshots/" in c]
    (tree,) = trees_of(world)
    top = Path(blobs) if blobs else world.directory / "cache" / "blobs"
    kept = {path.stat().st_ino for path in top.rglob("*") if path.is_file()}
    assert {path.stat().st_ino for path in tree.rglob("part-*")} == kept
    assert {p.read_bytes() for p in tree.rglob("part-*")} == set(MANY.values())
