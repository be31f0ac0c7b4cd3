"""`kill_job`: ask for the end of a job."""

from __future__ import annotations

from paddlecloud.cli.gen2020.query_job import wanted_job
from paddlecloud.cli.parser import JOB_ID, Command

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddlecloud.cli.context import Context
    from paddlecloud.cli.parser import Args


def run(args: Args, context: Context) -> int:
    job = context.client.kill_job(wanted_job(args))
    if context.out.json:
        context.out.value(job.view)
    else:
        code = "ended" if job.final else "killing"
        context.out.say(code, job_id=job.id, state=context.out.error_state(job.state))
    return 0


COMMANDS = (
    Command(
        "kill_job",
        run,
        (
            "End a job with every process it started. Its logs and outputs so far are kept.",
            "结束任务及其全部进程，已有的日志和输出会保留。",
        ),
        operand="job_id",
        options=(JOB_ID,),
        examples=("paddlecloud kill_job --job_id=job-338745e5caa42a1537955e41d6f1ce33",),
    ),
)
