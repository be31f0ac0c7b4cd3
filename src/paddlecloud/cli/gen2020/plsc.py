"""`plsc`: submits the classification example that comes with the program, with one word.

It is `submit_job` with other defaults: every flag of it is taken, and what is given wins. The job
itself lies in `paddlecloud/examples/plsc/job`, so that a laptop with nothing but the client has it.
"""

from __future__ import annotations

import paddlecloud
from paddlecloud.cli.gen2020 import submit_job
from paddlecloud.cli.parser import Command

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddlecloud.cli.context import Context
    from paddlecloud.cli.parser import Args

DEFAULTS = {
    "job_name": "plsc",
    "start_cmd": "sh run.sh",
    "files": f"{paddlecloud.__path__[0]}/examples/plsc/job",
}


def run(args: Args, context: Context) -> int:
    for name, value in DEFAULTS.items():
        if args[name] is None:
            args[name] = value
    # Its trainers talk to each other; on CPUs several instances would mean parameter servers.
    if args["distribute_job_type"] is None and args["instance_count"] not in (None, "1"):
        args["distribute_job_type"] = "NCCL2"
    context.out.say("plsc_submits", files=args["files"], command=args["start_cmd"])
    return submit_job.run(args, context)


# The directory differs from machine to machine: help and the reference show the others only.
_OPTIONS = tuple(
    option.but(shown_default=DEFAULTS[option.name], required=False)
    if option.name in ("job_name", "start_cmd")
    else option
    for option in submit_job.OPTIONS
)

COMMANDS = (
    Command(
        "plsc",
        run,
        (
            "Submit the built-in example of large-scale classification (PLSC): images in a zip "
            "file, a label file, a softmax with a margin. Takes every flag of submit_job; needs "
            "PaddlePaddle in the Python of the job.",
            "提交内置的大规模分类（PLSC）示例：zip 图片、标签文件、带间隔的 softmax。"
            "支持 submit_job 的全部参数，任务的 Python 中需要安装 PaddlePaddle。",
        ),
        options=(*_OPTIONS, submit_job.DRY_RUN, submit_job.YES),
        groups=submit_job.GROUPS,
        examples=(
            "paddlecloud plsc",
            "paddlecloud plsc --watch_mode=1",
            "paddlecloud plsc --instance_count=2 --job_type=cpu --start_cmd='sh run.sh --passes 8'",
        ),
    ),
)
