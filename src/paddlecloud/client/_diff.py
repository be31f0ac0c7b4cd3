"""What two jobs differ in: their files, their parameters and their environments.

A pure comparison of what the server returns for each; the caller prints it.
"""

from __future__ import annotations

from paddlecloud.client import response_schemas
from paddlecloud.client.transport import MAX_LISTING
from paddlecloud.model.protocol.bce_auth import quote

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from paddlecloud.client.transport import Transport

#: Kept beside the parameters because each of them has many values of its own.
_ENVIRONMENTS = ("env", "inherited_env", "git")
#: Compared as files.
_OMITTED = ("snapshot", "directory")


def diff(transport: Transport, first: str, second: str) -> dict[str, Any]:
    """What differs between the jobs of two paths, the first job's value before the second's; `same`
    when nothing does."""
    answers = [
        transport.get(f"{path}/spec", schema=response_schemas.SPEC) for path in (first, second)
    ]
    specs = [answer["spec"] for answer in answers]
    jobs = [
        answer.get("job_id") or path.rpartition("/")[2]
        for answer, path in zip(answers, (first, second), strict=True)
    ]
    found: dict[str, Any] = {"jobs": jobs, "parameters": parameters(*specs)}
    for name in _ENVIRONMENTS:
        found[name] = values(specs[0].get(name) or {}, specs[1].get(name) or {})
    found["files"] = []
    if specs[0].get("snapshot") != specs[1].get("snapshot"):
        how: dict[str, Any] = {"schema": response_schemas.SNAPSHOT, "most": MAX_LISTING}
        one, two = (transport.get(f"/jobs/{quote(job)}/snapshot", **how) for job in jobs)
        tags = one.get("tags"), two.get("tags")
        found["files"] = files(one["entries"], two["entries"], tags)
    found["same"] = not any(found[part] for part in ("parameters", "files", *_ENVIRONMENTS))
    return found


def parameters(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Parameters of submit_job that are not the same."""
    left_out = (*_ENVIRONMENTS, *_OMITTED)
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


def files(
    first: Sequence[Sequence[Any]],
    second: Sequence[Sequence[Any]],
    tags: Sequence[Mapping[str, str] | None] = (None, None),
) -> list[dict[str, Any]]:
    """Files that are only in one, or not the same in both: by path, with what is known of each.

    `tags` of a job are the ETags of its files in its own bucket: of these no sha256 is known. Two
    files that are not known to be the same count as different.
    """
    one, two = (
        {row[0]: _described(row, known) for row in rows}
        for rows, known in zip((first, second), tags, strict=True)
    )
    found = []
    for path in sorted({*one, *two}):
        # A tag identifies a blob as a digest does, but only against another tag. Most are its MD5;
        # one that is not, of a file that came in parts, may differ for equal contents.
        sides = one.get(path), two.get(path)
        if sides[0] is not None and sides[0] == sides[1] and sides[0]["tag"] != "":
            continue
        change = "added" if path not in one else "changed" if path in two else "removed"
        before, after = map(_without_tag, sides)
        found.append({"path": path, "change": change, "first": before, "second": after})
    return found


def _described(row: Sequence[Any], tags: Mapping[str, str] | None) -> dict[str, Any]:
    path, kind, size, sha256, executable, target = row
    return {
        "kind": kind,
        "size": size,
        "sha256": (sha256 or None) if tags is None else None,
        "executable": bool(executable),
        "target": target or None,
        "tag": None if tags is None else tags.get(path, ""),
    }


def _without_tag(described: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if described is None:
        return None
    return {name: value for name, value in described.items() if name != "tag"}
