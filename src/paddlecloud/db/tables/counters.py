"""Counters that hand out increasing numbers."""

from __future__ import annotations

from collections.abc import Iterator

from paddlecloud.db.engine.base import Tx


def next_number(tx: Tx, counter: str, step: int = 1) -> int:
    """The next number of a counter, 1 at first; with `step`, the last of that many.

    The row stays locked until the commit, so a later commit has a higher number: a reader that
    keeps the highest number it read will not miss a lower one.
    """
    row = tx.one(
        "insert into counters (name, value) values (?, ?)"
        " on conflict (name) do update set value = counters.value + excluded.value"
        " returning value",
        (counter, step),
    )
    assert row is not None  # an upsert always returns its row
    return int(row[0])


def next_numbers(tx: Tx, counter: str, count: int) -> Iterator[int]:
    """That many numbers of a counter, allocated at once; unused ones are skipped."""
    last = next_number(tx, counter, count) if count else 0
    return iter(range(last - count + 1, last + 1))
