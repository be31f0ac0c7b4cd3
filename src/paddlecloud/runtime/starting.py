"""Brings ordered replicas to life: their files first, then one call of the spawner.

What the owner of a job has to know (disk full, damaged files) ends the replica with a sentence;
what only the network or the server can mend is tried again for as long as the replica is wanted.
Starting a replica twice starts it once: the order on disk and the monitor's own records see to it,
also across a restart of the agent.
"""

from __future__ import annotations

import os
import queue
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from paddlecloud.model.env import with_paths
from paddlecloud.model.errors import PaddleCloudError, Retry, Unauthenticated
from paddlecloud.runtime import control, record, workspace
from paddlecloud.runtime.book import Stage, not_run, write_order
from paddlecloud.runtime.link import Backoff
from paddlecloud.runtime.materials import Materials
from paddlecloud.runtime.record import CAUSE_START_FAILED, ORDER

if TYPE_CHECKING:
    from paddlecloud.runtime.book import StopWish, Tracked
    from paddlecloud.runtime.link import Channel
    from paddlecloud.runtime.record import Launch
    from paddlecloud.runtime.shared import Site

_SPAWN_TRIES = 5
_MOST_LAUNCHES = 4


class Starters:
    def __init__(self, site: Site) -> None:
        self._site = site
        self._layer = workspace.Layer()
        self._materials = Materials(site.directory / "cache", limit=site.config.cache_bytes)
        self._queue: queue.SimpleQueue[Tracked | None] = queue.SimpleQueue()

    def put(self, tracked: Tracked) -> None:
        """Start it as soon as a thread is free."""
        tracked.queued = True
        tracked.ordered_at = time.monotonic()
        self._queue.put(tracked)

    def close(self) -> None:
        """Let one thread end; those that were not begun are ordered again later."""
        self._queue.put(None)

    def work(self) -> None:
        """The body of each thread."""
        channel = self._site.link.channel()
        self._site.guarded("a starter", lambda: self._turn(channel))

    def _turn(self, channel: Channel) -> None:
        tracked = self._queue.get()
        if tracked is None or self._site.stopping.is_set():
            return
        try:
            self._start(tracked, channel)
        except OSError as error:
            self._end(tracked, CAUSE_START_FAILED, str(workspace.in_words(error, tracked.root)))
        except Exception as error:  # noqa: BLE001 - the owner hears of it, and the log has the rest
            self._site.journal.failure("could not be started", tracked.id)
            self._end(tracked, CAUSE_START_FAILED, f"{type(error).__name__}: {error}")
        finally:
            tracked.queued = False
            self._site.wake_reporter()

    def _start(self, tracked: Tracked, channel: Channel) -> None:
        ready = (tracked.root / ORDER).exists()
        if not ready and not self._make_ready(tracked, channel):
            return
        self._site.watch(tracked)
        wish = tracked.stop
        if wish is not None:
            # A monitor may be on its way; any that comes finds the wish and does not run.
            request_stop(tracked, wish)
        if self._spawn(tracked):
            self._launched(tracked, wish)
        freed = self._materials.prune(time.time())
        if freed:
            self._site.journal.info(f"removed {freed} bytes of cached files")

    def _make_ready(self, tracked: Tracked, channel: Channel) -> bool:
        """Lay its files out; False when it is over, or the agent stops, before that."""
        backoff = Backoff()
        while tracked.stop is None and not self._site.stopping.is_set():
            try:
                self._prepare(tracked, channel)
            except (Retry, Unauthenticated) as error:
                self._site.journal.warning(f"its files cannot be had yet: {error}", tracked.id)
                self._site.link.wait(backoff.next())
            except PaddleCloudError as error:
                self._end(tracked, CAUSE_START_FAILED, str(error))
                return False
            else:
                return True
        if tracked.stop is not None:
            self._end(tracked, tracked.stop.cause)
        return False

    def _prepare(self, tracked: Tracked, channel: Channel) -> None:
        run = tracked.run
        snapshot = None
        if run.get("snapshot"):
            snapshot = self._materials.snapshot(run["snapshot"], tracked.id, channel)
        blobs_dir = Path(run["blobs_dir"]) if run.get("blobs_dir") else None
        blobs = {
            digest: self._materials.blob(digest, tracked.id, blobs_dir, channel)
            for digest in (snapshot.digests if snapshot is not None else ())
        }
        self._layer.lay_out(tracked.root, snapshot, blobs.__getitem__)
        write_order(tracked, self._launch(tracked))

    def _spawn(self, tracked: Tracked) -> bool:
        """Ask for a monitor; a machine short of processes is asked again a few times."""
        tracked.launches += 1
        if tracked.launches > _MOST_LAUNCHES:
            message = "the process that watches over it does not come up; see the agent's log"
            self._end(tracked, CAUSE_START_FAILED, message)
            return False
        launch = record.read(tracked.root / ORDER)
        backoff = Backoff(first=0.1)
        for attempt in range(_SPAWN_TRIES):
            try:
                self._site.spawner.spawn(launch)
            except Retry as error:
                if control.inspect(tracked.root).phase is not control.Phase.NOT_STARTED:
                    return True
                if attempt == _SPAWN_TRIES - 1:
                    self._end(tracked, CAUSE_START_FAILED, str(error))
                    return False
                self._site.stopping.wait(backoff.next())
            else:
                return True
        return False

    def _launch(self, tracked: Tracked) -> Launch:
        run, root = tracked.run, tracked.root
        return {
            "replica_id": tracked.id,
            "root": str(root),
            "command": run["command"],
            "env": _environment(run["env"], root),
            "grace": float(run.get("grace", 40.0)),
            "max_seconds": run.get("max_seconds"),
            "cpu_request": run.get("cpu_request"),
            "cpu_limit": run.get("cpu_limit"),
            "memory_limit": run.get("memory_limit"),
            "pids_limit": run.get("pids_limit"),
            "notify": self._site.notices,
        }

    def _launched(self, tracked: Tracked, known: StopWish | None) -> None:
        with tracked.lock:
            tracked.launched_at = time.monotonic()
            tracked.stage = Stage.LAUNCHED
            tracked.just_launched = True
            wish = tracked.stop
        tracked.run = {}
        took = (tracked.launched_at - tracked.ordered_at) * 1000
        self._site.journal.info(f"launched {took:.1f} ms after its order", tracked.id)
        if wish is not None and wish is not known:
            request_stop(tracked, wish)

    def _end(self, tracked: Tracked, cause: str, message: str = "") -> None:
        """It will never run: leave a record that keeps a late monitor from running it, too."""
        said = f": {message}" if message else ""
        self._site.journal.info(f"ends before it ran, {cause}{said}", tracked.id)
        ended = not_run(cause, now=time.time(), message=message)
        with suppress(OSError):
            if tracked.root.is_dir():
                record.write(tracked.root / record.EXIT, ended)
        workspace.clear(tracked.root)
        tracked.shipped = True
        tracked.end(ended)


def request_stop(tracked: Tracked, wish: StopWish) -> None:
    """Ask the monitor to end it. Raises OSError when even that cannot be written down."""
    control.request_stop(tracked.root, grace=wish.grace, now=time.time(), cause=wish.cause)
    tracked.stop_told = True


def _environment(env: dict[str, str], root: Path) -> dict[str, str]:
    (root / workspace.TEMPORARY).mkdir(exist_ok=True)
    if "HOME" not in env:
        (root / workspace.HOME).mkdir(exist_ok=True)
    return with_paths(
        env,
        work=os.fspath(root / workspace.WORK),
        output=os.fspath(root / workspace.OUTPUT),
        log=os.fspath(root / workspace.LOG),
        mount=os.fspath(root / workspace.MOUNT),
        temporary=os.fspath(root / workspace.TEMPORARY),
        home=os.fspath(root / workspace.HOME),
    )
