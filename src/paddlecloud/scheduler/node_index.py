"""Finds the first machine of many that has room: a tree of maxima over what each has.

Machines keep their order, so the answer is the one that walking over all of them would give, after
about log2(n) steps. Each inner node knows the most of each kind that any machine below it has; a
branch in which one kind cannot suffice is passed over whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

Amount = tuple[float, int, int]
"""CPUs, bytes of memory, cards."""
HAIR = 1e-9
_NOTHING = -(1 << 60)
_Number = TypeVar("_Number", float, int)


class Index:
    """What some machines have, by their place in the order."""

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
        """The most that any machine has of each kind; below 0 where there is none."""
        return self._cpu[1], self._memory[1], self._gpu[1]

    def first(self, cpu: float, memory: int, gpu: int, start: int = 0) -> int:
        """The first machine from `start` on that has all of it, or -1.

        Of a kind that is not asked for (0), less than none is enough.
        """
        cpus, memories, gpus, size = self._cpu, self._memory, self._gpu, self._size
        cpu -= HAIR
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

    def set(self, place: int, cpu: float, memory: int, gpu: int) -> None:
        node = place + self._size
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
    """The leaves in the second half, above them the larger of each two, the root at 1."""
    nothing: _Number = _NOTHING
    tree: list[_Number] = [nothing] * size + leaves + [nothing] * (size - len(leaves))
    for node in range(size - 1, 0, -1):
        tree[node] = max(tree[2 * node], tree[2 * node + 1])
    return tree
