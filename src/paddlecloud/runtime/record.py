"""What a replica leaves on disk beside its files: the order, the run, the wish to stop, the end.

These records are the only truth about a replica: the agent may die and read them again. A record
appears whole or not at all (written aside, then renamed). The shapes are plain JSON objects and
not dataclasses, because every monitor lives in a copy of this program and each import costs it
memory; the types exist for the type checker alone.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, NotRequired, TypedDict

    class Launch(TypedDict):
        """What the agent asks for; `root` holds the replica's directories and records."""

        replica_id: str
        root: str
        command: str
        env: dict[str, str]
        grace: float
        """Seconds between SIGTERM and SIGKILL when the wall time is over."""
        max_seconds: NotRequired[float | None]
        cpu_request: NotRequired[float | None]
        cpu_limit: NotRequired[float | None]
        memory_limit: NotRequired[int | None]
        pids_limit: NotRequired[int | None]
        uid: NotRequired[int | None]
        gid: NotRequired[int | None]
        notify: NotRequired[str | None]
        """A unix datagram socket that gets the replica id at start and at end."""

    class RunRecord(TypedDict):
        """Made before the process exists, and written again with its pid."""

        monitor_pid: int
        monitor_start: int | None
        boot_id: str
        cgroup: dict[str, str]
        pid: int | None
        started_at: float | None

    class StopRecord(TypedDict):
        """The wish to end; a second wish can only make the grace shorter."""

        grace: float
        cause: str
        requested_at: float

    class ExitRecord(TypedDict):
        """How it ended; once it exists nothing of the replica runs any more."""

        cause: str
        exit_code: int | None
        signal: int | None
        oom: bool
        message: str
        start_errno: int | None
        started_at: float | None
        finished_at: float
        stop_requested_at: float | None
        max_rss: int | None
        cpu_seconds: float | None
        enforced: dict[str, bool]

else:
    Launch = RunRecord = StopRecord = ExitRecord = dict

ORDER = "order.json"
RUN = "run.json"
STOP = "stop.json"
EXIT = "exit.json"
LOCK = "lock"
WORK = "work"
STDOUT = "stdout.log"
MARKER = "PADDLECLOUD_REPLICA"

CAUSE_EXIT = "exit"
CAUSE_STOPPED = "stopped"
CAUSE_WALL_TIME = "wall_time"
CAUSE_START_FAILED = "start_failed"

_RESERVED_BYTES = 4096


def read(path: Path) -> Any:
    """The JSON value at `path`; None when it is missing or was never whole."""
    try:
        return json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None


def write(path: Path, value: Mapping[str, Any]) -> None:
    """Put `value` at `path` in one step; a full disk leaves what was there before."""
    aside = path.with_name(f"{path.name}.{os.urandom(4).hex()}.tmp")
    try:
        aside.write_bytes(json.dumps(value).encode())
        aside.replace(path)
    except OSError:
        with suppress(OSError):
            aside.unlink()
        raise


def create(path: Path, value: Mapping[str, Any]) -> None:
    """Make a record that must not exist yet. A reader may meet it empty for an instant."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, json.dumps(value).encode())
    finally:
        os.close(fd)


def reserve(path: Path) -> None:
    """Take the disk space of a later `write_reserved` now, while there is some."""
    with suppress(OSError):
        fd = os.open(_reserved(path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(fd, 0, _RESERVED_BYTES)
        finally:
            os.close(fd)


def write_reserved(path: Path, value: Mapping[str, Any]) -> None:
    """Like `write`, into the reserved space. It survives every kill, though not a loss of power,
    after which nothing of the replica runs and it counts as lost: the wait for the disk would be a
    good part of a short job."""
    data = json.dumps(value).encode()
    fd = os.open(_reserved(path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.pwrite(fd, data, 0)
        os.ftruncate(fd, len(data))
    finally:
        os.close(fd)
    _reserved(path).replace(path)


def _reserved(path: Path) -> Path:
    return path.with_name(f"{path.name}.reserved")
