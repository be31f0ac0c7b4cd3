"""The rows of a listing with what a download wants to know besides.

Of submitted files that is which are executable, links, and empty directories: the snapshot of a job
has it all, so a download that asks for submitted files asks for that, too.
"""

from __future__ import annotations

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
    """The rows of a listing below `prefix` as `downloads.download` takes them."""
    wanted = (prefix or "").lstrip("/")
    if prefix is None or wanted.startswith(f"output/{job_id}"):
        return [*rows]
    try:
        entries = transport.get(f"/jobs/{job_id}/snapshot")["entries"]
    except NotFound:  # it is not kept any more; nor are its files
        return [*rows]
    paths = [row["path"] for row in rows] + [entry[0] for entry in entries]
    is_meant = means(wanted, paths)
    return with_entries(rows, [entry for entry in entries if is_meant(entry[0])])


def with_entries(rows: Sequence[Row], entries: Sequence[Sequence[Any]]) -> list[Row]:
    """The rows, and those entries of a snapshot that are no files."""
    listed = {row["path"] for row in rows}
    executable = {path for path, _, _, _, is_executable, _ in entries if is_executable}
    found = [row | {"executable": True} if row["path"] in executable else row for row in rows]
    for path, kind, _, _, _, target in entries:
        name = f"{path}/" if kind == "dir" else path
        if kind != "file" and name not in listed:
            found.append({"path": name, "size": 0, "time": "", "link": target})
    return found


def with_ways(rows: Sequence[Row], ways: Mapping[str, str]) -> list[Row]:
    """The rows, each with the `way` past the server if there is one."""
    known = ways.get
    return [row | {"way": way} if (way := known(row["path"])) else row for row in rows]
