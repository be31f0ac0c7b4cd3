"""Control groups of replicas: limits on CPU, memory and processes, and a kill of all at once.

`detect` finds one of three situations: version 2 (controllers in one tree), version 1 (a tree per
controller, often with a version 2 without controllers beside it, which still can kill), or nothing
that we may write to. What is not possible is left out, and `enforced` of the exit record shows it;
a replica never fails to start because of it.

Where a group is created: on version 1 below our own group; on version 2 below the nearest group,
from our own upwards, that already delegates the controllers, because a group with processes in it
may not do so. If there is none, we try to move into a leaf of our own.

When: a replica with a memory limit is born in its group, because memory is charged where it was
allocated, and so is one with a small process limit. Other limits are applied a moment after the
start (see `supervisor`), to everything that the replica has started: moving a process waits for
every CPU (5 to 25 ms on an idle machine, next to nothing right after another move), and birth in a
group needs a fork that costs several ms of CPU. Creating and removing takes 0.1 to 0.3 ms.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

from paddlecloud.model import cgroup_limits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from paddlecloud.agent.replica.records import Launch

CONTROLLERS = ("cpu", "memory", "pids")
PREFIX = "paddlecloud-"
_LEAF = f"{PREFIX}agent"
_PERIOD_US = 100_000
_MINUTE = 60.0
_ADOPT_ROUNDS = 100
# More than a command can start before its limits are put on.
_FEW_PIDS = 1000
# The last pages of a limit may be too few for what was asked for.
_NEARLY_ALL = 0.99


class Cgroups:
    """The directories in which groups can be created; what each can limit."""

    __slots__ = ("v1", "v2", "v2_controllers")

    def __init__(
        self,
        *,
        v2: Path | None = None,
        v2_controllers: Collection[str] = (),
        v1: Mapping[str, Path] | None = None,
    ) -> None:
        self.v2 = v2
        self.v2_controllers = frozenset(v2_controllers)
        self.v1 = dict(v1 or {})

    def enforces(self) -> dict[str, bool]:
        """Which limits this machine can enforce."""
        return {name: name in self.v2_controllers or name in self.v1 for name in CONTROLLERS}


class Group:
    """The groups of one replica: `v2` kills and may limit, `v1` holds one directory a controller.

    `set` names the limits that were accepted by the kernel, `missed` means that a group could not
    be joined.
    """

    __slots__ = ("missed", "set", "v1", "v2")

    def __init__(
        self, *, v2: Path | None, v1: Mapping[str, Path], limits: Iterable[str] = ()
    ) -> None:
        self.v2 = v2
        self.v1 = dict(v1)
        self.set = set(limits)
        self.missed = False

    def to_json(self) -> dict[str, str]:
        """Its paths, for the run record."""
        known = {name: str(path) for name, path in self.v1.items()}
        return known | {"v2": str(self.v2)} if self.v2 else known

    def drop(self, controller: str) -> None:
        """The group of this controller ("v2": of the rest) could not be joined: no limit there."""
        self.missed = True
        self.set -= set(CONTROLLERS) - self.v1.keys() if controller == "v2" else {controller}

    def pids(self) -> list[int]:
        """The processes inside, also in groups that the replica created below."""
        found: set[int] = set()
        for top in _tops(self):
            for file in (top / "cgroup.procs", *top.rglob("cgroup.procs")):
                with suppress(OSError):
                    found.update(int(line) for line in file.read_bytes().split())
        return sorted(found)

    def kill(self) -> bool:
        """Kill everything inside at once where the kernel can; else only prevent new processes."""
        if "pids" in self.v1:
            _try_write(self.v1["pids"] / "pids.max", "0")
        return self.v2 is not None and _try_write(self.v2 / "cgroup.kill", "1")

    def oom_kills(self) -> int | None:
        """How many processes inside the kernel killed for memory; None when it does not count."""
        if "memory" in self.v1:
            return _counter(self.v1["memory"] / "memory.oom_control", b"oom_kill")
        if self.v2 is not None:
            return _counter(self.v2 / "memory.events", b"oom_kill")
        return None

    def reached_its_memory(self) -> bool:
        """Whether it ever reached its own limit. If it was killed for memory and did not, the
        machine had none left."""
        if "memory" not in self.v1:
            return self.v2 is not None and bool(_counter(self.v2 / "memory.events", b"max"))
        # The failure counters miss those at the limit of memory plus swap.
        most = _number(self.v1["memory"] / "memory.max_usage_in_bytes")
        limit = _number(self.v1["memory"] / "memory.limit_in_bytes")
        return limit > 0 and most >= limit * _NEARLY_ALL

    def forks_refused(self) -> int:
        """How often a process or thread inside could not be started for the limit of them."""
        place = self.v1.get("pids", self.v2)
        counted = None if place is None else _counter(place / "pids.events", b"max")
        return counted or 0

    def remove(self) -> bool:
        """Remove what is empty; False when something is left, which a later `sweep` removes."""
        return all([_remove(top) for top in _tops(self)])


def detect(*, movable: Collection[int] = (), proc: Path = Path("/proc/self")) -> Cgroups:
    """What this machine allows; `movable` are the processes that may be moved into a leaf."""
    try:
        mounts = cgroup_limits.parse_mounts((proc / "mountinfo").read_text())
        own = cgroup_limits.parse_membership((proc / "cgroup").read_text())
    except OSError:
        return Cgroups()
    places = {
        name: Path(cgroup_limits.place(mounts[name], own[name])) for name in mounts if name in own
    }
    v1 = {name: places[name] for name in CONTROLLERS if name in places and _ours(places[name])}
    v2 = places.get("")
    if v2 is None or not v2.is_dir():
        return Cgroups(v1=v1)
    home, controllers = _v2_parent(v2, mounts[""][0], movable)
    return Cgroups(v2=home, v2_controllers=controllers, v1=v1)


def ceiling(*, proc: Path = Path("/proc/self")) -> tuple[float | None, int | None]:
    """CPUs and bytes of memory that our own group, and those above it that we see, leave to us and
    all replicas together; None: no limit there."""
    return cgroup_limits.ceiling(_text, str(proc))


def _text(file: str) -> str:
    with suppress(OSError, ValueError):
        return Path(file).read_text()
    return ""


def create(cgroups: Cgroups, launch: Launch) -> Group:
    """The group of a replica with its limits, without processes. Never fails: it may be empty."""
    name = PREFIX + launch["replica_id"]
    needed = wanted(launch)
    group = Group(v2=None, v1={})
    if needed and cgroups.v2 is not None and _make(cgroups.v2 / name):
        group.v2 = cgroups.v2 / name
        _limit_v2(group, group.v2, cgroups.v2_controllers, launch)
    for controller in needed:
        place = cgroups.v1.get(controller)
        if place is not None and controller not in group.set and _make(place / name):
            group.v1[controller] = place / name
            _limit_v1(group, controller, place / name, launch)
    return group


def wanted(launch: Launch) -> list[str]:
    """The controllers that the order needs."""
    # One CPU is the weight that a process has without a group of its own.
    weighed = launch.get("cpu_request") not in (None, 1)
    return [name for name in CONTROLLERS if name in limited(launch) or (name == "cpu" and weighed)]


def limited(launch: Launch) -> set[str]:
    """The controllers for which the order has a limit."""
    limits = {
        "cpu": launch.get("cpu_limit"),
        "memory": launch.get("memory_limit"),
        "pids": launch.get("pids_limit"),
    }
    return {name for name, limit in limits.items() if limit is not None}


def must_be_born_in(launch: Launch) -> bool:
    """Whether the group has to exist before the process."""
    pids = launch.get("pids_limit")
    return launch.get("memory_limit") is not None or (pids is not None and pids <= _FEW_PIDS)


def adopt(group: Group, find: Callable[[], list[int]]) -> None:
    """Move every process that `find` returns into the group, until it returns no new one.

    What a moved process starts is inside from its birth, so this ends even for processes that keep
    forking. A limit whose group could not be joined is taken out of `group.set`.
    """
    moved: set[int] = set()
    for _ in range(_ADOPT_ROUNDS):
        outside = [pid for pid in find() if pid not in moved]
        if not outside:
            return
        for controller, top in [*group.v1.items(), *([("v2", group.v2)] if group.v2 else [])]:
            joined = [_try_write(top / "cgroup.procs", str(pid)) for pid in outside]
            if not moved and not any(joined):
                group.drop(controller)
        moved.update(outside)


def join(directory: Path) -> None:
    """Move the calling process into a group."""
    _write(directory / "cgroup.procs", "0")


def from_json(known: Mapping[str, str]) -> Group:
    """The group that a run record names."""
    v1 = {name: Path(path) for name, path in known.items() if name != "v2"}
    return Group(v2=Path(known["v2"]) if "v2" in known else None, v1=v1)


def sweep(cgroups: Cgroups, *, now: float, keep: Collection[str] = ()) -> int:
    """Remove empty groups of replicas that are over (not in `keep`, a minute old); how many."""
    places = {*cgroups.v1.values(), *([cgroups.v2] if cgroups.v2 else [])}
    removed = 0
    for path in [path for place in places for path in place.glob(f"{PREFIX}*")]:
        if path.name != _LEAF and path.name.removeprefix(PREFIX) not in keep:
            with suppress(OSError):
                if now - path.stat().st_mtime > _MINUTE:
                    removed += _remove(path, tries=1)
    return removed


def _v2_parent(own: Path, top: str, movable: Collection[int]) -> tuple[Path | None, set[str]]:
    """Where groups can be created, and the controllers that they get there."""
    candidates = []
    for place in (own, *own.parents):
        if not _ours(place):
            break
        candidates.append((place, _words(place / "cgroup.subtree_control") & set(CONTROLLERS)))
        if str(place) == top:
            break
    if not candidates:
        return None, set()
    best = max(candidates, key=lambda candidate: len(candidate[1]))
    if len(best[1]) < len(_words(own / "cgroup.controllers") & set(CONTROLLERS)):
        return max(best, (own, _delegate(own, movable)), key=lambda one: len(one[1]))
    return best


def _delegate(own: Path, movable: Collection[int]) -> set[str]:
    """Enable the controllers for groups below ours; what is enabled afterwards."""
    wanted = sorted(_words(own / "cgroup.controllers") & set(CONTROLLERS))
    control = own / "cgroup.subtree_control"
    if not _try_write(control, " ".join(f"+{name}" for name in wanted)):
        inside = {int(word) for word in _words(own / "cgroup.procs")}
        if inside and inside <= set(movable) and _make(own / _LEAF):
            for pid in inside:
                _try_write(own / _LEAF / "cgroup.procs", str(pid))
            _try_write(control, " ".join(f"+{name}" for name in wanted))
    return _words(control) & set(CONTROLLERS)


def _limit_v2(group: Group, place: Path, controllers: Collection[str], launch: Launch) -> None:
    request, limit = launch.get("cpu_request"), launch.get("cpu_limit")
    memory, pids = launch.get("memory_limit"), launch.get("pids_limit")
    if "cpu" in controllers and request is not None:
        _try_write(place / "cpu.weight", str(min(10_000, max(1, round(request * 100)))))
    if "cpu" in controllers and limit is not None:
        _accept(group, "cpu", place / "cpu.max", f"{_quota(limit)} {_PERIOD_US}")
    if "memory" in controllers and memory is not None:
        _accept(group, "memory", place / "memory.max", str(memory))
        _try_write(place / "memory.swap.max", "0")
        # A trainer that lost one of its workers hangs: the replica dies as a whole.
        _try_write(place / "memory.oom.group", "1")
    if "pids" in controllers and pids is not None:
        _accept(group, "pids", place / "pids.max", str(pids))


def _limit_v1(group: Group, controller: str, place: Path, launch: Launch) -> None:
    if controller == "cpu":
        _try_write(
            place / "cpu.shares", str(max(2, round((launch.get("cpu_request") or 1) * 1024)))
        )
        limit = launch.get("cpu_limit")
        if limit is not None:
            _try_write(place / "cpu.cfs_period_us", str(_PERIOD_US))
            _accept(group, "cpu", place / "cpu.cfs_quota_us", str(_quota(limit)))
    elif controller == "memory":
        _accept(group, "memory", place / "memory.limit_in_bytes", str(launch["memory_limit"]))
        memory_and_swap = place / "memory.memsw.limit_in_bytes"
        if not _try_write(memory_and_swap, str(launch["memory_limit"])):
            _try_write(place / "memory.swappiness", "0")
    else:
        _accept(group, "pids", place / "pids.max", str(launch["pids_limit"]))


def _quota(cpus: float) -> int:
    return max(1_000, round(cpus * _PERIOD_US))


def _accept(group: Group, limit: str, file: Path, value: str) -> None:
    if _try_write(file, value):
        group.set.add(limit)


def _tops(group: Group) -> list[Path]:
    return list(dict.fromkeys([*group.v1.values(), *([group.v2] if group.v2 else [])]))


def _remove(top: Path, tries: int = 5) -> bool:
    for attempt in range(tries):
        try:
            top.rmdir()
        except FileNotFoundError:
            return True
        except OSError:
            for inner in sorted(top.glob("**/"), key=lambda path: -len(path.parts)):
                with suppress(OSError):
                    inner.rmdir()
            if attempt + 1 < tries:
                # The last process was reaped, but the kernel may still be releasing it.
                time.sleep(0.002 * 4**attempt)
        else:
            return True
    return not top.exists()


def _ours(place: Path) -> bool:
    return os.access(place, os.W_OK) and os.access(place / "cgroup.procs", os.W_OK)


def _make(path: Path) -> bool:
    with suppress(OSError):
        path.mkdir(exist_ok=True)
        return True
    return False


def _counter(file: Path, name: bytes) -> int | None:
    with suppress(OSError):
        for line in file.read_bytes().splitlines():
            key, _, value = line.partition(b" ")
            if key == name:
                return int(value)
    return None


def _number(file: Path) -> int:
    with suppress(OSError, ValueError):
        return int(file.read_text())
    return 0


def _words(file: Path) -> set[str]:
    with suppress(OSError):
        return set(file.read_text().split())
    return set()


def _try_write(file: Path, value: str) -> bool:
    with suppress(OSError):
        _write(file, value)
        return True
    return False


def _write(file: Path, value: str) -> None:
    # Not Path.write_text: a control file must get its value in one write, and must exist.
    fd = os.open(file, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, value.encode())
    finally:
        os.close(fd)
