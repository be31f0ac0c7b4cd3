"""How values become columns and come back.

Times are whole microseconds since 1970 (bigint): they compare and subtract as numbers in every
engine, keep exactly what a `datetime` holds, and have no time zone to get wrong. Values that are
only ever read whole (a spec, a reason, an exit record) are JSON text; a field that a later version
adds reads as its default from rows of an older one.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TypeVar

import msgspec

T = TypeVar("T")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
LAST_NUMBER = 2**31 - 1
"""What a column of numbers (of jobs, of the audit) holds at most."""
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
    """What the numbers of a page are below; None: the page is the first.

    No engine compares a column of numbers with one that it could not hold.
    """
    return LAST_NUMBER if before is None else min(before, LAST_NUMBER)


def to_json(value: object) -> str:
    return _encoder.encode(value).decode()


def maybe_to_json(value: object | None) -> str | None:
    return None if value is None else to_json(value)


def json_reader(kind: type[T]) -> Callable[[str], T]:
    """The function that reads `kind` back; make it once, building it is what costs."""
    return msgspec.json.Decoder(kind).decode


def maybe_json_reader(kind: type[T]) -> Callable[[str | None], T | None]:
    """The same for a column that may be empty."""
    read = json_reader(kind)

    def maybe(text: str | None) -> T | None:
        return None if text is None else read(text)

    return maybe
