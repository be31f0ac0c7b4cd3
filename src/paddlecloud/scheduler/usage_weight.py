"""What running and recent usage weighs in the fair share between users.

`db/tables/usage.decayed_usage` sums it up per owner, `_fair_queue` orders the owners by it.
"""

from __future__ import annotations

from paddlecloud.model.jobs.job import Resources

_CPUS_PER_GPU = 8
_BYTES_PER_CPU = 4 * 2**30


def weight(resources: Resources) -> float:
    """Resources as one number for the fair share: a GPU is worth 8 CPUs, and memory counts where
    it is more than the usual 4 GiB a CPU."""
    return max(resources.cpu, resources.memory / _BYTES_PER_CPU) + resources.gpu * _CPUS_PER_GPU
