"""What the bucket of a job's owner, or the server, did not take, or nobody could read: kept here,
and told.

The end of a job that would have been a good one is bad if a store is to blame for that; every end
says it, and the log. These files get a second name outside of the replica's directory, which is
deleted with it, and stay there for some days: an admin can still hand them over. Where they were
they stay as well, for the next attempt on this machine takes over what it finds there. They never
keep a disk full: those that were left first go first then, behind all that is cached.
"""

from __future__ import annotations

import os
import shutil
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from paddlecloud.agent.outputs import scan
from paddlecloud.agent.replica import notices, records
from paddlecloud.agent.sandbox import workspace
from paddlecloud.messages import TEXTS, render
from paddlecloud.model.diagnosis.reasons import blames_no_store, caused, together
from paddlecloud.model.files.layout import shown
from paddlecloud.model.jobs.job import Reason

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from paddlecloud.agent.context import Site
    from paddlecloud.agent.registry import Tracked
    from paddlecloud.model.errors import PaddleCloudError

DIRECTORY = "unsent"
DELETED = "unsent.json"
"""Beside it: that some were deleted for lack of space. `doctor` tells of it."""
DAYS = 7
SPARED = 3600.0
"""Seconds that they are kept however full the disk is."""
_LONGEST = 1000


def leave(
    tracked: Tracked, unsent: Mapping[str, PaddleCloudError], site: Site, *, lost: bool
) -> None:
    """Keep these files, by name with the reason of each, and let the end of the replica say so.

    With `lost` no good end is left, unless no store was asked for any: what could not be read, or
    has a name that none takes, is no fault of a store. On a disk that is full each of it is tried
    on its own. The log has a line for each reason, the end has one: of those that could not be
    kept, if there are any.
    """
    place = site.directory / DIRECTORY / tracked.id
    bound(site, now=time.time())
    kept = _keep_all(tracked, unsent, place, site)
    refused = {name: error for name, error in unsent.items() if not blames_no_store(error.code)}
    lost = lost and bool(refused)
    (is_kept, first), *_ = _grouped(refused if lost else unsent, kept, by=blames_no_store)
    alike = _grouped(first, kept, by=str)
    end = together([_told(tracked, group, place, site, is_kept=is_kept) for _, group in alike])
    site.journal.warning(render(end.code, end.params, "en"), tracked.id)
    said = ""
    for is_kept, group in _grouped(unsent, kept, by=str):
        one = _told(tracked, group, place, site, is_kept=is_kept)
        said += notices.of_unsent(one.code, one.params, bucket=tracked.own_bucket)
    steps: list[Callable[[], None]] = [
        partial(_note_end, tracked, end, lost=lost),
        partial(notices.say_once, tracked.root, said),
    ]
    for step in steps:
        try:
            step()
        except OSError as error:
            site.journal.warning(f"what was not sent cannot be noted: {error}", tracked.id)


def was_left(tracked: Tracked) -> bool:
    """Whether its end tells of files that the server does not have."""
    said = None if tracked.exit is None else tracked.exit.get("said")
    return said is not None and said["code"] in ("unsent_given_up", "unsent_kept")


def bound(site: Site, *, now: float) -> bool:
    """Delete what was kept for as long as promised and, while the disk is nearly full and no cache
    can make room, what was left first; whether some is left. `now` is the time of day."""
    top = site.directory / DIRECTORY
    left = _oldest_first(top)
    for since, place in list(left):
        if now - since > DAYS * 86400:
            shutil.rmtree(place, ignore_errors=True)
            left.remove((since, place))
    for since, place in list(left):
        if now - since <= SPARED or not site.cache_spent or workspace.room(top) >= 0:
            break
        size = _freed_by(place)
        if size:  # elsewhere these files are still needed: to delete them here would free nothing
            shutil.rmtree(place, ignore_errors=True)
            left.remove((since, place))
            site.journal.warning(
                f"the disk is nearly full: {size} bytes of outputs that could not be sent are "
                "deleted before their time",
                place.name,
            )
            _note(site.directory / DELETED, now)
    return bool(left)


def _oldest_first(top: Path) -> list[tuple[float, Path]]:
    """When each was left; one that an admin takes away meanwhile does not hide the others."""
    found: list[tuple[float, Path]] = []
    with suppress(OSError):
        for place in top.iterdir():
            with suppress(OSError):
                found.append((place.stat().st_mtime, place))
    return sorted(found)


def _freed_by(place: Path) -> int:
    size = 0
    for path in place.rglob("*"):
        with suppress(OSError):
            found = path.lstat()
            size += found.st_blocks * 512 if found.st_nlink == 1 else 0
    return size


def _note(path: Path, now: float) -> None:
    known = records.read(path) or {}
    with suppress(OSError):
        records.write(path, {"times": int(known.get("times", 0)) + 1, "at": now})


def _keep_all(
    tracked: Tracked, unsent: Mapping[str, PaddleCloudError], place: Path, site: Site
) -> set[str]:
    """Give each of these files the name there that its owner knows, beside what has one already;
    those that have one. A directory that could not be listed has none."""
    kept: set[str] = set()
    if not _can_be_kept(place):
        return kept
    where = {found.name: found.where for found in scan.scan(tracked.root)}
    where[records.STDOUT] = tracked.root / records.STDOUT
    for name in unsent.keys() & where.keys():
        try:
            _keep(where[name], place / shown(tracked.id, name))
            kept.add(name)
        except OSError as error:
            site.journal.warning(f"{name} was not sent and cannot be kept: {error}", tracked.id)
    with suppress(OSError):
        place.rmdir()  # unless something is kept there
    return kept


def _grouped(
    unsent: Mapping[str, PaddleCloudError], kept: set[str], *, by: Callable[[str], object]
) -> list[tuple[bool, dict[str, PaddleCloudError]]]:
    """Apart by what is said of the codes of their reasons, and whether they are kept: those that
    are not come first."""
    found: dict[tuple[bool, object], dict[str, PaddleCloudError]] = {}
    for name, error in sorted(unsent.items(), key=lambda each: each[0] in kept):
        found.setdefault((name in kept, by(error.code)), {})[name] = error
    return [(is_kept, group) for (is_kept, _), group in found.items()]


def _told(
    tracked: Tracked,
    unsent: Mapping[str, PaddleCloudError],
    place: Path,
    site: Site,
    *,
    is_kept: bool,
) -> Reason:
    return _with_reason(
        next(iter(unsent.values())),
        "unsent_kept" if is_kept else "unsent_given_up",
        files=notices.names(tracked.id, list(unsent)),
        count=len(unsent),
        host=site.config.host,
        place=str(place),
        days=DAYS,
    )


def _with_reason(error: PaddleCloudError, code: str, **told: str | int) -> Reason:
    """The sentence `code`, with the reason as a sentence for its owner; as the server's own words
    where it is of a newer one."""
    if error.code not in TEXTS:
        return Reason(code=code, params={**told, "reason": str(error)[:_LONGEST]})
    why = notices.of_error(error)
    return caused(code, why["code"], why["params"], **told)


def _can_be_kept(place: Path) -> bool:
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        return False
    return True


def _keep(source: Path, target: Path) -> None:
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with suppress(FileExistsError):
        os.link(source, target, follow_symlinks=False)


def _note_end(tracked: Tracked, end: Reason, *, lost: bool) -> None:
    """An end that was bad in itself, or asked for, stays what it is, and says it as well."""
    ended = tracked.exit
    if ended is None:
        return
    said = {"code": end.code, "params": dict(end.params)}
    changed: records.ExitRecord = {"said": said, **ended}  # what was told first stands
    if lost and ended["cause"] == records.CAUSE_EXIT and ended["exit_code"] == 0:
        changed["cause"] = records.CAUSE_OUTPUTS_LOST
        changed["message"] = render(end.code, end.params, "en")
    tracked.exit = changed
    records.write(tracked.root / records.EXIT, changed)
