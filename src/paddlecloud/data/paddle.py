"""A `paddle.io` data set over RecordIO files, shared between trainers and loader workers.

It needs `paddle` (2.0 or newer) in the image; nothing else in this package does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from paddle.io import IterableDataset, get_worker_info

from paddlecloud.data.legacy2017.pickles import loads as unpickled
from paddlecloud.data.recordio.record_reader import Reader
from paddlecloud.data.recordio.source import Opener, Target
from paddlecloud.data.shard import share


class RecordIODataset(IterableDataset):  # type: ignore[misc]  # paddle has no types
    """Samples of RecordIO files for `paddle.io.DataLoader`, with any number of workers.

    Each chunk is read by one worker of one trainer; a part may be empty if there are fewer chunks
    than workers. `loads` converts a record to a sample; by default it unpickles your own pickles.
    """

    def __init__(
        self,
        target: Target | Iterable[Target],
        loads: Callable[[bytes], Any] = unpickled,
        *,
        trainer_count: int | None = None,
        trainer_id: int | None = None,
        errors: str = "raise",
        opener: Opener | None = None,
    ) -> None:
        super().__init__()
        self._target = target
        self._loads = loads
        self._share = share(trainer_count, trainer_id)
        self._errors = errors
        self._opener = opener

    def __iter__(self) -> Iterator[Any]:
        worker = get_worker_info()
        place = (0, 1) if worker is None else (worker.id, worker.num_workers)
        part = self._share.among_workers(*place)
        with Reader(self._target, part=part, errors=self._errors, opener=self._opener) as reader:
            yield from map(self._loads, reader)
