"""A private PaddleCloud home for one benchmark: its server, its agent, their memory, their end."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

COMMAND = str(Path(sys.executable).with_name("paddlecloud"))


@contextlib.contextmanager
def fresh_home() -> Iterator[Path]:
    """An empty home; whatever runs in it at the end is ended."""
    home = Path(tempfile.mkdtemp(prefix="paddlecloud-bench-"))
    os.environ["PADDLECLOUD_HOME"] = str(home)
    try:
        yield home
    finally:
        for pid in processes_of(home):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.2)
        shutil.rmtree(home, ignore_errors=True)


def cli(*args: str) -> str:
    """Run the command and give back its stdout."""
    done = subprocess.run([COMMAND, *args], capture_output=True, text=True, check=True, timeout=120)
    return done.stdout


def processes_of(home: Path) -> list[int]:
    """Every process whose command line or environment names this home."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                about = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
                if str(home).encode() in about:
                    found.append(int(entry.name))
    return found


def pss_megabytes(pids: list[int]) -> float:
    """Proportional memory: shared pages count once over all who share them."""
    total = 0
    for pid in pids:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1])
    return total / 1024


def server_facts(home: Path) -> dict[str, object]:
    facts: dict[str, object] = json.loads((home / "server" / "server.json").read_text())
    return facts
