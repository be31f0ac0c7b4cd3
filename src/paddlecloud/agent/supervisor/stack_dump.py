"""Dumps the stacks of all Python processes of a replica that hangs.

A directory of ours comes first on the PYTHONPATH of such a job. The `sitecustomize` in it lets each
Python process write the stacks of its threads into a file of its own on a certain realtime signal;
the handler is C code, so it works also while the process waits in native code. Only a process that
has such a file and catches the signal gets it: any other would die of it. The dumps are then moved
into the log directory of the replica. Linux only: elsewhere there is no such signal.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import ExitStack, suppress

from paddlecloud.agent.replica.records import STACKS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

VARIABLE = "PADDLECLOUD_STACKS"
SIGNAL = 45
"""SIGRTMIN + 11, as glibc and musl count from 34 and 35 on: a number that no library uses."""
WAIT_SECONDS = 2.0
_POLL_SECONDS = 0.03
_HOOK = "hook"
_DUMPS = "told"
_LOG = "log"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
_PATH = "PYTHONPATH"

# It runs in whatever Python the job has, so it is written for all of them.
_SOURCE = f'''"""Lets PaddleCloud see where this process stands if the job hangs."""
import os
import sys


def _listen():
    import faulthandler

    place = os.environ["{VARIABLE}"]
    words = open("/proc/self/cmdline", "rb").read().replace(b"\\0", b" ").strip()
    dump = open(os.path.join(place, "%d.txt" % os.getpid()), "wb", 0)
    dump.write(b"process %d: %s\\n\\n" % (os.getpid(), words[:1000]))
    faulthandler.register({SIGNAL}, file=dump, all_threads=True)
    return dump


def _begin():
    global _dump
    try:
        _dump = _listen()
    except Exception:
        _dump = None


def _go_on():
    """Import the sitecustomize that this one stands before, if there is one."""
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [path for path in sys.path if os.path.abspath(path or os.curdir) != here]
    own = sys.modules.pop("sitecustomize", None)
    try:
        import sitecustomize
    except ImportError as error:
        if getattr(error, "name", "sitecustomize") != "sitecustomize":
            raise
    finally:
        sys.modules.setdefault("sitecustomize", own)


_begin()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin)
_go_on()
'''


def prepare(root: Path, env: dict[str, str], *, owner: int | None) -> dict[str, str]:
    """The environment of a replica whose stacks may be dumped; creates the files it needs."""
    if not _is_possible():
        return env
    top = f"{root}/{STACKS}"
    for place in (top, f"{top}/{_HOOK}", f"{top}/{_DUMPS}"):
        with suppress(FileExistsError):
            os.mkdir(place, 0o700)  # noqa: PTH102 - paths are text here, as in `workspace`
        if owner is not None:
            os.chown(place, owner, owner)
    fd = os.open(f"{top}/{_HOOK}/sitecustomize.py", _NEW, 0o644)
    try:
        os.write(fd, _SOURCE.encode())
    finally:
        os.close(fd)
    hook = f"{top}/{_HOOK}"
    path = f"{hook}:{env[_PATH]}" if env.get(_PATH) else hook
    return {**env, _PATH: path, VARIABLE: f"{top}/{_DUMPS}"}


def collect(root: Path, pids: Iterable[int], *, seconds: float = WAIT_SECONDS) -> int:
    """Let these processes dump their stacks, and move the dumps to the log; how many did.

    Processes that do not answer in time are left out. Nothing that the replica may have put there,
    symbolic links above all, leads out of its own directory.
    """
    if not _is_possible():
        return 0
    dumped = 0
    with ExitStack() as opened, suppress(OSError):
        above = _folder(opened, str(root))
        top = _folder(opened, STACKS, above)
        place = _folder(opened, _DUMPS, top)
        dumped = _dump_all(place, pids, time.monotonic() + seconds)
        if dumped:
            log = _folder(opened, _LOG, above)
            # The second name if the job has files of the first.
            for name in (STACKS, f"{STACKS}.paddlecloud"):
                with suppress(OSError):
                    os.rename(_DUMPS, name, src_dir_fd=top, dst_dir_fd=log)
                    break
    return dumped


def _dump_all(place: int, pids: Iterable[int], deadline: float) -> int:
    before = {pid: size for pid in pids if (size := _size(place, pid)) is not None}
    asked = [pid for pid in before if _send_signal(pid)]
    last: dict[int, int | None] = {}
    while time.monotonic() < deadline:  # until all have written and none is still writing
        sizes = {pid: _size(place, pid) for pid in asked}
        if sizes == last and all(sizes[pid] != before[pid] for pid in asked):
            break
        last = sizes
        time.sleep(_POLL_SECONDS)
    dumped = {f"{pid}.txt" for pid, size in before.items() if (_size(place, pid) or 0) > size}
    for name in os.listdir(place):
        if name not in dumped:
            with suppress(OSError):
                os.unlink(name, dir_fd=place)
    return len(dumped)


def _folder(opened: ExitStack, name: str, above: int | None = None) -> int:
    fd = os.open(name, _FOLDER, dir_fd=above)
    opened.callback(os.close, fd)
    return fd


def _is_possible() -> bool:
    return hasattr(signal, "SIGRTMIN") and hasattr(os, "pidfd_open")


def _size(place: int, pid: int) -> int | None:
    try:
        return os.stat(f"{pid}.txt", dir_fd=place, follow_symlinks=False).st_size
    except OSError:
        return None


def _send_signal(pid: int) -> bool:
    """Send the signal to this very process, if it catches it."""
    try:
        fd = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if not _catches(pid):
            return False
        signal.pidfd_send_signal(fd, SIGNAL)
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


def _catches(pid: int) -> bool:
    with open(f"/proc/{pid}/status", "rb") as lines:  # noqa: PTH123 - of a process, not a file
        for line in lines:
            if line.startswith(b"SigCgt:"):
                return bool(int(line.split()[1], 16) >> (SIGNAL - 1) & 1)
    return False
