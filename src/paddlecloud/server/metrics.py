"""Counters of this process in Prometheus text form. No client library: three kinds of lines."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable, Mapping

Labels = tuple[tuple[str, str], ...]


class Metrics:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[tuple[str, Labels], float] = defaultdict(float)

    def add(self, name: str, labels: Labels, value: float = 1.0) -> None:
        """Add to a counter; its name ends in _total or _sum, as Prometheus wants it.

        The labels of one name come in one order: sorting them would cost more than counting.
        """
        with self._lock:
            self._counts[name, labels] += value

    def render(self, gauges: Iterable[tuple[str, Mapping[str, str], float]]) -> str:
        """Everything counted, and the gauges that the caller measured just now."""
        with self._lock:
            rows = [(name, labels, value) for (name, labels), value in self._counts.items()]
        kinds = {name: "counter" for name, _, _ in rows}
        for name, about, value in gauges:
            rows.append((name, tuple(sorted(about.items())), value))
            kinds[name] = "gauge"
        lines: list[str] = []
        for name, labels, value in sorted(rows):
            if name in kinds:
                lines.append(f"# TYPE {name} {kinds.pop(name)}")
            braces = ",".join(f'{key}="{_escape(text)}"' for key, text in labels)
            # Every digit of it: a counter that is rounded seems to stand still.
            number = str(int(value)) if value == int(value) else repr(value)
            lines.append(f"{name}{{{braces}}} {number}" if labels else f"{name} {number}")
        return "\n".join(lines) + "\n"


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
