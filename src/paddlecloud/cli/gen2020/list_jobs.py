"""`list_jobs`: one's jobs, newest first."""

from __future__ import annotations

from paddlecloud.cli.output import one_line
from paddlecloud.cli.parser import FLAG, NUMBER, TEXT, Command, Option
from paddlecloud.model.errors import Invalid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddlecloud.cli.context import Context
    from paddlecloud.cli.parser import Args

COLUMNS = (
    "job_id", "job_status", "job_type", "create_time", "start_time", "finish_time", "job_name",
    "queue_reason",
)  # fmt: skip
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
    Option("name", TEXT, ("only jobs of this name", "只列出该名称的任务")),
    Option(
        "limit", NUMBER, ("at most so many", "最多显示的条数"),
        shown_default=LIMIT, short="n", metavar="N",
    ),
    Option("all", FLAG, ("every job, however many", "显示全部任务")),
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
    out.table(COLUMNS, [[one_line(job.view.get(key)) for key in COLUMNS] for job in shown])
    if len(jobs) > len(shown) and args["limit"] is None:
        out.say("more_jobs")
    elif not jobs and out.errors_on_terminal:
        out.say("no_jobs")
    return 0


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
            "List your jobs, newest first: a table on a terminal, tab-separated lines in a pipe.",
            "列出任务，最新的在前：终端中显示为表格，管道中以制表符分隔。",
        ),
        options=FILTERS,
        examples=(
            "paddlecloud list_jobs --state=running",
            "paddlecloud list_jobs --all --json",
        ),
    ),
)  # fmt: skip
