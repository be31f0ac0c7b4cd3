"""The state of one pool in the planner: what is free on each machine, reserved, and running.

What one job gets is not available to the next. Capacity can also be *reserved* for a job that does
not fit yet: it stays free, but only that job may use it. The machines are indexed, so one of ten
thousand is found without a search over all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from paddlecloud.model.jobs.job import NOTHING, Reason, ReplicaGroup, Resources, Role
from paddlecloud.scheduler.view import SMALLEST_CPU, Labels, NodeView, PoolView, Slot

_CLASSES = 4

Asks = tuple[tuple[Role, int, Resources], ...]
"""Role, count and resources of the groups of a gang, the largest replicas first."""
Wants = tuple[tuple[float, int, int], ...]
"""CPUs (less a rounding error), memory and GPUs; below 0 where none is asked for."""
_NOT_ASKED = -(1 << 60)


class NodeState:
    """A machine: what is free on it, how much of that is reserved, what could be preempted."""

    __slots__ = (
        "cpu",
        "gpu",
        "index",
        "lower",
        "memory",
        "reserved_cpu",
        "reserved_gpu",
        "reserved_memory",
        "runs",
        "view",
    )

    def __init__(self, view: NodeView, index: int) -> None:
        self.view, self.index = view, index
        self.cpu, self.memory, self.gpu = view.free.cpu, view.free.memory, view.free.gpu
        self.reserved_cpu, self.reserved_memory, self.reserved_gpu = 0.0, 0, 0
        self.runs: dict[str, Run] = {}
        self.lower: list[list[float]] = []
        """CPUs, memory and GPUs of what runs here, by priority class; empty where nothing can be
        preempted."""

    def fits(self, ask: Resources) -> bool:
        return (
            ask.cpu <= self.cpu - self.reserved_cpu + EPSILON
            and (not ask.memory or ask.memory <= self.memory - self.reserved_memory)
            and (not ask.gpu or ask.gpu <= self.gpu - self.reserved_gpu)
        )

    def holds(self, ask: Resources, most: int) -> int:
        """How many such replicas fit, up to `most`, leaving reservations aside."""
        if ask.cpu > self.cpu + EPSILON:
            return 0
        count = min(most, int((self.cpu + EPSILON) / ask.cpu)) if ask.cpu else most
        if ask.memory:
            count = min(count, self.memory // ask.memory)
        if ask.gpu:
            count = min(count, self.gpu // ask.gpu)
        return max(0, count)

    def take(self, ask: Resources, times: int = 1) -> None:
        """Use this capacity; `times` -1 returns it."""
        self.cpu -= ask.cpu * times
        self.memory -= ask.memory * times
        self.gpu -= ask.gpu * times

    def reserve(self, ask: Resources) -> None:
        self.reserved_cpu += ask.cpu
        self.reserved_memory += ask.memory
        self.reserved_gpu += ask.gpu


Slots = list[tuple[Role, int, Resources, NodeState]]
"""Role, rank, resources and machine of each replica."""


@dataclass(slots=True, eq=False, kw_only=True)
class Run:
    """A running job: what is returned when it ends."""

    id: str
    owner: str
    rank: int
    """Of its priority class; higher is more urgent."""
    state: PoolState
    slots: list[tuple[NodeState, Resources]]
    since: float
    cost: float
    stopping: bool = False


@dataclass(frozen=True, kw_only=True)
class Promise:
    """Slots that are reserved for a job until the jobs that run there have stopped."""

    state: PoolState
    slots: Slots
    victims: tuple[Run, ...]
    reason: Reason


class PoolState:
    """The machines of one pool."""

    def __init__(self, view: PoolView) -> None:
        self.pool = view.pool
        # Machines without GPUs first, so that jobs that need none leave the others free.
        views = sorted(view.nodes, key=lambda node: node.total.gpu)
        self.nodes = [NodeState(node, index) for index, node in enumerate(views)]
        self.by_node = {node.view.id: node for node in self.nodes}
        free = [(node.cpu, node.memory, node.gpu) for node in self.nodes]
        self._free = NodeIndex(free)
        self._refresh([node for node in self.nodes if node.view.exclusive])
        self._whole: NodeIndex | None = None
        self._ideal: dict[tuple[Asks, Labels], Slots | None] = {}
        self._most_free: Resources | None = None
        self.unplaced = 0
        """Replicas that found no slot in the last call of `find_slots`."""
        self.reserved_for: str | None = None
        """The first job in order that waited `reserve_after`: capacity is reserved for it."""
        self.reserved: Slots = []
        self.reservations: frozenset[object] = frozenset()
        """For which jobs capacity is reserved, and where."""
        self.runs: dict[str, Run] = {}
        """Running jobs; only in a pool that allows preemption."""
        self.stopping: dict[str, Run] = {}
        self._reach = [NodeIndex(free) for _ in range(_CLASSES)] if view.pool.preemption else []
        """For each priority class: what is free or reserved plus what lower classes use. It does
        not change while victims are tried out: what one of them frees, it no longer uses."""

    @property
    def full(self) -> bool:
        return not self.nodes or self._free.most()[0] < SMALLEST_CPU - EPSILON

    def find_slots(self, asks: Asks, require: Labels = ()) -> Slots | None:
        """A slot for every replica at once, or None. Nothing is taken yet. `require`: labels that
        the machines must have.

        First fit, largest replicas first: near the best for the few kinds of replica that a gang
        has, and deterministic.
        """
        if require:
            slots, self.unplaced = self._labelled_fit(asks, require, _available)
            return None if self.unplaced else slots
        if len(asks) == 1 and asks[0][1] == 1:
            role, _, ask = asks[0]
            index = self._free.first(ask.cpu, ask.memory, ask.gpu)
            return None if index < 0 or not self.nodes else [(role, 0, ask, self.nodes[index])]
        slots, self.unplaced = _first_fit(asks, self.nodes, self._free, _available)
        return None if self.unplaced else slots

    def find(self, ask: Resources, require: Labels = ()) -> NodeState | None:
        index = -1
        while self.nodes:
            index = self._free.first(ask.cpu, ask.memory, ask.gpu, index + 1)
            if index < 0:
                return None
            if self.nodes[index].view.has_labels(require):
                return self.nodes[index]
        return None

    def _labelled_fit(
        self, asks: Asks, require: Labels, amount: Callable[[NodeState], _Left]
    ) -> tuple[Slots, int]:
        """First fit on the machines with these labels: few, so indexed at each call."""
        nodes = [node for node in self.nodes if node.view.has_labels(require)]
        free = [amount(node) for node in nodes]
        index = NodeIndex([(cpu, int(memory), int(gpu)) for cpu, memory, gpu in free])
        return _first_fit(asks, nodes, index, amount)

    def take(self, slots: Slots) -> None:
        for _, _, ask, node in slots:
            node.take(ask)
        self._refresh({node.index: node for _, _, _, node in slots}.values())

    def occupy(self, held: Iterable[tuple[NodeState, Resources]], times: int = 1) -> None:
        """Take this capacity; `times` -1 returns it."""
        touched = {}
        for node, ask in held:
            node.take(ask, times)
            touched[node.index] = node
        self._refresh(touched.values())

    def enter(self, run: Run) -> None:
        """A job runs here now; its capacity was taken before."""
        if not self.pool.preemption:
            return
        self.runs[run.id] = run
        for node, ask in run.slots:
            node.runs[run.id] = run
            if not node.lower:
                node.lower = [[0.0, 0, 0] for _ in range(_CLASSES)]
            _add(node.lower[run.rank], ask, 1)
        self._refresh_reach(node for node, _ in run.slots)
        if run.stopping:
            self.stopping[run.id] = run

    def leave(self, run: Run) -> None:
        """A job ended: what it used is free."""
        self.occupy(run.slots, -1)
        if self.runs.pop(run.id, None) is None:
            return
        self.stopping.pop(run.id, None)
        for node, ask in run.slots:
            node.runs.pop(run.id, None)
            _add(node.lower[run.rank], ask, -1)
        self._refresh_reach(node for node, _ in run.slots)

    def reachable(self, ask: Resources, rank: int, require: Labels = ()) -> Iterator[NodeState]:
        """Machines that could take this replica if all jobs of lower classes were stopped."""
        index = -1
        while self.nodes:
            index = self._reach[rank].first(ask.cpu, ask.memory, ask.gpu, index + 1)
            if index < 0:
                return
            if self.nodes[index].view.has_labels(require):
                yield self.nodes[index]

    def stop(self, run: Run) -> None:
        run.stopping = True
        self.stopping[run.id] = run

    def slots_when_empty(self, asks: Asks, require: Labels = ()) -> Slots | None:
        """Slots if nothing else ran in this pool; None: the pool is too small.

        The choice depends on the machines only, not on what is free, so that one plan after the
        other reserves the same slots and these drain.
        """
        key = asks, require
        if key not in self._ideal:
            if self._whole is None:
                totals = [node.view.total for node in self.nodes]
                self._whole = NodeIndex([(each.cpu, each.memory, each.gpu) for each in totals])
            if require:
                slots, unplaced = self._labelled_fit(asks, require, _total)
            else:
                slots, unplaced = _first_fit(asks, self.nodes, self._whole, _total)
            self._ideal[key] = None if unplaced else slots
        return self._ideal[key]

    def all_free(self, slots: Slots) -> bool:
        """Whether exactly these slots could be taken now."""
        taken = 0
        for _, _, ask, node in slots:
            if not node.fits(ask):
                break
            node.take(ask)
            taken += 1
        for _, _, ask, node in slots[:taken]:
            node.take(ask, -1)
        return taken == len(slots)

    def reserve(self, number: int, slots: Slots) -> None:
        """Only the job with this number may use these slots."""
        self.reservations |= {(number, tuple(node.index for _, _, _, node in slots))}
        self.reserved = self.reserved + slots
        for _, _, ask, node in slots:
            node.reserve(ask)
        self._refresh({node.index: node for _, _, _, node in slots}.values())

    def clear_reservations(self) -> None:
        reserved, self.reserved, self.reserved_for = self.reserved, [], None
        self.reservations = frozenset()
        for _, _, _, node in reserved:
            node.reserved_cpu, node.reserved_memory, node.reserved_gpu = 0.0, 0, 0
        self._refresh({node.index: node for _, _, _, node in reserved}.values())

    def blocked_by_reservations(self, wants: Wants) -> bool:
        """Whether one of these replicas would fit on a machine with reservations without them."""
        return any_fits((node for _, _, _, node in self.reserved), wants)

    def most_free(self) -> Resources:
        """The maximum of each resource that is free on one machine, reserved or not."""
        if not self.nodes:
            return NOTHING
        if self._most_free is None:
            cpu, memory, gpu = self._free.most()
            for _, _, _, node in self.reserved:
                cpu, memory, gpu = max(cpu, node.cpu), max(memory, node.memory), max(gpu, node.gpu)
            self._most_free = Resources(cpu=round(cpu, 2), memory=memory, gpu=gpu)
        return self._most_free

    def largest(self) -> Resources:
        """The maximum of each resource that one machine has."""
        totals = [node.view.total for node in self.nodes]
        return Resources(
            cpu=max((total.cpu for total in totals), default=0.0),
            memory=max((total.memory for total in totals), default=0),
            gpu=max((total.gpu for total in totals), default=0),
        )

    def _refresh(self, nodes: Collection[NodeState]) -> None:
        self._most_free = None
        change = self._free.set
        for node in nodes:
            if node.view.exclusive and node.cpu < node.view.total.cpu - EPSILON:
                change(node.index, 0.0, 0, 0)
                continue
            change(
                node.index,
                node.cpu - node.reserved_cpu,
                node.memory - node.reserved_memory,
                node.gpu - node.reserved_gpu,
            )

    def _refresh_reach(self, nodes: Iterable[NodeState]) -> None:
        for node in nodes:
            cpu, memory, gpu = node.cpu, float(node.memory), float(node.gpu)
            for rank in range(1, _CLASSES):
                if node.lower:
                    below = node.lower[rank - 1]
                    cpu, memory, gpu = cpu + below[0], memory + below[1], gpu + below[2]
                self._reach[rank].set(node.index, cpu, int(memory), int(gpu))


def any_fits(nodes: Iterable[NodeState], wants: Wants) -> bool:
    """Whether one of these replicas fits on one of these machines, leaving reservations aside.

    Written out, because it is called for every demand whenever a job has ended.
    """
    for node in nodes:
        for cpu, memory, gpu in wants:
            if cpu <= node.cpu and memory <= node.memory and gpu <= node.gpu:
                return True
    return False


def to_wants(asks: Asks) -> Wants:
    """The minimum that a machine must have for each kind of replica."""
    return tuple(
        (ask.cpu - EPSILON, ask.memory or _NOT_ASKED, ask.gpu or _NOT_ASKED) for _, _, ask in asks
    )


def to_asks(groups: Iterable[ReplicaGroup]) -> Asks:
    """What a gang asks for, in the order in which its replicas are placed."""
    asks = [(group.role, group.count, group.resources) for group in groups]
    return tuple(sorted(asks, key=lambda it: (it[2].gpu, it[2].cpu, it[2].memory), reverse=True))


def to_slots(slots: Slots) -> tuple[Slot, ...]:
    """Slots as a decision has them."""
    return tuple(
        Slot(role, rank, node.view.id, node.view.host, ask) for role, rank, ask, node in slots
    )


def _add(amount: list[float], ask: Resources, times: int) -> None:
    amount[0] += ask.cpu * times
    amount[1] += ask.memory * times
    amount[2] += ask.gpu * times


_Left = list[float]


def _available(node: NodeState) -> _Left:
    return [
        node.cpu - node.reserved_cpu,
        node.memory - node.reserved_memory,
        node.gpu - node.reserved_gpu,
    ]


def _total(node: NodeState) -> _Left:
    total = node.view.total
    return [total.cpu, total.memory, total.gpu]


def _first_fit(
    asks: Asks, nodes: Sequence[NodeState], tree: NodeIndex, amount: Callable[[NodeState], _Left]
) -> tuple[Slots, int]:
    """Slots, and how many of the first kind of replica that does not fit have none."""
    left: dict[int, _Left] = {}
    slots: Slots = []
    for role, count, ask in asks:
        index, rank = 0, 0
        while rank < count:
            index = tree.first(ask.cpu, ask.memory, ask.gpu, index)
            if index < 0 or index >= len(nodes):
                return slots, count - rank
            has = left.get(index)
            if has is None:
                has = left[index] = amount(nodes[index])
            while rank < count and _suffices(has, ask):
                has[0] -= ask.cpu
                has[1] -= ask.memory
                has[2] -= ask.gpu
                slots.append((role, rank, ask, nodes[index]))
                rank += 1
            index += 1
    return slots, 0


def _suffices(has: _Left, ask: Resources) -> bool:
    return (
        ask.cpu <= has[0] + EPSILON
        and (not ask.memory or ask.memory <= has[1])
        and (not ask.gpu or ask.gpu <= has[2])
    )


Amount = tuple[float, int, int]
"""CPUs, bytes of memory, GPUs."""
EPSILON = 1e-9
_NOTHING = -(1 << 60)
_Number = TypeVar("_Number", float, int)


class NodeIndex:
    """A segment tree over the free resources of machines: finds the first with enough capacity.

    Machines keep their order, so the result is that of a linear search, after about log2(n) steps.
    Each inner node holds the maximum of each resource below it; a branch where one of them does not
    suffice is skipped.
    """

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
