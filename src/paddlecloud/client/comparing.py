"""What two jobs differ in: their files, their parameters and their environments.

A pure comparison of what the server says of each; showing it is the caller's work.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from paddlecloud.client.transport import Transport

#: Kept beside the parameters because each of them has many values of its own.
_ENVIRONMENTS = ("env", "inherited_env", "git")
#: Told by the files.
_UNTOLD = ("snapshot", "directory")


def diff(transport: Transport, first: str, second: str) -> dict[str, Any]:
    """What differs, the first job's value before the second's; `same` when nothing does."""
    specs = [transport.get(f"/jobs/{job}/spec")["spec"] for job in (first, second)]
    found: dict[str, Any] = {"jobs": [first, second], "parameters": parameters(*specs)}
    for name in _ENVIRONMENTS:
        found[name] = values(specs[0].get(name) or {}, specs[1].get(name) or {})
    found["files"] = []
    if specs[0]["snapshot"] != specs[1]["snapshot"]:
        rows = [transport.get(f"/jobs/{job}/snapshot")["entries"] for job in (first, second)]
        found["files"] = files(*rows)
    found["same"] = not any(found[part] for part in ("parameters", "files", *_ENVIRONMENTS))
    return found


def parameters(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Parameters of submit_job that are not the same."""
    left_out = (*_ENVIRONMENTS, *_UNTOLD)
    one, two = (
        {name: value for name, value in spec.items() if name not in left_out}
        for spec in (first, second)
    )
    return values(one, two)


def values(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Names whose values differ, sorted; None where there is no value."""
    names = sorted({*first, *second})
    return [
        {"name": name, "first": first.get(name), "second": second.get(name)}
        for name in names
        if first.get(name) != second.get(name)
    ]


def files(first: Sequence[Sequence[Any]], second: Sequence[Sequence[Any]]) -> list[dict[str, Any]]:
    """Files that are only in one, or not the same in both: by path, with what is known of each."""
    one, two = ({row[0]: row for row in rows} for rows in (first, second))
    return [
        {
            "path": path,
            "change": _change(path, one, two),
            "first": _described(one.get(path)),
            "second": _described(two.get(path)),
        }
        for path in sorted({*one, *two})
        if one.get(path) != two.get(path)
    ]


def _change(path: str, one: Mapping[str, Any], two: Mapping[str, Any]) -> str:
    if path not in one:
        return "added"
    return "changed" if path in two else "removed"


def _described(row: Sequence[Any] | None) -> dict[str, Any] | None:
    if row is None:
        return None
    _, kind, size, sha256, executable, target = row
    return {
        "kind": kind,
        "size": size,
        "sha256": sha256 or None,
        "executable": bool(executable),
        "target": target or None,
    }
