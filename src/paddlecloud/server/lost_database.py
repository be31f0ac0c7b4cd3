"""Recognizes a home that lost its database, and prepares an explicit fresh start of it.

A first start finds no database either. The difference is what an earlier database left in the
home: the credentials of its first user and of its agent, both written after the database was
committed, and users' files in the store. `server.key` is no such trace: it is made
before the database, so an interrupted first start leaves it behind.

A fresh start deletes nothing. Keys, files and the agent's directory are renamed to
`NAME.aside-TIME` beside their old place, so that a database found later can be put back with them.
"""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from paddlecloud.db import open_database
from paddlecloud.model.errors import ConfigError, Refused
from paddlecloud.server.open_store import open_bucket
from paddlecloud.server.settings import Settings

log = logging.getLogger("paddlecloud.server")

DATABASE = "paddlecloud.db"
USERS = "users"
"""The directory of the store that holds the files of all users."""
RESTORING = "restoring.json"
"""Of the directory of the server, while `admin restore` has not filled the home completely."""
_OF_THE_SERVER = (DATABASE, f"{DATABASE}-wal", f"{DATABASE}-shm", "place", "server.key")
_CREDENTIALS = "credentials.json"
_AGENT_SECONDS = 15.0
"""An agent that is asked to end does so within this time."""


def database_of(settings: Settings) -> str | Path:
    """The address of the database, or its file in the home."""
    return settings.database.url or settings.server_dir / DATABASE


def has_traces(settings: Settings) -> bool:
    """Whether an earlier database left something in this home."""
    kept = (settings.server_dir / _CREDENTIALS, settings.agent_dir / "agent.json")
    return any(path.exists() for path in kept) or has_entries(settings.store_dir / USERS)


def check_restored(settings: Settings) -> None:
    """Refused if a restore of this home was interrupted."""
    mark = settings.server_dir / RESTORING
    if mark.exists():
        backup = json.loads(mark.read_text("utf-8"))["path"]
        raise Refused("restore_unfinished", home=str(settings.home), backup=backup)


def prepare(settings: Settings, now: datetime) -> None:
    """Move aside what the lost database left, if there is anything; Refused if it is not lost."""
    if not has_traces(settings):
        return
    _check_lost(settings, now)
    _check_bucket(settings)
    stamp = f".aside-{now:%Y%m%dT%H%M%SZ}"
    _check_running(settings.agent_dir)
    _stop_agent(settings.agent_dir)
    _check_running(settings.agent_dir)  # one may have been starting
    server_dir = settings.server_dir
    beside = server_dir.with_name(server_dir.name + stamp)
    directories = (settings.agent_dir, settings.store_dir)
    moves = [(path, path.with_name(path.name + stamp)) for path in directories]
    # The credentials go last: as long as any trace is left, a start without --fresh is refused.
    moves += [(server_dir / name, beside / name) for name in (*_OF_THE_SERVER, _CREDENTIALS)]
    for source, target in moves:
        if source.exists():
            _move(source, target)
            log.warning("fresh start: moved %s to %s", source, target)


def _check_lost(settings: Settings, now: datetime) -> None:
    place = database_of(settings)
    try:
        open_database(place, now=now, must_exist=True).close()
    except ConfigError as error:
        if error.code != "database_lost":
            raise
    else:
        shown = "database.url" if settings.database.url else str(place)
        raise Refused("fresh_not_lost", database=shown)


def _check_bucket(settings: Settings) -> None:
    """Objects cannot be renamed: the settings have to name a place without any."""
    if settings.store.kind == "directory":
        return
    bucket = open_bucket(settings)
    try:
        if next(iter(bucket.list("")), None) is not None:
            raise Refused("fresh_bucket_used", place=bucket.place)
    finally:
        bucket.close()


def _check_running(directory: Path) -> None:
    """Refused while a job of the lost database runs: it writes into this directory."""
    running = [
        path.parent.name
        for path in sorted(directory.glob("replicas/*/lock"))
        if _is_held(path, fcntl.lockf)
    ]
    if running:
        raise Refused("fresh_jobs_run", replicas=", ".join(running))


def _stop_agent(directory: Path) -> None:
    lock = directory / "lock"
    until = time.monotonic() + _AGENT_SECONDS
    asked: set[int] = set()
    while _is_held(lock, fcntl.flock):
        for pid in _having_open(lock) - asked:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
            asked.add(pid)
        if time.monotonic() > until:
            raise Refused("fresh_agent_runs", path=str(lock))
        time.sleep(0.01)


def _is_held(path: Path, lock: Callable[[int, int], None]) -> bool:
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        lock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return True
    finally:
        os.close(fd)
    return False


def _having_open(path: Path) -> set[int]:
    """The processes that have this file open, as far as this system shows them."""
    wanted, found = path.resolve(), set()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it may end, or belong to another user
            if any(link.readlink() == wanted for link in (process / "fd").iterdir()):
                found.add(int(process.name))
    return found


def _move(source: Path, target: Path) -> None:
    try:
        target.parent.mkdir(exist_ok=True, mode=0o700)
        if target.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        source.rename(target)
    except OSError as error:
        reason = error.strerror or str(error)
        raise Refused(
            "fresh_cannot_move", path=str(source), target=str(target), reason=reason
        ) from error


def has_entries(directory: Path) -> bool:
    try:
        with os.scandir(directory) as entries:
            return next(entries, None) is not None
    except OSError:  # opening the store raises the error
        return False
