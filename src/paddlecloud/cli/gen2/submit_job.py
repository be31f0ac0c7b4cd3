"""`submit_job`: a directory and a command become a job; stdout gets its id and nothing else.

The flags are made from the table of parameters in `model/submit.py`, which also checks them, so
that the SDK and a hand-made request meet the same rules.
"""

from __future__ import annotations

from paddlecloud.cli import watch
from paddlecloud.cli.options import LIST, TEXT, Command, Option
from paddlecloud.client import submission
from paddlecloud.client.sdk import Job
from paddlecloud.model.submit import ALIASES, PARAMETERS
from paddlecloud.model.texts import render

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddlecloud.cli.context import Context
    from paddlecloud.cli.options import Args
    from paddlecloud.cli.render import Output, Progress
    from paddlecloud.model.submit import Parameter


def run(args: Args, context: Context) -> int:
    out = context.out
    given = {p.name: args[p.name] for p in PARAMETERS if args[p.name] not in (None, [])}
    bar = _Bar(out)
    try:
        answer = submission.submit(context.client, given, bar.add, out.say)
    finally:
        bar.done()
    for note in answer["notes"]:
        out.tell(note)
    job = Job(answer["job"])
    out.accepted = job.id
    watching = given.get("watch_mode") == "1"
    if out.json:
        out.value({**job.view, "notes": answer["notes"]})
    else:
        out.line(f"job_id: {job.id}")
    return watch.follow(context.client, job, out) if watching else 0


class _Bar:
    """The bar of an upload, made when the first byte goes out."""

    def __init__(self, out: Output) -> None:
        self._out = out
        self._bar: Progress | None = None

    def add(self, count: int, total: int) -> None:
        if self._bar is None:
            self._bar = self._out.progress(self._out.text("uploading"), total)
        if self._bar is not None:
            self._bar.add(count)

    def done(self) -> None:
        if self._bar is not None:
            self._bar.done()


def _option(parameter: Parameter) -> Option:
    """The flag of a parameter; its value stays text, the table's own checker reads it."""
    return Option(
        parameter.name,
        LIST if parameter.repeatable else TEXT,
        (render(parameter.help, {}, "en"), render(parameter.help, {}, "zh")),
        metavar=_METAVARS.get(parameter.kind, parameter.name.upper()),
        aliases=tuple(alias for alias, name in ALIASES.items() if name == parameter.name),
        offers=parameter.choices or (("0", "1") if parameter.kind == "flag" else ()),
        completes=_COMPLETED.get(parameter.kind, ""),
        shown_default=parameter.default,
    )


_COMPLETED = {"path": "directory", "requirements": "file"}
_METAVARS = {
    "flag": "0|1",
    "codes": "CODES",
    "duration": "HH:MM:SS",
    "integer": "N",
    "priority": "CLASS",
    "number": "N",
    "size": "SIZE",
    "env": "KEY=VALUE",
    "path": "DIRECTORY",
    "requirements": "FILE",
    "text": "TEXT",
    "name": "NAME",
    "bos_url": "URL",
}

COMMANDS = (
    Command(
        "submit_job",
        run,
        (
            "Run a command in a copy of a directory, and print the job's id.",
            "在集群上以指定目录的副本运行启动命令，并输出任务 ID。",
        ),
        options=tuple(_option(parameter) for parameter in PARAMETERS),
        examples=(
            'paddlecloud submit_job --files=job --start_cmd="sh run.sh"',
            'paddlecloud submit_job --files=job --start_cmd="sh run.sh" --watch_mode=1',
            'paddlecloud submit_job --files=job --start_cmd="python train.py" --cpu=4 --memory=8G'
            " --env EPOCHS=10",
            'paddlecloud submit_job --files=job --start_cmd="python train.py" --instance_count=2'
            " --distribute_job_type=NCCL2",
        ),
    ),
)
