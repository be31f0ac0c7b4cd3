"""A real S3 server for tests: one for a run of tests, a directory in its bucket for each test.

It is started by whoever needs it first, also among parallel workers, and ends when the last process
of the run is gone, however that went. Where none can be had, tests that need one are skipped with
one line that says what is missing.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import IO

import pytest

from scripts import s3

PATIENCE = 60.0
_numbers = itertools.count(1)


@pytest.fixture
def s3_settings() -> dict[str, str]:
    """Settings of a store in a directory of the bucket that nobody else uses."""
    return fresh_settings()


@pytest.fixture
def s3_place() -> Iterator[Path]:
    """The directory of a running server of the test's own, to be stopped and started at will."""
    with tempfile.TemporaryDirectory(prefix="paddlecloud-s3-", ignore_cleanup_errors=True) as name:
        place = Path(name) / "server"
        try:
            s3.start(place)
        except s3.Missing as error:
            pytest.skip(f"no S3 server for this test: {error}")
        yield place
        s3.stop(place)


def fresh_settings() -> dict[str, str]:
    return {**s3.show(_server()), "prefix": f"test-{os.getpid()}-{next(_numbers)}"}


def reader_settings() -> dict[str, str]:
    """The same server with keys that may not write."""
    return s3.show_reader(_server())


@cache
def _server() -> Path:
    """Where the server of this run of tests is; our hold on it lasts as long as this process."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID") or str(os.getpid())
    place = Path(tempfile.gettempdir()) / f"paddlecloud-s3-{os.getuid()}-{run[:16]}"
    try:
        s3.find_program()
    except s3.Missing as error:
        pytest.skip(f"no S3 server for this test: {error}")
    place.mkdir(mode=0o700, exist_ok=True)
    _held.append((place / "users").open("a"))
    fcntl.flock(_held[0], fcntl.LOCK_SH)
    with (place / "starting").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        if not (place / "ready").exists():
            _start(place)
    return place


_held: list[IO[str]] = []


def _start(place: Path) -> None:
    command = [sys.executable, s3.__file__, "keep", str(place)]
    with (place / "keeper.out").open("w") as out:
        keeper = subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True)
    deadline = time.monotonic() + PATIENCE
    while not (place / "ready").exists():
        if keeper.poll() is not None or time.monotonic() > deadline:
            said = (place / "keeper.out").read_text("utf-8").strip().replace("\n", " ")
            pytest.skip(f"no S3 server for this test: {said[-300:]}")
        time.sleep(0.02)
    keeper.returncode = 0  # it outlives us by design; nobody has to wait for it
