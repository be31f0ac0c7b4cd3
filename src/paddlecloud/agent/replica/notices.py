"""Notices of the platform about a replica: lines in its log, and reasons why it waits or failed."""

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

_SHOWN = 5

_LONGEST_NOTICE = 200

_AREAS = {workspace.OUTPUT: "OUTPUT_PATH", workspace.LOG: "LOCAL_LOG_PATH"}


def of_outputs(code: str, replica: str, paths: list[str]) -> str:
    """A notice about outputs that were skipped or renamed; in both languages, because the agent
    does not know the reader's."""
    return lines(code, {"paths": names(replica, paths)}) if paths else ""


def lines(code: str, params: dict[str, object]) -> str:
    """A message as lines of a log, one in each language."""
    return "".join(f"[paddlecloud] {render(code, params, lang)}\n" for lang in LANGUAGES)


def of_unsent(code: str, params: Mapping[str, object], *, bucket: bool) -> str:
    """A notice that its bucket, or else the server, did not store some outputs, or that they could
    not be read; `code` is the message about where they are kept."""
    whole = reasons.of_unsent(params, own_bucket=bucket)
    sentences = (render(whole, {"message": render(code, params, lang)}, lang) for lang in LANGUAGES)
    return "".join(f"[paddlecloud] {line}\n" for line in sentences)


def names(replica: str, paths: list[str]) -> str:
    """The first few of them, by the names that their owner knows."""
    known = (_AREAS.get(path) or shown(replica, path) for path in paths[:_SHOWN])
    few = ", ".join(_printable(path) for path in known)
    return few + (f" (+{len(paths) - _SHOWN})" if len(paths) > _SHOWN else "")


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


def _printable(path: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in path[:_LONGEST_NOTICE])


_LONGEST = 300

_LONGEST_OF_END = 1000

_AT_LAST = {"replica_not_started": "replica_never_started"}


def of(
    code: str, params: Mapping[str, object] | None = None, longest: int = _LONGEST
) -> dict[str, Any]:
    """Code and values of a message. Values are cut, because a bucket's message may be long."""
    given = {key: _value(value, longest) for key, value in (params or {}).items()}
    return {"code": code, "params": given}


def of_error(error: PaddleCloudError) -> dict[str, Any]:
    """Of an error that is retried. Where the server did not respond, it waited for the bucket: when
    this can be reported, it responds. An error of the bucket is reported as it is."""
    if isinstance(error, Unreachable) and not error.code.startswith("store_"):
        return of("held_no_answer")
    return of(error.code, error.params)


def of_end(error: Exception) -> dict[str, Any]:
    """Of an error after which nothing is tried any more; it may be longer."""
    if isinstance(error, PaddleCloudError):
        return of(error.code, error.params, _LONGEST_OF_END)
    return of("agent_mistake", {"error": repr(error)}, _LONGEST_OF_END)


def at_last(said: dict[str, Any]) -> dict[str, Any]:
    """The message of an error that was retried, now that it is not any more."""
    return {**said, "code": _AT_LAST.get(said["code"], said["code"])}


def _value(value: object, longest: int) -> str | int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    return str(value)[:longest]
