"""`submit_job`: a directory and a command become a job; stdout gets its id and nothing else.

The flags are made from the table of parameters in `model/jobs/params.py`, which also checks
them, so that the SDK and a hand-made request meet the same rules.
"""

from __future__ import annotations

from paddlecloud.cli import job_status
from paddlecloud.cli.output import INTERRUPTED
from paddlecloud.cli.parser import FLAG, LIST, TEXT, Command, Option
from paddlecloud.cli.progress import ScanStatusLine, shows
from paddlecloud.client import submit as client_submit
from paddlecloud.client.scan.walk import ScanProgress
from paddlecloud.client.sdk import Job
from paddlecloud.messages import render
from paddlecloud.model.jobs.params import ALIASES, PARAMETERS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from paddlecloud.cli.context import Context
    from paddlecloud.cli.output import Output, Progress
    from paddlecloud.cli.parser import Args
    from paddlecloud.model.jobs.params import Parameter


def run(args: Args, context: Context) -> int:
    if args["dry_run"]:
        return _dry_run(args, context)
    return submitted(
        args,
        context,
        lambda given, **callbacks: client_submit.submit(context.client, given, **callbacks),
    )


def submitted(args: Args, context: Context, submit: Callable[..., dict[str, Any]]) -> int:
    """Submit a job with the given parameters by `submit`; print its id, and follow it if that is
    wanted."""
    out = context.out
    given = parameters_of(args)
    try:
        with _SubmitProgress(out) as progress:
            answer = submit(given, confirm=_confirming(args, out), **progress.callbacks)
        job, notes = Job(answer["job"]), answer["notes"]
        for note in notes:
            out.message(note)
        if out.json:
            out.value({**job.view, "notes": notes})
        else:
            out.line(f"job_id: {job.id}")
        out.flush()
    except KeyboardInterrupt:
        if not out.accepted:
            raise
        out.say("watch_left", job_id=out.accepted)
        return INTERRUPTED
    watch = str(given.get("watch_mode")) in ("1", "True")
    return job_status.follow(context.client, job, out) if watch else 0


def parameters_of(args: Args) -> dict[str, Any]:
    """What is given by flags and by a job file."""
    given = {p.name: args[p.name] for p in PARAMETERS if args[p.name] not in (None, [])}
    if args.get("job_file") is None:
        return given
    from paddlecloud.client import job_file  # noqa: PLC0415 - few submits need it

    return job_file.merged(args["job_file"], given)


def _confirming(args: Args, out: Output) -> Callable[[str, str], bool]:
    """How a whole home or disk is confirmed: by --yes, else by a question on a terminal."""

    def confirm(code: str, path: str) -> bool:
        if args.get("yes"):
            return True
        return out.confirm(out.text(_QUESTIONS[code], path=path) + " ")

    return confirm


def _dry_run(args: Args, context: Context) -> int:
    from paddlecloud.cli.gen2020 import _dry_run as printed  # noqa: PLC0415 - few calls need it

    out = context.out
    scan_progress = ScanProgress()
    line = ScanStatusLine(out, scan_progress) if shows(out) else None
    if line is not None:
        line.start()
    try:
        how: dict[str, Any] = {"scan_progress": scan_progress, "confirm": _confirming(args, out)}
        found = client_submit.dry_run(context.client, parameters_of(args), **how)
    finally:
        if line is not None:
            line.stop()
    return printed.show(out, found)


class _SubmitProgress:
    """Output until the job is accepted: how much was read, notices, the progress of an upload."""

    def __init__(self, out: Output) -> None:
        self._out = out
        self._bar: Progress | None = None
        self._scan_progress = ScanProgress()
        self._line = ScanStatusLine(out, self._scan_progress) if shows(out) else None
        """Removed by the first notice: those come when everything is read."""
        self._advised = False
        """Whether the last notice was what to do after an interruption."""

    @property
    def callbacks(self) -> dict[str, Any]:
        """The callbacks of a submit."""
        progress = {"progress": self._sent, "skipped": self._skipped, "note": self._note}
        return {**progress, "accepted": self._accepted, "scan_progress": self._scan_progress}

    def _accepted(self, job: Mapping[str, Any]) -> None:
        """From now on an interruption leaves a job behind."""
        self._out.accepted = str(job["job_id"])

    def _note(self, code: str, **params: object) -> None:
        self._stop_reading()
        self._advised = code in _ADVICE
        self._out.say(code, **params)

    def _sent(self, count: int, total: int) -> None:
        self._bar_of(total).add(count)

    def _skipped(self, count: int, total: int) -> None:
        self._bar_of(total).skip(count)

    def _bar_of(self, total: int) -> Progress:
        if self._bar is None:
            self._stop_reading()
            self._bar = self._out.progress("uploading", total)
        return self._bar

    def __enter__(self) -> _SubmitProgress:
        if self._line is not None:
            self._line.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._stop_reading()
        if self._bar is not None:
            self._bar.done()
        if kind is KeyboardInterrupt and not (self._advised or self._out.accepted):
            self._out.say("submit_left")

    def _stop_reading(self) -> None:
        if self._line is not None:
            self._line.stop()


def _option(parameter: Parameter) -> Option:
    """The flag of a parameter; its value stays text, the table's own checker reads it."""
    return Option(
        parameter.name,
        LIST if parameter.repeatable else TEXT,
        (render(parameter.help, {}, "en"), render(parameter.help, {}, "zh")),
        metavar="|".join(parameter.choices if parameter.kind == "choice" else ())
        or _METAVARS.get(parameter.kind, parameter.name.upper()),
        aliases=tuple(alias for alias, name in ALIASES.items() if name == parameter.name),
        offers=parameter.choices or (("0", "1") if parameter.kind == "flag" else ()),
        completes=_COMPLETED.get(parameter.kind, ""),
        required=parameter.required,
        shown_default=parameter.default,
    )


_QUESTIONS = {"files_whole_disk": "files_confirm_disk", "files_whole_home": "files_confirm_home"}
_ADVICE = ("submit_unsure", "upload_kept")
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
    "secrets": "NAME[=VARIABLE]",
    "path": "DIRECTORY",
    "requirements": "FILE",
    "text": "TEXT",
    "name": "NAME",
    "bos_url": "URL",
}
OPTIONS = tuple(_option(parameter) for parameter in PARAMETERS)
YES = Option(
    "yes",
    FLAG,
    (
        "submit a whole home directory or disk without a question",
        "提交整个主目录或磁盘时不再询问",
    ),
    short="y",
)
_JOB_FILE = Option(
    "job_file",
    TEXT,
    (
        "TOML file with these parameters; flags win over it",
        "写有上述参数的 TOML 文件；命令行参数优先",
    ),
    metavar="FILE",
    short="f",
    completes="file",
)
DRY_RUN = Option(
    "dry_run",
    FLAG,
    (
        "print what would be sent and started, or refused, and do nothing",
        "只显示将要发送和启动的内容，或会被拒绝的原因，不实际提交",
    ),
)
#: The headings of `--help`, for every command that takes these options.
GROUPS = (
    (
        ("Usual options", "常用参数"),
        (
            "files", "start_cmd", "job_name", "watch_mode", "env", "secret", "requirements",
            "job_file", "dry_run",
        ),
    ),
    (
        ("Resources", "资源"),
        ("job_type", "cpu", "memory", "gpu", "wall_time", "priority", "cluster", "require"),
    ),
    (
        ("Several instances", "多实例任务"),
        (
            "instance_count", "distribute_job_type", "pservers", "pserver_cpu", "pserver_memory",
            "min_instance", "max_instance",
        ),
    ),
    (("Failures", "失败与重试"), ("max_retries", "retry_exit_codes", "hang_timeout")),
    (("Private resources", "私有资源"), ("public_bcc", "public_bos", "bos_url")),
)  # fmt: skip

COMMANDS = (
    Command(
        "submit_job",
        run,
        (
            "Run a command in a copy of a directory, and print the job's id.",
            "在集群上以指定目录的副本运行启动命令，并输出任务 ID。",
        ),
        options=(*OPTIONS, _JOB_FILE, DRY_RUN, YES),
        groups=GROUPS,
        examples=(
            'paddlecloud submit_job --files=job --start_cmd="sh run.sh"',
            'paddlecloud submit_job --files=job --start_cmd="sh run.sh" --watch_mode=1',
            'paddlecloud submit_job --files=job --start_cmd="python train.py" --cpu=4 --memory=8G'
            " --env EPOCHS=10",
            'paddlecloud submit_job --files=job --start_cmd="python train.py" --instance_count=2'
            " --distribute_job_type=NCCL2",
            "paddlecloud submit_job -f job.toml --dry_run",
        ),
    ),
)
