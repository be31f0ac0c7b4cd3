"""The warm process that forks monitors: everything is imported, one thread, almost no memory.

The agent has threads and connections, and forking such a process is not safe; starting Python
anew costs 30 ms and 8 MB a replica. So the agent forks this process before it has any thread and
asks it over a socket. It belongs to nobody (its parent is init), holds none of the agent's files,
and ends when the agent's side of the socket closes. Monitors that it forked go on.
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
    while piece := talk.recv(65536):
        *lines, waiting = (waiting + piece).split(b"\n")
        for line in lines:
            _answer(talk, _fork_monitor(Path(json.loads(line)["root"]), talk, places))


def _fork_monitor(root: Path, talk: socket.socket, places: Cgroups) -> dict[str, int]:
    try:
        pid = os.fork()
    except OSError as error:
        return {"errno": error.errno or 0}
    if pid:
        return {"pid": pid}
    try:
        talk.close()
        os.setsid()
        # The ignored SIGCHLD of the zygote would take the exit status away from us.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        monitor.run(root, places)
    finally:
        os._exit(0)


def _answer(talk: socket.socket, fact: dict[str, object] | dict[str, int]) -> None:
    talk.sendall(json.dumps(fact).encode() + b"\n")
