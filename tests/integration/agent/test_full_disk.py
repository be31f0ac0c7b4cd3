"""A full disk: the end is still recorded, the stop still stops, and nothing is lost."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from paddlecloud.agent.replica import records
from paddlecloud.agent.replica.inspect import Phase, inspect, request_stop
from paddlecloud.agent.supervisor import processes
from tests.integration.agent.replicas import Bench, ended, eventually, has_file

pytestmark = pytest.mark.slow


@pytest.fixture
def small_disk(bench: Bench, tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB in which the bench makes its replicas."""
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k,nr_inodes=200", "tmpfs", str(place)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode != 0:
        pytest.skip("only root can make a small file system")
    bench.folder = place
    try:
        yield place
        bench.check_nothing_is_left()
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def fill_but(place: Path, free: int) -> Path:
    """Leave so many bytes; the file to delete to give the rest back."""
    filler = fill(place)
    os.truncate(filler, filler.stat().st_size - free)
    return filler


def fill(place: Path) -> Path:
    """Take the last byte of the disk; the file to delete to give it back."""
    filler = place / "filler"
    fd = os.open(filler, os.O_WRONLY | os.O_CREAT)
    try:
        while True:
            os.write(fd, b"x" * 4096)
    except OSError as error:
        assert error.errno == errno.ENOSPC
    finally:
        os.close(fd)
    return filler


@pytest.mark.usefixtures("small_disk")
def test_a_job_that_fills_the_disk_still_has_its_end_recorded(bench: Bench) -> None:
    root, end = bench.run("cat /dev/zero > fill; echo lost; touch done; exit 3")
    assert (end["cause"], end["exit_code"]) == ("exit", 3)
    assert (root / "work" / "fill").stat().st_size > 100_000


def test_a_stop_works_on_a_full_disk(bench: Bench, small_disk: Path) -> None:
    root = bench.start("echo $$ > ready; sleep 600")
    has_file(root, "ready")
    eventually(lambda: (root / "exit.json.reserved").exists())
    fill(small_disk)
    request_stop(root, grace=10, now=0.0)
    assert ended(root)["cause"] == "stopped"


def test_a_used_supervisor_hears_a_stop_on_a_full_disk(bench: Bench, small_disk: Path) -> None:
    root = bench.start_on_a_used_supervisor("echo $$ > ready; sleep 600")
    has_file(root, "ready")
    eventually(lambda: (root / "exit.json.reserved").exists())
    filler = fill(small_disk)
    assert not request_stop(root, grace=10, now=0.0), "it was told, and is to be asked again"
    assert ended(root)["cause"] == "stopped"
    filler.unlink()


def await_a_blocked_log(root: Path) -> None:
    """Its log takes no more, and the replica waits at the full pipe."""

    def sleeps() -> bool:
        fields = processes.stat_fields(inspect(root).pid or 0)
        return fields is not None and fields[0] == b"S" and os.statvfs(root).f_bavail == 0

    eventually(sleeps)


def test_a_log_on_a_full_disk_waits_for_space_and_is_whole(bench: Bench, small_disk: Path) -> None:
    filler = fill_but(small_disk, 64 * 1024)
    root = bench.start("exec seq 400000")
    await_a_blocked_log(root)
    assert inspect(root).phase is Phase.RUNNING
    subprocess.run(["mount", "-o", "remount,size=8m", str(small_disk)], check=True)
    end = ended(root)
    assert (end["exit_code"], end["message"], end.get("log_lost")) == (0, "", None)
    assert (root / "stdout.log").read_text() == "".join(f"{n + 1}\n" for n in range(400_000))
    filler.unlink()


@pytest.mark.parametrize("ending", ["stopped", "wall_time"])
def test_a_log_on_a_full_disk_does_not_keep_a_replica_alive(
    bench: Bench, small_disk: Path, ending: str
) -> None:
    fill_but(small_disk, 64 * 1024)
    root = bench.start("exec seq 400000", max_seconds=5.0 if ending == "wall_time" else None)
    if ending == "stopped":
        await_a_blocked_log(root)
        request_stop(root, grace=10, now=0.0)
    end = ended(root)
    assert end["cause"] == ending
    log = (root / "stdout.log").read_bytes()
    want = "".join(f"{n + 1}\n" for n in range(400_000)).encode()
    assert log
    assert want.startswith(log)
    # What was in the supervisor's hand and in the pipe.
    assert 0 < end["log_lost"] <= 2 * 1024 * 1024
    assert f"{end['log_lost']} bytes of its log could not be written" in end["message"]
    assert f"{root}: 0 bytes free" in end["message"]


def test_a_start_on_a_full_disk_fails_in_words_once_there_is_space(
    bench: Bench, small_disk: Path
) -> None:
    launch = bench.order("touch ran")
    root = Path(launch["root"])
    records.write(root / records.ORDER, launch)
    (root / records.LOCK).touch()
    filler = fill(small_disk)
    bench.spawner.spawn(launch)
    # It has given the start up and is now trying to say so.
    eventually(lambda: (root / "exit.json.reserved").exists())
    assert inspect(root).phase is Phase.RUNNING
    filler.unlink()
    end = ended(root)
    assert (end["cause"], end["start_errno"]) == ("start_failed", errno.ENOSPC)
    assert end["message"].endswith("No space left on device")
    assert not (root / "work" / "ran").exists()
