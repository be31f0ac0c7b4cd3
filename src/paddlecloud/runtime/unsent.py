"""Outputs that the bucket of a job's owner, or the server, did not take: kept here, and told.

The end of a job that would have been a good one says which its bucket did not take; every job says
it in its log. They get a second name outside of the replica's directory, which is deleted with it,
and stay there for some days: an admin can still hand them over. Where they were they stay as well,
for the next attempt on this machine takes over what it finds there.
"""

from __future__ import annotations

import os
import shutil
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from paddlecloud.model.texts import render
from paddlecloud.runtime import lastwords, record

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from paddlecloud.runtime.book import Tracked
    from paddlecloud.runtime.site import Site

DIRECTORY = "unsent"
DAYS = 7


def leave(tracked: Tracked, unsent: Mapping[str, str], site: Site) -> None:
    """Keep these files, by name with the reason of each, and let the end of the replica say so."""
    place = site.directory / DIRECTORY / tracked.id
    code = "unsent_kept" if _can_be_kept(place, now=time.time()) else "unsent_given_up"
    told = {
        "files": lastwords.names(list(unsent)),
        "reason": next(iter(unsent.values())),
        "host": site.config.host,
        "place": str(place),
        "days": DAYS,
    }
    site.journal.warning(render(code, told, "en"), tracked.id)
    try:
        bucket = tracked.patience is not None
        lastwords.say_once(tracked.root, lastwords.of_unsent(code, told, bucket=bucket))
        if bucket:
            _note_end(tracked, lastwords.in_both(code, told))
        for name in unsent if place.is_dir() else ():
            _keep(tracked.root / name, place / name)
    except OSError as error:
        site.journal.warning(f"what was not sent cannot be kept: {error}", tracked.id)


def _can_be_kept(place: Path, *, now: float) -> bool:
    """Make room for it, and forget what lies there for longer than promised."""
    with suppress(OSError):
        for old in place.parent.iterdir():
            if now - old.stat().st_mtime > DAYS * 86400:
                shutil.rmtree(old, ignore_errors=True)
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        return False
    return True


def _keep(source: Path, target: Path) -> None:
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with suppress(FileExistsError, FileNotFoundError):
        os.link(source, target, follow_symlinks=False)


def _note_end(tracked: Tracked, message: str) -> None:
    """An end that was bad in itself, or asked for, stays what it is."""
    ended = tracked.exit
    if ended is None or ended["cause"] != record.CAUSE_EXIT or ended["exit_code"] != 0:
        return
    changed: record.ExitRecord = {
        **ended,
        "cause": record.CAUSE_OUTPUTS_LOST,
        "message": message,
    }
    record.write(tracked.root / record.EXIT, changed)
    tracked.exit = changed
