"""The (time, size) index of a log, and the times that `--since` takes."""

from __future__ import annotations

from datetime import datetime, timedelta, tzinfo

from paddlecloud.model.errors import Invalid
from paddlecloud.model.logs.index_format import EVERY
from paddlecloud.model.units import is_digits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from paddlecloud.model.logs.index_format import Note

    #: Reads entries: number of the first, how many; returns fewer at the end.
    Read = Callable[[int, int], list[Note]]

#: Entries that are read at once.
BLOCK = 256


def all_notes(read: Read, block: int = BLOCK) -> Iterator[Note]:
    """Every entry, oldest first, read in blocks."""
    first = 0
    while notes := read(first, block):
        yield from notes
        first += len(notes)


def size_at(read: Read, time: float) -> int | None:
    """A size below which all bytes arrived before `time`; None without entries.

    -1 if all entries are older: everything arrived before.
    """
    begun = time - EVERY
    found = None
    for at, size in all_notes(read, 16 * BLOCK):
        if at > begun:
            return size
        found = -1
    return found


_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}

_DAY = timedelta(days=1)


def since(text: str, *, now: datetime, zone: tzinfo | None) -> datetime:
    """Parse `--since`: a duration, a time of day (the last such) or a date; without a time zone it
    is in `zone` (None: this machine's)."""
    found = _span(text.strip(), now) or _time(text.strip(), now, zone)
    if found is None:
        raise Invalid("since_invalid", value=text[:100])
    return found


def _span(text: str, now: datetime) -> datetime | None:
    number, unit = text[:-1], text[-1:].lower()
    if unit not in _UNITS or not is_digits(number) or len(number) > 9:
        return None
    try:
        return now - timedelta(seconds=int(number) * _UNITS[unit])
    except OverflowError:
        return None


def _time(text: str, now: datetime, zone: tzinfo | None) -> datetime | None:
    today = now.astimezone(zone)
    of_day = len(text) <= 8 and ":" in text
    try:
        found = datetime.fromisoformat(f"{today:%Y-%m-%d}T{text}" if of_day else text)
    except ValueError:
        return None
    if found.tzinfo is None:
        found = found.replace(tzinfo=zone) if zone is not None else found.astimezone()
    return found - _DAY if of_day and found > now else found
