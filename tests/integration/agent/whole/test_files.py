"""Submitted files are laid out before the start; output files reach the server, early and late."""

from __future__ import annotations

import hashlib
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.agent.replicas import eventually
from tests.integration.agent.whole.world import World
from tests.live_files import files_below

FILES = {
    "run.sh": b'#!/bin/sh\ncat train_data/part-0 "$LOCAL_MOUNT_PATH/train_data/part-0"\n',
    "train_data/part-0": b"0 1 2\n",
    "train_data/deep/er/empty": b"",
    "large.bin": bytes(range(256)) * 4096,
}


def put_blobs(world: World) -> Path:
    """The server's store on the same machine."""
    blobs = world.home / "store" / "blobs"
    for digest, content in world.server.blobs.items():
        (blobs / digest[:2]).mkdir(parents=True, exist_ok=True)
        (blobs / digest[:2] / digest).write_bytes(content)
    return blobs


@pytest.mark.parametrize("local", [True, False], ids=["from the store", "over HTTP"])
def test_submitted_files_lie_in_both_places(world: World, local: bool) -> None:
    snapshot = world.server.files(FILES, executable=["run.sh"])
    blobs_dir = str(put_blobs(world)) if local else None
    replica = world.run(
        "./run.sh; echo changed > train_data/part-0; cat large.bin > $OUTPUT_PATH/l",
        snapshot=snapshot,
        blobs_dir=blobs_dir,
    )
    assert world.ended(replica)["exit_code"] == 0
    assert world.text(replica).startswith("0 1 2\n0 1 2\n")
    assert world.stored(replica).files == {"output/l": FILES["large.bin"]}
    mount = world.root(replica) / "mount"
    assert (mount / "train_data/part-0").read_bytes() == FILES["train_data/part-0"]
    assert (mount / "train_data/deep/er/empty").read_bytes() == b""
    # A second job of the same files finds them unchanged, and asks for nothing again.
    asked = world.server.count("/blobs/") + world.server.count("/snapshots/")
    again = world.run("cat train_data/part-0", snapshot=snapshot, blobs_dir=blobs_dir)
    world.ended(again)
    assert world.text(again) == "0 1 2\n"
    assert world.server.count("/blobs/") + world.server.count("/snapshots/") == asked
    assert world.server.count("/blobs/") == (0 if local else len(FILES))


def test_a_damaged_content_ends_the_job_in_words(world: World) -> None:
    snapshot = world.server.files({"a": b"right"})
    digest = hashlib.sha256(b"right").hexdigest()
    world.server.blobs[digest] = b"wrong"
    replica = world.run("touch $OUTPUT_PATH/ran", snapshot=snapshot)
    ended = world.ended(replica)
    assert ended["cause"] == "start_failed"
    assert digest in ended["message"]
    assert "damaged" in ended["message"]
    assert world.stored(replica).files == {}


def test_a_content_that_was_damaged_on_the_way_is_asked_for_again(world: World) -> None:
    snapshot = world.server.files({"a": b"right"})
    world.server.fault("/blobs/", "damage", times=2)
    replica = world.run("cat a", snapshot=snapshot)
    assert world.ended(replica)["exit_code"] == 0
    assert world.text(replica) == "right"


def test_a_cached_content_that_was_cut_short_is_fetched_again(idle_world: World) -> None:
    snapshot = idle_world.server.files({"a": b"right"})
    digest = hashlib.sha256(b"right").hexdigest()
    cached = idle_world.directory / "cache" / "blobs" / digest[:2] / digest
    cached.parent.mkdir(parents=True)
    cached.touch()
    idle_world.start_agent()
    replica = idle_world.run("cat a", snapshot=snapshot)
    assert idle_world.ended(replica)["exit_code"] == 0
    assert idle_world.text(replica) == "right"
    assert cached.read_bytes() == b"right"


def test_a_list_of_files_that_is_not_the_one_asked_for(world: World) -> None:
    snapshot = world.server.files({"a": b"right"})
    world.server.snapshots[snapshot] = [["../evil", "file", 0, "0" * 64, 0, ""]]
    ended = world.ended(world.run("true", snapshot=snapshot))
    assert ended["cause"] == "start_failed"
    assert not (world.directory / "replicas" / "evil").exists()


def test_trouble_on_the_way_to_the_files_is_overcome(world: World) -> None:
    snapshot = world.server.files(FILES)
    world.server.fault("/snapshots/", "lose the answer")
    world.server.fault("/snapshots/", "503")
    world.server.fault("/blobs/", "lose the answer", times=2)
    replica = world.run("cat train_data/part-0", snapshot=snapshot)
    assert world.ended(replica)["exit_code"] == 0
    assert world.text(replica) == "0 1 2\n"


def test_a_line_that_breaks_costs_no_byte_twice(world: World) -> None:
    content = os.urandom(4 * 1024 * 1024)
    snapshot = world.server.files({"data": content})
    world.server.fault("/blobs/", "cut the answer", times=2)
    world.server.fault("/blobs/", "503", times=2)
    world.server.fault("/blobs/", "cut the answer", times=3)
    replica = world.run("sha256sum data", snapshot=snapshot)
    assert world.ended(replica)["exit_code"] == 0
    assert world.text(replica).startswith(hashlib.sha256(content).hexdigest())
    assert world.server.faults == []
    assert world.server.sent < 1.05 * len(content)


@pytest.mark.slow
def test_files_that_cannot_be_had_hold_up_nobody_and_are_asked_for_with_patience(
    world: World,
) -> None:
    snapshot = world.server.files(FILES)
    world.server.fault("/snapshots/", "503", times=100_000)
    began = time.monotonic()
    stuck = [world.run("exit 7", snapshot=snapshot) for _ in range(6)]
    world.server.wait(lambda: world.server.count("/snapshots/") > 20)
    assert world.ended(world.run("exit 3"))["exit_code"] == 3
    # Six tries in the first 2 seconds, one every 2 seconds after that.
    asked = world.server.count("/snapshots/")
    assert asked <= len(stuck) * (7 + (time.monotonic() - began) / 2)
    assert world.agent_log().count("cannot be started yet") == len(stuck)
    world.server.faults.clear()
    assert [world.ended(replica)["exit_code"] for replica in stuck] == [7] * len(stuck)


def test_refused_keys_are_read_again_before_the_next_try(world: World) -> None:
    snapshot = world.server.files(FILES)
    world.server.fault("/snapshots/", "401", times=2)
    assert world.ended(world.run("exit 5", snapshot=snapshot))["exit_code"] == 5


def test_a_stop_while_the_files_cannot_be_had(world: World) -> None:
    snapshot = world.server.files(FILES)
    world.server.fault("/snapshots/", "503", times=1000)
    replica = world.run("true", snapshot=snapshot)
    world.server.wait(lambda: world.server.count("/snapshots/") > 2)
    world.server.order(replica, "stop")
    assert world.ended(replica)["cause"] == "stopped"


def test_outputs_arrive_before_the_end_is_told(world: World) -> None:
    replica = world.run(
        "mkdir -p $OUTPUT_PATH/ckpt/epoch-1; echo model > $OUTPUT_PATH/ckpt/epoch-1/w; "
        'echo 中文 > "$OUTPUT_PATH/结果 1%.txt"; : > $OUTPUT_PATH/empty; '
        "echo worker > $LOCAL_LOG_PATH/worker.0"
    )
    world.ended(replica)
    assert world.stored(replica).files == {
        "output/ckpt/epoch-1/w": b"model\n",
        "output/结果 1%.txt": "中文\n".encode(),
        "output/empty": b"",
        "log/worker.0": b"worker\n",
    }
    assert len(world.stored(replica).puts) == 4


def test_outputs_arrive_while_it_runs_and_again_when_they_change(world: World) -> None:
    world.server.settings["ship_interval"] = 0.1
    replica = world.run(
        "touch -d '1 hour ago' $OUTPUT_PATH/old; echo 1 > $LOCAL_LOG_PATH/growing; echo up; "
        "while ! test -e ../go; do sleep 0.02; done; echo 2 >> $LOCAL_LOG_PATH/growing"
    )
    world.says(replica, "up")
    files = world.stored(replica).files
    world.server.wait(lambda: files == {"output/old": b"", "log/growing": b"1\n"})
    (world.root(replica) / "go").touch()
    world.ended(replica)
    assert files == {"output/old": b"", "log/growing": b"1\n2\n"}
    assert world.stored(replica).puts.count("output/old") == 1


def test_what_a_killed_job_left_arrives_too(world: World) -> None:
    replica = world.run("echo half > $OUTPUT_PATH/model; kill -9 $$")
    assert world.ended(replica)["signal"] == 9
    assert world.stored(replica).files == {"output/model": b"half\n"}


def test_links_lead_nowhere_outside(world: World) -> None:
    replica = world.run(
        "cd $OUTPUT_PATH; mkdir ckpt; echo w > ckpt/w; ln -s ckpt latest; ln -s ckpt/w best; "
        "ln -s /etc/passwd stolen; ln -s /etc theirs; ln -s ../work work; ln -s . circle; "
        "ln -s missing broken; ln -s ../output/ckpt/w around; mkfifo pipe"
    )
    world.ended(replica)
    assert world.stored(replica).files == {
        "output/ckpt/w": b"w\n",
        "output/latest/w": b"w\n",
        "output/best": b"w\n",
        "output/around": b"w\n",
    }


def test_a_new_agent_does_not_send_again_what_arrived(world: World) -> None:
    world.server.settings["ship_interval"] = 0.1
    replica = world.run(
        "touch -d '1 hour ago' $OUTPUT_PATH/old; echo up; "
        "while ! test -e ../go; do sleep 0.02; done; echo new > $OUTPUT_PATH/new"
    )
    world.server.wait(lambda: world.stored(replica).puts)
    eventually(lambda: (world.root(replica) / "shipped.json").exists())
    world.kill_agent()
    (world.root(replica) / "go").touch()
    world.start_agent()
    world.ended(replica)
    assert sorted(world.stored(replica).puts) == ["output/new", "output/old"]


def test_a_file_that_the_server_refuses_is_noted_and_the_rest_arrives(world: World) -> None:
    world.server.fault("/files/output/a", "400", times=100)
    replica = world.run("cd $OUTPUT_PATH; echo a > a; echo b > b")
    assert world.ended(replica)["exit_code"] == 0
    assert world.stored(replica).files == {"output/b": b"b\n"}
    assert "output/a is not sent" in world.agent_log()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MiB, where this machine lets us make one."""
    place = tmp_path / "agent"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(place)], check=False
    )
    if mounted.returncode:
        pytest.skip("this user may not mount a file system")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_full_disk_is_told_with_numbers_and_works_again(small_disk: Path, tmp_path: Path) -> None:
    world = World(tmp_path)
    try:
        world.start_agent()
        snapshot = world.server.files({"big": os.urandom(3 * 1024 * 1024)})
        blobs_dir = str(put_blobs(world))
        refused = world.ended(world.run("true", snapshot=snapshot, blobs_dir=blobs_dir))
        assert refused["cause"] == "start_failed"
        assert f"{6 * 1024 * 1024} bytes needed" in refused["message"]
        small = world.server.files({"small": b"x" * 1024})
        blobs_dir = str(put_blobs(world))
        replica = world.run("cat small", snapshot=small, blobs_dir=blobs_dir)
        assert world.ended(replica)["exit_code"] == 0
        assert world.text(replica) == "x" * 1024
    finally:
        world.close()


def test_a_job_finds_the_space_that_others_left_full(small_disk: Path, tmp_path: Path) -> None:
    world = World(tmp_path)
    try:
        world.start_agent()
        world.ended(world.run("true"))
        old = small_disk / "cache" / "blobs" / "00" / ("0" * 64)
        old.parent.mkdir(parents=True)
        old.write_bytes(os.urandom(3 * 1024 * 1024))
        os.utime(old, (1, 1))
        snapshot = world.server.files({"big": os.urandom(1024 * 1024)})
        replica = world.run("cat big | wc -c", snapshot=snapshot, blobs_dir=str(put_blobs(world)))
        assert world.ended(replica)["exit_code"] == 0
        assert world.text(replica).strip() == str(1024 * 1024)
        assert not old.exists()
    finally:
        world.close()


def test_a_disk_without_a_single_byte_left(small_disk: Path, tmp_path: Path) -> None:
    world = World(tmp_path)
    try:
        world.start_agent()
        world.ended(world.run("true"))
        ballast = small_disk / "ballast"
        with ballast.open("wb", buffering=0) as out, pytest.raises(OSError, match="No space"):
            while True:
                out.write(b"\0" * 4096)
        refused = world.ended(world.run("echo hi"))
        assert refused["cause"] == "start_failed"
        assert "No space left on device" in refused["message"]
        ballast.unlink()
        replica = world.run("echo hi")
        assert world.ended(replica)["exit_code"] == 0
    finally:
        world.close()


@pytest.mark.parametrize("told", ["by its server", "by its own file"])
def test_the_cache_of_fetched_files_is_bounded(idle_world: World, told: str) -> None:
    old = idle_world.directory / "cache" / "blobs" / "00" / ("0" * 64)
    old.parent.mkdir(parents=True)
    old.write_bytes(b"x" * 5000)
    os.utime(old, (1, 1))
    if told == "by its server":
        idle_world.server.settings["cache_limit"] = 2000
    else:
        idle_world.server.settings["cache_limit"] = 1 << 30
        idle_world.configure(cache_bytes=2000)
    idle_world.start_agent()
    snapshot = idle_world.server.files({"new": b"y" * 1500})
    idle_world.ended(idle_world.run("true", snapshot=snapshot))
    eventually(lambda: not old.exists())
    kept = files_below(idle_world.directory / "cache" / "blobs")
    assert [path.stat().st_size for path in kept] == [1500]


def an_old_content(world: World, size: int) -> Path:
    old = world.directory / "cache" / "blobs" / "00" / ("0" * 64)
    old.parent.mkdir(parents=True)
    old.touch()
    os.truncate(old, size)
    os.utime(old, (1, 1))
    return old


def test_a_new_agent_does_not_cut_its_cache_before_it_knows_the_limit(idle_world: World) -> None:
    old = an_old_content(idle_world, 100 * 1024**3)
    idle_world.server.settings["cache_limit"] = 1 << 40
    idle_world.start_agent()
    idle_world.ended(idle_world.run("true"))
    assert old.exists()


def test_another_limit_is_kept_to_although_nothing_runs(idle_world: World) -> None:
    old = an_old_content(idle_world, 5000)
    idle_world.server.settings["cache_limit"] = 2000
    idle_world.start_agent()
    eventually(lambda: not old.exists())


@pytest.mark.slow
def test_mistakes_of_the_server_cost_neither_the_job_nor_its_outputs(world: World) -> None:
    snapshot = world.server.files({"a": b"right"})
    for part in ("/snapshots/", "/blobs/", "/files/", "/listing", "/report"):
        world.server.fault(part, "500")
    replica = world.run("cat a; cat a > $OUTPUT_PATH/model", snapshot=snapshot)
    assert world.ended(replica)["exit_code"] == 0
    assert world.text(replica) == "right"
    assert world.stored(replica).files == {"output/model": b"right"}
    assert world.server.faults == []


def test_a_name_that_is_no_text_comes_back_under_one_that_is(world: World) -> None:
    names = "for one in '\\260\\241' '\\260\\242'"
    put = 'echo "$one" > "$OUTPUT_PATH/$(printf $one)"'
    replica = world.run(f"{names}; do {put}; done; echo good > $OUTPUT_PATH/good")
    assert world.ended(replica)["exit_code"] == 0
    stored = world.stored(replica)
    assert sorted(stored.files) == ["output/%B0%A1", "output/%B0%A2", "output/good"]
    assert stored.files["output/%B0%A1"] != stored.files["output/%B0%A2"]
    assert sorted(stored.listing) == sorted(stored.files)
    english, chinese = world.text(replica).splitlines()
    assert ": rank-0/%B0%A1, rank-0/%B0%A2;" in english
    assert "不是 UTF-8" in chinese
