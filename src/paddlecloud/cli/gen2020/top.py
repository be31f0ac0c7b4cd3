"""`top`: what running workers use of what they asked for, as a table that is redrawn."""

from __future__ import annotations

from paddlecloud.cli.output import size
from paddlecloud.cli.parser import FLAG, JOB_ID, Command, Option
from paddlecloud.cli.table import Column

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from paddlecloud.cli.context import Context
    from paddlecloud.cli.parser import Args

#: Seconds between two pictures: agents measure no more often.
EVERY = 2.0
COLUMNS = (
    Column(("JOB", "任务"), "job"),
    Column(("NAME", "名称"), drop=3, least=10),
    Column(("WORKER", "实例")),
    Column(("STATE", "状态"), "state", drop=2),
    Column(("CPU", "CPU")),
    Column(("MEMORY", "内存")),
    Column(("PEAK", "峰值"), drop=1),
    Column(("GPU", "GPU")),
)
CLEAR = "\x1b[H\x1b[2J"
OVER = ("exited", "lost")


def run(args: Args, context: Context) -> int:
    out, job_id = context.out, args["job_id"]
    rows = context.client.top(job_id)
    if out.json:
        out.value({"workers": rows})
        return 0
    if args["once"] or not out.has_escapes:
        _show(rows, context)
        return 0
    from time import sleep  # noqa: PLC0415 - only a picture that moves needs it

    if job_id and rows:  # `last` may be another job later
        job_id = rows[0]["job_id"]
    try:
        while True:
            out.draw(CLEAR)
            _show(rows, context)
            if job_id and rows and all(row["state"] in OVER for row in rows):
                return 0
            sleep(EVERY)
            rows = context.client.top(job_id)
    except KeyboardInterrupt:
        return 0


def _show(rows: list[dict[str, Any]], context: Context) -> None:
    if rows:
        context.out.table(COLUMNS, [cells(row) for row in rows])
    else:
        context.out.say("top_nothing")


def cells(row: dict[str, Any]) -> tuple[str, ...]:
    """One worker as a line of the table; `-` for what is not known."""
    use, asked = row["usage"] or {}, row["asked"]
    peak = row["peak_memory"]
    return (
        row["job_id"],
        row["job_name"],
        row["worker"],
        row["state"],
        _of(f"{use['cpu']:.2f}" if use else "-", f"{asked['cpu']:g}"),
        _of(size(use["memory"]) if use else "-", size(int(asked["memory"]))),
        size(peak) if peak else "-",
        _gpu(use, asked),
    )


def _of(used: str, asked: str) -> str:
    return used if asked == "0 B" else f"{used} / {asked}"


def _gpu(use: dict[str, Any], asked: dict[str, Any]) -> str:
    if not asked["gpu"]:
        return "-"
    if use.get("gpu") is None:
        return f"- / {asked['gpu']:g}"
    return f"{use['gpu']:.2f} / {asked['gpu']:g}, {size(use.get('gpu_memory') or 0)}"


COMMANDS = (
    Command(
        "top",
        run,
        (
            "Show the CPU, memory and GPU that running workers use, and how much they asked for.",
            "显示运行中各实例的 CPU、内存和 GPU 用量，以及各自的申请量。",
        ),
        operand="job_id",
        words="[JOB]",
        options=(
            JOB_ID.but(required=False),
            Option(
                "once", FLAG, ("print the table once", "只显示一次"),
            ),
        ),
        examples=(
            "paddlecloud top",
            "paddlecloud top last --once",
        ),
    ),
)  # fmt: skip
