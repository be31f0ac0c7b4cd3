"""Durations and sizes between people's text and plain numbers, both ways.

Inside the program a duration is seconds or a `timedelta` and a size is bytes; this module is the
edge. Nothing here raises: a text that means nothing gives None, and the caller, who knows the name
of the parameter, finds the words. Patterns are written by hand because the command line reads this
file and importing `re` would cost it as much as starting Python.
"""

from __future__ import annotations

_UNITS = {
    "": 1,
    "k": 10**3,
    "m": 10**6,
    "g": 10**9,
    "t": 10**12,
    "ki": 2**10,
    "mi": 2**20,
    "gi": 2**30,
    "ti": 2**40,
}
_NAMES = ("B", "KiB", "MiB", "GiB", "TiB")


def parse_duration(text: str) -> int | None:
    """Seconds of an hh:mm:ss text; hours may exceed 24, minutes and seconds stay below 60."""
    parts = text.strip().split(":")
    if len(parts) != 3 or not all(is_digits(part) and len(part) <= 6 for part in parts):
        return None
    hours, minutes, seconds = (int(part) for part in parts)
    if minutes > 59 or seconds > 59:
        return None
    return hours * 3600 + minutes * 60 + seconds


def format_duration(seconds: float) -> str:
    """hh:mm:ss, as query_job prints it."""
    whole = int(seconds)
    return f"{whole // 3600:02d}:{whole // 60 % 60:02d}:{whole % 60:02d}"


def parse_size(text: str) -> int | None:
    """Bytes of a text such as 4G, 512Mi, 1.5GiB; as in Kubernetes G is 1000^3 and Gi is 1024^3."""
    number = text.strip().lower()
    unit = number.lstrip("0123456789.")
    number = number[: len(number) - len(unit)]
    factor = _UNITS.get(unit.strip().removesuffix("b"))
    whole, _, rest = number.partition(".")
    if factor is None or not is_digits(whole) or len(number) > 18 or (rest and not is_digits(rest)):
        return None
    return round(float(number) * factor)


def format_size(size: int) -> str:
    """A size in the largest fitting binary unit: 4 GiB, 1.5 MiB, 17 B. Not localized."""
    value, name = float(size), _NAMES[0]
    for name in _NAMES:
        if abs(value) < 1024 or name == _NAMES[-1]:
            break
        value /= 1024
    return f"{value:.1f}".removesuffix(".0") + " " + name


def format_resources(cpu: float, memory: int, gpu: int) -> str:
    """What is asked or free, in words that are the same in every language: 1 CPU, 4 GiB, 2 GPU."""
    parts = [f"{round(cpu, 2):g} CPU"]
    if memory:
        parts.append(format_size(memory))
    if gpu:
        parts.append(f"{gpu} GPU")
    return ", ".join(parts)


def is_digits(text: str) -> bool:
    """True for one or more of 0-9 only (str.isdigit also takes other scripts)."""
    return text.isascii() and text.isdigit()
