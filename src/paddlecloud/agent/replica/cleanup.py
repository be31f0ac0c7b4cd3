"""The cleanup thread: deletes directories, and ends the processes of lost replicas.

Both may take long (a million files, a process that is slow to die). A directory is renamed into the
trash before it is deleted, so a crash in between leaves something in the trash and never half a
replica.
"""

from __future__ import annotations

import os
import queue
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from paddlecloud.agent.outputs import unsent
from paddlecloud.agent.replica import _secret_files, inspect, notices
from paddlecloud.agent.sandbox import tmpdir, workspace

if TYPE_CHECKING:
    from pathlib import Path

    from paddlecloud.agent.context import Context
    from paddlecloud.agent.outputs.shipper import Shippers
    from paddlecloud.agent.registry import Tracked

#: The trash is emptied when nothing was added to it for this many seconds: jobs come first.
_IDLE_SECONDS = 1.0
#: But after this many seconds in any case.
_LONGEST_KEPT = 10.0
_REAP_AGAIN = 0.5
#: Seconds between two checks of the files that could not be sent, while there are some.
_UNSENT_SECONDS = 60.0


class Cleanup:
    def __init__(self, context: Context, shippers: Shippers) -> None:
        self._context = context
        self._shippers = shippers
        self._trash = context.directory / "trash"
        self._queue: queue.SimpleQueue[Path | Tracked | None] = queue.SimpleQueue()
        self._to_delete: list[str] = []
        self._kept_since = 0.0
        self._count = 0
        self._unsent_checked_at = 0.0
        self._has_unsent = False

    def discard(self, root: Path) -> None:
        """Delete a directory; it is out of the way when this returns."""
        tmpdir.remove_links(root)
        self._count += 1
        target = self._trash / f"{root.name}.{self._context.boot}.{self._count}"
        try:
            root.rename(target)
        except FileNotFoundError:
            if not root.exists():
                return
            try:
                self._trash.mkdir(exist_ok=True, mode=0o700)
                root.rename(target)
            except OSError:
                target = root
        except OSError:
            # The disk has no space for a name: deleting the directory will free some.
            target = root
        self._queue.put(target)

    def delete(self, tracked: Tracked) -> None:
        """Delete a replica that is over and that the server does not need any more."""
        self._context.registry.remove(tracked.id)
        self._context.unwatch(tracked)
        self.discard(tracked.root)

    def delete_working_files(self, tracked: Tracked) -> None:
        """Free the disk space that a replica does not need any more, because it is over."""
        for name in workspace.DISPOSABLE:
            self._queue.put(tracked.root / name)

    def reap(self, tracked: Tracked) -> None:
        """End the processes of a replica whose supervisor died, then end the replica as lost."""
        self._queue.put(tracked)

    def close(self) -> None:
        self._queue.put(None)

    def work(self) -> None:
        """The body of the thread."""
        with suppress(OSError):
            self._to_delete += [str(left) for left in self._trash.iterdir()]
        self._context.guarded("cleanup", self._turn)

    def _turn(self) -> None:
        now = time.monotonic()
        if self._to_delete and now - self._kept_since > _LONGEST_KEPT:
            self._empty_trash()
            return
        if now >= self._unsent_checked_at + _UNSENT_SECONDS or not self._has_unsent:
            self._unsent_checked_at = now
            self._has_unsent = unsent.prune(self._context, now=time.time())
        timeout = _UNSENT_SECONDS if self._has_unsent else None
        try:
            task = self._queue.get(timeout=_IDLE_SECONDS if self._to_delete else timeout)
        except queue.Empty:
            self._empty_trash()
            return
        if isinstance(task, os.PathLike):
            if not self._to_delete:
                self._kept_since = now
            self._to_delete.append(str(task))
        elif task is not None:
            self._reap(task)

    def _empty_trash(self) -> None:
        paths, self._to_delete = self._to_delete, []
        for path in paths:
            if self._context.stopping.is_set():
                return
            try:
                workspace.remove(path)
            except OSError as error:
                self._context.log.warning(f"{path} cannot be deleted: {error}")

    def _reap(self, tracked: Tracked) -> None:
        reaped = None
        try:
            reaped = inspect.reap_leftovers(tracked.root, self._context.spawner)
        finally:
            if reaped is None or reaped.left:
                self._queue.put(tracked)
        if reaped.left:
            pids = ", ".join(map(str, reaped.left))
            self._context.log.warning(f"processes {pids} do not end; trying again", tracked.id)
            tracked.hold(
                notices.message("replica_not_ending", {"pids": pids}), now=time.monotonic()
            )
            self._context.wake_reporter()
            self._context.stopping.wait(_REAP_AGAIN)
            return
        if not reaped.all_ended:
            text = "processes that left its process tree may still be running"
            self._context.log.warning(text, tracked.id)
        tracked.held = None
        tracked.all_ended = reaped.all_ended
        _secret_files.remove(tracked.root)
        tracked.end(None)
        self._shippers.finish(tracked)
        self._context.wake_reporter()
