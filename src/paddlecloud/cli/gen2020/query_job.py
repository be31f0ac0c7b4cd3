"""`query_job`: one job as sorted `key: value` lines, the 17 keys that scripts have always read."""

from __future__ import annotations

from paddlecloud.cli.output import key_lines
from paddlecloud.cli.parser import JOB_ID, Command
from paddlecloud.cli.times import with_zones
from paddlecloud.model.errors import Invalid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddlecloud.cli.context import Context
    from paddlecloud.cli.parser import Args

KEYS = (
    "bos_url", "create_time", "error_msg", "finish_time", "instance_count", "instance_ids_list",
    "job_id", "job_name", "job_status", "job_type", "kill_flag", "public_bcc", "public_bos",
    "queue_reason", "start_cmd", "start_time", "wall_time",
)  # fmt: skip


def run(args: Args, context: Context) -> int:
    job = context.client.query_job(wanted_job(args), diff=context.out.json)
    if context.out.json:
        context.out.value(job.view)
        return 0
    # Scripts get the times as they have always read them.
    view = with_zones(job.view) if context.out.on_terminal else job.view
    for line in key_lines(view, KEYS):
        context.out.line(line)
    if not context.out.errors_on_terminal:
        return 0
    if job.view.get("failure"):
        from paddlecloud.cli.job_status import report_end  # noqa: PLC0415 - only a failure needs it

        report_end(job, context.out)
    for advice in job.view.get("advice", ()):
        if " ".join(advice.split()) != job.view.get("queue_reason"):
            context.out.message(advice)
    return 0


def wanted_job(args: Args) -> str:
    """The job that a command is about."""
    job_id: str | None = args["job_id"]
    if not job_id:
        raise Invalid("job_id_missing")
    return job_id


COMMANDS = (
    Command(
        "query_job",
        run,
        (
            "Show one job: its state, its times, why it waits or why it failed.",
            "查询一个任务：状态、时间、排队原因、失败原因。",
        ),
        operand="job_id",
        options=(JOB_ID,),
        examples=(
            "paddlecloud query_job --job_id=job-338745e5caa42a1537955e41d6f1ce33",
            "paddlecloud query_job last --json",
        ),
    ),
)
