"""Starts the main process of a replica: fork, sandbox, exec.

There are two ways. `posix_spawn` starts it without copying our memory (3 to 5 ms of CPU less). A
control group or a user of its own need a fork: the child sets up its sandbox step by step and
reports problems through a pipe that exec closes. It joins its control groups itself, so nothing
that it starts can be outside of them.
"""

from __future__ import annotations

import json
import os
import resource
import signal
from contextlib import suppress
from pathlib import Path

from paddlecloud.agent.replica.records import MARKER, ROOT, SECRETS, WORK
from paddlecloud.agent.sandbox import cgroups, isolation, overlay, rootfs, seccomp
from paddlecloud.agent.supervisor import processes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import NoReturn

    from paddlecloud.agent.replica.records import Launch
    from paddlecloud.agent.sandbox.cgroups import Group

_NOT_STARTED = 127
# Bytes that fit into a pipe which is not read yet.
_PIPE_BYTES = 4096
# Ignored by Python, and an ignored signal stays ignored across exec.
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)


class Started:
    """The main process; `message` is not empty when it could not become the command."""

    __slots__ = ("errno", "filtered", "hint", "message", "pid", "plain", "rooted")

    def __init__(self, *, pid: int, message: str = "", errno: int | None = None) -> None:
        self.plain = False
        """Whether it was started by `posix_spawn`, without any change to this process."""
        self.pid = pid
        self.message = message
        self.errno = errno
        self.rooted: bool | None = None
        """Whether it has a root of its own; None where that was not requested."""
        self.filtered: bool | None = None
        """Whether it cannot create user namespaces; None where it may."""
        self.hint = ""
        """Why it may fail, if it does."""


def start(
    root: Path, launch: Launch, group: Group, *, log: int, most: int | None = None
) -> Started:
    """Run the order's command below `root`; returns when it runs or is known to have failed.

    `log` becomes its stdout and stderr. Its user, if it has one of its own, may have `most`
    processes. Limits whose control group could not be joined are taken out of `group.set`. Raises
    OSError when no process could be created.
    """
    null = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    uid = launch.get("uid")
    try:
        if uid is not None:
            # Opening /dev/stderr again needs permission to the pipe.
            os.fchown(log, uid, uid)
        own = launch.get("private_root") or launch.get("tree")
        free = launch.get("user_namespaces", True)
        plain = uid is None and not own and free and hasattr(os, "posix_spawn")
        if not plain or group.v1 or group.v2:
            return _start_by_fork(root, launch, group, null=null, log=log, most=most)
        return _start_by_posix_spawn(root, launch, null=null, log=log)
    finally:
        os.close(null)


def _start_by_posix_spawn(root: Path, launch: Launch, *, null: int, log: int) -> Started:
    step = f"working directory {root / WORK}"
    try:
        os.chdir(root / WORK)
        step = "command"
        pid = os.posix_spawn(
            "/bin/sh",
            ["/bin/sh", "-c", launch["command"]],
            environment(launch),
            file_actions=[
                (os.POSIX_SPAWN_DUP2, null, 0),
                (os.POSIX_SPAWN_DUP2, log, 1),
                (os.POSIX_SPAWN_DUP2, log, 2),
            ],
            setsid=True,
            setsigmask=[],
            setsigdef=_IGNORED_BY_PYTHON,
        )
    except OSError as error:
        return Started(pid=0, message=f"{step}: {_words(error)}", errno=error.errno)
    except ValueError as error:
        return Started(pid=0, message=f"{step}: {error}")
    finally:
        os.chdir("/")
    started = Started(pid=pid)
    started.plain = True
    return started


def _start_by_fork(
    root: Path, launch: Launch, group: Group, *, null: int, log: int, most: int | None
) -> Started:
    tree = launch.get("tree")
    if tree:
        # Open until the end of this process, which is the supervisor.
        overlay.hold(tree)
    if launch.get("pserver_mode"):
        from paddlecloud.agent.replica import preflight  # noqa: PLC0415 - most jobs do without

        # Before the fork, all modules that it needs: the replica may not see or read our own files.
        preflight.preamble("", "")
    reader, writer = os.pipe()
    pid, joins = _fork(group)
    if pid == 0:
        if most is not None:
            with suppress(OSError, ValueError):
                resource.setrlimit(resource.RLIMIT_NPROC, (most, most))
        _exec_command(root, launch, joins, null=null, log=log, report=writer)
    os.close(writer)
    started = _read_reports(pid, reader, group)
    if started.rooted is None and launch.get("private_root"):
        started.rooted = True
    if started.filtered is None and not launch.get("user_namespaces", True):
        started.filtered = True
    return started


def _fork(group: Group) -> tuple[int, Mapping[str, Path]]:
    """The pid (0 in the child) and the groups that the child still has to join."""
    if group.v2 is None:
        return os.fork(), group.v1
    try:
        fd = os.open(group.v2, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            return processes.fork_into(fd), group.v1
        finally:
            os.close(fd)
    except OSError:
        # An old kernel, or a filter of system calls around our container.
        return os.fork(), {**group.v1, "v2": group.v2}


def _exec_command(
    root: Path, launch: Launch, joins: Mapping[str, Path], *, null: int, log: int, report: int
) -> NoReturn:
    step = "new session"
    try:
        os.setsid()
        for name, directory in joins.items():
            try:
                cgroups.join(directory)
            except OSError:
                _report(report, unjoined=name)
        step = "standard streams"
        for source, target in ((null, 0), (log, 1), (log, 2)):
            os.dup2(source, target)
        tree = launch.get("tree")
        if tree:
            step = "files"
            overlay.enter(str(root), tree)
        rooted = bool(launch.get("private_root")) and _enter_root(root, report)
        uid = launch.get("uid")
        if uid is not None:
            step = f"mount namespace of user {uid}"
            also = dict.fromkeys(launch.get("show") or (), False)
            also |= dict.fromkeys(launch.get("writable") or (), True)
            isolation.enter(str(root), launch.get("hide") or (), also=also, rooted=rooted)
            step = f"user {uid}"
            isolation.become(uid)
        if not launch.get("user_namespaces", True) and not seccomp.forbid_user_namespaces():
            _report(report, unfiltered=True)
        step = f"working directory {root / WORK}"
        os.chdir(root / WORK)
        if launch.get("pserver_mode"):
            _check_pserver(launch, report)
        step = "command"
        default_signals()
        os.execve("/bin/sh", ["/bin/sh", "-c", launch["command"]], environment(launch))
    except OSError as error:
        _report(report, message=f"{step}: {_words(error)}", errno=error.errno)
    except ValueError as error:
        _report(report, message=f"{step}: {error}", errno=None)
    finally:
        os._exit(_NOT_STARTED)


def _enter_root(root: Path, report: int) -> bool:
    """Where that is not possible the command runs all the same; the files have other paths too."""
    try:
        rootfs.enter(str(root / ROOT))
    except OSError as error:
        _report(report, unrooted=_words(error))
        return False
    return True


def _check_pserver(launch: Launch, report: int) -> None:
    """Write a warning into the log if the PaddlePaddle of the job has no parameter server."""
    from paddlecloud.agent.replica import preflight  # noqa: PLC0415 - imported already, see `_start_by_fork`
    from paddlecloud.model.diagnosis.exit_status import NO_PSERVER  # noqa: PLC0415 - as below

    found = preflight.without_pserver(launch["env"])
    if found is not None:
        os.write(1, preflight.preamble(*found).encode()[:_PIPE_BYTES])
        _report(report, hint=NO_PSERVER)


def default_signals() -> None:
    """Set signals as a program expects them that is started from a shell."""
    for number in _IGNORED_BY_PYTHON:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def environment(launch: Launch) -> dict[str, str]:
    """The variables of a replica; those with secrets are read now, and stored nowhere else."""
    env = {**launch["env"], MARKER: launch["replica_id"]}
    for variable, name in (launch.get("secrets") or {}).items():
        with open(f"{launch['root']}/{SECRETS}/{name}", "rb") as file:  # noqa: PTH123 - as above
            env[variable] = os.fsdecode(file.read())
    return env


def _words(error: OSError) -> str:
    return os.strerror(error.errno) if error.errno else str(error)


def _report(report: int, **fact: object) -> None:
    os.write(report, json.dumps(fact).encode() + b"\n")


def _read_reports(pid: int, reader: int, group: Group) -> Started:
    started = Started(pid=pid)
    with os.fdopen(reader, "rb") as lines:
        for line in lines:
            fact = json.loads(line)
            if "message" in fact:
                started.message, started.errno = fact["message"][:1000], fact["errno"]
            elif "unrooted" in fact:
                started.rooted = False
            elif "hint" in fact:
                started.hint = fact["hint"]
            elif "unfiltered" in fact:
                started.filtered = False
            else:
                group.drop(fact["unjoined"])
    return started
