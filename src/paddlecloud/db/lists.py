"""Lists of values inside a statement, in a few lengths only.

A statement whose list is one longer is another statement: an engine parses and plans it anew. So
long lists are asked for in parts, and a part is filled up with its own last value to the next power
of two, which changes nothing in a question like `id in (?, ?, ?, ?)`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TypeVar

V = TypeVar("V", str, int)
LONGEST = 32


def in_parts(values: Collection[V], longest: int = LONGEST) -> Iterator[tuple[tuple[V, ...], str]]:
    """The values in parts, each once and with the places that stand for it in a statement."""
    found = tuple(dict.fromkeys(values))
    for first in range(0, len(found), longest):
        part = found[first : first + longest]
        missing = (1 << (len(part) - 1).bit_length()) - len(part)
        yield (part + part[-1:] * missing)[:longest], places(min(len(part) + missing, longest))


def places(count: int) -> str:
    """For a list of few lengths by itself; `in_parts` knows those of any other."""
    return ", ".join("?" * count)
