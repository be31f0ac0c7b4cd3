"""Starting replicas: the agent's side (`Spawner`), and the zygote that forks their monitors.

The agent has threads and connections, and forking such a process is not safe; starting Python
anew costs 30 ms and 8 MB a replica. So the agent forks a warm process, the zygote, before it has
any thread, and asks it over a socket: a line with a replica's root, answered by a line with the
monitor's pid; or the question whether replicas can be given users of their own, or their files by
mounts. The zygote belongs to nobody (its parent is init), holds none of the agent's files, and ends
when the agent's side of the socket closes; monitors that it forked go on. One that died is replaced
by a fresh interpreter (slower once, never again).

The zygote is a subreaper, so what a killed monitor leaves behind becomes its child and can be found
(`kill_orphans`); the kernel reaps it when it ends. Each zygote has an id, which monitors write into
their records: only the zygote that forked a monitor inherits its processes.

One monitor is always forked ahead and waits for its replica, so that a start does not even wait for
the fork; the next one is forked while the replica already runs. A monitor whose replica was over
within milliseconds, and which is as it was before, takes a further one (`_Crew`): a fork with the
pages that it copies costs more than all else that a monitor does for such a replica. Starting a
replica twice starts it once: the order is kept as it was first written, and the monitors sort it
out by their lock and record.
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
# So long a monitor whose replica was over soon waits for another one. Jobs that take no time come
# one after the other, and then a fork for each would be a good part of what they cost.
_IDLE_SECONDS = 1.0
#: The zygote drops ended monitors from its list when that is twice as long as after the last time,
#: and longer than this.
_FORKED = 256


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
        if not (root / records.ORDER).exists():
            records.write(root / records.ORDER, launch)
        return self._process_for(root, launch["replica_id"])

    def spawn_beside(self, root: Path, name: str) -> int:
        """Start the process beside a command that `root` describes; its pid. Raises Retry."""
        return self._process_for(root, name)

    def separates(self) -> bool:
        """Whether this machine can run each user's replicas under a uid of their own; tried out."""
        try:
            return bool(self._answer_to({"separates": None})["separates"])
        except (OSError, EOFError):
            return False

    def layers(self, root: str, tree: str) -> bool | None:
        """Whether files can be laid below replicas on this machine: tried out with these; None when
        nobody could be asked."""
        try:
            return bool(self._answer_to({"layers": root, "tree": tree})["layers"])
        except (OSError, EOFError):
            return None

    def kill_orphans(self) -> tuple[str, list[int]]:
        """Kill what the zygote inherited from dead monitors: its id, and what it found last, which
        may not have ended yet. An empty id if it cannot be asked, or this system has no subreapers.
        """
        try:
            answer = self._answer_to({"orphans": None})
        except (OSError, EOFError):
            return "", []
        return str(answer["zygote"]), list(answer["left"])

    def close(self) -> None:
        """Let the zygote go; replicas go on."""
        with self._lock:
            self._hang_up()

    def _process_for(self, root: Path, name: str) -> int:
        try:
            answer = self._answer_to({"root": str(root)})
        except (OSError, EOFError) as error:
            raise _not_started(name, str(error) or "no answer") from error
        if "pid" not in answer:
            raise _not_started(name, os.strerror(answer["errno"]))
        return int(answer["pid"])

    def _answer_to(self, question: dict[str, str] | dict[str, None]) -> Any:
        """What the zygote says, or a new one if that one does not answer."""
        with self._lock:
            with suppress(OSError, EOFError):
                return self._ask(question)
            try:
                self._connect(fresh=True)
                return self._ask(question)
            except (OSError, EOFError):
                # An answer that comes late must not be taken for that to a later question.
                self._hang_up()
                raise

    def _ask(self, question: dict[str, str] | dict[str, None]) -> Any:
        if self._talk is None:
            raise EOFError
        self._talk.sendall(json.dumps(question).encode() + b"\n")
        return self._hear()

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
        detach(fd, agent)
    os.waitpid(pid, 0)


def _start_fresh(fd: int) -> None:
    import subprocess  # noqa: PLC0415 - 1 MB that an agent whose zygote lives never needs

    here = str(Path(__file__).parents[3])
    command = [sys.executable, "-I", "-c", _FRESH, here, str(fd), str(os.getpid())]
    try:
        subprocess.run(command, pass_fds=[fd], check=True, timeout=_ANSWER_SECONDS)
    except subprocess.CalledProcessError as error:
        raise OSError(f"{sys.executable} ended with code {error.returncode}") from error
    except subprocess.TimeoutExpired as error:
        raise OSError(f"{sys.executable} took more than {error.timeout:g} s") from error


def _not_started(name: str, reason: str) -> Retry:
    return Retry("replica_not_started", replica=name, reason=reason)


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
        _forget_the_agent(fd)
        supervisor.block_signals()
        processes.set_name("pc-zygote")
        processes.become_subreaper()
        places = cgroups.detect(movable={os.getpid(), agent})
        processes.boot_id()
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
    # The kernel reaps monitors and orphans by itself: the zygote waits for none of them.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    os.dup2(fd, _SOCKET, inheritable=False)
    os.closerange(_SOCKET + 1, os.sysconf("SC_OPEN_MAX"))
    null = os.open("/dev/null", os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    os.close(null)
    os.chdir("/")


def _serve(talk: socket.socket, places: Cgroups) -> None:
    crew = _Crew(talk, places)
    crew.prepare()
    try:
        for question in _questions(talk):
            if "separates" in question:
                _answer(talk, {"separates": isolation.possible()})
            elif "layers" in question:
                able = overlay.possible(question["layers"], question["tree"])
                _answer(talk, {"layers": able})
            elif "orphans" in question:
                _answer(talk, {"zygote": crew.id, "left": crew.kill_orphans()})
            else:
                _answer(talk, crew.send(os.fsencode(question["root"])))
                crew.prepare()
    finally:
        # The agent may have been killed together with a monitor. The next agent has another zygote
        # and cannot find these.
        crew.kill_orphans()


def _questions(talk: socket.socket) -> Iterator[Any]:
    waiting = b""
    while piece := talk.recv(65536):
        *lines, waiting = (waiting + piece).split(b"\n")
        yield from map(json.loads, lines)


class _Spare:
    """A monitor without a replica, which waits at the other end for the root of one."""

    __slots__ = ("pid", "talk")

    def __init__(self, *, pid: int, talk: socket.socket) -> None:
        self.pid = pid
        self.talk = talk

    def take(self, root: bytes) -> bool:
        """Give it its replica; False if it is not there any more."""
        try:
            # A path is shorter than what a socket takes in one piece, so it arrives whole.
            self.talk.sendall(root)
        except OSError:
            return False
        finally:
            self.talk.close()
        return True


class _Crew:
    """The monitors that have no replica: one forked ahead, and those whose replica was over soon.

    The latter come back by themselves: each sends one end of a new socket, and waits at the other
    for a moment. When the zygote ends, all of them find their sockets closed and end too.
    """

    def __init__(self, talk: socket.socket, places: Cgroups) -> None:
        self._talk = talk
        self._places = places
        self._door, self._bell = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._door.setblocking(False)
        self._bell.setblocking(False)
        self._free: list[_Spare] = []
        self._forked: dict[int, int] = {}
        """Every monitor of ours that may live, by pid when it started."""
        self._most_forked = _FORKED
        self.id = os.urandom(8).hex() if processes.LINUX else ""

    def kill_orphans(self) -> list[int]:
        """Those that were there at the last look."""
        return orphans.kill_inherited(self._forked)

    def send(self, root: bytes) -> dict[str, int]:
        """Give this replica a monitor: its pid, or why there is none."""
        self._welcome()
        while self._free:
            spare = self._free.pop()
            if spare.take(root):
                return {"pid": spare.pid}
        try:
            spare = self._fork()
        except OSError as error:
            return {"errno": error.errno or 0}
        spare.take(root)
        return {"pid": spare.pid}

    def prepare(self) -> None:
        """Have one ready for the next replica, if this machine has a process to give."""
        self._welcome()
        if not self._free:
            with suppress(OSError):
                self._free.append(self._fork())

    def _welcome(self) -> None:
        """Those that came back."""
        with suppress(BlockingIOError):
            while True:
                pid, rights, _, _ = self._door.recvmsg(32, socket.CMSG_SPACE(_INT.size))
                for _, _, data in rights:
                    talk = socket.socket(fileno=_INT.unpack(data)[0])
                    self._free.append(_Spare(pid=int(pid), talk=talk))

    def _fork(self) -> _Spare:
        ours, theirs = socket.socketpair()
        try:
            pid = os.fork()
        except OSError:
            ours.close()
            theirs.close()
            raise
        if pid == 0:
            for held in (self._talk, self._door, ours, *(spare.talk for spare in self._free)):
                held.close()
            _be_monitor(theirs, self._bell, self._places, self.id)
        theirs.close()
        self._note(pid)
        return _Spare(pid=pid, talk=ours)

    def _note(self, pid: int) -> None:
        start = processes.start_time(pid)
        if start is not None:
            self._forked[pid] = start
        if len(self._forked) > self._most_forked:
            known = self._forked.items()
            self._forked = {pid: at for pid, at in known if processes.start_time(pid) == at}
            self._most_forked = max(_FORKED, 2 * len(self._forked))


def _be_monitor(work: socket.socket, bell: socket.socket, places: Cgroups, zygote: str) -> NoReturn:
    """Wait for a replica; when it was over soon, for another one."""
    try:
        os.setsid()
        # The ignored SIGCHLD of the zygote would take the exit status away from us.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        processes.set_name("pc-spare")
        root = work.recv(65536)
        again = False
        while root and _work(Path(os.fsdecode(root)), places, zygote, again=again):
            work.close()
            again = True
            work, theirs = socket.socketpair()
            right = (socket.SOL_SOCKET, socket.SCM_RIGHTS, _INT.pack(theirs.fileno()))
            bell.sendmsg([str(os.getpid()).encode()], [right])
            theirs.close()
            root = _next_root(work)
    except OSError:
        pass  # the zygote is gone, or has enough of us
    finally:
        os._exit(0)


def _next_root(work: socket.socket) -> bytes:
    processes.set_name("pc-spare")
    work.settimeout(_IDLE_SECONDS)
    with suppress(TimeoutError):
        return work.recv(65536)
    # From now on nobody can send; what came until now is ours to do.
    work.shutdown(socket.SHUT_RD)
    return work.recv(65536)


def _work(root: Path, places: Cgroups, zygote: str, *, again: bool) -> bool:
    """Be what the directory asks for, beside a command or the monitor of a replica; whether this
    process is good for more."""
    if (root / runner.COMMAND).exists():
        runner.run(root)
        return False
    return supervisor.run(root, places, zygote=zygote, again=again) and processes.LINUX


def _answer(talk: socket.socket, fact: dict[str, Any]) -> None:
    talk.sendall(json.dumps(fact).encode() + b"\n")
