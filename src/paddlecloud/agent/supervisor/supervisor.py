"""The supervisor: a small process beside one replica that starts it, ends it, and records its exit.

It outlives the agent and the server and keeps its facts on disk. It is a subreaper, so every
process of the replica stays below it, whatever it does (setsid, double fork), and the kernel's "no
child left" proves that nothing runs any more; only then `exit.json` appears. If the supervisor
itself is killed, the zygote inherits its processes (`inspect.reap_leftovers`). All of its signals
are blocked from the start and waited for one at a time, so there are no handlers and no races. A
thread copies what the replica prints (`log_capture`).

The wall time is counted by the monotonic clock: setting the clock forward ends no job, and the time
that a laptop sleeps is no running time.

The records keep the key names `monitor_pid` and `monitor_start` of the first version, in which a
supervisor was called monitor.
"""

from __future__ import annotations

import errno
import os
import signal
import socket
import sys
import time
import traceback
from contextlib import suppress
from pathlib import Path

from paddlecloud.agent.replica import records
from paddlecloud.agent.sandbox import cgroups
from paddlecloud.agent.supervisor import orphans, processes, spawn_child, stack_dump
from paddlecloud.agent.supervisor.log_capture import LogCapture
from paddlecloud.agent.supervisor.shutdown import Action, Shutdown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddlecloud.agent.replica.records import ExitRecord, Launch, RunRecord, StopRecord
    from paddlecloud.agent.sandbox.cgroups import Cgroups, Group
    from paddlecloud.agent.supervisor.spawn_child import Started

WAKE = signal.SIGUSR1
_WAITED_FOR = (signal.SIGCHLD, signal.SIGALRM, WAKE)
# They reach a supervisor when a whole machine or terminal goes down, and then the exit of the
# replica is still worth recording.
_IGNORED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR2)
# Moving processes into a control group may wait for every CPU of the machine. Most short commands
# are over before it is worth it, and the first act of a long one need not wait for it.
_LIMITS_AFTER_SECONDS = 0.05
_RETRY_SECONDS = 1.0
_PROCESS_GROUP_POLL_SECONDS = 0.02
_UNKNOWN_SENDER = -1
_FOR_EVER = 86_400.0
_START_NOTICE_SECONDS = 0.2
_END_NOTICE_SECONDS = 2.0
# With less than this, some write of the replica found no space.
_LITTLE_SPACE = 64 * 1024
_RSS_UNIT = 1024 if processes.LINUX else 1


def block_signals() -> None:
    """Call this before a supervisor is forked: no signal may end it from its first instant."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [*_WAITED_FOR, *_IGNORED])


def run(root: Path, available: Cgroups, *, zygote: str = "", reused: bool = False) -> bool:
    """The whole life of a supervisor. Returns at once when the replica has, or had, another one.

    Returns whether this process is as before and may supervise a further replica; `reused` means
    that it has already. `zygote` is the id of the zygote that forked it.
    """
    processes.set_name(orphans.SUPERVISOR)
    try:
        if reused:
            while signal.sigtimedwait(_WAITED_FOR, 0) is not None:
                pass  # it was meant for the previous replica
        lock = records.take_lock(root / records.LOCK)
        if lock is None or records.has_begun(root):
            return False
        reusable = _supervise(root, available, zygote, reused=reused)
        if reusable:
            # Otherwise the end of this process releases it, with everything else it holds.
            os.close(lock)
    except BaseException:
        with suppress(OSError):
            (root / "supervisor.log").write_text(traceback.format_exc())
        raise
    return reusable


def signal_all(action: Action | None, main: int, group: Group | None = None) -> None:
    """Send the signal of `action` to every process below this one; `group` is theirs alone."""
    if action is None:
        return
    number = signal.SIGKILL if action is Action.KILL else signal.SIGTERM
    if not processes.LINUX:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(main, number)
        return
    if action is Action.KILL:
        if group is not None:
            group.kill()
        processes.kill_groups(os.getpid())
    processes.signal_descendants(os.getpid(), number, group=main)
    if action is Action.TERMINATE:
        # A stopped process gets its signal only when it continues.
        processes.signal_descendants(os.getpid(), signal.SIGCONT)


def _supervise(root: Path, available: Cgroups, zygote: str, *, reused: bool) -> bool:
    launch: Launch | None = records.read(root / records.ORDER)
    if launch is None:
        _write_exit(root, _not_started(f"{records.ORDER} is missing", None))
        return False
    root.chmod(0o700)
    stop = _read_stop(root, launch)
    supervisor = _Supervisor(root, launch, available, zygote, reused=reused)
    ended = supervisor.run() if stop is None else _exit_record(cause=stop["cause"], stop=stop)
    _write_exit(root, ended)
    notify(launch, _END_NOTICE_SECONDS)
    supervisor.group.remove()
    return supervisor.reusable


class _Supervisor:
    """Runs the command of one replica."""

    def __init__(
        self, root: Path, launch: Launch, available: Cgroups, zygote: str, *, reused: bool
    ) -> None:
        self._root = root
        self._launch = launch
        self._cgroups = available
        self._zygote = zygote
        self._reused = reused
        """This process has supervised another replica before."""
        self.reusable = False
        """Nothing of the replica is left in this process."""
        self.group = cgroups.Group(v2=None, v1={})
        self._contained = False
        """Every process of the replica is in its control group."""
        self._used = processes.Used()
        self._main = 0
        self._status = 0
        self._stop: StopRecord | None = None
        self._started_at = 0.0
        self._limits_at: float | None = None
        """When the limits that can wait are applied; None when they are, or there are none."""

    def run(self) -> ExitRecord:
        processes.become_subreaper()
        root, launch = self._root, self._launch
        self._started_at = time.time()
        if cgroups.must_be_born_in(launch):
            self.group = cgroups.create(self._cgroups, launch)
        elif any(cgroups.wanted(launch)):
            self._limits_at = time.monotonic() + _LIMITS_AFTER_SECONDS
        try:
            # Before the process exists: one that no record knows could be started twice, and one
            # that fills the disk would leave no space for its exit record.
            records.create(root / records.RUN, self._run_record())
            records.reserve(root / records.EXIT)
            limit, preamble = launch.get("log_limit"), launch.get("preamble", "")
            log = LogCapture(
                root / records.STDOUT,
                limit=limit,
                preamble=preamble,
                times=root / records.STDOUT_TIMES,
            )
            most = None
            if launch.get("uid") is not None and not self._cgroups.enforces()["pids"]:
                # Where no control group counts the processes of a replica, those of its user are.
                most = launch.get("pids_limit")
            started = spawn_child.start(root, launch, self.group, log=log.writer, most=most)
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else str(error)
            message = f"{error.filename}: {reason}" if error.filename else reason
            return _not_started(message, error.errno)
        self._main = started.pid
        if not started.message:
            self._contained = self._has_group() and not self.group.missed
            self._rewrite_run()  # before its log can fill the disk
        log.start()
        if not started.message:
            notify(launch, _START_NOTICE_SECONDS)
        return self._run_to_end(started, log)

    def _run_to_end(self, started: Started, log: LogCapture) -> ExitRecord:
        launch = self._launch
        # The machine's counter serves where no control group counts.
        oom_counter = self.group if self.group.oom_kills() is not None else None
        oom_kills = _oom_kills(oom_counter)
        began = time.monotonic()
        wall_time = launch.get("max_seconds")
        shutdown = Shutdown(now=began, wall_time=wall_time, grace=launch["grace"])
        self._wait(shutdown)
        ran = time.monotonic() - began
        log.finish()
        is_short = ran < _LIMITS_AFTER_SECONDS and not self._has_group()
        self.reusable = log.close() and started.plain and is_short
        if started.message:
            return _not_started(started.message, started.errno)
        ended = _exit_record(cause=shutdown.cause, stop=self._stop)
        code = os.waitstatus_to_exitcode(self._status)
        ended["exit_code"], ended["signal"] = (code, None) if code >= 0 else (None, -code)
        ended["started_at"] = self._started_at
        ended["ran"] = round(ran, 6)
        if shutdown.cause != records.CAUSE_EXIT:
            by_wall_time = self._started_at + (wall_time or 0.0)
            ended["stopping_at"] = self._stop["requested_at"] if self._stop else by_wall_time
        hint = launch.get("hint") or started.hint
        if hint and code:
            ended["hint"] = hint
        self._add_disk_message(ended, log.lost)
        if oom_counter is not None or code == -signal.SIGKILL:
            ended["oom"] = _oom_kills(oom_counter) > oom_kills
            if ended["oom"] and self.group.reached_its_memory():
                ended["memory_limit"] = launch.get("memory_limit")
        refused = self.group.forks_refused()
        if refused:
            ended["forks_refused"] = refused
        ended["enforced"] = self._enforced(started)
        ended["max_rss"] = self._used.max_rss * _RSS_UNIT
        ended["cpu_seconds"] = round(self._used.cpu_seconds, 6)
        return ended

    def _wait(self, shutdown: Shutdown) -> None:
        """Until no process of the replica is left."""
        while True:
            reaped, children_left = processes.reap(self._main, self._used)
            if reaped is not None:
                self._status = reaped
                shutdown.main_ended(time.monotonic())
            if not children_left and not _process_group_lives(self._main):
                return
            now = time.monotonic()
            if self._limits_at is not None and now >= self._limits_at:
                self._apply_limits()
            signal_all(shutdown.next_action(now), self._main, self.group)
            waits = [shutdown.seconds_left(now)]
            if self._limits_at is not None:
                waits.append(max(0.0, self._limits_at - now))
            if not children_left:  # no signal comes at the end of a process that is no child
                waits.append(_PROCESS_GROUP_POLL_SECONDS)
            sender = _sleep(min((each for each in waits if each is not None), default=None))
            stop = None if sender is None else self._requested_stop(sender)
            if stop is not None:
                if stop["cause"] == records.CAUSE_HUNG and self._stop is None:
                    stack_dump.collect(self._root, processes.descendants(os.getpid()))
                self._stop = stop
                now = time.monotonic()
                shutdown.stop(cause=stop["cause"], grace=stop["grace"], now=now)

    def _apply_limits(self) -> None:
        """Apply the limits that could wait to everything the replica has started so far."""
        self._limits_at = None
        self.group = cgroups.create(self._cgroups, self._launch)
        self._rewrite_run()
        cgroups.adopt(self.group, lambda: processes.descendants(os.getpid()))
        below = processes.descendants(os.getpid())
        self._contained = bool(below) and set(below) <= set(self.group.pids())
        if self._contained:
            self._rewrite_run()

    def _has_group(self) -> bool:
        return bool(self.group.v1) or self.group.v2 is not None

    def _run_record(self) -> RunRecord:
        return {
            "monitor_pid": os.getpid(),
            "monitor_start": processes.start_time(os.getpid()),
            "boot_id": processes.boot_id(),
            "zygote": self._zygote,
            "cgroup": self.group.to_json(),
            "contained": self._contained,
            "pid": self._main or None,
            "started_at": self._started_at if self._main else None,
        }

    def _rewrite_run(self) -> None:
        # On a full disk the earlier record stays, which is still true but less complete.
        with suppress(OSError):
            records.write(self._root / records.RUN, self._run_record())

    def _requested_stop(self, sender: int) -> StopRecord | None:
        """The stop that was requested. A signal without a record comes from an agent whose disk is
        full, or means nothing: the replica may send its parent any signal."""
        requested = _read_stop(self._root, self._launch)
        if requested is not None or not _is_outside(sender):
            return requested
        if self._reused and not _is_full(self._root):
            return None
        return self._stop or {
            "cause": records.CAUSE_STOPPED,
            "grace": self._launch["grace"],
            "requested_at": time.time(),
        }

    def _add_disk_message(self, ended: ExitRecord, lost: int) -> None:
        """Note a full disk of the replica, which its log cannot show."""
        messages = []
        if lost:
            ended["log_lost"] = lost
            messages.append(f"{lost} bytes of its log could not be written")
        if lost or ended["exit_code"]:
            disk = os.statvfs(self._root)
            free = disk.f_frsize * (disk.f_bavail if os.geteuid() else disk.f_bfree)
            if free < _LITTLE_SPACE:
                messages.append(f"{self._root}: {free} bytes free")
        ended["message"] = "; ".join(messages)

    def _enforced(self, started: Started) -> dict[str, bool]:
        """Which limits the replica was held to; those that would have been applied if it was over
        before they were."""
        held = self.group.set
        if self._limits_at is not None:
            able = self._cgroups.enforces()
            held = {name for name in cgroups.limited(self._launch) if able[name]}
        enforced = {name: name in held for name in cgroups.CONTROLLERS}
        if started.rooted is not None:
            enforced["root"] = started.rooted
        if started.filtered is not None:
            enforced["user_namespaces"] = started.filtered
        return enforced


def _process_group_lives(main: int) -> bool:
    """Whether the process group of `main` has members, where no subreaper keeps them as
    children."""
    if processes.LINUX or not main:
        return False
    try:
        os.killpg(main, 0)
    except (ProcessLookupError, PermissionError):
        # The latter is what macOS answers when only zombies are left.
        return False
    return True


def _sleep(seconds: float | None) -> int | None:
    """Until a signal comes or the time is over; the pid of its sender if it was WAKE."""
    if sys.platform != "linux":
        # A timer of 0 would be no timer at all.
        signal.setitimer(signal.ITIMER_REAL, 0 if seconds is None else max(seconds, 0.0005))
        return _UNKNOWN_SENDER if signal.sigwait(_WAITED_FOR) == WAKE else None
    info = signal.sigtimedwait(_WAITED_FOR, _FOR_EVER if seconds is None else seconds)
    return info.si_pid if info is not None and info.si_signo == WAKE else None


def _is_full(root: Path) -> bool:
    """Whether an agent could not write a stop record here. A reused supervisor cannot know for
    which of its replicas a signal was meant that comes without a record."""
    probe = root / f"{records.STOP}.{os.getpid()}.tmp"
    try:
        records.create(probe, {"cause": records.CAUSE_STOPPED, "grace": 0.0, "requested_at": 0.0})
    except OSError as error:
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    finally:
        probe.unlink(missing_ok=True)
    return False


def _read_stop(root: Path, launch: Launch) -> StopRecord | None:
    found = records.read(root / records.STOP)
    if found is None:
        return None
    return {
        "cause": str(found.get("cause", records.CAUSE_STOPPED)),
        "grace": float(found.get("grace", launch["grace"])),
        "requested_at": float(found.get("requested_at", 0.0)),
    }


def _is_outside(pid: int) -> bool:
    """Alive and none of the replica's processes; 0 is a process outside of our container."""
    if pid == 0:
        return True
    return processes.alive(pid) and pid not in {os.getpid(), *processes.descendants(os.getpid())}


def _exit_record(*, cause: str, stop: StopRecord | None = None) -> ExitRecord:
    ended = records.exit_record(cause, now=time.time())
    ended["stop_requested_at"] = None if stop is None else stop["requested_at"]
    ended["enforced"] = dict.fromkeys(cgroups.CONTROLLERS, False)
    return ended


def _not_started(message: str, number: int | None) -> ExitRecord:
    ended = _exit_record(cause=records.CAUSE_START_FAILED)
    ended["message"], ended["start_errno"] = message, number
    return ended


def _write_exit(root: Path, ended: ExitRecord) -> None:
    """However long the disk stays full; given up only if `root` was deleted."""
    while True:
        try:
            records.write_reserved(root / records.EXIT, ended)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR) and not root.is_dir():
                return
            time.sleep(_RETRY_SECONDS)
        else:
            return


def _oom_kills(group: Group | None) -> int:
    """Of the group, or of the whole machine."""
    counted = None if group is None else group.oom_kills()
    return processes.oom_kills() if counted is None else counted


def notify(launch: Launch, seconds: float) -> None:
    """Wake the agent; it may be dead or busy, and reads the records sooner or later anyway."""
    path = launch.get("notify")
    if not path:
        return
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
        out.settimeout(seconds)
        folder = os.open(Path(path).parent, os.O_RDONLY | os.O_CLOEXEC)
        try:
            # A socket's address has about 100 bytes; a home directory may be deeper.
            short = f"/proc/self/fd/{folder}/{Path(path).name}"
            out.connect(short if len(os.fsencode(path)) > 100 and processes.LINUX else path)
        finally:
            os.close(folder)
        out.send(launch["replica_id"].encode())


def main(root: str) -> None:
    """One supervisor in a process of its own, for tests and for debugging by hand."""
    block_signals()
    run(Path(root), cgroups.detect())


if __name__ == "__main__":
    main(sys.argv[1])
