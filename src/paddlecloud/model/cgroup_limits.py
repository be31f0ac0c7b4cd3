"""What control groups leave of a machine to a process, from the kernel's own description of them.

The agent asks it about itself, and a server about its own machine before the agent has spoken; both
get the same answer from the same texts. Nothing is read here: the caller hands in a reader.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Mount = tuple[str, str]
    """Where it is mounted, and which part of it."""


LEAST_CPUS = 1.0
"""Where groups leave less than this it is offered all the same: a job of the usual size runs there,
if slowly."""


def ceiling(read: Callable[[str], str], proc: str) -> tuple[float | None, int | None]:
    """CPUs and bytes of memory that the group of a process, and those above it that it sees, leave
    to it and all that it starts; None: no limit there.

    `proc` is the process's directory in `/proc`; `read` answers nothing for a file that cannot be
    read.
    """
    try:
        mounts = parse_mounts(read(f"{proc}/mountinfo"))
        own = parse_membership(read(f"{proc}/cgroup"))
    except (ValueError, IndexError):
        return None, None
    names = [name for name in ("", "cpu", "memory") if name in mounts and name in own]
    places = [each for name in names for each in _upwards(mounts[name], own[name])]
    cpus = [found for each in places if (found := _cpus(each, read)) is not None]
    sizes = [found for each in places if (found := _memory(each, read)) is not None]
    return min(cpus, default=None), min(sizes, default=None)


def left(cpus: float, memory: int, ceiling: tuple[float | None, int | None]) -> tuple[float, int]:
    """What is offered of a machine that has this much, under this ceiling."""
    quota, limit = ceiling
    return min(cpus, max(LEAST_CPUS, quota or cpus)), min(memory, limit or memory)


def parse_mounts(mountinfo: str) -> dict[str, Mount]:
    """From controller ("" for version 2) to (mount point, root of the mount)."""
    found: dict[str, Mount] = {}
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        fields, kind = before.split(" "), after.split(" ")
        if kind[0] == "cgroup2":
            found.setdefault("", (_unescape(fields[4]), _unescape(fields[3])))
        elif kind[0] == "cgroup":
            for name in kind[-1].split(","):
                found.setdefault(name, (_unescape(fields[4]), _unescape(fields[3])))
    return found


def parse_membership(text: str) -> dict[str, str]:
    """From controller ("" for version 2) to our own group, from the text of /proc/<pid>/cgroup."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        _, names, path = line.split(":", 2)
        found.update(dict.fromkeys(names.split(","), path))
    return found


def place(mount: Mount, own: str) -> str:
    """The directory of a group, by the mount that it is seen in."""
    point, root = mount
    inside = own.removeprefix(root.rstrip("/")) if own.startswith(root) else own
    return f"{point.rstrip('/')}/{inside.strip('/')}".rstrip("/") or "/"


def _upwards(mount: Mount, own: str) -> list[str]:
    """Our own group and those above it, as far as they can be seen from here."""
    top, here = mount[0].rstrip("/"), place(mount, own)
    found = [here]
    while len(here) > len(top) and "/" in here:
        here = here.rpartition("/")[0]
        found.append(here)
    return found


def _cpus(group: str, read: Callable[[str], str]) -> float | None:
    """`cpu.max` has quota and period in one line, version 1 has two files."""
    line = _numbers(read(f"{group}/cpu.max"))
    if not line:
        files = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
        line = [number for file in files for number in _numbers(read(f"{group}/{file}"))]
    quota, period = line if len(line) == 2 else (-1, 1)
    return quota / period if quota > 0 and period > 0 else None


def _memory(group: str, read: Callable[[str], str]) -> int | None:
    for name in ("memory.max", "memory.limit_in_bytes"):
        for number in _numbers(read(f"{group}/{name}")):
            return number if number > 0 else None
    return None


def _numbers(text: str) -> list[int]:
    """Empty without a limit, for which the kernel writes `max`."""
    try:
        return [int(word) for word in text.split()]
    except ValueError:
        return []


def _unescape(field: str) -> str:
    return field.replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\")
