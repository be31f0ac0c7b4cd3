"""`kill_job`: ask for the end of one or more jobs."""

from __future__ import annotations

from paddlecloud.cli.parser import JOB_ID, LIST, Command
from paddlecloud.model.errors import Conflict, Invalid, NotFound, PaddleCloudError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from paddlecloud.cli.context import Context
    from paddlecloud.cli.parser import Args


def run(args: Args, context: Context) -> int:
    wanted, out = args["job_id"], context.out
    if not all(wanted) or not wanted:
        raise Invalid("job_id_missing")
    answers: list[dict[str, Any]] = []
    code = 0
    for name in wanted:
        try:
            job = context.client.kill_job(name)
        except (Conflict, Invalid, NotFound) as error:
            if len(wanted) == 1:
                raise
            code = PaddleCloudError.exit_code
            answers.append({"job_id": name, "error": error.to_wire(out.lang)})
            out.error(f"paddlecloud: {error.text(out.lang)}")
            continue
        answers.append(job.view)
        if not out.json:
            said = "ended" if job.final else "killing"
            out.say(said, job_id=job.id, state=out.error_state(job.state))
    if out.json:
        out.value(answers[0] if len(wanted) == 1 else answers)
    return code


JOBS = JOB_ID.but(kind=LIST)

COMMANDS = (
    Command(
        "kill_job",
        run,
        (
            "End jobs with every process they started. Their logs and outputs so far are kept. "
            "A job that is killed already counts as done.",
            "结束任务及其全部进程，已有的日志和输出会保留。已经被终止的任务视为成功。",
        ),
        operand="job_id",
        words="JOB...",
        options=(JOBS,),
        examples=(
            "paddlecloud kill_job --job_id=job-338745e5caa42a1537955e41d6f1ce33",
            "paddlecloud kill_job last",
            "paddlecloud kill_job 338745e5 resnet",
        ),
    ),
)
