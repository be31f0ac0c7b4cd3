"""What holds a replica up, or ended it before it ran, in the form in which a report tells it: a
code, and values.

The server puts it into a sentence of its owner's language, so no words are made here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from paddlecloud.model.errors import PaddleCloudError, Unreachable

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_LONGEST = 300
_LONGEST_OF_END = 1000
_AT_LAST = {"replica_not_started": "replica_never_started"}


def of(
    code: str, params: Mapping[str, object] | None = None, longest: int = _LONGEST
) -> dict[str, Any]:
    """Values are cut: a report has to be taken, however long a bucket's own words are."""
    given = {key: _value(value, longest) for key, value in (params or {}).items()}
    return {"code": code, "params": given}


def of_error(error: PaddleCloudError) -> dict[str, Any]:
    """Of an error worth repeating. Where the server itself was silent, it waited for the bucket:
    once this can be reported, it answers. What it or we know of the bucket is told as it is."""
    if isinstance(error, Unreachable) and not error.code.startswith("store_"):
        return of("held_no_answer")
    return of(error.code, error.params)


def of_end(error: Exception) -> dict[str, Any]:
    """Of one after which nothing is tried any more: it is said once, and may be longer."""
    if isinstance(error, PaddleCloudError):
        return of(error.code, error.params, _LONGEST_OF_END)
    return of("agent_mistake", {"error": repr(error)}, _LONGEST_OF_END)


def at_last(said: dict[str, Any]) -> dict[str, Any]:
    """What was said while it was tried again, when it is not any more."""
    return {**said, "code": _AT_LAST.get(said["code"], said["code"])}


def _value(value: object, longest: int) -> str | int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    return str(value)[:longest]
