"""`diff`: what two jobs differ in, one line a difference."""

from __future__ import annotations

from paddlecloud.cli.output import visible
from paddlecloud.cli.parser import JOB_ID, LIST, Command
from paddlecloud.model.errors import Invalid
from paddlecloud.model.jobs.params import PARAMETERS
from paddlecloud.model.units import format_duration

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from paddlecloud.cli.context import Context
    from paddlecloud.cli.output import Output
    from paddlecloud.cli.parser import Args

_LONGEST = 200
#: Letters that are shown before those in which two long values differ.
_BEFORE = 40
_MARKS = {"added": ("+", "green"), "removed": ("-", "red"), "changed": ("~", "yellow")}
_KINDS = {parameter.name: parameter.kind for parameter in PARAMETERS}
#: How the values of each part are named.
_PARTS = {"parameters": "", "env": "env ", "inherited_env": "inherited ", "git": "git "}


def run(args: Args, context: Context) -> int:
    jobs = args["job_id"]
    if len(jobs) != 2:
        raise Invalid("diff_two", count=len(jobs))
    found = context.client.diff(*jobs)
    out = context.out
    if out.json:
        out.value(found)
        return 0
    if found["same"]:
        first, second = found["jobs"]
        out.say("diff_same", first=first, second=second)
    for part, word in _PARTS.items():
        for row in found[part]:
            kind = _KINDS.get(row["name"], "") if part == "parameters" else ""
            one, two = _cut([_shown(row[side], out, kind) for side in ("first", "second")])
            out.line(f"{word}{visible(row['name'])}: {one} -> {two}")
    for row in found["files"]:
        mark, colour = _MARKS[row["change"]]
        sides = [side for side in (row["first"], row["second"]) if side is not None]
        if all(side["kind"] == "file" for side in sides):
            parts = _files(sides, out)
        else:
            parts = " -> ".join(_entry(side, out) for side in sides)
        out.line(f"{out.paint(mark, colour)} {visible(row['path'])} ({parts})")
    return 0


def _files(sides: list[dict[str, Any]], out: Output) -> str:
    """What differs in two files, or the size of one."""
    parts = []
    modes = [side["executable"] for side in sides]
    contents = {side["sha256"] for side in sides}
    if len(contents) > 1 or None in contents or modes[0] == modes[-1]:
        parts.append(_bytes([side["size"] for side in sides], out))
    if modes[0] != modes[-1]:
        parts.append(out.text("diff_executable" if modes[-1] else "diff_not_executable"))
    return ", ".join(parts)


def _bytes(sizes: list[int], out: Output) -> str:
    if sizes[-1] == 1:
        return " -> ".join([*map(str, sizes[:-1]), out.text("diff_bytes_one")])
    return out.text("diff_bytes", sizes=" -> ".join(map(str, sizes)))


def _entry(side: dict[str, Any], out: Output) -> str:
    """One of two that are not both files."""
    if side["kind"] == "dir":
        return out.text("diff_directory")
    if side["kind"] == "link":
        return out.text("diff_link", target=visible(str(side["target"])))
    return _bytes([side["size"]], out)


def _shown(value: object, out: Output, kind: str = "") -> str:
    if value is None:
        return out.text("diff_unset")
    if kind == "duration" and isinstance(value, int | float):
        return format_duration(value)
    if kind == "size" and isinstance(value, int):
        return _size(value)
    return visible(str(value))


def _cut(texts: list[str]) -> list[str]:
    """Two texts as they are; if one is long, the same place of both, where they begin to differ."""
    if max(map(len, texts)) <= _LONGEST:
        return texts
    differing = (at for at, (a, b) in enumerate(zip(*texts, strict=False)) if a != b)
    start = max(0, next(differing, min(map(len, texts))) - _BEFORE)
    end = start + _LONGEST
    before = "..." if start else ""
    return [f"{before}{text[start:end]}{'...' if len(text) > end else ''}" for text in texts]


def _size(value: int) -> str:
    """As --memory takes it, and exactly so: 512Mi, 4G."""
    for base, ending in ((1024, "i"), (1000, "")):
        for power, letter in ((4, "T"), (3, "G"), (2, "M"), (1, "K")):
            if value and value % base**power == 0:
                return f"{value // base**power}{letter}{ending}"
    return str(value)


COMMANDS = (
    Command(
        "diff",
        run,
        (
            "Compare two jobs: command, resources, environment, files. A line that "
            "begins with + is only in the second job, - only in the first, ~ in both.",
            "比较两个任务：命令、资源、环境变量和文件。+ 表示仅第二个任务有，- 表示仅第一个任务有，"
            "~ 表示两者不同。",
        ),
        operand="job_id",
        words="JOB JOB",
        options=(JOB_ID.but(kind=LIST),),
        examples=("paddlecloud diff 338745e5 last",),
    ),
)
