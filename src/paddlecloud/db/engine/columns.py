"""Converts values to columns and back, and builds `IN (...)` lists."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from datetime import UTC, datetime, timedelta
from typing import TypeVar

import msgspec

T = TypeVar("T")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

MICROSECOND = timedelta(microseconds=1)

LAST_NUMBER = 2**31 - 1
"""The largest value of an integer column."""

_encoder = msgspec.json.Encoder()


def to_micros(at: datetime) -> int:
    """An aware time as a column; a naive one raises TypeError."""
    return (at - _EPOCH) // MICROSECOND


def from_micros(micros: int) -> datetime:
    return _EPOCH + timedelta(microseconds=micros)


def maybe_to_micros(at: datetime | None) -> int | None:
    return None if at is None else to_micros(at)


def maybe_from_micros(micros: int | None) -> datetime | None:
    return None if micros is None else from_micros(micros)


def bound(before: int | None) -> int:
    """The number that the rows of a page are below; None: the first page.

    At most the largest value of the column: PostgreSQL cannot compare it with a larger one.
    """
    return LAST_NUMBER if before is None else min(before, LAST_NUMBER)


def to_json(value: object) -> str:
    return _encoder.encode(value).decode()


def maybe_to_json(value: object | None) -> str | None:
    return None if value is None else to_json(value)


def json_reader(kind: type[T]) -> Callable[[str], T]:
    """The function that decodes `kind`; create it once, that is what costs."""
    return msgspec.json.Decoder(kind).decode


def maybe_json_reader(kind: type[T]) -> Callable[[str | None], T | None]:
    """The same for a column that may be empty."""
    read = json_reader(kind)

    def maybe(text: str | None) -> T | None:
        return None if text is None else read(text)

    return maybe


V = TypeVar("V", str, int)

LONGEST = 32


def in_parts(values: Collection[V], longest: int = LONGEST) -> Iterator[tuple[tuple[V, ...], str]]:
    """Unique values in parts, each with its placeholders, in few lengths: statements are cached."""
    found = tuple(dict.fromkeys(values))
    for first in range(0, len(found), longest):
        part = found[first : first + longest]
        missing = (1 << (len(part) - 1).bit_length()) - len(part)
        yield (part + part[-1:] * missing)[:longest], places(min(len(part) + missing, longest))


def places(count: int) -> str:
    """Placeholders for `count` values; use `in_parts` for lists of any length."""
    return ", ".join("?" * count)
