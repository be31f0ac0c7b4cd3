"""Inspects and stops a replica by its records, and ends what a dead supervisor left running.

Works from the records and the supervisor's lock alone, so an agent that was just restarted knows as
much as one that started the replica itself.
"""

from __future__ import annotations

import enum
import errno
import os
import signal
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from paddlecloud.agent.replica import records
from paddlecloud.agent.sandbox import cgroups
from paddlecloud.agent.supervisor import orphans, processes, supervisor

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from paddlecloud.agent.replica.records import ExitRecord, StopRecord
    from paddlecloud.agent.supervisor.zygote import Spawner


#: This many scans in a row have to find no process of a dead supervisor: one that forks and exits
#: all the time can be missed by a single scan.
_CLEAN_ROUNDS = 3


class Phase(enum.Enum):
    NOT_STARTED = "not_started"
    RUNNING = "running"
    EXITED = "exited"
    LOST = "lost"


class Observed:
    """The state of a replica. `pid` is the main process; `exit` is set when it is over."""

    __slots__ = ("exit", "phase", "pid", "started_at", "supervisor_pid")

    def __init__(
        self,
        *,
        phase: Phase,
        supervisor_pid: int | None = None,
        pid: int | None = None,
        started_at: float | None = None,
        exit: ExitRecord | None = None,
    ) -> None:
        self.phase = phase
        self.supervisor_pid = supervisor_pid
        self.pid = pid
        self.started_at = started_at
        self.exit = exit


class Reaped:
    """The result of ending the processes of a LOST replica."""

    __slots__ = ("all_ended", "left")

    def __init__(self, *, left: Sequence[int] = (), all_ended: bool = False) -> None:
        self.left = left
        """Processes that have not ended yet."""
        self.all_ended = all_ended
        """No process of the replica can be running. False: one that left its process tree may
        be."""


def inspect(root: Path) -> Observed:
    """The state of the replica now. Reads only, and takes no lock.

    RUNNING means that its supervisor lives; `pid` is None in the instant before the fork. LOST
    means that the supervisor was killed, and its processes may still run (see `reap_leftovers`); or
    that its records are damaged, so that it is not known whether it ran.
    """
    over = _over(root)
    if over is not None:
        return over
    # In this order: a supervisor that starts in between counts as not started, not as dead.
    begun = records.has_begun(root)
    holder = records.lock_holder(f"{root}/{records.LOCK}")
    run = records.read(f"{root}/{records.RUN}") or {}
    pid, started_at = run.get("pid"), run.get("started_at")
    if holder is not None:
        return Observed(phase=Phase.RUNNING, supervisor_pid=holder, pid=pid, started_at=started_at)
    # The supervisor may have ended in between.
    over = _over(root)
    if over is not None:
        return over
    phase = Phase.LOST if begun else Phase.NOT_STARTED
    return Observed(phase=phase, pid=pid, started_at=started_at)


def request_stop(
    root: Path, *, grace: float, now: float, cause: str = records.CAUSE_STOPPED
) -> bool:
    """Request the end: SIGTERM to every process, SIGKILL `grace` seconds later. Returns at once.

    A replica that has not started never will; one that is over does not change. A second request
    can only shorten the grace. `now` is the time of day, for the record. False if there was no
    space for the record: the supervisor was signalled, but has to be asked again.
    """
    earlier: StopRecord | None = records.read(root / records.STOP)
    stop: StopRecord = {"cause": cause, "grace": grace, "requested_at": now}
    if earlier is not None:
        stop = {**stop, **earlier, "grace": min(grace, earlier.get("grace", grace))}
    try:
        records.write(root / records.STOP, stop)
    except OSError as error:
        # A full disk must not keep a job alive: where a supervisor can see who sends a signal, it
        # takes one without a record as a request, too.
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        if not (full and processes.LINUX and _wake_supervisor(root)):
            raise
        return False
    _wake_supervisor(root)
    return True


def reap_leftovers(root: Path, spawner: Spawner | None, *, seconds: float = 10.0) -> Reaped:
    """Kill what runs of a LOST replica. Does nothing to a live one, whose supervisor is `left`
    then.

    Its processes are found by its control group, by the marker in their environment, by descent
    from such a process, by its uid if it has one of its own, and among those that the zygote
    inherited from dead supervisors (`Spawner.kill_orphans`). Not every replica has a control group
    or a uid, and only the zygote that forked the supervisor inherits from it; where all three are
    missing, a process that left the process tree and its environment is not found.
    """
    holder = records.lock_holder(root / records.LOCK)
    if holder is not None:
        return Reaped(left=(holder,))
    run = records.read(root / records.RUN) or {}
    # A record that a full disk truncated proves nothing.
    if run.get("boot_id", processes.boot_id()) != processes.boot_id():
        return Reaped(all_ended=True)
    search = _Leftovers(root, run, spawner)
    deadline = time.monotonic() + seconds
    clean = 0
    while clean < _CLEAN_ROUNDS:
        left = search.kill_round()
        clean = 0 if left else clean + 1
        if left and time.monotonic() > deadline:
            return Reaped(left=left)
        if left:
            time.sleep(0.01)
    search.group.remove()
    return Reaped(all_ended=search.is_complete())


def _over(root: Path) -> Observed | None:
    exit: ExitRecord | None = records.read(f"{root}/{records.EXIT}")
    if exit is None:
        return None
    return Observed(phase=Phase.EXITED, started_at=exit.get("started_at"), exit=exit)


def _wake_supervisor(root: Path) -> bool:
    """Signal the supervisor and no other process; False when there is none."""
    pid = records.lock_holder(root / records.LOCK)
    if pid is None:
        return False
    if not hasattr(os, "pidfd_open"):
        os.kill(pid, supervisor.WAKE)
        return True
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        # Only if it still holds the lock, this descriptor is the supervisor and no later process.
        if records.lock_holder(root / records.LOCK) != pid:
            return False
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(fd, supervisor.WAKE)
        return True
    finally:
        os.close(fd)


class _Leftovers:
    """Finds and kills the processes of one LOST replica."""

    def __init__(self, root: Path, run: Any, spawner: Spawner | None) -> None:
        launch = records.read(root / records.ORDER) or {}
        self.group = cgroups.from_json(run.get("cgroup", {}))
        self._run = run
        self._spawner = spawner
        self._marker = f"{records.MARKER}={launch.get('replica_id', root.name)}"
        self._uid: int | None = launch.get("uid")
        self._zygote = ""

    def kill_round(self) -> list[int]:
        """One round of SIGKILL; the processes that were still alive in it."""
        supervisor_pid = self._run.get("monitor_pid", 0)
        if processes.is_ending(supervisor_pid, self._run.get("monitor_start")):
            # Its lock is free already, but its children are not orphans yet.
            return [supervisor_pid]
        self.group.kill()
        inherited: list[int] = []
        if self._spawner is not None:
            self._zygote, inherited = self._spawner.kill_orphans()
        of_user, unclear = ([], []) if self._uid is None else orphans.of_user(self._uid)
        marked = processes.marked(self._marker)
        found = {*self.group.pids(), *marked, *of_user} - {os.getpid()}
        living = [pid for pid in found if processes.alive(pid)]
        processes.kill_trees(living)
        return sorted({*living, *unclear, *inherited})

    def is_complete(self) -> bool:
        """Whether no process can have been missed by a round that found none."""
        if "monitor_pid" not in self._run:
            return False
        of_its_zygote = bool(self._zygote) and self._zygote == self._run.get("zygote")
        return of_its_zygote or bool(self._run.get("contained")) or self._uid is not None
