"""Says on a terminal how much of a directory was read, when reading it takes its time.

A thread of its own, because one large file keeps the caller busy for seconds; it only looks at
counters. The line gives way to whatever is said meanwhile. Programs are told nothing.
"""

from __future__ import annotations

import sys
import threading

from paddlecloud.cli.render import size, width

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from paddlecloud.cli.render import Output
    from paddlecloud.client.scanning import Reading

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
        self._width = 0

    def run(self) -> None:
        wait = self._patience
        while not self._over.wait(wait):
            with self._lock:
                if not self._over.is_set() and self._reading.files:
                    self._draw()
            wait = PACE

    def stop(self) -> None:
        self._over.set()
        self.give_way(lambda: None)

    def give_way(self, work: Callable[[], None]) -> None:
        """Have something else written in its place."""
        with self._lock:
            if self._width:
                self._put("\r" + " " * self._width + "\r")
            self._width = 0
            work()

    def _draw(self) -> None:
        count, total = self._reading.files, self._reading.bytes
        code = "reading_one" if count == 1 else "reading_files"
        line = self._out.text(code, count=f"{count:,}", size=size(total))
        self._put("\r" + line + " " * (self._width - width(line)))
        self._width = max(self._width, width(line))

    def _put(self, text: str) -> None:
        try:
            sys.stderr.write(text)
            sys.stderr.flush()
        except OSError:  # nobody looks any more
            self._over.set()
