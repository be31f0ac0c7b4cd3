"""A server that the processes of one run of tests share: a database, an object store.

The first process that needs it starts it, also with parallel workers. It ends when the last process
of the run is gone, also if that was killed: the script that keeps it waits for their locks.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

PATIENCE = 60.0


def shared_server(script: str, what: str, *, mode: int) -> Path:
    """Where the server of this run is that `script` keeps; our hold lasts as long as this process.

    The directory gets this mode. Where the server does not start the test is skipped.
    """
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID") or str(os.getpid())
    name = f"paddlecloud-{Path(script).stem}-{os.getuid()}-{run[:16]}"
    place = Path(tempfile.gettempdir()) / name
    place.mkdir(mode=mode, exist_ok=True)
    held = (place / "users").open("a")
    fcntl.flock(held, fcntl.LOCK_SH)
    atexit.register(held.close)
    with (place / "starting").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        if not (place / "ready").exists():
            _start(place, script, what)
    return place


def _start(place: Path, script: str, what: str) -> None:
    with (place / "keeper.out").open("w") as out:
        command = [sys.executable, script, "keep", str(place)]
        keeper = subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True)
    deadline = time.monotonic() + PATIENCE
    while not (place / "ready").exists():
        if keeper.poll() is not None or time.monotonic() > deadline:
            said = (place / "keeper.out").read_text("utf-8").strip().replace("\n", " ")
            pytest.skip(f"no {what} for this test: {said[-300:]}")
        time.sleep(0.02)
    keeper.returncode = 0  # it outlives this process by design
