"""A lock between servers: one holder at a time, free when its holder dies, no wait without end."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from paddlecloud.model.errors import Retry
from paddlecloud.stores.directory.filelock import FileLock

HOLDER = """
import sys, time
from pathlib import Path
from paddlecloud.stores.directory.filelock import FileLock
with FileLock(Path(sys.argv[1]), 10.0):
    print("held", flush=True)
    time.sleep(600)
"""


def test_threads_with_locks_of_their_own_take_turns(tmp_path: Path) -> None:
    path, inside, most = tmp_path / "locks" / "one", [0], [0]
    together = threading.Barrier(8)

    def work(_: int) -> None:
        lock = FileLock(path, 20.0)
        together.wait(20)
        for _ in range(20):
            with lock:
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                inside[0] -= 1

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert (inside[0], most[0]) == (0, 1)


def test_another_process_holds_it_until_it_dies(tmp_path: Path) -> None:
    path = tmp_path / "one"
    command = [sys.executable, "-c", HOLDER, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        impatient = FileLock(path, timeout=0.05)
        for _ in range(2):
            with pytest.raises(Retry) as refused, impatient:
                pass
            assert refused.value.code == "store_lock_busy"
        holder.kill()
        holder.wait(20)
    with impatient, FileLock(tmp_path / "two", timeout=0.05):
        pass


def test_an_error_inside_gives_it_back(tmp_path: Path) -> None:
    lock = FileLock(tmp_path / "one", timeout=0.05)
    with pytest.raises(KeyError), lock:
        raise KeyError("inside")
    with lock:
        pass
