"""`admin job …`: everybody's jobs."""

from __future__ import annotations

from paddlecloud.cli.admin.common import show_rows
from paddlecloud.cli.gen2 import kill_job, query_job
from paddlecloud.cli.gen2.list_jobs import STATES
from paddlecloud.cli.options import FLAG, JOB_ID, NUMBER, TEXT, Command, Option

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddlecloud.cli.context import Context
    from paddlecloud.cli.options import Args

COLUMNS = (
    "job_id", "owner", "job_status", "job_type", "pool", "create_time", "start_time",
    "finish_time", "job_name", "queue_reason",
)  # fmt: skip


def list_jobs(args: Args, context: Context) -> int:
    state = args["state"]
    rows = context.client.admin.jobs(
        owner=args["user"],
        state=state.replace("_", " ") if state else None,
        name=args["name"],
        limit=None if args["all"] else max(1, args["limit"]),
    )
    return show_rows(context.out, COLUMNS, rows)


COMMANDS = (
    Command(
        "admin job list",
        list_jobs,
        ("List everybody's jobs, newest first.", "列出所有用户的任务，最新的在前。"),
        options=(
            Option("user", TEXT, ("only jobs of this user", "只列出该用户的任务"), metavar="USER"),
            Option(
                "state", TEXT, ("only jobs in this state", "只列出该状态的任务"),
                choices=(*STATES, "schedule_timeout"),
            ),
            Option("name", TEXT, ("only jobs of this name", "只列出该名称的任务")),
            Option(
                "limit", NUMBER, ("at most so many", "最多显示的条数"), default=50, short="n",
                metavar="N",
            ),
            Option("all", FLAG, ("every job, however many", "显示全部任务")),
        ),
        examples=(
            "paddlecloud admin job list --state=running",
            "paddlecloud admin job list --user=alice --all",
        ),
    ),
    Command(
        "admin job show",
        query_job.run,
        ("Show anybody's job.", "查看任何用户的任务。"),
        operand="job_id",
        options=(JOB_ID,),
        examples=("paddlecloud admin job show job-338745e5caa42a1537955e41d6f1ce33",),
    ),
    Command(
        "admin job kill",
        kill_job.run,
        ("End anybody's job; the audit says who did.", "结束任何用户的任务，操作会被记录。"),
        operand="job_id",
        options=(JOB_ID,),
        examples=("paddlecloud admin job kill job-338745e5caa42a1537955e41d6f1ce33",),
    ),
)  # fmt: skip
