"""What a person means by `--since`: a span before now, or a time."""

from __future__ import annotations

from datetime import datetime, timedelta, tzinfo

from paddlecloud.model.errors import Invalid
from paddlecloud.model.quantities import is_digits

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_DAY = timedelta(days=1)


def since(text: str, *, now: datetime, zone: tzinfo | None) -> datetime:
    """The moment meant; a time without a zone is one of `zone` (None: this machine's), a time of
    day the last such."""
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
        told = datetime.fromisoformat(f"{today:%Y-%m-%d}T{text}" if of_day else text)
    except ValueError:
        return None
    if told.tzinfo is None:
        told = told.replace(tzinfo=zone) if zone is not None else told.astimezone()
    return told - _DAY if of_day and told > now else told
