"""The rows of a listing with what a person wants to know besides.

Of submitted files that is which are executable, links, and empty directories: the snapshot of a job
has it all, so whoever asks for submitted files asks for that, too.
"""

from __future__ import annotations

from paddlecloud.client import schemas
from paddlecloud.client.transport import MAX_LISTING
from paddlecloud.model.errors import NotFound
from paddlecloud.model.prefixes import means

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from paddlecloud.client.transport import Transport

    Row = dict[str, Any]


def furnished(
    transport: Transport, job_id: str, prefix: str | None, rows: Sequence[Row]
) -> list[Row]:
    """The rows of a listing below `prefix` as a person lists and `downloads.download` takes them:
    with links and empty directories in their places."""
    wanted = (prefix or "").lstrip("/")
    if prefix is None or wanted.startswith(f"output/{job_id}"):
        return [*rows]
    try:
        how: dict[str, Any] = {"schema": schemas.SNAPSHOT, "most": MAX_LISTING}
        answer = transport.get(f"/jobs/{job_id}/snapshot", **how)
    except NotFound:  # the job was deleted since it was listed: who gets its files is told so
        return [*rows]
    entries = answer["entries"]
    is_meant = means(wanted, [row["path"] for row in rows] + [*map(_name, entries)])
    meant = [entry for entry in entries if is_meant(_name(entry))]
    found = [row for row in rows if is_meant(row["path"])]
    return with_entries(found, meant, answer.get("time") or "")


def with_entries(
    rows: Sequence[Row], entries: Sequence[Sequence[Any]], time: str = ""
) -> list[Row]:
    """The rows, and those entries of a snapshot that are links or directories without anything,
    each with that time."""
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


def with_ways(rows: Sequence[Row], ways: Mapping[str, str]) -> list[Row]:
    """The rows, each with the `way` past the server if there is one."""
    known = ways.get
    return [row | {"way": way} if (way := known(row["path"])) else row for row in rows]
