"""Says on a terminal how much of a directory was read, when reading it takes its time.

A thread of its own, because one large file keeps the caller busy for seconds; it only looks at
counters. Programs are told nothing.
"""

from __future__ import annotations

import threading

from paddlecloud.cli._output import size

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddlecloud.cli._output import Output
    from paddlecloud.client.scan.walk import Reading

#: Seconds without a word before the first line, and between two.
PATIENCE, PACE = 1.0, 0.25


def shows(out: Output) -> bool:
    """Whether somebody sits there who wants to know."""
    return out.told_on_terminal and not out.json


class ReadingLine(threading.Thread):
    """The line; `stop` takes it away, and nothing is drawn after that."""

    def __init__(self, out: Output, reading: Reading, patience: float = PATIENCE) -> None:
        super().__init__(daemon=True)
        self._out = out
        self._reading = reading
        self._patience = patience
        self._over = threading.Event()
        self._lock = threading.Lock()

    def run(self) -> None:
        wait = self._patience
        while not self._over.wait(wait):
            with self._lock:
                if not self._over.is_set() and self._reading.files:
                    self._draw()
            wait = PACE

    def stop(self) -> None:
        with self._lock:
            if not self._over.is_set():
                self._over.set()
                self._out.status.draw("")

    def _draw(self) -> None:
        count, total = self._reading.files, self._reading.bytes
        code = "reading_one" if count == 1 else "reading_files"
        self._out.status.draw(self._out.text(code, count=f"{count:,}", size=size(total)))
