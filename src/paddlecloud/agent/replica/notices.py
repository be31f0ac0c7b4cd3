"""Notices of the platform about a replica: lines in its log, and reasons why it waits or failed.

A reason is code and values of a message, which the server renders in the reader's language. Lines
in a log are in both languages, because the agent does not know the reader's.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from paddlecloud.agent.replica import records
from paddlecloud.agent.sandbox import workspace
from paddlecloud.messages import LANGUAGES, render
from paddlecloud.model.diagnosis import reasons
from paddlecloud.model.errors import PaddleCloudError, Unreachable
from paddlecloud.model.files.layout import shown

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from typing import Any

_MAX_SHOWN = 5
_LONGEST_PATH = 200
#: Values are cut, because the message of a bucket may be long.
_LONGEST_VALUE = 300
_LONGEST_FINAL_VALUE = 1000
_AREAS = {workspace.OUTPUT: "OUTPUT_PATH", workspace.LOG: "LOCAL_LOG_PATH"}
_FINAL = {"replica_not_started": "replica_never_started"}
"""Codes of errors that are retried, and of the same when they are not any more."""


def message(
    code: str, params: Mapping[str, object] | None = None, longest: int = _LONGEST_VALUE
) -> dict[str, Any]:
    """Code and values of a message."""
    values = {
        name: value if type(value) is int else str(value)[:longest]
        for name, value in (params or {}).items()
    }
    return {"code": code, "params": values}


def from_error(error: PaddleCloudError) -> dict[str, Any]:
    """The message of an error that is retried. If the server did not respond, it waited for the
    bucket: it responds when this is reported. An error of the bucket is reported as it is."""
    if isinstance(error, Unreachable) and not error.code.startswith("store_"):
        return message("held_no_answer")
    return message(error.code, error.params)


def from_final_error(error: Exception) -> dict[str, Any]:
    """The message of an error after which nothing is retried."""
    if isinstance(error, PaddleCloudError):
        return message(error.code, error.params, _LONGEST_FINAL_VALUE)
    return message("agent_mistake", {"error": repr(error)}, _LONGEST_FINAL_VALUE)


def as_final(reason: dict[str, Any]) -> dict[str, Any]:
    """The message of an error that was retried, now that it is not any more."""
    return {**reason, "code": _FINAL.get(reason["code"], reason["code"])}


def log_lines(code: str, params: dict[str, object]) -> str:
    """A message as lines of a log, one in each language."""
    return "".join(f"[paddlecloud] {render(code, params, lang)}\n" for lang in LANGUAGES)


def output_lines(code: str, replica: str, paths: list[str]) -> str:
    """Lines about outputs that were skipped or renamed."""
    return log_lines(code, {"paths": shown_names(replica, paths)}) if paths else ""


def unsent_lines(code: str, params: Mapping[str, object], *, bucket: bool) -> str:
    """Lines about outputs that its bucket, or else the server, did not store, or that could not be
    read; `code` is the message about where they are kept."""
    whole = reasons.of_unsent(params, own_bucket=bucket)
    texts = (render(whole, {"message": render(code, params, lang)}, lang) for lang in LANGUAGES)
    return "".join(f"[paddlecloud] {line}\n" for line in texts)


def shown_names(replica: str, paths: list[str]) -> str:
    """The first few of these files, by the names that their owner knows."""
    known = (_AREAS.get(path) or shown(replica, path) for path in paths[:_MAX_SHOWN])
    printable = (
        "".join(letter if letter.isprintable() else "?" for letter in path[:_LONGEST_PATH])
        for path in known
    )
    more = f" (+{len(paths) - _MAX_SHOWN})" if len(paths) > _MAX_SHOWN else ""
    return ", ".join(printable) + more


def append_once(root: Path, text: str) -> None:
    """Append lines to the log of this replica, unless it ends with them already."""
    added = text.encode()
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    fd = os.open(root / records.STDOUT, flags, 0o600)
    try:
        size = os.fstat(fd).st_size
        end = os.pread(fd, len(added), max(0, size - len(added)))
        if not end.endswith(added):
            os.write(fd, added if end.endswith(b"\n") or not size else b"\n" + added)
    finally:
        os.close(fd)
