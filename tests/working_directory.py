"""Ends what tests leave behind, by working directory.

Never by a pid from a file: the process may have ended long ago, and in a run with fork bombs its
pid soon belongs to another test.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path


def pids_in(directory: Path) -> list[int]:
    """The processes whose working directory is `directory` or below it."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (entry / "cwd").readlink().is_relative_to(directory):
                found.append(int(entry.name))
    return found


def kill_in(directory: Path) -> None:
    for pid in pids_in(directory):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
