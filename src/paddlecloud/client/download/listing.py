"""The list of a job's files for a download: safe local names, links, empty directories, modes."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from paddlecloud.client import response_schemas
from paddlecloud.client.file_names import shown, why_not
from paddlecloud.client.transport import MAX_LISTING
from paddlecloud.model.errors import Invalid, NotFound
from paddlecloud.model.files.path_rules import means

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from paddlecloud.client.download._ranges import File
    from paddlecloud.client.transport import Transport

    Row = dict[str, Any]


def with_snapshot(
    transport: Transport, job_id: str, prefix: str | None, rows: Sequence[Row]
) -> list[Row]:
    """The rows of a listing below `prefix`, with the links, empty directories and executable bits
    of the submitted snapshot."""
    wanted = (prefix or "").lstrip("/")
    if prefix is None or wanted.startswith(f"output/{job_id}"):
        return [*rows]
    try:
        how: dict[str, Any] = {"schema": response_schemas.SNAPSHOT, "most": MAX_LISTING}
        answer = transport.get(f"/jobs/{job_id}/snapshot", **how)
    except NotFound:  # the job was deleted since; the download fails with a sentence about it
        return [*rows]
    entries = answer["entries"]
    is_meant = means(wanted, [row["path"] for row in rows] + [*map(_name, entries)])
    meant = [entry for entry in entries if is_meant(_name(entry))]
    found = [row for row in rows if is_meant(row["path"])]
    return with_entries(found, meant, answer.get("time") or "")


def with_entries(
    rows: Sequence[Row], entries: Sequence[Sequence[Any]], time: str = ""
) -> list[Row]:
    """The rows, and the links and empty directories among the entries of a snapshot, with that
    time."""
    listed = {row["path"] for row in rows}
    executable = {path for path, _, _, _, is_executable, _ in entries if is_executable}
    found = [row | {"executable": True} if row["path"] in executable else row for row in rows]
    full = {path.rpartition("/")[0] for path, *_ in entries}
    for entry in entries:
        path, kind, _, _, _, target = entry
        name = _name(entry)
        is_full = kind == "dir" and path in full
        if kind != "file" and name not in listed and not is_full:
            row = {"path": name, "size": 0, "time": time, "sha256": None}
            found.append(row | ({"link": target} if target else {}))
    return sorted(found, key=lambda row: str(row["path"]))


def _name(entry: Sequence[Any]) -> str:
    """The path of an entry as a row has it: that of a directory ends with "/"."""
    path, kind, *_ = entry
    return f"{path}/" if kind == "dir" else str(path)


NAME_TWICE = "download_name_twice"

_WINDOWS_DEVICES = frozenset(
    ("CON", "PRN", "AUX", "NUL", *(f"{kind}{n}" for kind in ("COM", "LPT") for n in range(1, 10)))
)


def local_name(path: str, job_id: str, *, windows: bool = os.name == "nt") -> str:
    """Where a file of a job goes below the download directory; Invalid if it would lead out, or
    cannot be called so here. What the job itself left behind does without its `output/`."""
    reason = why_not(path.rstrip("/"))
    if reason:
        raise Invalid("download_name", path=shown(path), reason=reason)
    try:
        os.fsencode(path)
    except UnicodeEncodeError:  # this system's encoding has no bytes for most letters
        how = {"path": shown(path), "encoding": sys.getfilesystemencoding()}
        raise Invalid("download_name_letters", **how) from None
    names = path.rstrip("/").split("/")
    if names[:2] == ["output", job_id]:
        del names[0]
    if windows:
        names = [_windows_name(name) for name in names]
    return "/".join(names)


def check_twice(files: Sequence[File]) -> None:
    """Invalid(NAME_TWICE) for files that no directory can hold beside each other."""
    names: set[str] = set()
    for file in files:
        if file.name in names:
            raise Invalid(NAME_TWICE, path=shown(file.path))
        names.add(file.name)
    # A bucket can hold a file of that name beside what is below it; no directory can.
    plain = {file.name for file in files if not file.is_directory and not file.link}
    above = {file.name.rpartition("/")[0] for file in files}
    while above:
        for name in above & plain:
            raise Invalid(NAME_TWICE, path=shown(name))
        above = {name.rpartition("/")[0] for name in above} - {""}


def _windows_name(name: str) -> str:
    """A name that Windows takes: what it refuses is written as %XX, as in a URL."""
    safe = "".join(f"%{ord(c):02X}" if c in '<>:"|?*%' or ord(c) < 32 else c for c in name)
    if safe[-1] in ". ":
        safe = f"{safe[:-1]}%{ord(safe[-1]):02X}"
    if safe.partition(".")[0].upper() in _WINDOWS_DEVICES:
        safe = f"%{ord(safe[0]):02X}{safe[1:]}"
    return safe
