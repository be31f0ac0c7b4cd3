"""The zygote: a warm process that forks supervisors; and `Spawner`, the agent's side of it.

The agent has threads and connections, and forking such a process is not safe; starting another
Python costs 30 ms and 8 MB per replica. So the agent forks the zygote before it has any thread, and
sends it requests over a socket, one JSON object per line: the root of a replica, answered with the
pid of its supervisor; or a question about what this machine can do. The zygote's parent is init, it
holds none of the agent's files, and it exits when the agent's side of the socket closes;
supervisors that it forked continue. A zygote that died is replaced by a new interpreter.

The zygote is a subreaper, so what a killed supervisor leaves behind becomes its child and can be
found (`kill_orphans`); the kernel reaps it when it ends. Each zygote has an id that supervisors
write into their records: only the zygote that forked a supervisor inherits its processes.

One supervisor is always forked ahead, so that a start does not wait for the fork. A supervisor
whose replica was over within milliseconds, and which is as it was before, takes a further one
(`_SupervisorPool`): a fork and the pages that it copies cost more than everything else that a
supervisor does for such a replica. Starting a replica is idempotent: the order is kept as it was
first written, and supervisors find out by lock and record whether they are the first.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import struct
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

from paddlecloud.agent.exec import runner
from paddlecloud.agent.replica import records
from paddlecloud.agent.sandbox import cgroups, isolation, overlay
from paddlecloud.agent.supervisor import orphans, processes, supervisor
from paddlecloud.model.errors import Retry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, NoReturn

    from paddlecloud.agent.replica.records import Launch
    from paddlecloud.agent.sandbox.cgroups import Cgroups

_ANSWER_SECONDS = 10.0
_FRESH = (
    "import sys; sys.path.insert(0, sys.argv[1]); "
    "from paddlecloud.agent.supervisor import zygote; "
    "zygote.detach(int(sys.argv[2]), int(sys.argv[3]))"
)
_SOCKET = 3
_INT = struct.Struct("i")
# How long a supervisor whose replica was over soon waits for another one. Jobs that take no time
# come one after the other, and then a fork for each would be a good part of their cost.
_IDLE_SECONDS = 1.0
#: The zygote drops ended supervisors from its list when that is twice as long as after the last
#: time, and longer than this.
_FORKED = 256


class Spawner:
    """The agent's side of the zygote. Thread-safe."""

    __slots__ = ("_buffer", "_lock", "_socket", "enforces", "zygote_pid")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._buffer = b""
        self.zygote_pid = 0
        self.enforces: dict[str, bool] = {}
        """Which limits this machine can enforce: cpu, memory, pids."""

    @classmethod
    def start(cls) -> Spawner:
        """Fork the zygote, or start an interpreter for it if there already are threads."""
        spawner = cls()
        spawner._connect(by_fork=threading.active_count() == 1)
        return spawner

    def spawn(self, launch: Launch) -> int:
        """Start the supervisor of a replica; its pid. It may find that the replica ran already.

        Returns when the supervisor is forked, some milliseconds before the command runs; the notice
        and `inspect.inspect` show what follows. Raises Retry when no process can be created.
        """
        root = Path(launch["root"])
        if not (root / records.ORDER).exists():
            records.write(root / records.ORDER, launch)
        return self.spawn_root(root, launch["replica_id"])

    def spawn_root(self, root: Path, name: str) -> int:
        """Start the process that the directory `root` describes: the supervisor of a replica or of
        an `exec` command; its pid. Raises Retry."""
        try:
            answer = self._request({"root": str(root)})
        except (OSError, EOFError) as error:
            reason = str(error) or "no answer"
            raise Retry("replica_not_started", replica=name, reason=reason) from error
        if "pid" not in answer:
            reason = os.strerror(answer["errno"])
            raise Retry("replica_not_started", replica=name, reason=reason)
        return int(answer["pid"])

    def can_isolate(self) -> bool:
        """Whether this machine can run each user's replicas under a uid of their own, by trying."""
        try:
            return bool(self._request({"separates": None})["separates"])
        except (OSError, EOFError):
            return False

    def can_overlay(self, root: str, tree: str) -> bool | None:
        """Whether this machine can mount overlays for replicas, by trying it with these; None when
        the zygote does not answer."""
        try:
            return bool(self._request({"layers": root, "tree": tree})["layers"])
        except (OSError, EOFError):
            return None

    def kill_orphans(self) -> tuple[str, list[int]]:
        """Kill what the zygote inherited from dead supervisors: its id, and the pids that it found
        last, which may not have ended yet. An empty id if it does not answer, or this system has no
        subreapers."""
        try:
            answer = self._request({"orphans": None})
        except (OSError, EOFError):
            return "", []
        return str(answer["zygote"]), list(answer["left"])

    def close(self) -> None:
        """Let the zygote exit; replicas continue."""
        with self._lock:
            self._disconnect()

    def _request(self, request: dict[str, str] | dict[str, None]) -> Any:
        """The answer of the zygote, or of a new one if it does not answer."""
        with self._lock:
            with suppress(OSError, EOFError):
                return self._send(request)
            try:
                self._connect(by_fork=False)
                return self._send(request)
            except (OSError, EOFError):
                # A late answer must not be taken for that to a later request.
                self._disconnect()
                raise

    def _send(self, request: dict[str, str] | dict[str, None]) -> Any:
        if self._socket is None:
            raise EOFError
        self._socket.sendall(json.dumps(request).encode() + b"\n")
        return self._receive()

    def _connect(self, *, by_fork: bool) -> None:
        self._disconnect()
        self._socket, theirs = socket.socketpair()
        self._socket.settimeout(_ANSWER_SECONDS)
        with theirs:
            (_start_by_fork if by_fork else _start_by_exec)(theirs.fileno())
        hello = self._receive()
        self.zygote_pid, self.enforces = hello["pid"], hello["enforces"]

    def _receive(self) -> Any:
        assert self._socket is not None
        while b"\n" not in self._buffer:
            data = self._socket.recv(65536)
            if not data:
                raise EOFError("the process that starts replicas is gone")
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return json.loads(line)

    def _disconnect(self) -> None:
        if self._socket is not None:
            with suppress(OSError):
                self._socket.close()
        self._socket = None
        self._buffer = b""


def _start_by_fork(fd: int) -> None:
    agent = os.getpid()
    pid = os.fork()
    if pid == 0:
        detach(fd, agent)
    os.waitpid(pid, 0)


def _start_by_exec(fd: int) -> None:
    import subprocess  # noqa: PLC0415 - 1 MB that an agent whose zygote lives never needs

    here = str(Path(__file__).parents[3])
    command = [sys.executable, "-I", "-c", _FRESH, here, str(fd), str(os.getpid())]
    try:
        subprocess.run(command, pass_fds=[fd], check=True, timeout=_ANSWER_SECONDS)
    except subprocess.CalledProcessError as error:
        raise OSError(f"{sys.executable} ended with code {error.returncode}") from error
    except subprocess.TimeoutExpired as error:
        raise OSError(f"{sys.executable} took more than {error.timeout:g} s") from error


def detach(fd: int, agent: int) -> None:
    """In a forked child of the agent: become the zygote in a further fork. Never returns."""
    try:
        os.setsid()
        if os.fork() == 0:
            _zygote(fd, agent)
    finally:
        os._exit(0)


def _zygote(fd: int, agent: int) -> NoReturn:
    """Serve the requests that come over the socket `fd` until the other side closes it."""
    try:
        _drop_inherited(fd)
        supervisor.block_signals()
        processes.set_name("pc-zygote")
        processes.become_subreaper()
        available = cgroups.detect(movable={os.getpid(), agent})
        processes.boot_id()
        gc.disable()
        gc.freeze()
        with socket.socket(fileno=_SOCKET) as connection:
            _answer(connection, {"pid": os.getpid(), "enforces": available.enforces()})
            cgroups.sweep(available, now=time.time())
            _serve(connection, available)
    except (BrokenPipeError, ConnectionResetError):
        pass
    finally:
        os._exit(0)


def _drop_inherited(fd: int) -> None:
    """Reset signals and close everything but the socket: an inherited lock or port would outlive
    the agent."""
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        with suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    # The kernel reaps supervisors and orphans: the zygote waits for none of them.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    os.dup2(fd, _SOCKET, inheritable=False)
    os.closerange(_SOCKET + 1, os.sysconf("SC_OPEN_MAX"))
    null = os.open("/dev/null", os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    os.close(null)
    os.chdir("/")


def _serve(connection: socket.socket, available: Cgroups) -> None:
    pool = _SupervisorPool(connection, available)
    pool.fork_ahead()
    try:
        for request in _requests(connection):
            if "separates" in request:
                _answer(connection, {"separates": isolation.possible()})
            elif "layers" in request:
                able = overlay.possible(request["layers"], request["tree"])
                _answer(connection, {"layers": able})
            elif "orphans" in request:
                _answer(connection, {"zygote": pool.id, "left": pool.kill_orphans()})
            else:
                _answer(connection, pool.start(os.fsencode(request["root"])))
                pool.fork_ahead()
    finally:
        # The agent may have been killed together with a supervisor. The next agent has another
        # zygote, which cannot find these.
        pool.kill_orphans()


def _requests(connection: socket.socket) -> Iterator[Any]:
    buffer = b""
    while data := connection.recv(65536):
        *lines, buffer = (buffer + data).split(b"\n")
        yield from map(json.loads, lines)


class _Spare:
    """A supervisor without a replica, which waits at the other end for the root of one."""

    __slots__ = ("pid", "socket")

    def __init__(self, *, pid: int, socket: socket.socket) -> None:
        self.pid = pid
        self.socket = socket

    def assign(self, root: bytes) -> bool:
        """Give it its replica; False if it has exited."""
        try:
            # A path is shorter than what a socket takes at once, so it arrives whole.
            self.socket.sendall(root)
        except OSError:
            return False
        finally:
            self.socket.close()
        return True


class _SupervisorPool:
    """Supervisors without a replica: one forked ahead, and those whose replica was over soon.

    The latter return by themselves: each sends one end of a new socket, and waits at the other for
    a moment. When the zygote exits, all of them find their sockets closed and exit too.
    """

    def __init__(self, connection: socket.socket, available: Cgroups) -> None:
        self._connection = connection
        self._cgroups = available
        self._returned, self._return_to = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._returned.setblocking(False)
        self._return_to.setblocking(False)
        self._spares: list[_Spare] = []
        self._forked: dict[int, int] = {}
        """Start time of every supervisor of ours that may live, by pid."""
        self._most_forked = _FORKED
        self.id = os.urandom(8).hex() if processes.LINUX else ""

    def kill_orphans(self) -> list[int]:
        """The pids that the last scan found."""
        return orphans.kill_inherited(self._forked)

    def start(self, root: bytes) -> dict[str, int]:
        """Give this replica a supervisor: its pid, or the errno of the fork."""
        self._take_back()
        while self._spares:
            spare = self._spares.pop()
            if spare.assign(root):
                return {"pid": spare.pid}
        try:
            spare = self._fork()
        except OSError as error:
            return {"errno": error.errno or 0}
        spare.assign(root)
        return {"pid": spare.pid}

    def fork_ahead(self) -> None:
        """Have one ready for the next replica, if a process can be created."""
        self._take_back()
        if not self._spares:
            with suppress(OSError):
                self._spares.append(self._fork())

    def _take_back(self) -> None:
        """Take the supervisors that returned."""
        with suppress(BlockingIOError):
            while True:
                pid, rights, _, _ = self._returned.recvmsg(32, socket.CMSG_SPACE(_INT.size))
                for _, _, data in rights:
                    end = socket.socket(fileno=_INT.unpack(data)[0])
                    self._spares.append(_Spare(pid=int(pid), socket=end))

    def _fork(self) -> _Spare:
        ours, theirs = socket.socketpair()
        try:
            pid = os.fork()
        except OSError:
            ours.close()
            theirs.close()
            raise
        if pid == 0:
            held = (self._connection, self._returned, ours, *(one.socket for one in self._spares))
            for each in held:
                each.close()
            _supervise(theirs, self._return_to, self._cgroups, self.id)
        theirs.close()
        start = processes.start_time(pid)
        if start is not None:
            self._forked[pid] = start
        if len(self._forked) > self._most_forked:
            known = self._forked.items()
            self._forked = {one: at for one, at in known if processes.start_time(one) == at}
            self._most_forked = max(_FORKED, 2 * len(self._forked))
        return _Spare(pid=pid, socket=ours)


def _supervise(
    ours: socket.socket, return_to: socket.socket, available: Cgroups, zygote: str
) -> NoReturn:
    """The life of a forked supervisor: wait for a replica and, when it was over soon, for
    another."""
    try:
        os.setsid()
        # The ignored SIGCHLD of the zygote would take the exit status away.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        processes.set_name("pc-spare")
        root = ours.recv(65536)
        reused = False
        while root and _run(Path(os.fsdecode(root)), available, zygote, reused=reused):
            ours.close()
            reused = True
            ours, theirs = socket.socketpair()
            right = (socket.SOL_SOCKET, socket.SCM_RIGHTS, _INT.pack(theirs.fileno()))
            return_to.sendmsg([str(os.getpid()).encode()], [right])
            theirs.close()
            root = _next_root(ours)
    except OSError:
        pass  # the zygote is gone, or has enough spare supervisors
    finally:
        os._exit(0)


def _next_root(ours: socket.socket) -> bytes:
    processes.set_name("pc-spare")
    ours.settimeout(_IDLE_SECONDS)
    with suppress(TimeoutError):
        return ours.recv(65536)
    # From now on nothing can be sent; what was sent until now has to be done.
    ours.shutdown(socket.SHUT_RD)
    return ours.recv(65536)


def _run(root: Path, available: Cgroups, zygote: str, *, reused: bool) -> bool:
    """Supervise what the directory describes, an `exec` command or a replica; whether this process
    can be reused."""
    if (root / runner.COMMAND).exists():
        runner.run(root)
        return False
    return supervisor.run(root, available, zygote=zygote, reused=reused) and processes.LINUX


def _answer(connection: socket.socket, fact: dict[str, Any]) -> None:
    connection.sendall(json.dumps(fact).encode() + b"\n")
