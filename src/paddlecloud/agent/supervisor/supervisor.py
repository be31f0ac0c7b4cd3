"""The small process beside one replica: starts it, ends it in time, records how it ended.

It outlives the agent and the server: it belongs to nobody, needs nobody, and keeps its facts on
disk. It is a subreaper, so every process of the replica, whatever it does (setsid, double fork),
stays below it, and the kernel's "no child left" is the proof that nothing runs any more; only then
`exit.json` appears. If the monitor itself is killed, the zygote inherits its processes (see
`control.reap_leftovers`). All its signals are blocked from birth and waited for one at a time, so
there is no handler and no race. What the replica prints is copied by a thread (see `capture`).

Wall time is counted by the monotonic clock: a clock set forward ends no job, and the time a laptop
sleeps is no running time.
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
from paddlecloud.agent.supervisor.log_capture import Capture
from paddlecloud.agent.supervisor.shutdown import Act, Course

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddlecloud.agent.replica.records import ExitRecord, Launch, RunRecord, StopRecord
    from paddlecloud.agent.sandbox.cgroups import Cgroups, Group
    from paddlecloud.agent.supervisor.spawn_child import Started

WAKE = signal.SIGUSR1
_WAITED_FOR = (signal.SIGCHLD, signal.SIGALRM, WAKE)
# A monitor ends with its replica and not before: these reach it when a whole machine or terminal
# goes down, and then the replica's end is still worth recording.
_UNHEARD = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR2)
# Moving processes into a control group may wait for every CPU of the machine. Most short commands
# are over before it is worth it, and the first act of a long one need not wait for it.
_SETTLE_SECONDS = 0.05
_RETRY_SECONDS = 1.0
_GROUP_SECONDS = 0.02
_NOBODY = -1
_FOR_EVER = 86_400.0
_START_NOTICE_SECONDS = 0.2
_END_NOTICE_SECONDS = 2.0
# Less than this means that some write of the replica found no room.
_LITTLE_SPACE = 64 * 1024
_RSS_UNIT = 1024 if processes.LINUX else 1


def block_signals() -> None:
    """To be called before a monitor is forked: from its first instant no signal may end it."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [*_WAITED_FOR, *_UNHEARD])


def run(root: Path, places: Cgroups, *, zygote: str = "", again: bool = False) -> bool:
    """The whole life of a monitor. Returns at once when the replica has, or had, another one.

    Whether this process is as it was before and may be the monitor of a further replica; `again`
    says that it was one already. `zygote` is the id of the one that forked it.
    """
    processes.set_name(orphans.MONITOR)
    try:
        if again:
            _forget_signals()
        lock = records.take_lock(root / records.LOCK)
        if lock is None or records.has_begun(root):
            return False
        unchanged = _live(root, places, zygote, again=again)
        if unchanged:
            # Else it is let go by the end of this process, with all that it holds besides.
            os.close(lock)
    except BaseException:
        with suppress(OSError):
            (root / "monitor.log").write_text(traceback.format_exc())
        raise
    return unchanged


def perform(act: Act | None, main: int, group: Group | None = None) -> None:
    """Do to every process below this one what a course says; `group` is theirs alone, if given."""
    if act is None:
        return
    number = signal.SIGKILL if act is Act.KILL else signal.SIGTERM
    if not processes.LINUX:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(main, number)
        return
    if act is Act.KILL:
        if group is not None:
            group.kill()
        processes.kill_groups(os.getpid())
    processes.signal_descendants(os.getpid(), number, group=main)
    if act is Act.TERMINATE:
        # A process that was halted hears nothing until it goes on.
        processes.signal_descendants(os.getpid(), signal.SIGCONT)


class _Life:
    """What a monitor knows of its replica while it runs."""

    def __init__(
        self, root: Path, launch: Launch, places: Cgroups, zygote: str, *, again: bool
    ) -> None:
        self.root = root
        self.zygote = zygote
        self.again = again
        """This process was the monitor of another replica before."""
        self.unchanged = False
        """Nothing of the replica is left in this process."""
        self.used = processes.Used()
        self.launch = launch
        self.places = places
        self.group = cgroups.Group(v2=None, v1={})
        self.contained = False
        """Every process of the replica is in its control group."""
        self.main = 0
        self.status = 0
        self.stop: StopRecord | None = None
        self.started_at = 0.0
        self.settle_at: float | None = None
        """When the limits that can wait are put on; None when they are on, or there is none."""


def _live(root: Path, places: Cgroups, zygote: str, *, again: bool) -> bool:
    launch: Launch | None = records.read(root / records.ORDER)
    if launch is None:
        _leave(root, _never_started(f"{records.ORDER} is missing", None))
        return False
    root.chmod(0o700)
    stop = _asked(root, launch)
    life = _Life(root, launch, places, zygote, again=again)
    _leave(root, _carry_out(life) if stop is None else _ended(cause=stop["cause"], stop=stop))
    notify(launch, _END_NOTICE_SECONDS)
    life.group.remove()
    return life.unchanged


def _carry_out(life: _Life) -> ExitRecord:
    processes.become_subreaper()
    life.started_at = time.time()
    if cgroups.must_be_born_in(life.launch):
        life.group = cgroups.create(life.places, life.launch)
    elif any(cgroups.wanted(life.launch)):
        life.settle_at = time.monotonic() + _SETTLE_SECONDS
    try:
        # Before the process exists: one that no record knows could be started twice, and one that
        # fills the disk would leave no space for its end.
        records.create(life.root / records.RUN, _run_record(life))
        records.reserve(life.root / records.EXIT)
        log = Capture(
            life.root / records.STDOUT,
            limit=life.launch.get("log_limit"),
            preamble=life.launch.get("preamble", ""),
        )
        started = spawn_child.start(
            life.root, life.launch, life.group, log=log.writer, most=_most_processes(life)
        )
    except OSError as error:
        return _never_started(_words(error), error.errno)
    life.main = started.pid
    if not started.message:
        life.contained = _has_group(life) and not life.group.missed
        _rewrite_run(life)  # before its log can fill the disk
    log.begin()
    if not started.message:
        notify(life.launch, _START_NOTICE_SECONDS)
    return _see_through(life, started, log)


def _see_through(life: _Life, started: Started, log: Capture) -> ExitRecord:
    ooms = _oom_kills(life.group)
    launch = life.launch
    began = time.monotonic()
    course = Course(now=began, max_seconds=launch.get("max_seconds"), grace=launch["grace"])
    counted = life.group.oom_kills() is not None
    _wait(life, course)
    ran = time.monotonic() - began
    log.finish()
    unlimited = not _has_group(life)
    life.unchanged = log.close() and started.plain and unlimited and ran < _SETTLE_SECONDS
    if started.message:
        return _never_started(started.message, started.errno)
    ended = _ended(cause=course.cause, stop=life.stop)
    code = os.waitstatus_to_exitcode(life.status)
    ended["exit_code"], ended["signal"] = (code, None) if code >= 0 else (None, -code)
    ended["started_at"] = life.started_at
    ended["ran"] = round(ran, 6)
    if course.cause != records.CAUSE_EXIT:
        ended["stopping_at"] = _stopping_at(life)
    hint = launch.get("hint") or started.hint
    if hint and code:
        ended["hint"] = hint
    _tell_of_the_disk(ended, life.root, log.lost)
    if counted or code == -signal.SIGKILL:
        ended["oom"] = _oom_kills(life.group if counted else None) > ooms
        if ended["oom"] and life.group.reached_its_memory():
            ended["memory_limit"] = launch.get("memory_limit")
    refused = life.group.forks_refused()
    if refused:
        ended["forks_refused"] = refused
    ended["enforced"] = _enforced(life)
    if started.rooted is not None:
        ended["enforced"]["root"] = started.rooted
    if started.filtered is not None:
        ended["enforced"]["user_namespaces"] = started.filtered
    ended["max_rss"] = life.used.max_rss * _RSS_UNIT
    ended["cpu_seconds"] = round(life.used.cpu_seconds, 6)
    return ended


def _stopping_at(life: _Life) -> float:
    """When its end began, by somebody's wish or by its wall time."""
    if life.stop is not None:
        return life.stop["requested_at"]
    return life.started_at + (life.launch.get("max_seconds") or 0.0)


def _wait(life: _Life, course: Course) -> None:
    """Until no process of the replica is left."""
    while True:
        reaped, left = processes.reap(life.main, life.used)
        if reaped is not None:
            life.status = reaped
            course.main_ended(time.monotonic())
        if not left and not _group_lives(life.main):
            return
        now = time.monotonic()
        if life.settle_at is not None and now >= life.settle_at:
            _settle(life)
        perform(course.act(now), life.main, life.group)
        sender = _sleep(_soonest(course.wake_after(now), _settle_after(life, now), left=left))
        wish = None if sender is None else _wish(life, sender)
        if wish is not None:
            if wish["cause"] == records.CAUSE_HUNG and life.stop is None:
                stack_dump.collect(life.root, processes.descendants(os.getpid()))
            life.stop = wish
            course.stop(cause=wish["cause"], grace=wish["grace"], now=time.monotonic())


def _most_processes(life: _Life) -> int | None:
    """Where no control group can count the processes of one replica, its user's are counted."""
    if life.launch.get("uid") is None or life.places.enforces()["pids"]:
        return None
    return life.launch.get("pids_limit")


def _settle_after(life: _Life, now: float) -> float | None:
    return None if life.settle_at is None else max(0.0, life.settle_at - now)


def _soonest(*seconds: float | None, left: bool) -> float | None:
    # Of the end of a process that is no child, no signal tells.
    look = None if left else _GROUP_SECONDS
    return min((one for one in (*seconds, look) if one is not None), default=None)


def _settle(life: _Life) -> None:
    """Put on the limits that could wait, over everything the replica has started so far."""
    life.settle_at = None
    life.group = cgroups.create(life.places, life.launch)
    _rewrite_run(life)
    cgroups.adopt(life.group, lambda: processes.descendants(os.getpid()))
    life.contained = _is_contained(life)
    if life.contained:
        _rewrite_run(life)


def _is_contained(life: _Life) -> bool:
    """Whether the control group has every process of the replica, and so all that they start."""
    below = processes.descendants(os.getpid())
    return bool(below) and set(below) <= set(life.group.pids())


def _has_group(life: _Life) -> bool:
    return bool(life.group.v1) or life.group.v2 is not None


def _enforced(life: _Life) -> dict[str, bool]:
    """Of a replica that was over before its limits were put on: what they would have been."""
    if life.settle_at is None:
        return {name: name in life.group.set for name in cgroups.CONTROLLERS}
    limited, able = cgroups.limited(life.launch), life.places.enforces()
    return {name: name in limited and able[name] for name in cgroups.CONTROLLERS}


def _run_record(life: _Life) -> RunRecord:
    return {
        "monitor_pid": os.getpid(),
        "monitor_start": processes.start_time(os.getpid()),
        "boot_id": processes.boot_id(),
        "zygote": life.zygote,
        "cgroup": life.group.to_json(),
        "contained": life.contained,
        "pid": life.main or None,
        "started_at": life.started_at if life.main else None,
    }


def _rewrite_run(life: _Life) -> None:
    # What it said before is still true, only less: a full disk is no reason to give up.
    with suppress(OSError):
        records.write(life.root / records.RUN, _run_record(life))


def _group_lives(main: int) -> bool:
    """Whether the group of the main process has members where no subreaper keeps them with us."""
    if processes.LINUX or not main:
        return False
    try:
        os.killpg(main, 0)
    except (ProcessLookupError, PermissionError):
        # The latter is how macOS says that only zombies are left.
        return False
    return True


def _sleep(seconds: float | None) -> int | None:
    """Until a signal comes or the time is over; the pid that sent it if it was WAKE."""
    if sys.platform != "linux":
        # A timer of 0 would be no timer at all.
        signal.setitimer(signal.ITIMER_REAL, 0 if seconds is None else max(seconds, 0.0005))
        return _NOBODY if signal.sigwait(_WAITED_FOR) == WAKE else None
    told = signal.sigtimedwait(_WAITED_FOR, _FOR_EVER if seconds is None else seconds)
    return told.si_pid if told is not None and told.si_signo == WAKE else None


def _wish(life: _Life, sender: int) -> StopRecord | None:
    """What was asked. A signal without a record comes from an agent whose disk is full, or means
    nothing: the replica may send signals to its parent as it likes."""
    asked = _asked(life.root, life.launch)
    if asked is None and _is_outside(sender) and (not life.again or _is_full(life.root)):
        return life.stop or {
            "cause": records.CAUSE_STOPPED,
            "grace": life.launch["grace"],
            "requested_at": time.time(),
        }
    return asked


def _is_full(root: Path) -> bool:
    """Whether an agent could not write a wish down here. Who was the monitor of another replica
    before cannot know for which of them a signal was meant that comes without a record."""
    probe = root / f"{records.STOP}.{os.getpid()}.tmp"
    try:
        records.create(probe, {"cause": records.CAUSE_STOPPED, "grace": 0.0, "requested_at": 0.0})
    except OSError as error:
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    finally:
        probe.unlink(missing_ok=True)
    return False


def _forget_signals() -> None:
    """Of the replica before."""
    while signal.sigtimedwait(_WAITED_FOR, 0) is not None:
        pass


def _asked(root: Path, launch: Launch) -> StopRecord | None:
    found = records.read(root / records.STOP)
    if found is None:
        return None
    return {
        "cause": str(found.get("cause", records.CAUSE_STOPPED)),
        "grace": float(found.get("grace", launch["grace"])),
        "requested_at": float(found.get("requested_at", 0.0)),
    }


def _is_outside(pid: int) -> bool:
    """Alive and not one of ours; 0 is a process outside of the container that we are in."""
    if pid == 0:
        return True
    return processes.alive(pid) and pid not in {os.getpid(), *processes.descendants(os.getpid())}


def _ended(*, cause: str, stop: StopRecord | None = None) -> ExitRecord:
    return {
        "cause": cause,
        "exit_code": None,
        "signal": None,
        "oom": False,
        "message": "",
        "start_errno": None,
        "started_at": None,
        "finished_at": time.time(),
        "ran": None,
        "stop_requested_at": None if stop is None else stop["requested_at"],
        "max_rss": None,
        "cpu_seconds": None,
        "enforced": dict.fromkeys(cgroups.CONTROLLERS, False),
    }


def _tell_of_the_disk(ended: ExitRecord, root: Path, lost: int) -> None:
    """In words, if the disk that the replica wrote to has no space: its log cannot say so."""
    told = []
    if lost:
        ended["log_lost"] = lost
        told.append(f"{lost} bytes of its log could not be written")
    if lost or ended["exit_code"]:
        disk = os.statvfs(root)
        free = disk.f_frsize * (disk.f_bavail if os.geteuid() else disk.f_bfree)
        if free < _LITTLE_SPACE:
            told.append(f"{root}: {free} bytes free")
    ended["message"] = "; ".join(told)


def _never_started(message: str, number: int | None) -> ExitRecord:
    ended = _ended(cause=records.CAUSE_START_FAILED)
    ended["message"], ended["start_errno"] = message, number
    return ended


def _words(error: OSError) -> str:
    words = os.strerror(error.errno) if error.errno else str(error)
    return f"{error.filename}: {words}" if error.filename else words


def _leave(root: Path, ended: ExitRecord) -> None:
    """Record the end, however long the disk stays full; given up only if `root` was deleted."""
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
    counted = None if group is None else group.oom_kills()
    return processes.oom_kills() if counted is None else counted


def notify(launch: Launch, seconds: float) -> None:
    """Tell the agent that there is something to read; it may be dead, deaf or busy."""
    path = launch.get("notify")
    if not path:
        return
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
        out.settimeout(seconds)
        _connect(out, path)
        out.send(launch["replica_id"].encode())


def _connect(out: socket.socket, path: str) -> None:
    if path.startswith("@"):
        out.connect("\0" + path[1:])
        return
    # A socket's address holds about 100 bytes; a home directory may be deeper.
    folder = os.open(Path(path).parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        short = f"/proc/self/fd/{folder}/{Path(path).name}"
        out.connect(short if len(os.fsencode(path)) > 100 and processes.LINUX else path)
    finally:
        os.close(folder)


def main(root: str) -> None:
    """One monitor in a process of its own, for tests and for looking into one by hand."""
    block_signals()
    run(Path(root), cgroups.detect())


if __name__ == "__main__":
    main(sys.argv[1])
