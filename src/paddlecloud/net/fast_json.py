"""Reads JSON without importing `json`, whose regular expressions cost 8 ms at every start.

The work is done by the same C code that `json` uses; where a Python has none, `json` itself reads.
Writing is left to `json`: commands that only ask never write any.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_BLANKS = " \t\n\r"


def loads(data: bytes | str) -> Any:
    """The value of a JSON text in UTF-8; ValueError if it is none."""
    text = data if isinstance(data, str) else data.decode()
    start = len(text) - len(text.lstrip(_BLANKS))
    try:
        value, end = _scan(text, start)
    except (StopIteration, SystemError, RecursionError):
        # Python 3.11 words its complaint with `json.decoder`, and breaks where nobody imported it.
        raise ValueError("no JSON value") from None
    if text[end:].strip(_BLANKS):
        raise ValueError("something follows the JSON value")
    return value


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


class _Rules:
    """What `json.JSONDecoder` would tell the scanner."""

    strict = True
    object_hook = object_pairs_hook = None
    parse_float = float
    parse_int = int
    parse_constant = staticmethod(_no_number)


try:
    from _json import make_scanner

    _scan: Any = make_scanner(_Rules())  # type: ignore[arg-type] # its stub asks for itself
except ImportError:  # a Python without the C part
    from json import JSONDecoder

    _scan = JSONDecoder(parse_constant=_no_number).scan_once  # type: ignore[attr-defined] # not in its stub
