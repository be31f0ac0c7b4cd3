"""JSON records of a replica in its directory: the order, the run, the stop request, the exit.

They are the source of truth about a replica: the agent may die and read them again. A record
appears whole or not at all (written to a temporary file, then renamed), and only its owner can read
it. They are dictionaries and not dataclasses, because every supervisor is a copy of this program
and each import costs it memory; the TypedDicts exist for the type checker alone. Each record has a
format number; readers ignore keys that they do not know.

Beside them lies the lock that a supervisor holds while it lives. It is a record lock and not flock,
for three reasons: testing it takes no lock, so that never disturbs a supervisor that is just
starting; the test returns the holder's pid, which is alive at that moment; and a forked child does
not inherit the lock, so only the supervisor can hold it.

Paths are strings inside: for a short job, writing its records is most of the work.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import struct
import sys
from contextlib import suppress
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, NotRequired, TypedDict

    class Launch(TypedDict):
        """What a supervisor has to run; `root` holds the replica's directories and records."""

        replica_id: str
        root: str
        command: str
        env: dict[str, str]
        secrets: NotRequired[dict[str, str]]
        """Secrets by the variable that holds them: the files in SECRETS have their values."""
        grace: float
        """Seconds between SIGTERM and SIGKILL when the wall time is over."""
        max_seconds: NotRequired[float | None]
        """The wall time, or what is left of it or of a quota."""
        cpu_request: NotRequired[float | None]
        cpu_limit: NotRequired[float | None]
        memory_limit: NotRequired[int | None]
        pids_limit: NotRequired[int | None]
        log_limit: NotRequired[int | None]
        """Bytes of stdout and stderr that are kept, from the head and the tail."""
        uid: NotRequired[int | None]
        """The uid, and the gid of the same number, under which it runs; None: the agent's."""
        hide: NotRequired[list[str]]
        """Paths that are hidden from it; for one with a uid of its own."""
        user_namespaces: NotRequired[bool]
        """False: it cannot create user namespaces, where that can be enforced."""
        show: NotRequired[list[str]]
        """Further directories that it may read: its Python environment."""
        writable: NotRequired[list[str]]
        """Further directories that it may write: the environment that an install creates."""
        private_root: NotRequired[bool]
        """It gets a root directory of its own, where that is possible."""
        tree: NotRequired[str | None]
        """The tree of submitted files below both of its views; see `overlay`."""
        pserver_mode: NotRequired[bool]
        """Its own process checks the PaddlePaddle that it would import; see `preflight`."""
        preamble: NotRequired[str]
        """The first lines of its log."""
        hint: NotRequired[str]
        """Why it may fail; copied to its exit record."""
        notify: NotRequired[str | None]
        """A unix datagram socket that gets the replica id at start and exit."""

    class RunRecord(TypedDict):
        """Created before the process exists, and written again with its pid."""

        monitor_pid: int
        monitor_start: int | None
        boot_id: str
        zygote: NotRequired[str]
        """The id of the zygote that inherits its processes if the supervisor is killed."""
        cgroup: dict[str, str]
        contained: NotRequired[bool]
        """All of its processes are in the control group."""
        pid: int | None
        started_at: float | None

    class StopRecord(TypedDict):
        """The request to end; a second one can only shorten the grace."""

        grace: float
        cause: str
        requested_at: float

    class ExitRecord(TypedDict):
        """How it ended; when it exists, nothing of the replica runs any more."""

        cause: str
        exit_code: int | None
        signal: int | None
        oom: bool
        memory_limit: NotRequired[int | None]
        """The limit that it reached when it was killed for memory."""
        message: str
        start_errno: int | None
        started_at: float | None
        finished_at: float
        ran: NotRequired[float | None]
        """Seconds between start and end by the monotonic clock."""
        stop_requested_at: float | None
        max_rss: int | None
        cpu_seconds: float | None
        enforced: dict[str, bool]
        stopping_at: NotRequired[float]
        """When its end was requested, where it did not end by itself."""
        hint: NotRequired[str]
        said: NotRequired[dict[str, Any]]
        """Code and values of the message that its owner reads instead of `message`."""
        forks_refused: NotRequired[int]
        """How often its process limit was reached; absent when never."""
        log_lost: NotRequired[int]
        """Bytes of the log that could not be written; absent when there are none."""

else:
    Launch = RunRecord = StopRecord = ExitRecord = dict

ORDER = "order.json"
RUN = "run.json"
STOP = "stop.json"
EXIT = "exit.json"
LOCK = "lock"
WORK = "work"
ROOT = "root"
STACKS = "stacks"
TOKEN = "token"
SECRETS = "secrets"
STDOUT = "stdout.log"
STDOUT_TIMES = "stdout.times"
MARKER = "PADDLECLOUD_REPLICA"

CAUSE_EXIT = "exit"
CAUSE_STOPPED = "stopped"
CAUSE_PREEMPTED = "preempted"
CAUSE_WALL_TIME = "wall_time"
CAUSE_START_FAILED = "start_failed"
CAUSE_PORT_TAKEN = "port_taken"
CAUSE_OUTPUTS_LOST = "outputs_lost"
CAUSE_HUNG = "hung"

ASKED_CAUSES = (CAUSE_STOPPED, CAUSE_PREEMPTED, CAUSE_HUNG)
"""The end was requested."""

_RECORDS = (ORDER, RUN, STOP, EXIT)
_FORMAT = 1
_RESERVED_BYTES = 4096
_BLOCK = 64 * 1024
# struct flock: (type, whence, start, len, pid) on Linux, (start, len, pid, type, whence) on macOS.
_LINUX = sys.platform == "linux"
_FLOCK = struct.Struct("hhqqi" if _LINUX else "qqihh")


def read(path: Path | str) -> Any:
    """The JSON object at `path`; None when it is missing or was never whole."""
    try:
        found = json.loads(_content(path))
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    if not isinstance(found, dict):
        return None
    if str(path).rpartition("/")[2] in _RECORDS:
        found.pop("v", None)
    return found


def exit_record(cause: str, *, now: float, message: str = "") -> ExitRecord:
    """The exit record of a replica whose command did not run; `now` is the time of day."""
    return {
        "cause": cause,
        "exit_code": None,
        "signal": None,
        "oom": False,
        "message": message,
        "start_errno": None,
        "started_at": None,
        "finished_at": now,
        "ran": None,
        "stop_requested_at": now if cause in ASKED_CAUSES else None,
        "max_rss": None,
        "cpu_seconds": None,
        "enforced": {},
    }


def has_begun(root: Path) -> bool:
    """Whether the replica in `root` may have run already, so that it must not be started.

    A loss of power leaves new files empty: of a replica with an order that cannot be read it is not
    known whether it ran.
    """
    if _exists(f"{root}/{RUN}") or _exists(f"{root}/{EXIT}"):
        return True
    order = f"{root}/{ORDER}"
    return _exists(order) and read(order) is None


def write(path: Path, value: Mapping[str, Any]) -> None:
    """Write `value` to `path` atomically; a full disk leaves the earlier record."""
    temporary = f"{path}.{os.urandom(4).hex()}.tmp"
    try:
        create(temporary, value, name=path.name)
        os.replace(temporary, path)  # noqa: PTH105 - see the top of this file
    except OSError:
        with suppress(OSError):
            os.unlink(temporary)  # noqa: PTH108 - see the top of this file
        raise


def create(path: Path | str, value: Mapping[str, Any], *, name: str = "") -> None:
    """Create a record that must not exist yet. A reader may find it empty for an instant, so it is
    not for an order, which would count as damaged then."""
    left = memoryview(_encode(name or str(path).rpartition("/")[2], value))
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        while left:
            left = left[os.write(fd, left) :]
    finally:
        os.close(fd)


def reserve(path: Path) -> None:
    """Allocate the disk space of a later `write_reserved`."""
    with suppress(OSError):
        fd = os.open(_reserved(path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(fd, 0, _RESERVED_BYTES)
        finally:
            os.close(fd)


def write_reserved(path: Path, value: Mapping[str, Any]) -> None:
    """Like `write`, into the reserved space. It survives every kill, but not a loss of power, after
    which the replica counts as lost: waiting for the disk would be a good part of a short job."""
    data = _encode(path.name, value)
    fd = os.open(_reserved(path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if os.pwrite(fd, data, 0) < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        os.ftruncate(fd, len(data))
    finally:
        os.close(fd)
    os.replace(_reserved(path), path)  # noqa: PTH105 - see the top of this file


def take_lock(path: Path) -> int | None:
    """Hold the lock until this process ends; None when another process holds it.

    The file descriptor stays open on purpose, and the process must not open the file again:
    closing any descriptor of it gives the lock up.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        os.close(fd)
        return None
    return fd


def lock_holder(path: Path | str) -> int | None:
    """The pid of the process that holds the lock, or None. The holder must not call this."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        if _LINUX:
            query = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            kind, _, _, _, pid = _FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_GETLK, query))
        else:
            query = _FLOCK.pack(0, 0, 0, fcntl.F_WRLCK, os.SEEK_SET)
            _, _, pid, kind, _ = _FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_GETLK, query))
    finally:
        os.close(fd)
    return None if kind == fcntl.F_UNLCK else pid


def _encode(name: str, value: Mapping[str, Any]) -> bytes:
    whole = {"v": _FORMAT, **value} if name in _RECORDS else value
    return json.dumps(whole).encode()


def _reserved(path: Path) -> str:
    return f"{path}.reserved"


def _content(path: Path | str) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        found = os.read(fd, _BLOCK)
        while len(found) % _BLOCK == 0 and (more := os.read(fd, _BLOCK)):
            found += more
        return found
    finally:
        os.close(fd)


def _exists(path: str) -> bool:
    try:
        os.stat(path)  # noqa: PTH116 - see the top of this file
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True
