"""Plain generators over RecordIO files, for any framework, with the files dealt out to trainers.

Whole chunks are dealt out by bytes, so that one large file serves many trainers as well as many
small ones do. `data/paddle.py` makes a data set of Paddle from the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from paddlecloud.data._shard import share
from paddlecloud.data.legacy2017.pickles import loads as unpickled
from paddlecloud.data.recordio.record_reader import Reader
from paddlecloud.data.recordio.source import Opener, Target


def records(
    target: Target | Iterable[Target],
    *,
    trainer_count: int | None = None,
    trainer_id: int | None = None,
    errors: str = "raise",
    opener: Opener | None = None,
) -> Iterator[bytes]:
    """This trainer's records. All trainers together have each record once."""
    mine = share(trainer_count, trainer_id)
    part = mine.among_workers(0, 1) if mine.trainer_count > 1 else None
    with Reader(target, part=part, errors=errors, opener=opener) as reader:
        yield from reader


def samples(
    target: Target | Iterable[Target],
    loads: Callable[[bytes], Any] = unpickled,
    **more: Any,
) -> Iterator[Any]:
    """The same, each record made a sample; by default it is a pickle, as `convert` writes."""
    return map(loads, records(target, **more))
