"""Keeps output files that could not be sent, for some days, and names them to their owner.

The store did not take them, or they could not be read. They are hard-linked into `unsent/` of the
agent's directory, because the replica's directory is deleted; an admin can hand them over from
there. The log of the job and the end of the replica name them. The files also stay where they were,
for the next attempt on this machine. When the disk is nearly full and the cache is pruned, the
oldest are deleted before their time.
"""

from __future__ import annotations

import os
import shutil
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from paddlecloud.agent.outputs import scan
from paddlecloud.agent.replica import notices, records
from paddlecloud.agent.sandbox import workspace
from paddlecloud.messages import render
from paddlecloud.messages.tables import TEXTS
from paddlecloud.model.diagnosis.reasons import blames_no_store, caused, together
from paddlecloud.model.files.layout import shown
from paddlecloud.model.jobs.job import Reason

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from paddlecloud.agent.context import Context
    from paddlecloud.agent.registry import Tracked
    from paddlecloud.model.errors import PaddleCloudError

    Errors = Mapping[str, PaddleCloudError]
    """Why each file was not sent, by name."""

DIRECTORY = "unsent"
DELETED = "unsent.json"
"""Beside it: that some were deleted for lack of space. `doctor` reports it."""
DAYS = 7
SPARED_SECONDS = 3600.0
"""They are kept for this time however full the disk is."""
_LONGEST = 1000


def keep(tracked: Tracked, errors: Errors, context: Context, *, lost: bool) -> None:
    """Keep these files, and add the reasons to the end of the replica and to its log.

    With `lost` a successful end becomes a failure, unless no store is to blame for any of the
    files. The log gets a line for each reason, the end one message: about files that could not even
    be kept, if there are any.
    """
    folder = context.directory / DIRECTORY / tracked.id
    prune(context, now=time.time())
    kept = _link_all(tracked, errors, folder, context)
    by_store = {name: error for name, error in errors.items() if not blames_no_store(error.code)}
    lost = lost and bool(by_store)

    def reason(is_kept: bool, group: Errors) -> Reason:
        return _reason(
            next(iter(group.values())),
            "unsent_kept" if is_kept else "unsent_given_up",
            files=notices.shown_names(tracked.id, list(group)),
            count=len(group),
            host=context.config.host,
            place=str(folder),
            days=DAYS,
        )

    (is_kept, first), *_ = _grouped(by_store if lost else errors, kept, by=blames_no_store)
    end = together([reason(is_kept, group) for _, group in _grouped(first, kept, by=str)])
    context.log.warning(render(end.code, end.params, "en"), tracked.id)
    lines = ""
    for is_kept, group in _grouped(errors, kept, by=str):
        one = reason(is_kept, group)
        lines += notices.unsent_lines(one.code, one.params, bucket=tracked.own_bucket)
    try:
        _add_to_exit(tracked, end, lost=lost)
    except OSError as error:
        context.log.warning(f"its exit cannot name what was not sent: {error}", tracked.id)
    try:
        notices.append_once(tracked.root, lines)
    except OSError as error:
        context.log.warning(f"its log cannot name what was not sent: {error}", tracked.id)


def was_left(tracked: Tracked) -> bool:
    """Whether the end of the replica names files that the server does not have."""
    said = None if tracked.exit is None else tracked.exit.get("said")
    return said is not None and said["code"] in ("unsent_given_up", "unsent_kept")


def prune(context: Context, *, now: float) -> bool:
    """Delete what was kept for as long as promised and, while the disk is nearly full and pruning
    the cache does not help, the oldest; whether some is left. `now` is the time of day."""
    top = context.directory / DIRECTORY
    left: list[tuple[float, Path]] = []
    with suppress(OSError):
        for folder in top.iterdir():
            with suppress(OSError):
                left.append((folder.stat().st_mtime, folder))
    left.sort()
    for since, folder in list(left):
        if now - since > DAYS * 86400:
            shutil.rmtree(folder, ignore_errors=True)
            left.remove((since, folder))
    for since, folder in list(left):
        is_full = context.cache_spent and workspace.free_space(top) < 0
        if now - since <= SPARED_SECONDS or not is_full:
            break
        size = _size(folder)
        if size:  # files that are also linked elsewhere free nothing
            shutil.rmtree(folder, ignore_errors=True)
            left.remove((since, folder))
            context.log.warning(
                f"the disk is nearly full: {size} bytes of outputs that could not be sent are "
                "deleted before their time",
                folder.name,
            )
            known = records.read(context.directory / DELETED) or {}
            deleted = {"times": int(known.get("times", 0)) + 1, "at": now}
            with suppress(OSError):
                records.write(context.directory / DELETED, deleted)
    return bool(left)


def _size(folder: Path) -> int:
    """Bytes that deleting it frees."""
    size = 0
    for path in folder.rglob("*"):
        with suppress(OSError):
            found = path.lstat()
            size += found.st_blocks * 512 if found.st_nlink == 1 else 0
    return size


def _link_all(tracked: Tracked, errors: Errors, folder: Path, context: Context) -> set[str]:
    """Link each of these files under the name that its owner knows; returns the names of those that
    are kept. A directory that could not be listed is not."""
    kept: set[str] = set()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        return kept
    paths = {found.name: found.where for found in scan.scan(tracked.root)}
    paths[records.STDOUT] = tracked.root / records.STDOUT
    for name in errors.keys() & paths.keys():
        target = folder / shown(tracked.id, name)
        try:
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with suppress(FileExistsError):
                os.link(paths[name], target, follow_symlinks=False)
            kept.add(name)
        except OSError as error:
            context.log.warning(f"{name} was not sent and cannot be kept: {error}", tracked.id)
    with suppress(OSError):
        folder.rmdir()  # unless something is kept there
    return kept


def _grouped(
    errors: Errors, kept: set[str], *, by: Callable[[str], object]
) -> list[tuple[bool, dict[str, PaddleCloudError]]]:
    """The files by whether they are kept and by a property of the error code; those that are not
    kept first."""
    found: dict[tuple[bool, object], dict[str, PaddleCloudError]] = {}
    for name, error in sorted(errors.items(), key=lambda each: each[0] in kept):
        found.setdefault((name in kept, by(error.code)), {})[name] = error
    return [(is_kept, group) for (is_kept, _), group in found.items()]


def _reason(error: PaddleCloudError, code: str, **params: str | int) -> Reason:
    """The message `code` with the error as its reason; in the server's own words where the error
    code is of a newer server."""
    if error.code not in TEXTS:
        return Reason(code=code, params={**params, "reason": str(error)[:_LONGEST]})
    why = notices.from_error(error)
    return caused(code, why["code"], why["params"], **params)


def _add_to_exit(tracked: Tracked, end: Reason, *, lost: bool) -> None:
    """An end that was a failure, or requested, keeps its cause and gets the message as well."""
    ended = tracked.exit
    if ended is None:
        return
    said = {"code": end.code, "params": dict(end.params)}
    changed: records.ExitRecord = {"said": said, **ended}  # an earlier message stays
    if lost and ended["cause"] == records.CAUSE_EXIT and ended["exit_code"] == 0:
        changed["cause"] = records.CAUSE_OUTPUTS_LOST
        changed["message"] = render(end.code, end.params, "en")
    tracked.exit = changed
    records.write(tracked.root / records.EXIT, changed)
