"""How much this machine has to give: CPUs, memory, GPUs."""

from __future__ import annotations

import os


def capacity() -> dict[str, float]:
    """What replicas may use together on this machine."""
    return {"cpu": float(_cpus()), "memory": _memory(), "gpu": _gpus()}


def _cpus() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _memory() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _gpus() -> int:
    """None are offered: nothing here yet hands single cards to replicas."""
    return 0
