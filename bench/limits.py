"""Gives a process a part of a CPU, as if it had a machine of its own beside what is measured.

By the control groups of Linux, the first or the second kind; needs the right to make one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

PERIOD = 10_000
"""Microseconds within which a process gets its part: short against what is timed."""
_FIRST = Path("/sys/fs/cgroup/cpu")
_SECOND = Path("/sys/fs/cgroup")


@contextlib.contextmanager
def limited(pids: Sequence[int], share: float) -> Iterator[bool]:
    """Each of these gets so much of a CPU; False where that cannot be had here."""
    top = _FIRST if (_FIRST / "cpu.cfs_quota_us").exists() else _SECOND
    groups = [top / f"paddlecloud-bench-{pid}" for pid in pids]
    try:
        for pid, group in zip(pids, groups, strict=True):
            _make(group, pid, int(share * PERIOD))
    except OSError:
        yield False
    else:
        yield True
    finally:
        for pid, group in zip(pids, groups, strict=True):
            with contextlib.suppress(OSError):
                (top / "cgroup.procs").write_text(str(pid))
            with contextlib.suppress(OSError):
                group.rmdir()


def _make(group: Path, pid: int, quota: int) -> None:
    group.mkdir()
    if (group / "cpu.max").exists():
        (group / "cpu.max").write_text(f"{quota} {PERIOD}")
    else:
        (group / "cpu.cfs_period_us").write_text(str(PERIOD))
        (group / "cpu.cfs_quota_us").write_text(str(quota))
    (group / "cgroup.procs").write_text(str(pid))
