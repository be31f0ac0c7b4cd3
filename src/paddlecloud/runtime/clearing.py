"""Takes away what is over: directories of forgotten replicas, processes of lost ones.

Both may take long (a million files, a process that is slow to die), so a thread of its own does
it. A directory leaves the agent's sight by one rename before it is deleted, so a crash in between
leaves rubbish in the trash and never half a replica.
"""

from __future__ import annotations

import os
import queue
import shutil
from contextlib import suppress
from typing import TYPE_CHECKING

from paddlecloud.runtime import control, workspace

if TYPE_CHECKING:
    from pathlib import Path

    from paddlecloud.runtime.book import Tracked
    from paddlecloud.runtime.shared import Site
    from paddlecloud.runtime.shipping import Shippers


class Janitor:
    def __init__(self, site: Site, shippers: Shippers) -> None:
        self._site = site
        self._shippers = shippers
        self._trash = site.directory / "trash"
        self._queue: queue.SimpleQueue[Path | Tracked | None] = queue.SimpleQueue()
        self._count = 0

    def discard(self, root: Path) -> None:
        """Delete a directory; it is out of the way when this returns."""
        self._count += 1
        target = self._trash / f"{root.name}.{self._site.boot}.{self._count}"
        try:
            self._trash.mkdir(exist_ok=True)
            root.rename(target)
        except FileNotFoundError:
            return
        except OSError:
            # No space for a directory: then the deletion is what makes some.
            target = root
        self._queue.put(target)

    def forget(self, tracked: Tracked) -> None:
        """Delete a replica that is over and that the server wants nothing more of."""
        self._site.book.remove(tracked.id)
        self._site.unwatch(tracked)
        self.discard(tracked.root)
        self._site.journal.info("forgotten", tracked.id)

    def make_room(self, tracked: Tracked) -> None:
        """Delete what nobody will ask for of a replica that is over."""
        for name in workspace.DISPOSABLE:
            self._queue.put(tracked.root / name)

    def reap(self, tracked: Tracked) -> None:
        """End what is left of a replica whose monitor died, then call it lost."""
        self._queue.put(tracked)

    def close(self) -> None:
        self._queue.put(None)

    def work(self) -> None:
        """The body of the thread."""
        for left in self._leftovers():
            self._queue.put(left)
        self._site.guarded("the janitor", self._turn)

    def _leftovers(self) -> list[Path]:
        with suppress(OSError):
            return list(self._trash.iterdir())
        return []

    def _turn(self) -> None:
        task = self._queue.get()
        if task is None:
            return
        if isinstance(task, os.PathLike):
            shutil.rmtree(task, ignore_errors=True)
            return
        reaped = False
        try:
            reaped = control.reap_leftovers(task.root)
        finally:
            if not reaped:
                self._queue.put(task)
        if not reaped:
            self._site.journal.warning("some of its processes do not end; trying again", task.id)
            self._site.stopping.wait(0.5)
            return
        self._site.journal.warning("its monitor was killed; nobody knows how it ended", task.id)
        task.end(None)
        self._shippers.finish(task)
