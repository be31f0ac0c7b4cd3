"""One line of the table that `python -m bench` prints."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Row:
    what: str
    measured: str
    goal: str
    reached: bool
