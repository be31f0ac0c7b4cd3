"""What holds a replica up, in the form in which a report tells it: a code, and values.

The server puts it into a sentence of its owner's language, so no words are made here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from paddlecloud.model.errors import Unreachable

if TYPE_CHECKING:
    from typing import Any

    from paddlecloud.model.errors import PaddleCloudError

_LONGEST = 300


def of(code: str, params: dict[str, object] | None = None) -> dict[str, Any]:
    """Values are cut: a report has to be taken, however long a bucket's own words are."""
    given = {key: _value(value) for key, value in (params or {}).items()}
    return {"code": code, "params": given}


def of_error(error: PaddleCloudError) -> dict[str, Any]:
    """Of an error worth repeating. Where the server itself was silent, it waited for the bucket:
    once this can be reported, it answers."""
    if isinstance(error, Unreachable):
        return of("held_no_answer")
    return of(error.code, error.params)


def _value(value: object) -> str | int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    return str(value)[:_LONGEST]
