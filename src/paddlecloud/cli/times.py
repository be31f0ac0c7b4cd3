"""Times of the server for a reader in another time zone: with the server's offset.

The server writes times of its own zone. A time that this machine's clock would show in the same way
needs no more. No datetime: it would take a tenth of a `query_job`.
"""

from __future__ import annotations

import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

INSTANTS = {"create_time": "created_at", "start_time": "started_at", "finish_time": "finished_at"}
"""Of each time in the server's zone the key of the same in UTC."""


def with_zones(view: Mapping[str, object]) -> dict[str, object]:
    """A job whose times carry the zone where it is not this machine's."""
    found = dict(view)
    for key, instant in INSTANTS.items():
        if found.get(key) and found.get(instant):
            found[key] = with_zone(str(found[key]), str(found[instant]))
    return found


def with_zone(shown: str, instant: str) -> str:
    """`shown` (2026-01-31 14:00:00), the server's time at `instant` (2026-01-31T06:00:00Z)."""
    try:
        at = _seconds(instant)
        if time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at)) == shown:
            return shown
        minutes = (_seconds(shown) - at) // 60
    except (ValueError, OverflowError, OSError):  # not the form of a time, or none of this platform
        return shown
    sign = "-" if minutes < 0 else "+"
    return f"{shown} {sign}{abs(minutes) // 60:02}:{abs(minutes) % 60:02}"


def _seconds(text: str) -> int:
    """Seconds from 1970 to this time, taken as UTC."""
    year, month, day = int(text[:4]), int(text[5:7]), int(text[8:10])
    if month < 3:  # count years from March, so that the leap day is the last
        year, month = year - 1, month + 12
    leap_days = year // 4 - year // 100 + year // 400
    days = 365 * year + leap_days + (153 * month - 457) // 5 + day - 719469
    return days * 86400 + int(text[11:13]) * 3600 + int(text[14:16]) * 60 + int(text[17:19])
