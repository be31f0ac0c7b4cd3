"""`rerun`: a job once more with the same files, and with other flags where some are given."""

from __future__ import annotations

from paddlecloud.cli import watch
from paddlecloud.cli.gen2 import submit_job
from paddlecloud.cli.gen2.query_job import wanted_job
from paddlecloud.cli.options import COMMON, JOB_ID, Command, Option
from paddlecloud.client import reruns
from paddlecloud.client.sdk import Job, check_id
from paddlecloud.model.submit import PARAMETERS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddlecloud.cli.context import Context
    from paddlecloud.cli.options import Args


def run(args: Args, context: Context) -> int:
    out = context.out
    first = check_id(wanted_job(args))
    changes = {p.name: args[p.name] for p in PARAMETERS if args[p.name] not in (None, [])}
    watching = changes.pop("watch_mode", "0") == "1"
    answer = reruns.rerun(context.client, first, changes, note=out.say)
    for note in answer["notes"]:
        out.tell(note)
    job = Job(answer["job"])
    out.accepted = job.id
    if out.json:
        out.value({**job.view, "notes": answer["notes"]})
    else:
        out.line(f"job_id: {job.id}")
    return watch.follow(context.client, job, out) if watching else 0


def _options() -> tuple[Option, ...]:
    """Those of `submit_job`; what it assumes is assumed here by nobody."""
    taken = [option for option in submit_job.COMMANDS[0].options if option not in COMMON]
    return tuple(option.but(shown_default=None) for option in taken)


COMMANDS = (
    Command(
        "rerun",
        run,
        (
            "Submit a job again with the same files and parameters, but for the flags that are "
            "given; --env adds to its environment.",
            "以相同的文件和参数再次提交任务，给出的参数除外；--env 在原有环境变量上增加或替换。",
        ),
        operand="job_id",
        options=(JOB_ID, *_options()),
        examples=(
            "paddlecloud rerun job-338745e5caa42a1537955e41d6f1ce33",
            "paddlecloud rerun job-338745e5caa42a1537955e41d6f1ce33 --env EPOCHS=20 --memory=16G",
            "paddlecloud rerun job-338745e5caa42a1537955e41d6f1ce33 --files=job --watch_mode=1",
        ),
    ),
)
