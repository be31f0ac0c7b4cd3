"""Generators over RecordIO files for any framework, with the chunks shared between trainers.

Whole chunks are assigned by bytes, so one large file is shared as evenly as many small ones. The
data set for Paddle is in `data/paddle.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from paddlecloud.data.legacy2017.pickles import loads as unpickled
from paddlecloud.data.recordio.record_reader import Reader
from paddlecloud.data.recordio.source import Opener, Target
from paddlecloud.data.shard import share


def records(
    target: Target | Iterable[Target],
    *,
    trainer_count: int | None = None,
    trainer_id: int | None = None,
    errors: str = "raise",
    opener: Opener | None = None,
) -> Iterator[bytes]:
    """This trainer's records. All trainers together read each record once."""
    mine = share(trainer_count, trainer_id)
    part = mine.among_workers(0, 1) if mine.trainer_count > 1 else None
    with Reader(target, part=part, errors=errors, opener=opener) as reader:
        yield from reader


def samples(
    target: Target | Iterable[Target],
    loads: Callable[[bytes], Any] = unpickled,
    **more: Any,
) -> Iterator[Any]:
    """`records`, each converted to a sample; by default it is a pickle, as `convert` writes."""
    return map(loads, records(target, **more))
