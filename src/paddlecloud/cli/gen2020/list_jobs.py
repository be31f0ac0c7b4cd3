"""`list_jobs`: one's jobs, newest first. A pipe gets rows with fixed columns; a terminal shows age,
duration and reason."""

from __future__ import annotations

from paddlecloud.cli.output import one_line
from paddlecloud.cli.parser import FLAG, NUMBER, TEXT, Command, Option
from paddlecloud.cli.table import Column
from paddlecloud.cli.times import with_zones
from paddlecloud.model.errors import Invalid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from paddlecloud.cli.context import Context
    from paddlecloud.cli.output import Output
    from paddlecloud.cli.parser import Args

#: The columns of a row in a pipe. Scripts count them: new ones come last.
COLUMNS = (
    "job_id", "job_status", "job_type", "create_time", "start_time", "finish_time", "job_name",
    "queue_reason", "error_msg",
)  # fmt: skip
#: The columns on a terminal.
SHOWN = {
    "job_id": Column(("JOB", "任务"), "job"),
    "job_status": Column(("STATE", "状态"), "state"),
    "job_name": Column(("NAME", "名称"), least=24),
    "job_type": Column(("TYPE", "类型"), drop=4),
    "create_time": Column(("SUBMITTED", "提交时间"), drop=5),
    "age": Column(("AGE", "提交于"), drop=1),
    "duration": Column(("DURATION", "运行时长"), drop=2),
    "reason": Column(("REASON", "原因"), "note", drop=3, least=40),
}
STATES = (
    "submit", "schedule", "queue", "running", "failed", "success", "timeout", "schedule timeout",
    "killing", "killed",
)  # fmt: skip
LIMIT, MAX_LIMIT = 50, 1_000_000
FILTERS = (
    Option(
        "state", TEXT, ("only jobs in this state", "只列出该状态的任务"),
        choices=(*STATES, "schedule_timeout"),
    ),
    Option("name", TEXT, ("only jobs with this name", "只列出该名称的任务")),
    Option(
        "limit", NUMBER, ("show at most N jobs", "最多显示的条数"),
        shown_default=LIMIT, short="n", metavar="N",
    ),
    Option("all", FLAG, ("show all jobs", "显示全部任务")),
)  # fmt: skip


def run(args: Args, context: Context) -> int:
    limit = asked_limit(args)
    # One row more than asked shows whether there are more.
    jobs = context.client.list_jobs(
        state=asked_state(args),
        name=args["name"],
        limit=None if limit is None else limit + 1,
    )
    shown = jobs[:limit]
    out = context.out
    if out.json:
        out.value([job.view for job in shown])
        return 0
    if shown:
        show_jobs([job.view for job in shown], COLUMNS, SHOWN, out)
    else:
        report_none(args, out)
    if len(jobs) > len(shown) and args["limit"] is None:
        out.say("more_jobs")
    return 0


def show_jobs(
    views: Sequence[Mapping[str, object]],
    columns: Sequence[str],
    shown: Mapping[str, Column],
    out: Output,
) -> None:
    """Jobs as a table: `shown` on a terminal, `columns` in a pipe."""
    if not out.on_terminal:
        out.table(columns, [[one_line(view.get(key)) for key in columns] for view in views])
        return
    rows = []
    for view in views:
        duration = view.get("duration")
        values = {
            **with_zones(view),
            "age": age(int(str(view.get("age") or 0)), out.lang),
            "duration": "" if duration is None else hours(int(str(duration))),
            "reason": view.get("error_msg") or view.get("queue_reason"),
        }
        rows.append([one_line(values.get(key)) for key in shown])
    out.table(list(shown.values()), rows)


def report_none(args: Args, out: Output) -> None:
    """Report that there is no such job. A script that lists by state gets none: no job in a state
    is an answer, while a name without a job may be misspelt."""
    name, state = args["name"], asked_state(args)
    if name and state:
        out.say("no_jobs_named_in", name=name, state=out.error_state(state))
    elif name:
        out.say("no_jobs_named", name=name)
    elif out.errors_on_terminal:
        out.say("no_jobs_in" if state else "no_jobs", state=out.error_state(state or ""))


def age(seconds: int, lang: str) -> str:
    """How long ago, in the largest unit: 45s, 3m, 5h, 12d."""
    for size, letter, word in ((86400, "d", "天"), (3600, "h", "小时"), (60, "m", "分钟")):
        if seconds >= size:
            return f"{seconds // size}{letter}" if lang != "zh" else f"{seconds // size}{word}前"
    return f"{seconds}s" if lang != "zh" else f"{seconds}秒前"


def hours(seconds: int) -> str:
    """A duration: 0:02:05, or 3d 04:00:00."""
    days, rest = divmod(seconds, 86400)
    clock = f"{rest // 60 % 60:02}:{rest % 60:02}"
    return f"{days}d {rest // 3600:02}:{clock}" if days else f"{rest // 3600}:{clock}"


def asked_limit(args: Args) -> int | None:
    """How many rows at most; None for every one."""
    asked = LIMIT if args["limit"] is None else args["limit"]
    limit: int | None = None if args["all"] else asked
    if limit is not None and not 1 <= limit <= MAX_LIMIT:
        raise Invalid("limit_range", value=limit, high=MAX_LIMIT)
    return limit


def asked_state(args: Args) -> str | None:
    state: str | None = args["state"]
    return state.replace("_", " ") if state else None


COMMANDS = (
    Command(
        "list_jobs",
        run,
        (
            "List your jobs, newest first. A terminal shows the columns that fit, and short ids; a "
            "pipe gets all columns, separated by tabs.",
            "列出任务，最新的在前。终端中只显示放得下的列，ID 为缩写；"
            "管道中输出全部列，以制表符分隔。",
        ),
        options=FILTERS,
        examples=(
            "paddlecloud list_jobs --state=running",
            "paddlecloud list_jobs --all --json",
        ),
    ),
)  # fmt: skip
