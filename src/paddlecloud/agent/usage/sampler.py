"""What each running replica uses now: CPU, memory, cards, and since when it is quiet.

One pass looks at every process of the machine once and sorts them to the replicas above them, so a
hundred replicas cost hardly more than one. The reporter asks for a pass while anything runs; when
nothing runs nobody does, and the thread sleeps. A pass that costs more than a hundredth of a core
is made less often. Memory is what the control group counts where the replica has one; elsewhere it
is the sum over its processes, with what they share counted once as far as the kernel says so.

Numbers go out when they change, and from time to time when they do not. How long a replica has
been quiet is told in seconds and not as a moment: the clocks of two machines may differ.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from paddlecloud.agent.registry import Stage
from paddlecloud.agent.replica import records
from paddlecloud.agent.usage.gpu import open_cards, visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from paddlecloud.agent.context import Site
    from paddlecloud.agent.registry import Tracked
    from paddlecloud.agent.usage.gpu import Cards

EVERY = 2.0
"""Seconds between two passes."""
#: Part of a core that passes may take.
_SHARE = 0.01
#: A replica with less than this of a core, and no new log bytes, is quiet.
QUIET_CPU = 0.01
#: The same numbers are told again after so many seconds.
_AGAIN = 10.0
#: Who asks a little early is served: the reporter comes by once a second.
_EARLY = 0.2
_LEAST_SECONDS = 0.2
_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICKS = os.sysconf("SC_CLK_TCK")


class Process:
    """One line of the table: who started it, and the CPU seconds of it and of its dead."""

    __slots__ = ("children_cpu", "cpu", "parent")

    def __init__(self, *, parent: int, cpu: float, children_cpu: float) -> None:
        self.parent = parent
        self.cpu = cpu
        self.children_cpu = children_cpu


class Sampler:
    def __init__(self, site: Site) -> None:
        self._site = site
        self._wanted = threading.Event()
        self._next_at = 0.0
        self._seen: dict[str, _Seen] = {}
        self._cards: Cards | None = None
        self._cards_asked = False

    def nudge(self, now: float) -> None:
        """Something runs (`now` is monotonic): let a pass be made if it is time for one."""
        if now >= self._next_at - _EARLY:
            self._wanted.set()

    def work(self) -> None:
        """The body of the thread."""
        self._site.guarded("the sampler", self._turn)

    def close(self) -> None:
        self._wanted.set()

    def _turn(self) -> None:
        self._wanted.wait()
        self._wanted.clear()
        if self._site.stopping.is_set():
            return
        now, spent = time.monotonic(), time.thread_time()
        running = [t for t in self._site.book.active() if t.stage is Stage.LAUNCHED and t.started]
        # Before the work, so that a pass that stumbles is not tried again at once.
        self._next_at = now + EVERY
        if any([self._look(one, found, now) for one, found in self._trees(running)]):
            self._site.wake_reporter()
        self._next_at = now + max(EVERY, (time.thread_time() - spent) / _SHARE)

    def _trees(self, running: Iterable[Tracked]) -> list[tuple[Tracked, _Tree]]:
        known = self._seen
        self._seen = {t.id: known.get(t.id) or _Seen() for t in running}
        if not self._seen:
            return []
        table = processes()
        below = children(table)
        return [(t, _tree(self._seen[t.id].monitor(t), table, below)) for t in running]

    def _look(self, tracked: Tracked, tree: _Tree, now: float) -> bool:
        """Measure one replica; whether there is something to tell."""
        seen = self._seen[tracked.id]
        if not tree.pids:
            return False
        memory = seen.group_memory()
        use = {
            "cpu": seen.rate(tree.cpu, now, _age(tracked)),
            "memory": resident(tree.pids) if memory is None else memory,
        }
        tracked.peak_memory = max(tracked.peak_memory, int(use["memory"]))
        use |= {"peak_memory": tracked.peak_memory, **self._gpu(tracked, seen)}
        use["quiet"] = seen.quiet(float(use["cpu"]), _log_size(tracked), now)
        if not seen.is_news(use, now):
            return False
        tracked.usage = use
        return True

    def _gpu(self, tracked: Tracked, seen: _Seen) -> dict[str, Any]:
        if not self._cards_asked:
            self._cards_asked = True
            self._cards = open_cards()
        if self._cards is None:
            return {}
        if seen.cards is None:
            order = records.read(tracked.root / records.ORDER) or {}
            seen.cards = visible(order.get("env") or {}) if isinstance(order, dict) else ()
        return self._cards.use(seen.cards)


class _Tree:
    __slots__ = ("cpu", "pids")

    def __init__(self, *, pids: list[int], cpu: float) -> None:
        self.pids = pids
        self.cpu = cpu


class _Seen:
    """What was seen of one replica at the passes before."""

    def __init__(self) -> None:
        self.cards: tuple[int, ...] | None = None
        self._run: dict[str, Any] = {}
        self._looks = 0
        self._cpu: tuple[float, float] | None = None
        """CPU seconds in all, and when that was."""
        self._log = -1
        self._active_at: float | None = None
        self._told: dict[str, Any] = {}
        self._told_at = 0.0

    def monitor(self, tracked: Tracked) -> int:
        """The process above all of it. The record is written anew once its limits are put on."""
        if self._looks < 2:
            self._looks += 1
            self._run = records.read(tracked.root / records.RUN) or {}
        return int(self._run.get("monitor_pid") or 0)

    def group_memory(self) -> int | None:
        """What its control group counts, without files that are only cached."""
        places = self._run.get("cgroup") or {}
        if "memory" in places:
            return _counted(f"{places['memory']}/memory.stat", (b"total_rss", b"total_shmem"))
        if "v2" in places:
            return _counted(f"{places['v2']}/memory.stat", (b"anon", b"shmem"))
        return None

    def rate(self, cpu: float, now: float, age: float) -> float:
        """Cores in use since the last pass, or at the first one since its start."""
        before = self._cpu
        self._cpu = (cpu, now)
        if before is None:
            return round(cpu / max(age, _LEAST_SECONDS), 3)
        return round(max(0.0, cpu - before[0]) / max(now - before[1], _LEAST_SECONDS), 3)

    def quiet(self, cpu: float, log: int, now: float) -> float:
        """Seconds since it last wrote or computed anything, as far as passes can tell."""
        if self._active_at is None or cpu >= QUIET_CPU or log != self._log:
            self._active_at = now
        self._log = log
        return round(now - self._active_at, 1)

    def is_news(self, use: Mapping[str, Any], now: float) -> bool:
        told = self._told
        same = (
            bool(told)
            and abs(use["cpu"] - told["cpu"]) < QUIET_CPU
            and abs(use["memory"] - told["memory"]) * 100 <= told["memory"]
            and use.get("gpu") == told.get("gpu")
            and (use["quiet"] > 0) == (told["quiet"] > 0)
        )
        if same and now - self._told_at < _AGAIN:
            return False
        self._told, self._told_at = dict(use), now
        return True


def processes() -> dict[int, Process]:
    """Every process there is now; none where there is no /proc."""
    found: dict[int, Process] = {}
    with suppress(OSError):
        for name in os.listdir("/proc"):  # noqa: PTH208 - a Path each costs more than the look
            if name.isdigit():
                process = _process(name)
                if process is not None:
                    found[int(name)] = process
    return found


def children(table: Mapping[int, Process]) -> dict[int, list[int]]:
    below: dict[int, list[int]] = {}
    for pid, process in table.items():
        below.setdefault(process.parent, []).append(pid)
    return below


def resident(pids: Iterable[int]) -> int:
    """Bytes that these processes hold together; what they map in common counts once."""
    own = most_shared = 0
    for pid in pids:
        with suppress(OSError, ValueError, IndexError):
            fields = _read(f"/proc/{pid}/statm").split()
            resident, shared = int(fields[1]), int(fields[2])
            own += resident - shared
            most_shared = max(most_shared, shared)
    return (own + most_shared) * _PAGE


def _process(pid: str) -> Process | None:
    try:
        text = _read(f"/proc/{pid}/stat")
    except OSError:
        return None
    # The name in brackets may hold blanks and brackets of its own.
    fields = text[text.rindex(b")") + 2 :].split()
    return Process(
        parent=int(fields[1]),
        cpu=(int(fields[11]) + int(fields[12])) / _TICKS,
        children_cpu=(int(fields[13]) + int(fields[14])) / _TICKS,
    )


def _tree(monitor: int, table: Mapping[int, Process], below: Mapping[int, list[int]]) -> _Tree:
    """The processes below a monitor, and the CPU seconds of them and of those that are gone.

    Who dies leaves its seconds to the parent that buries it, at last to the monitor.
    """
    if monitor not in table:
        return _Tree(pids=[], cpu=0.0)
    pids: list[int] = []
    layer = below.get(monitor, [])
    while layer:
        pids += layer
        layer = [child for pid in layer for child in below.get(pid, ())]
    cpu = sum(table[pid].cpu + table[pid].children_cpu for pid in pids)
    return _Tree(pids=pids, cpu=cpu + table[monitor].children_cpu)


def _counted(path: str, names: tuple[bytes, ...]) -> int | None:
    try:
        lines = dict(line.split() for line in _read(path).splitlines())
        return sum(int(lines.get(name, 0)) for name in names)
    except (OSError, ValueError):
        return None


def _age(tracked: Tracked) -> float:
    return time.time() - float((tracked.started or {}).get("at", 0.0))


def _log_size(tracked: Tracked) -> int:
    with suppress(OSError):
        return os.stat(tracked.place(records.STDOUT)).st_size  # noqa: PTH116 - see `Tracked.place`
    return 0


def _read(path: str) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, 65536)
    finally:
        os.close(fd)
