"""Starting replicas from the agent: an order on disk, then one fork by the zygote.

`Spawner.start` belongs at the very beginning of the agent, before any thread. A zygote that died
is replaced by a fresh interpreter (slower once, never again), because a process with threads must
not fork. Starting a replica twice starts it once: the order is kept as it was first written, and
the monitors sort it out by their lock and record.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
from contextlib import suppress
from pathlib import Path

from paddlecloud.model.errors import Retry
from paddlecloud.runtime import record, zygote

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from paddlecloud.runtime.record import Launch

_ANSWER_SECONDS = 10.0
_FRESH = (
    "import sys; sys.path.insert(0, sys.argv[1]); from paddlecloud.runtime import zygote; "
    "zygote.detach(int(sys.argv[2]), int(sys.argv[3]))"
)


class Spawner:
    """The agent's side of the zygote; may be used from several threads."""

    __slots__ = ("_lock", "_talk", "_waiting", "enforces", "zygote_pid")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._talk: socket.socket | None = None
        self._waiting = b""
        self.zygote_pid = 0
        self.enforces: dict[str, bool] = {}
        """Which limits replicas can be held to on this machine: cpu, memory, pids."""

    @classmethod
    def start(cls) -> Spawner:
        """Fork the zygote (or start one anew if there already are threads) and hear from it."""
        spawner = cls()
        spawner._connect(fresh=threading.active_count() > 1)
        return spawner

    def spawn(self, launch: Launch) -> int:
        """Start the monitor of a replica; its pid. It may find that the replica has begun already.

        Returns when the monitor is forked, some milliseconds before the command runs; the notice
        and `control.inspect` tell the rest. Raises Retry when this machine has no process to give.
        """
        root = Path(launch["root"])
        if not (root / record.ORDER).exists():
            record.write(root / record.ORDER, launch)
        with self._lock:
            try:
                answer = self._ask(root)
            except (OSError, EOFError):
                answer = self._ask_a_new_one(launch)
        if "pid" not in answer:
            raise _not_started(launch, os.strerror(answer["errno"]))
        return int(answer["pid"])

    def close(self) -> None:
        """Let the zygote go; replicas go on."""
        with self._lock:
            self._hang_up()

    def _ask(self, root: Path) -> Any:
        if self._talk is None:
            raise EOFError
        self._talk.sendall(json.dumps({"root": str(root)}).encode() + b"\n")
        return self._hear()

    def _ask_a_new_one(self, launch: Launch) -> Any:
        try:
            self._connect(fresh=True)
            return self._ask(Path(launch["root"]))
        except (OSError, EOFError) as error:
            raise _not_started(launch, str(error) or "no answer") from error

    def _connect(self, *, fresh: bool) -> None:
        self._hang_up()
        self._talk, theirs = socket.socketpair()
        self._talk.settimeout(_ANSWER_SECONDS)
        with theirs:
            (_start_fresh if fresh else _start_forked)(theirs.fileno())
        hello = self._hear()
        self.zygote_pid, self.enforces = hello["pid"], hello["enforces"]

    def _hear(self) -> Any:
        assert self._talk is not None
        while b"\n" not in self._waiting:
            piece = self._talk.recv(65536)
            if not piece:
                raise EOFError("the process that starts replicas is gone")
            self._waiting += piece
        line, _, self._waiting = self._waiting.partition(b"\n")
        return json.loads(line)

    def _hang_up(self) -> None:
        if self._talk is not None:
            with suppress(OSError):
                self._talk.close()
        self._talk = None
        self._waiting = b""


def _start_forked(fd: int) -> None:
    agent = os.getpid()
    pid = os.fork()
    if pid == 0:
        zygote.detach(fd, agent)
    os.waitpid(pid, 0)


def _start_fresh(fd: int) -> None:
    import subprocess  # noqa: PLC0415 - 1 MB that an agent whose zygote lives never needs

    here = str(Path(__file__).parents[2])
    command = [sys.executable, "-I", "-c", _FRESH, here, str(fd), str(os.getpid())]
    subprocess.run(command, pass_fds=[fd], check=True, timeout=_ANSWER_SECONDS)


def _not_started(launch: Launch, reason: str) -> Retry:
    return Retry("replica_not_started", replica=launch["replica_id"], reason=reason)
