"""A full disk: the end is still recorded, the stop still stops, and nothing is lost meanwhile."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from paddlecloud.runtime import record
from paddlecloud.runtime.control import Phase, inspect, request_stop
from tests.integration.runtime.replicas import Bench, ended, eventually, has_file


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


def test_a_start_on_a_full_disk_fails_in_words_once_there_is_space(
    bench: Bench, small_disk: Path
) -> None:
    launch = bench.order("touch ran")
    root = Path(launch["root"])
    record.write(root / record.ORDER, launch)
    (root / record.LOCK).touch()
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
