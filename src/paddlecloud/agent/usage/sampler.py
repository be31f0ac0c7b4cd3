"""Samples CPU, memory and GPU use of every running replica, and for how long it has been idle.

One pass reads every process of the machine once and assigns them to the replicas above them, so a
hundred replicas cost hardly more than one. The reporter requests passes while anything runs; else
the thread sleeps. A pass that costs more than a hundredth of a core is made less often. Memory is
what the control group counts where the replica has one; elsewhere it is the sum over its processes,
with shared pages counted once as far as the kernel reports them.

Values are reported when they change, and from time to time when they do not. Idle time is reported
in seconds and not as a time of day: the clocks of two machines may differ.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from paddlecloud.agent.registry import Stage
from paddlecloud.agent.replica import records
from paddlecloud.agent.usage.gpu import open_cards, visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from paddlecloud.agent.context import Context
    from paddlecloud.agent.registry import Tracked
    from paddlecloud.agent.usage.gpu import Cards

EVERY = 2.0
"""Seconds between two passes."""
#: Part of a core that passes may take.
_SHARE = 0.01
#: A replica with less than this of a core, and no new log bytes, is idle.
IDLE_CPU = 0.01
#: Unchanged values are reported again after this many seconds.
_REPEAT_SECONDS = 10.0
#: A request that comes this much early is served: the reporter requests once a second.
_EARLY = 0.2
_LEAST_SECONDS = 0.2
_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICKS = os.sysconf("SC_CLK_TCK")


class Process(NamedTuple):
    parent: int
    cpu: float
    """CPU seconds."""
    children_cpu: float
    """Of reaped children."""


class Sampler:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._wanted = threading.Event()
        self._next_at = 0.0
        self._histories: dict[str, _History] = {}
        self._cards: Cards | None = None
        self._cards_asked = False

    def request(self, now: float) -> None:
        """Request a pass if it is time for one (`now` is monotonic)."""
        if now >= self._next_at - _EARLY:
            self._wanted.set()

    def work(self) -> None:
        """The body of the thread."""
        self._context.guarded("the sampler", self._turn)

    def close(self) -> None:
        self._wanted.set()

    def _turn(self) -> None:
        self._wanted.wait()
        self._wanted.clear()
        if self._context.stopping.is_set():
            return
        now, spent = time.monotonic(), time.thread_time()
        running = [
            t for t in self._context.registry.active() if t.stage is Stage.LAUNCHED and t.started
        ]
        # Before the work, so that a pass that fails is not tried again at once.
        self._next_at = now + EVERY
        known = self._histories
        self._histories = {t.id: known.get(t.id) or _History() for t in running}
        if running:
            table = processes()
            below = children(table)
            trees = [_tree(self._histories[t.id].supervisor(t), table, below) for t in running]
            if any([self._sample(*each, now) for each in zip(running, trees, strict=True)]):
                self._context.wake_reporter()
        self._next_at = now + max(EVERY, (time.thread_time() - spent) / _SHARE)

    def _sample(self, tracked: Tracked, tree: _Tree, now: float) -> bool:
        """Measure one replica; whether there is something to report."""
        history = self._histories[tracked.id]
        if not tree.pids:
            return False
        memory = history.group_memory()
        age = time.time() - float((tracked.started or {}).get("at", 0.0))
        log_size = 0
        with suppress(OSError):
            log_size = os.stat(tracked.path(records.STDOUT)).st_size  # noqa: PTH116 - see `Tracked.path`
        use = {
            "cpu": history.cpu_rate(tree.cpu, now, age),
            "memory": resident(tree.pids) if memory is None else memory,
        }
        tracked.peak_memory = max(tracked.peak_memory, int(use["memory"]))
        use |= {"peak_memory": tracked.peak_memory, **self._gpu(tracked, history)}
        use["quiet"] = history.idle_seconds(float(use["cpu"]), log_size, now)
        if not history.is_new(use, now):
            return False
        tracked.usage = use
        return True

    def _gpu(self, tracked: Tracked, history: _History) -> dict[str, Any]:
        if not self._cards_asked:
            self._cards_asked = True
            self._cards = open_cards()
        if self._cards is None:
            return {}
        if history.cards is None:
            order = records.read(tracked.root / records.ORDER) or {}
            history.cards = visible(order.get("env") or {}) if isinstance(order, dict) else ()
        return self._cards.use(history.cards)


class _Tree(NamedTuple):
    """The processes of a replica, and their CPU seconds."""

    pids: list[int]
    cpu: float


class _History:
    """What earlier passes found of one replica."""

    def __init__(self) -> None:
        self.cards: tuple[int, ...] | None = None
        self._run: dict[str, Any] = {}
        self._reads = 0
        self._cpu: tuple[float, float] | None = None
        """CPU seconds in all, and when that was."""
        self._log = -1
        self._active_at: float | None = None
        self._reported: dict[str, Any] = {}
        self._reported_at = 0.0

    def supervisor(self, tracked: Tracked) -> int:
        """The pid of the process above the replica. Its record is written again when the limits are
        applied, so it is read twice."""
        if self._reads < 2:
            self._reads += 1
            self._run = records.read(tracked.root / records.RUN) or {}
        return int(self._run.get("monitor_pid") or 0)

    def group_memory(self) -> int | None:
        """What its control group counts, without the page cache."""
        groups = self._run.get("cgroup") or {}
        if "memory" in groups:
            return _counted(f"{groups['memory']}/memory.stat", (b"total_rss", b"total_shmem"))
        if "v2" in groups:
            return _counted(f"{groups['v2']}/memory.stat", (b"anon", b"shmem"))
        return None

    def cpu_rate(self, cpu: float, now: float, age: float) -> float:
        """Cores in use since the last pass, or at the first one since its start."""
        before = self._cpu
        self._cpu = (cpu, now)
        if before is None:
            return round(cpu / max(age, _LEAST_SECONDS), 3)
        return round(max(0.0, cpu - before[0]) / max(now - before[1], _LEAST_SECONDS), 3)

    def idle_seconds(self, cpu: float, log: int, now: float) -> float:
        """Seconds since it last wrote to its log or used CPU, as far as passes can see."""
        if self._active_at is None or cpu >= IDLE_CPU or log != self._log:
            self._active_at = now
        self._log = log
        return round(now - self._active_at, 1)

    def is_new(self, use: Mapping[str, Any], now: float) -> bool:
        last = self._reported
        same = (
            bool(last)
            and abs(use["cpu"] - last["cpu"]) < IDLE_CPU
            and abs(use["memory"] - last["memory"]) * 100 <= last["memory"]
            and use.get("gpu") == last.get("gpu")
            and (use["quiet"] > 0) == (last["quiet"] > 0)
        )
        if same and now - self._reported_at < _REPEAT_SECONDS:
            return False
        self._reported, self._reported_at = dict(use), now
        return True


def processes() -> dict[int, Process]:
    """Every process there is now; none where there is no /proc."""
    found: dict[int, Process] = {}
    with suppress(OSError):
        for name in os.listdir("/proc"):  # noqa: PTH208 - a Path costs more than the read
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
    """Bytes of memory of these processes; shared pages count once."""
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


def _tree(supervisor: int, table: Mapping[int, Process], below: Mapping[int, list[int]]) -> _Tree:
    """The processes below a supervisor, and their CPU seconds with those that have ended.

    The seconds of a process that ends go to the parent that reaps it, finally to the supervisor.
    """
    if supervisor not in table:
        return _Tree(pids=[], cpu=0.0)
    pids: list[int] = []
    layer = below.get(supervisor, [])
    while layer:
        pids += layer
        layer = [child for pid in layer for child in below.get(pid, ())]
    cpu = sum(table[pid].cpu + table[pid].children_cpu for pid in pids)
    return _Tree(pids=pids, cpu=cpu + table[supervisor].children_cpu)


def _counted(path: str, names: tuple[bytes, ...]) -> int | None:
    try:
        lines = dict(line.split() for line in _read(path).splitlines())
        return sum(int(lines.get(name, 0)) for name in names)
    except (OSError, ValueError):
        return None


def _read(path: str) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, 65536)
    finally:
        os.close(fd)
