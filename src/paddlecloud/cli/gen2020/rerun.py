"""`rerun`: a job once more with the same files, and with other flags where some are given."""

from __future__ import annotations

from paddlecloud.cli.gen2020 import submit_job
from paddlecloud.cli.gen2020.query_job import wanted_job
from paddlecloud.cli.parser import JOB_ID, LIST, Command, Option
from paddlecloud.client import rerun

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddlecloud.cli.context import Context
    from paddlecloud.cli.parser import Args


def run(args: Args, context: Context) -> int:
    first = wanted_job(args)
    unset = {"unset": args["unset"]} if args["unset"] else {}
    return submit_job.submitted(
        args,
        context,
        lambda changes, **callbacks: rerun.rerun(
            context.client, first, changes | unset, **callbacks
        ),
    )


_OPTIONS = tuple(o.but(shown_default=None, required=False) for o in submit_job.OPTIONS)
_UNSET = Option(
    "unset",
    LIST,
    (
        "a variable that the new job does not get, or a flag that it is not given (wall_time); may "
        "be repeated",
        "新任务不再设置的变量或参数（如 wall_time），可重复",
    ),
    metavar="NAME",
)

COMMANDS = (
    Command(
        "rerun",
        run,
        (
            "Submit a job again with the same files and parameters, but for the flags that are "
            "given; --env adds to its environment, --unset takes from it, or takes back a flag.",
            "以相同的文件和参数再次提交任务，给出的参数除外；--env 在原有环境变量上增加或替换，"
            "--unset 取消其中的变量或某个参数。",
        ),
        operand="job_id",
        options=(JOB_ID, *_OPTIONS, _UNSET, submit_job.YES),
        groups=((("Which job", "任务"), ("job_id", "unset")), *submit_job.GROUPS),
        examples=(
            "paddlecloud rerun last",
            "paddlecloud rerun last --env EPOCHS=20 --memory=16G",
            "paddlecloud rerun 338745e5 --unset=EPOCHS",
            "paddlecloud rerun 338745e5 --files=job --watch_mode=1",
        ),
    ),
)
