"""What the bucket of a job's owner, or the server, did not take: kept here, and told.

The end of a job that would have been a good one is bad then; every end says it, and the log. They
get a second name outside of the replica's directory, which is deleted with it,
and stay there for some days: an admin can still hand them over. Where they were they stay as well,
for the next attempt on this machine takes over what it finds there.
"""

from __future__ import annotations

import os
import shutil
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from paddlecloud.model.reasons import caused
from paddlecloud.model.texts import TEXTS, render
from paddlecloud.runtime import lastwords, record, waiting

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path
    from typing import Any

    from paddlecloud.model.errors import PaddleCloudError
    from paddlecloud.runtime.book import Tracked
    from paddlecloud.runtime.site import Site

DIRECTORY = "unsent"
DAYS = 7
_LONGEST = 1000


def leave(
    tracked: Tracked, unsent: Mapping[str, PaddleCloudError], site: Site, *, lost: bool
) -> None:
    """Keep these files, by name with the reason of each, and let the end of the replica say so.

    With `lost` no good end is left. On a disk that is full each of it is tried on its own.
    """
    place = site.directory / DIRECTORY / tracked.id
    code = "unsent_kept" if _can_be_kept(place, now=time.time()) else "unsent_given_up"
    told = _with_reason(
        next(iter(unsent.values())),
        code,
        files=lastwords.names(list(unsent)),
        host=site.config.host,
        place=str(place),
        days=DAYS,
    )
    site.journal.warning(render(code, told, "en"), tracked.id)
    said = lastwords.of_unsent(code, told, bucket=tracked.own_bucket)
    steps: list[Callable[[], None]] = [
        *(
            partial(_keep, tracked.root / name, place / name)
            for name in (unsent if place.is_dir() else ())
        ),
        partial(_note_end, tracked, {"code": code, "params": told}, lost=lost),
        partial(lastwords.say_once, tracked.root, said),
    ]
    for step in steps:
        try:
            step()
        except OSError as error:
            site.journal.warning(f"what was not sent cannot be kept: {error}", tracked.id)


def _with_reason(error: PaddleCloudError, code: str, **told: str | int) -> dict[str, Any]:
    """The values of the sentence `code`, with the reason as a sentence for its owner; as the
    server's own words where it is of a newer one."""
    if error.code not in TEXTS:
        return {**told, "reason": str(error)[:_LONGEST]}
    why = waiting.of_error(error)
    return dict(caused(code, why["code"], why["params"], **told).params)


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


def _note_end(tracked: Tracked, said: dict[str, Any], *, lost: bool) -> None:
    """An end that was bad in itself, or asked for, stays what it is, and says it as well."""
    ended = tracked.exit
    if ended is None:
        return
    changed: record.ExitRecord = {"said": said, **ended}  # what was told first stands
    if lost and ended["cause"] == record.CAUSE_EXIT and ended["exit_code"] == 0:
        changed["cause"] = record.CAUSE_OUTPUTS_LOST
        changed["message"] = render(said["code"], said["params"], "en")
    tracked.exit = changed
    record.write(tracked.root / record.EXIT, changed)
