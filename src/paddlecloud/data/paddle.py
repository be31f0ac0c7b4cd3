"""A data set of Paddle over RecordIO files, dealt out to trainers and to loader workers.

It needs `paddle` (2.0 or newer) in the image; nothing else in this package does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from paddle.io import IterableDataset, get_worker_info

from paddlecloud.data._shard import share
from paddlecloud.data.legacy2017.pickles import loads as unpickled
from paddlecloud.data.recordio.record_reader import Reader
from paddlecloud.data.recordio.source import Opener, Target


class RecordIODataset(IterableDataset):  # type: ignore[misc]  # paddle has no types
    """Samples of RecordIO files for `paddle.io.DataLoader`, with any number of workers.

    Trainers and workers have whole chunks, each one once; a part may be empty where there are fewer
    chunks than workers. `loads` makes a sample of a record: by default it is a pickle of your own.
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
