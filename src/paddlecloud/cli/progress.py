"""Shows on a terminal how much of a directory was read, if that takes longer than a second.

A thread, because one large file keeps the caller busy for seconds; it only reads counters.
"""

from __future__ import annotations

import threading

from paddlecloud.cli.output import size

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddlecloud.cli.output import Output
    from paddlecloud.client.scan.walk import ScanProgress

#: Seconds until the first line, and between two.
DELAY, PACE = 1.0, 0.25


def shows(out: Output) -> bool:
    """Whether messages go to a terminal."""
    return out.errors_on_terminal and not out.json


class ScanStatusLine(threading.Thread):
    """The line; `stop` takes it away, and nothing is drawn after that."""

    def __init__(self, out: Output, scan_progress: ScanProgress, delay: float = DELAY) -> None:
        super().__init__(daemon=True)
        self._out = out
        self._scan_progress = scan_progress
        self._delay = delay
        self._over = threading.Event()
        self._lock = threading.Lock()

    def run(self) -> None:
        wait = self._delay
        while not self._over.wait(wait):
            with self._lock:
                count, total = self._scan_progress.files, self._scan_progress.bytes
                if not self._over.is_set() and count:
                    code = "reading_one" if count == 1 else "reading_files"
                    text = self._out.text(code, count=f"{count:,}", size=size(total))
                    self._out.status.draw(text)
            wait = PACE

    def stop(self) -> None:
        with self._lock:
            if not self._over.is_set():
                self._over.set()
                self._out.status.draw("")
