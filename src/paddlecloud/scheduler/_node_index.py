"""Segment tree over the free resources of machines: finds the first one with enough capacity.

Machines keep their order, so the result is that of a linear search, after about log2(n) steps. Each
inner node holds the maximum of each resource below it; a branch where one of them does not suffice
is skipped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

Amount = tuple[float, int, int]
"""CPUs, bytes of memory, GPUs."""
EPSILON = 1e-9
_NOTHING = -(1 << 60)
_Number = TypeVar("_Number", float, int)


class NodeIndex:
    """Free resources of machines, by their index."""

    __slots__ = ("_cpu", "_gpu", "_memory", "_size")

    def __init__(self, amounts: Sequence[Amount]) -> None:
        size = 1
        while size < len(amounts):
            size *= 2
        self._size = size
        self._cpu = _tree([amount[0] for amount in amounts], size)
        self._memory = _tree([amount[1] for amount in amounts], size)
        self._gpu = _tree([amount[2] for amount in amounts], size)

    def most(self) -> Amount:
        """The maximum of each resource over all machines; below 0 without machines."""
        return self._cpu[1], self._memory[1], self._gpu[1]

    def first(self, cpu: float, memory: int, gpu: int, start: int = 0) -> int:
        """The index of the first machine from `start` on that has all of it, or -1.

        A resource that is not asked for (0) may be overdrawn.
        """
        cpus, memories, gpus, size = self._cpu, self._memory, self._gpu, self._size
        cpu -= EPSILON
        memory, gpu = memory or _NOTHING - 1, gpu or _NOTHING - 1
        node = start + size if start else 1
        if start >= size:
            return -1
        while True:
            if cpus[node] >= cpu and memories[node] >= memory and gpus[node] >= gpu:
                if node >= size:
                    return node - size
                node *= 2
                continue
            while node & 1:
                node >>= 1
            if not node:
                return -1
            node += 1

    def set(self, index: int, cpu: float, memory: int, gpu: int) -> None:
        node = index + self._size
        cpus, memories, gpus = self._cpu, self._memory, self._gpu
        if cpus[node] == cpu and memories[node] == memory and gpus[node] == gpu:
            return
        cpus[node], memories[node], gpus[node] = cpu, memory, gpu
        while node > 1:
            other = node ^ 1
            node >>= 1
            if cpus[other] > cpu:
                cpu = cpus[other]
            if memories[other] > memory:
                memory = memories[other]
            if gpus[other] > gpu:
                gpu = gpus[other]
            if cpus[node] == cpu and memories[node] == memory and gpus[node] == gpu:
                return
            cpus[node], memories[node], gpus[node] = cpu, memory, gpu


def _tree(leaves: list[_Number], size: int) -> list[_Number]:
    """Leaves in the second half, above them the larger of each two, the root at 1."""
    nothing: _Number = _NOTHING
    tree: list[_Number] = [nothing] * size + leaves + [nothing] * (size - len(leaves))
    for node in range(size - 1, 0, -1):
        tree[node] = max(tree[2 * node], tree[2 * node + 1])
    return tree
