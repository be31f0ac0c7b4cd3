"""What the agent asks about a replica, and does to one: look, stop, clear away what is left.

Works from the records and the monitor's lock alone, so an agent that was just restarted knows as
much as one that started the replica itself.
"""

from __future__ import annotations

import enum
import errno
import os
import signal
import time
from contextlib import suppress

from paddlecloud.runtime import cgroups, monitor, processes, record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

    from paddlecloud.runtime.record import ExitRecord, StopRecord


class Phase(enum.Enum):
    NOT_STARTED = "not_started"
    RUNNING = "running"
    EXITED = "exited"
    LOST = "lost"


class Observed:
    """One look at a replica. `pid` is the main process; `exit` is there when it is over."""

    __slots__ = ("exit", "monitor_pid", "phase", "pid", "started_at")

    def __init__(
        self,
        *,
        phase: Phase,
        monitor_pid: int | None = None,
        pid: int | None = None,
        started_at: float | None = None,
        exit: ExitRecord | None = None,
    ) -> None:
        self.phase = phase
        self.monitor_pid = monitor_pid
        self.pid = pid
        self.started_at = started_at
        self.exit = exit


def inspect(root: Path) -> Observed:
    """What is true of the replica now. Reads only, takes no lock, disturbs nobody.

    RUNNING means that its monitor lives; `pid` is still None in the instant before the fork. LOST
    means that the monitor was killed: its processes may still run (see `reap_leftovers`); or that
    its records are damaged, so that nobody knows whether it ran.
    """
    over = _over(root)
    if over is not None:
        return over
    # In this order: a monitor that begins between the two looks has not begun, rather than died.
    begun = record.has_begun(root)
    holder = record.lock_holder(f"{root}/{record.LOCK}")
    run = record.read(f"{root}/{record.RUN}") or {}
    pid, started_at = run.get("pid"), run.get("started_at")
    if holder is not None:
        return Observed(phase=Phase.RUNNING, monitor_pid=holder, pid=pid, started_at=started_at)
    # The monitor may have ended between the two looks.
    over = _over(root)
    if over is not None:
        return over
    phase = Phase.LOST if begun else Phase.NOT_STARTED
    return Observed(phase=phase, pid=pid, started_at=started_at)


def request_stop(
    root: Path, *, grace: float, now: float, cause: str = record.CAUSE_STOPPED
) -> bool:
    """Ask for the end: SIGTERM to every process, SIGKILL `grace` seconds later. Returns at once.

    Of a replica that has not started, it means that it never will; of one that is over, nothing.
    Asked again, it can only shorten the grace. `now` is the time of day, for the record. False if
    there was no space to write it down: the monitor was told, but it is to be asked again.
    """
    earlier: StopRecord | None = record.read(root / record.STOP)
    wish: StopRecord = {"cause": cause, "grace": grace, "requested_at": now}
    if earlier is not None:
        wish = {**wish, **earlier, "grace": min(grace, earlier.get("grace", grace))}
    try:
        record.write(root / record.STOP, wish)
    except OSError as error:
        # A full disk must not keep a job alive: where a monitor can see who sends a signal, it
        # understands one without a record, too.
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        if not (full and processes.LINUX and _wake_monitor(root)):
            raise
        return False
    _wake_monitor(root)
    return True


def reap_leftovers(root: Path, *, seconds: float = 10.0) -> bool:
    """Kill what runs of a LOST replica; True when nothing is left. Does nothing to a live one.

    Found by its control group, or else by the marker in its environment and by descent from a
    process that has it. What dropped its environment and its parents without a control group to
    hold it cannot be found; no promise is made for it.
    """
    if record.lock_holder(root / record.LOCK) is not None:
        return False
    run = record.read(root / record.RUN) or {}
    # A record that a full disk cut short says nothing, also not that there is nothing.
    if run.get("boot_id", processes.boot_id()) != processes.boot_id():
        return True
    launch = record.read(root / record.ORDER) or {}
    marker = f"{record.MARKER}={launch.get('replica_id', root.name)}"
    group = cgroups.from_json(run.get("cgroup", {}))
    deadline = time.monotonic() + seconds
    while _kill_round(group, marker):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    group.remove()
    return True


def _over(root: Path) -> Observed | None:
    exit: ExitRecord | None = record.read(f"{root}/{record.EXIT}")
    if exit is None:
        return None
    return Observed(phase=Phase.EXITED, started_at=exit.get("started_at"), exit=exit)


def _wake_monitor(root: Path) -> bool:
    """Signal the monitor and nobody else; False when there is none."""
    pid = record.lock_holder(root / record.LOCK)
    if pid is None:
        return False
    if not hasattr(os, "pidfd_open"):
        os.kill(pid, monitor.WAKE)
        return True
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        # Only if it still holds the lock is this descriptor the monitor and not a later process.
        if record.lock_holder(root / record.LOCK) != pid:
            return False
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(fd, monitor.WAKE)
        return True
    finally:
        os.close(fd)


def _kill_round(group: cgroups.Group, marker: str) -> int:
    """One round of SIGKILL; how many processes were still alive in it."""
    group.kill()
    found = {*group.pids(), *processes.marked(marker)} - {os.getpid()}
    living = [pid for pid in found if processes.alive(pid)]
    processes.kill_trees(living)
    return len(living)
