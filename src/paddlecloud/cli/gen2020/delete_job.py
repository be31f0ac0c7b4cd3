"""`delete_job`: deletes a job that has ended, with its logs and outputs."""

from __future__ import annotations

from paddlecloud.cli.gen2020.query_job import wanted_job
from paddlecloud.cli.output import size
from paddlecloud.cli.parser import JOB_ID, Command

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddlecloud.cli.context import Context
    from paddlecloud.cli.parser import Args


def run(args: Args, context: Context) -> int:
    job_id = context.client.resolve(wanted_job(args))
    freed = context.client.delete_job(job_id)
    if context.out.json:
        context.out.value({"job_id": job_id, "bytes": freed})
    else:
        context.out.say("deleted_job", job_id=job_id, size=size(freed))
    return 0


COMMANDS = (
    Command(
        "delete_job",
        run,
        (
            "Delete a job that has ended, with its logs and outputs. They cannot be restored. "
            "Its submitted files go later, when no other job has them.",
            "删除已结束的任务及其日志和输出，删除后无法恢复。提交的文件在没有其他任务使用后到期清理。",
        ),
        operand="job_id",
        options=(JOB_ID,),
        examples=("paddlecloud delete_job --job_id=job-338745e5caa42a1537955e41d6f1ce33",),
    ),
)
