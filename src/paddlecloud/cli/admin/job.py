"""`admin job …`: the jobs of all users."""

from __future__ import annotations

from paddlecloud.cli.gen2020 import kill_job, query_job
from paddlecloud.cli.gen2020.list_jobs import (
    FILTERS,
    SHOWN,
    asked_limit,
    asked_state,
    report_none,
    show_jobs,
)
from paddlecloud.cli.parser import JOB_ID, TEXT, Command, Option
from paddlecloud.cli.table import Column

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddlecloud.cli.context import Context
    from paddlecloud.cli.parser import Args

COLUMNS = (
    "job_id", "owner", "job_status", "job_type", "pool", "create_time", "start_time",
    "finish_time", "job_name", "queue_reason", "error_msg",
)  # fmt: skip
_SHOWN = {
    "job_id": SHOWN["job_id"],
    "owner": Column(("USER", "用户")),
    "pool": Column(("POOL", "资源池"), drop=2),
    **SHOWN,
}


def list_jobs(args: Args, context: Context) -> int:
    limit = asked_limit(args)
    rows = context.client.admin.jobs(
        owner=args["user"],
        state=asked_state(args),
        name=args["name"],
        limit=None if limit is None else limit + 1,
    )
    out, shown = context.out, rows[:limit]
    if out.json:
        out.value(shown)
    elif shown:
        show_jobs(shown, COLUMNS, _SHOWN, out)
    else:
        report_none(args, out)
    if len(rows) > len(shown) and args["limit"] is None:
        out.say("more_jobs")
    return 0


COMMANDS = (
    Command(
        "admin job list",
        list_jobs,
        ("List the jobs of all users, newest first.", "列出所有用户的任务，最新的在前。"),
        options=(
            Option("user", TEXT, ("only jobs of this user", "只列出该用户的任务"), metavar="USER"),
            *FILTERS,
        ),
        examples=(
            "paddlecloud admin job list --state=running",
            "paddlecloud admin job list --user=alice --all",
        ),
    ),
    Command(
        "admin job show",
        query_job.run,
        ("Show a job of any user.", "查看任何用户的任务。"),
        operand="job_id",
        options=(JOB_ID,),
        examples=("paddlecloud admin job show job-338745e5caa42a1537955e41d6f1ce33",),
    ),
    Command(
        "admin job kill",
        kill_job.run,
        ("End a job of any user; the audit log records it.", "结束任何用户的任务，操作会被记录。"),
        operand="job_id",
        words="JOB...",
        options=(kill_job.JOBS,),
        examples=("paddlecloud admin job kill job-338745e5caa42a1537955e41d6f1ce33",),
    ),
)  # fmt: skip
