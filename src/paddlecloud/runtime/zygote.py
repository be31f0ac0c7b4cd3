"""The warm process that forks monitors: everything is imported, one thread, almost no memory.

The agent has threads and connections, and forking such a process is not safe; starting Python
anew costs 30 ms and 8 MB a replica. So the agent forks this process before it has any thread and
asks it over a socket. It belongs to nobody (its parent is init), holds none of the agent's files,
and ends when the agent's side of the socket closes. Monitors that it forked go on.

One monitor is always forked ahead and waits for its replica, so that a start does not even wait for
the fork; the next one is forked while the replica already runs.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import time
from contextlib import suppress
from pathlib import Path

from paddlecloud.runtime import cgroups, linux, monitor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

    from paddlecloud.runtime.cgroups import Cgroups

_SOCKET = 3


def detach(fd: int, agent: int) -> None:
    """In a forked child of the agent: become the zygote in a further fork. Never returns."""
    try:
        os.setsid()
        if os.fork() == 0:
            main(fd, agent)
    finally:
        os._exit(0)


def main(fd: int, agent: int) -> NoReturn:
    """Serve the requests that come over the socket `fd` until the other side closes it."""
    try:
        _forget_the_agent(fd)
        monitor.block_signals()
        linux.set_name("pc-zygote")
        places = cgroups.detect(movable={os.getpid(), agent})
        linux.boot_id()
        gc.disable()
        gc.freeze()
        with socket.socket(fileno=_SOCKET) as talk:
            _answer(talk, {"pid": os.getpid(), "enforces": places.enforces()})
            cgroups.sweep(places, now=time.time())
            _serve(talk, places)
    except (BrokenPipeError, ConnectionResetError):
        pass
    finally:
        os._exit(0)


def _forget_the_agent(fd: int) -> None:
    """Keep nothing open but the socket: an inherited lock or port would outlive its owner."""
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        with suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    # Nobody waits for monitors: the kernel buries them by itself.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    os.dup2(fd, _SOCKET, inheritable=False)
    os.closerange(_SOCKET + 1, os.sysconf("SC_OPEN_MAX"))
    null = os.open("/dev/null", os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    os.close(null)
    os.chdir("/")


def _serve(talk: socket.socket, places: Cgroups) -> None:
    waiting = b""
    spare = _fork_spare(talk, places)
    while piece := talk.recv(65536):
        *lines, waiting = (waiting + piece).split(b"\n")
        for line in lines:
            root = os.fsencode(json.loads(line)["root"])
            if not _send_to_work(spare, root):
                spare = _fork_spare(talk, places)
                _send_to_work(spare, root)
            _answer(talk, {"pid": spare.pid} if spare.pid else {"errno": spare.errno})
            spare = _fork_spare(talk, places)


class _Spare:
    """A monitor that was forked and waits at the other end of a pipe for its replica's root."""

    __slots__ = ("errno", "pid", "pipe")

    def __init__(self, *, pid: int, pipe: int, errno: int = 0) -> None:
        self.pid = pid
        self.pipe = pipe
        self.errno = errno


def _fork_spare(talk: socket.socket, places: Cgroups) -> _Spare:
    """A monitor in waiting; one without a pid when this machine has no process to give."""
    reader, writer = os.pipe()
    try:
        pid = os.fork()
    except OSError as error:
        os.close(reader)
        os.close(writer)
        return _Spare(pid=0, pipe=-1, errno=error.errno or 0)
    if pid == 0:
        os.close(writer)
        _wait_for_work(reader, talk, places)
    os.close(reader)
    return _Spare(pid=pid, pipe=writer)


def _send_to_work(spare: _Spare, root: bytes) -> bool:
    """Give a spare its replica; False if it is not there any more."""
    if not spare.pid:
        return False
    try:
        # A path is shorter than what a pipe takes in one piece, so it arrives whole.
        os.write(spare.pipe, root)
    except BrokenPipeError:
        return False
    finally:
        os.close(spare.pipe)
    return True


def _wait_for_work(reader: int, talk: socket.socket, places: Cgroups) -> NoReturn:
    try:
        talk.close()
        os.setsid()
        # The ignored SIGCHLD of the zygote would take the exit status away from us.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        linux.set_name("pc-spare")
        root = os.read(reader, 65536)
        os.close(reader)
        if root:
            monitor.run(Path(os.fsdecode(root)), places)
    finally:
        os._exit(0)


def _answer(talk: socket.socket, fact: dict[str, object] | dict[str, int]) -> None:
    talk.sendall(json.dumps(fact).encode() + b"\n")
