"""`exec`: a command beside a running worker; its output is ours, and so is its exit code."""

from __future__ import annotations

from contextlib import suppress
from time import monotonic

from paddlecloud.cli.gen2020.query_job import wanted_job
from paddlecloud.cli.output import INTERRUPTED
from paddlecloud.cli.parser import FLAG, JOB_ID, NUMBER, TEXT, Command, Option
from paddlecloud.model.errors import Invalid, PaddleCloudError, TooLarge

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddlecloud.cli.context import Context
    from paddlecloud.cli.parser import Args
    from paddlecloud.client.exec import Command as Running

#: As `timeout` of the shell.
TIMED_OUT = 124
#: Bytes of each stream that go into one JSON value: it is held in memory, here and by its
#: reader.
MOST_JSON = 64 * 2**20
#: Seconds between two keep-alives while the output is not read; the server waits two minutes.
HOLD_SECONDS = 30.0
#: So long what is still on its way is taken of a command that was stopped.
DRAIN_SECONDS = 10.0


def run(args: Args, context: Context) -> int:
    job_id, words = wanted_job(args), args["command"]
    if not words:
        raise Invalid("exec_command_missing")
    if args["tty"]:
        return _run_in_terminal(job_id, args, context)
    how = {"worker": args["worker"], "timeout": args["timeout"], "stdin": piped()}
    command = context.client.exec(job_id, words, **how)
    kept = {"out": bytearray(), "err": bytearray()}
    try:
        _copy(command, context, kept)
    except KeyboardInterrupt:
        command.stop()
        _copy(command, context, kept)
    if context.out.json:
        texts = {name: data.decode("utf-8", "replace") for name, data in kept.items()}
        context.out.value({**command.view, "stdout": texts["out"], "stderr": texts["err"]})
    return _report_end(command, context)


def _run_in_terminal(job_id: str, args: Args, context: Context) -> int:
    from paddlecloud.cli.gen2020 import _terminal  # noqa: PLC0415 - only `-it` needs it

    if context.out.json:
        raise Invalid("exec_terminal_json")
    how = {"worker": args["worker"], "timeout": args["timeout"]}
    terminal = _terminal.describe(context.environ)
    command = context.client.exec(job_id, args["command"], **how, terminal=terminal)
    _terminal.attach(command)
    return _report_end(command, context)


def _report_end(command: Running, context: Context) -> int:
    """The exit code of an ended command, and a line if it did not end by itself."""
    if command.view["message"] and not context.out.json:
        context.out.error(f"paddlecloud: {command.view['message']}")
    code = 1 if command.exit_code is None else command.exit_code
    return {"timeout": TIMED_OUT, "stopped": INTERRUPTED}.get(command.view["cause"], code)


def piped() -> bytes:
    """What stands on stdin if it is a pipe or a file; a terminal is left alone."""
    import os  # noqa: PLC0415 - only exec looks at its stdin
    import stat  # noqa: PLC0415 - as above
    import sys  # noqa: PLC0415 - as above

    from paddlecloud.client.exec import MOST_STDIN  # noqa: PLC0415 - as above

    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (AttributeError, OSError, ValueError):
        return b""
    if not (stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)):
        return b""
    return sys.stdin.buffer.read(MOST_STDIN + 1)


def _copy(command: Running, context: Context, kept: dict[str, bytearray]) -> None:
    output = command.output()
    with _Holder(command) as holder:
        for name, data in output:
            holder.writing = True
            try:
                if context.out.json:
                    if len(kept[name]) + len(data) > MOST_JSON:
                        raise TooLarge("exec_json_large", limit=MOST_JSON // 2**20)
                    kept[name] += data
                elif name == "out":
                    context.out.raw(data)
                else:
                    context.out.raw_aside(data)
            except (OSError, PaddleCloudError):
                # Its output cannot be written (`| head`, a full disk, too much for one JSON value),
                # so the command is stopped. Not all that is on its way is waited for.
                command.stop()
                until = monotonic() + DRAIN_SECONDS
                for _ in output:
                    if monotonic() >= until:
                        break
                raise
            holder.writing = False


class _Holder:
    """Keeps the command alive while its output is not read (`| less`): without requests for its
    output the server would end it."""

    def __init__(self, command: Running) -> None:
        from threading import Event, Thread  # noqa: PLC0415 - only exec needs it

        self.writing = False
        self._over = Event()
        Thread(target=self._work, args=(command,), daemon=True).start()

    def __enter__(self) -> _Holder:
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()

    def _work(self, command: Running) -> None:
        while not self._over.wait(HOLD_SECONDS):
            if self.writing:
                with suppress(OSError, PaddleCloudError):
                    command.hold()


COMMANDS = (
    Command(
        "exec",
        run,
        (
            "Run a command beside a running worker: same environment, directory, user and limits.",
            "在运行中的实例上执行命令：环境变量、目录、用户和资源限制都与该实例相同。",
        ),
        operand="job_id",
        rest="command",
        options=(
            JOB_ID,
            Option(
                "worker", TEXT, ("which worker (default: the first that runs)",
                "在哪个实例上执行（默认第一个运行中的）"),
                short="w", metavar="NAME",
            ),
            Option(
                "timeout", NUMBER, ("end the command after N seconds", "超过该秒数后结束命令"),
                metavar="SECONDS",
            ),
            Option(
                "tty", FLAG, ("give it your terminal: shells, editors, debuggers (-it)",
                "把当前终端交给它：可用于 shell、编辑器、调试器（-it）"),
                short="t",
            ),
            Option(
                "interactive", FLAG, ("changes nothing; for the habit of typing -it",
                "可省略，仅为兼容 -it 的习惯写法"),
                short="i",
            ),
        ),
        examples=(
            "paddlecloud exec last -- ls -l",
            "paddlecloud exec last -w trainer-1 -- "
            "sh -c 'tail -n 5 $LOCAL_LOG_PATH/*'",
            "paddlecloud exec -it last -- bash",
        ),
    ),
)  # fmt: skip
