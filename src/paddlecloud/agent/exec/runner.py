"""The supervisor of one `exec` command that runs next to a replica.

It starts the command with the replica's environment, directory, user, namespaces and control group,
copies its output into files that the agent collects (`spool`) or gives it the agent's pty, and ends
it with the replica, after its timeout, or on request. The command enters the namespaces of the
replica's main process, so it sees the same mounts. It is no child of the replica's supervisor,
which need not know of it.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import resource
import signal
import sys
import termios
import time
from contextlib import suppress
from pathlib import Path

from paddlecloud.agent.exec._spool import Spool
from paddlecloud.agent.replica import records
from paddlecloud.agent.sandbox import cgroups, isolation, seccomp
from paddlecloud.agent.supervisor import orphans, processes, spawn_child, supervisor
from paddlecloud.agent.supervisor.shutdown import Shutdown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

COMMAND = "command.json"
STDIN = "stdin"
STREAMS = ("out", "err")
CAUSE_REPLICA_OVER = "replica_over"
CAUSE_FAILED = "failed"
CAUSE_OUTPUT_LOST = "output_lost"
_POLL_SECONDS = 0.1
_GRACE = 1.0
_CANNOT_BEGIN, _NOT_EXECUTABLE, _NOT_FOUND = 125, 126, 127
_NAMESPACES = ("user", "ipc", "mnt")

_libc = ctypes.PyDLL(None, use_errno=True)


def run(root: Path) -> None:
    """Run the command that `root` describes, once."""
    processes.set_name(orphans.EXEC)
    if records.take_lock(root / records.LOCK) is None or (root / records.EXIT).exists():
        return
    ended: dict[str, Any] = {"cause": CAUSE_FAILED, "exit_code": None, "message": ""}
    try:
        ended |= _run(root, records.read(root / COMMAND))
    except OSError as error:
        ended["message"] = str(error)
    with suppress(OSError):
        records.write(root / records.EXIT, ended)


def _run(root: Path, command: Any) -> dict[str, Any]:
    replica = Path(command["beside"])
    launch, run = records.read(replica / records.ORDER), records.read(replica / records.RUN)
    if launch is None or run is None or _is_over(run):
        return {"cause": CAUSE_REPLICA_OVER}
    processes.become_subreaper()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    terminal = command.get("terminal")
    captures = [] if terminal else [Spool(root, name) for name in STREAMS]
    if terminal:
        streams = [os.open(terminal, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)]
    else:
        stdin = root / STDIN if (root / STDIN).exists() else Path(os.devnull)
        streams = [os.open(stdin, os.O_RDONLY | os.O_CLOEXEC), *(one.writer for one in captures)]
    if launch.get("uid") is not None:
        # Opening /dev/stderr or /dev/tty again needs permission to the stream.
        for fd in streams[0 if terminal or stdin.name == STDIN else 1 :]:
            os.fchown(fd, launch["uid"], launch["uid"])
    main = os.fork()
    if main == 0:
        _exec_command(launch, run, command, streams)
    os.close(streams[0])
    for capture in captures:
        capture.start()
    timeout = command.get("timeout")
    shutdown = Shutdown(now=time.monotonic(), wall_time=timeout, grace=_GRACE)
    status = _wait(root, run, main, shutdown)
    for capture in captures:
        capture.finish()
    if lost := sum(capture.lost for capture in captures):
        return {"cause": CAUSE_OUTPUT_LOST, "message": str(lost)}
    code = os.waitstatus_to_exitcode(status)
    # As in a shell: 128 plus the number of the signal that ended it.
    return {"cause": shutdown.cause, "exit_code": code if code >= 0 else 128 - code}


def _wait(root: Path, run: Any, main: int, shutdown: Shutdown) -> int:
    """Until no process of the command is left; the status of the main one."""
    status = 0
    while True:
        ended, children_left = processes.reap(main)
        if ended is not None:
            status = ended
            shutdown.main_ended(time.monotonic())
        if not children_left:
            return status
        now = time.monotonic()
        if _is_over(run):
            shutdown.stop(cause=CAUSE_REPLICA_OVER, grace=_GRACE, now=now)
        elif (root / records.STOP).exists() or not (root / COMMAND).exists():
            shutdown.stop(cause=records.CAUSE_STOPPED, grace=_GRACE, now=now)
        supervisor.signal_all(shutdown.next_action(now), main)
        left = shutdown.seconds_left(now)
        seconds = _POLL_SECONDS if left is None else min(_POLL_SECONDS, max(left, 0.001))
        if sys.platform == "linux":
            signal.sigtimedwait((signal.SIGCHLD, supervisor.WAKE), seconds)
        else:
            time.sleep(seconds)


def _exec_command(launch: Any, run: Any, command: Any, streams: list[int]) -> NoReturn:
    step = "session"
    code = _CANNOT_BEGIN
    argv = command["argv"]
    try:
        os.setsid()
        for target in range(3):
            os.dup2(streams[min(target, len(streams) - 1)], target)
        if command.get("terminal"):
            step = "terminal"
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        step = "control group"
        group = cgroups.from_json(run.get("cgroup") or {})
        for directory in (*group.v1.values(), *([group.v2] if group.v2 else [])):
            cgroups.join(directory)
        _limit_processes(launch, run)
        step = "namespaces of the replica"
        _enter_namespaces(run)
        uid = launch.get("uid")
        if uid is not None:
            step = f"user {uid}"
            isolation.become(uid)
        if not launch.get("user_namespaces", True):
            seccomp.forbid_user_namespaces()
        step = "working directory"
        os.chdir(f"{launch['root']}/{records.WORK}")
        spawn_child.default_signals()
        step, code = argv[0], _NOT_EXECUTABLE
        env = spawn_child.environment(launch)
        if command.get("terminal"):
            env["TERM"] = command.get("term") or "dumb"
        _exec(argv, env)
    except FileNotFoundError as error:
        code = _NOT_FOUND if code == _NOT_EXECUTABLE else code
        _print_error(step, error)
    except (OSError, ValueError) as error:
        _print_error(step, error)
    finally:
        os._exit(code)


def _enter_namespaces(run: Any) -> None:
    """Enter the namespaces of the replica's main process, where they are not our own."""
    if not processes.LINUX:
        return
    pid = run["pid"]
    fields = processes.stat_fields(pid)
    if fields is None or int(fields[1]) != run["monitor_pid"]:
        raise ProcessLookupError(3, "the replica is over")
    top = os.open(f"/proc/{pid}/root", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    found = []
    for name in _NAMESPACES:
        theirs, ours = f"/proc/{pid}/ns/{name}", f"/proc/self/ns/{name}"
        if os.readlink(theirs) != os.readlink(ours):  # noqa: PTH115 - no Path in a forked child
            found.append(os.open(theirs, os.O_RDONLY | os.O_CLOEXEC))
    for fd in found:
        if _libc.setns(fd, 0) < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
    if found:
        # Entering a mount namespace does not change the root directory to the replica's.
        os.fchdir(top)
        os.chroot(".")


def _limit_processes(launch: Any, run: Any) -> None:
    """As its supervisor does: of the whole user, and only where no control group counts them."""
    most, groups = launch.get("pids_limit"), run.get("cgroup") or {}
    counted = "pids" in groups or ("v2" in groups and Path(groups["v2"], "pids.max").exists())
    if launch.get("uid") is not None and most is not None and not counted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NPROC, (most, most))


def _exec(argv: list[str], env: dict[str, str]) -> NoReturn:
    """As shells do: a directory of PATH without permission holds no program."""
    try:
        os.execvpe(argv[0], argv, env)
    except PermissionError:
        found = (Path(place) / argv[0] for place in os.get_exec_path(env))
        if "/" in argv[0] or any(map(os.path.exists, found)):
            raise
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT)) from None


def _print_error(step: str, error: Exception) -> None:
    words = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
    with suppress(OSError):
        os.write(2, f"paddlecloud: {step}: {words}\n".encode("utf-8", "surrogateescape"))


def _is_over(run: Any) -> bool:
    """Whether the replica's main process or its supervisor is gone."""
    if not processes.LINUX:
        return not _exists(run["monitor_pid"]) or not _exists(run["pid"])
    if processes.start_time(run["monitor_pid"]) != run["monitor_start"]:
        return True
    return run["pid"] is None or not processes.alive(run["pid"])


def _exists(pid: int | None) -> bool:
    if pid is None:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
