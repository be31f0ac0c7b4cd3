"""`diff`: what two jobs differ in, one line a difference."""

from __future__ import annotations

from paddlecloud.cli.options import LIST, Command, Option
from paddlecloud.cli.render import visible
from paddlecloud.model.errors import Invalid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from paddlecloud.cli.context import Context
    from paddlecloud.cli.options import Args
    from paddlecloud.cli.render import Output

_LONGEST = 200
_MARKS = {"added": ("+", "green"), "removed": ("-", "red"), "changed": ("~", "yellow")}
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
        out.say("diff_same", first=jobs[0], second=jobs[1])
    for part, word in _PARTS.items():
        for row in found[part]:
            name = visible(row["name"])
            out.line(f"{word}{name}: {_shown(row['first'])} -> {_shown(row['second'])}")
    for row in found["files"]:
        _file(row, out)
    return 0


def _file(row: dict[str, Any], out: Output) -> None:
    mark, colour = _MARKS[row["change"]]
    sizes = [str(side["size"]) for side in (row["first"], row["second"]) if side is not None]
    unit = out.text("diff_bytes")
    out.line(f"{out.paint(mark, colour)} {visible(row['path'])} ({' -> '.join(sizes)} {unit})")


def _shown(value: object) -> str:
    if value is None:
        return "-"
    text = visible(str(value))
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


COMMANDS = (
    Command(
        "diff",
        run,
        (
            "Show what two jobs differ in: command, resources, environment, files. A line that "
            "begins with + is only in the second job, - only in the first, ~ in both.",
            "比较两个任务：命令、资源、环境变量和文件。+ 表示仅第二个任务有，- 表示仅第一个任务有，"
            "~ 表示两者不同。",
        ),
        operand="job_id",
        options=(
            Option(
                "job_id",
                LIST,
                ("id of a job; give two", "任务 ID，需要给出两个"),
                metavar="JOB_ID",
            ),
        ),
        examples=(
            "paddlecloud diff job-338745e5caa42a1537955e41d6f1ce33"
            " job-0650470e621f3688812ceda2079805f8",
        ),
    ),
)
