"""The command `paddlecloud`: finds the command, runs it, and turns every end into an exit code.

0 done, 1 the operation failed, 2 wrong usage, 130 interrupted, 141 the reader of a pipe went away.
No traceback ever reaches a person: an error of ours is one sentence, a mistake in this program is
one sentence and a file with the details. Imports here are paid for by every call: keep them few.
"""

from __future__ import annotations

import os
import sys

from paddlecloud.cli import raise_interrupts, registry
from paddlecloud.cli.output import INTERRUPTED, Output, discard, json_text, visible
from paddlecloud.client.config.resolve import language, resolve
from paddlecloud.model.errors import Invalid, NotFound, PaddleCloudError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

PIPE_CLOSED = 141


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    _fill_streams()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # names come in every script
    out = Output(language({}, os.environ), os.environ)
    code = _ended(lambda: run(words, out, os.environ), out)
    return code or _ended(lambda: _flushed(out), out)


def run(words: list[str], out: Output, environ: Mapping[str, str]) -> int:
    """Run the command that the words name."""
    out.json = "--json" in words  # also for errors in the words themselves
    words = _common_first(words)
    if not words or words[0] in ("--help", "-h", "help"):
        return _help(words, out)
    depth = registry.group_depth(words)
    if depth and words[depth : depth + 1] in (["--help"], ["-h"]):
        return _help(["help", *words[:depth]], out)
    if words[0] in ("--version", "-V"):
        words[0] = "version"
    command, rest = registry.find(words)
    from paddlecloud.cli.parser import parse  # noqa: PLC0415 - `--help` needs no parser

    args = parse(command, rest)
    if args["help"]:
        return _help(["help", *command.name.split()], out)
    from paddlecloud.cli.context import Context  # noqa: PLC0415 - `--help` needs none

    out.json = args["json"]
    context = Context(out, environ, args["config"])
    try:
        return command.run(args, context)
    finally:
        context.close()


def _fill_streams() -> None:
    """Open streams that are closed (`>&-`), so that no other file gets their numbers. The one for
    stdout refuses each write, so that a lost answer is reported."""
    if sys.stdin is None:
        sys.stdin = os.fdopen(os.open(os.devnull, os.O_RDONLY))
    if sys.stdout is None:
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_RDONLY), "w")
    if sys.stderr is None:
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")


def _ended(work: Callable[[], int], out: Output) -> int:
    """The exit code of `work`, whatever becomes of it."""
    try:
        raise_interrupts()
        return work()
    except KeyboardInterrupt:
        out.say("interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        # What either stream still buffers would fail again at exit, with code 120.
        discard(sys.stdout)
        discard(sys.stderr)
        return PIPE_CLOSED
    except PaddleCloudError as error:
        _show(error, out)
        return error.exit_code
    except Exception as error:  # noqa: BLE001 - the last line of defence: a person gets a sentence
        if isinstance(error, FileNotFoundError) and _is_nowhere():
            gone = NotFound("current_directory_gone")
            _show(gone, out)
            return gone.exit_code
        return _crashed(error, out, os.environ)


def _flushed(out: Output) -> int:
    out.flush()
    return 0


def _is_nowhere() -> bool:
    """Whether the current directory was deleted: any relative path fails then."""
    try:
        os.getcwd()  # noqa: PTH109 - pathlib is not worth its time here
    except FileNotFoundError:
        return True
    return False


def _common_first(words: list[str]) -> list[str]:
    """`paddlecloud --json query_job X` is `paddlecloud query_job --json X`."""
    taken: list[str] = []
    rest = list(words)
    while rest and (rest[0] in ("--json", "--config") or rest[0].startswith("--config=")):
        needs_value = rest[0] == "--config"
        taken.append(rest.pop(0))
        if needs_value and rest:
            taken.append(rest.pop(0))
    if not rest or not taken:
        return rest or taken
    split = registry.group_depth(rest) + 1
    return rest[:split] + taken + rest[split:]


def _help(words: list[str], out: Output) -> int:
    from paddlecloud.cli import help as cli_help  # noqa: PLC0415 - only `--help` needs it

    named = [word for word in words[1:] if not word.startswith("-")]
    columns = out.columns
    if named == ["all"] or "--all" in words:
        out.line(cli_help.everything(out.lang, columns))
    elif " ".join(named) in registry.GROUPS:
        out.line(cli_help.group(" ".join(named), out.lang, columns))
    elif named:
        command, _ = registry.find(named)
        out.line(cli_help.command(command, out.lang, columns))
    else:
        (out.line if words else out.message)(cli_help.program(out.lang, columns))
    return 0 if words else Invalid.exit_code


def _show(error: PaddleCloudError, out: Output) -> None:
    if out.json:
        wire = {**error.to_wire(out.lang), "params": {k: str(v) for k, v in error.params.items()}}
        out.message(json_text({"error": wire}, sys.stderr), wrapped=False)
    else:
        lines = error.text(out.lang).split("\n")
        out.error("paddlecloud: " + "\n".join(map(visible, lines)))


def _crashed(error: Exception, out: Output, environ: Mapping[str, str]) -> int:
    import traceback  # noqa: PLC0415 - only a mistake of ours pays for it
    from pathlib import Path  # noqa: PLC0415 - as above

    details = "".join(traceback.format_exception(error))
    kind = f"{type(error).__name__}: {error}".splitlines()[0][:200]
    if _wants_details(environ):
        out.message(details, wrapped=False)
    home = environ.get("PADDLECLOUD_HOME") or "~/.paddlecloud"
    try:
        path = Path(home).expanduser() / "cache" / "last-error.txt"
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.write_text(details, encoding="utf-8", errors="replace")
    except OSError:
        out.error("paddlecloud: " + out.text("crashed_unsaved", kind=kind))
    else:
        out.error("paddlecloud: " + out.text("crashed", kind=kind, path=path))
    return PaddleCloudError.exit_code


def _wants_details(environ: Mapping[str, str]) -> bool:
    try:
        return environ.get("PADDLECLOUD_DEBUG") == "1" or resolve({}, environ).debug
    except PaddleCloudError:
        return False
