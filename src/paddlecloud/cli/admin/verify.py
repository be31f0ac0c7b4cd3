"""`admin verify`: have the server read what it keeps once more, and say what went bad."""

from __future__ import annotations

import time

from paddlecloud.cli.output import size, visible
from paddlecloud.cli.parser import TEXT, Command, Option
from paddlecloud.model.errors import PaddleCloudError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from paddlecloud.cli.context import Context
    from paddlecloud.cli.output import Output
    from paddlecloud.cli.parser import Args

#: Seconds between two words about how far it is.
_OFTEN = 10.0
#: Damaged files, and changed ones, that --json names; it counts all.
_MOST = 1000


def run(args: Args, context: Context) -> int:
    """1 when something is damaged, for scripts that run it at night."""
    out = context.out
    found: dict[str, Any] = {"files": 0, "bytes": 0, "damaged_files": 0, "damaged": []}
    found |= {"changed_files": 0, "changed": []}
    try:
        _read(out, found, context.client.admin.verify(args["user"]))
    except (PaddleCloudError, KeyboardInterrupt):
        if found["files"]:
            _tell_part(out, found)
        raise
    if out.json:
        out.value({**found, "complete": True})
    else:
        out.line(_said(out, "verified", found))
    return 1 if found["damaged_files"] else 0


def _read(out: Output, found: dict[str, Any], pages: Iterator[dict[str, Any]]) -> None:
    told_at = time.monotonic()
    for page in pages:
        found["files"] += page["files"]
        found["bytes"] += page["bytes"]
        for what in ("damaged", "changed"):
            rows = page.get(what, [])
            found[f"{what}_files"] += len(rows)
            _take(out, found[what], rows, what)
        if page["next"] is not None and time.monotonic() - told_at >= _OFTEN:
            told_at = time.monotonic()
            out.tell(_said(out, "verified_so_far", found))


def _tell_part(out: Output, found: dict[str, Any]) -> None:
    """What was found is told, however it ended: much of it is not found a second time."""
    if out.json:
        out.value({**found, "complete": False})
    else:
        out.tell(_said(out, "verified_part", found))


def _said(out: Output, code: str, found: dict[str, Any]) -> str:
    files, read = found["files"], size(found["bytes"])
    code = f"{code}_one" if files == 1 else code
    return out.text(code, files=files, size=read, damaged=found["damaged_files"])


def _take(out: Output, found: list[Any], rows: list[dict[str, Any]], what: str) -> None:
    if out.json:
        found += rows[: _MOST - len(found)]
        return
    for row in rows:
        out.line(
            out.text(
                f"verify_{row['kind'] if what == 'damaged' else what}",
                user=row["user_id"],
                paths=", ".join(map(visible, row["paths"])) or row["sha256"],
                jobs=", ".join(row["jobs"]) or "-",
                aside=row["aside"],
            )
        )


COMMANDS = (
    Command(
        "admin verify",
        run,
        (
            "Read every stored file once more and compare it with its sha256; a bucket is "
            "downloaded for that. Damaged submitted files are moved aside.",
            "重新读取所有存储的文件并核对 sha256；使用对象存储时会全部下载一遍。"
            "损坏的提交文件会被移走。",
        ),
        options=(
            Option(
                "user", TEXT, ("only what this user has", "只检查该用户的文件"), metavar="USER",
            ),
        ),
        examples=("paddlecloud admin verify", "paddlecloud admin verify --user=alice --json"),
    ),
)  # fmt: skip
