"""Writes to the terminal: lines, tables, JSON, a progress bar.

stdout carries the answer and nothing else, stderr all messages. Colours, bars, aligned columns,
wrapped lines, short job ids and translated states are for terminals only; a pipe gets plain text
with tabs.
"""

from __future__ import annotations

import os
import sys
import time
from _thread import allocate_lock  # threading costs 2 ms at every call

from paddlecloud.messages.cli import STATES_ZH, say
from paddlecloud.model.errors import PaddleCloudError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import TextIO

    from paddlecloud.cli.table import Column

_COLOURS = {"green": "32", "red": "31", "yellow": "33", "blue": "34", "dim": "2"}
_STATES = {
    "success": "green",
    "running": "blue",
    "failed": "red",
    "timeout": "red",
    "schedule timeout": "red",
    "killed": "yellow",
    "killing": "yellow",
}
_BAR = 30
_SOON = 0.5
"""Seconds after which a speed means something."""
_OFTEN = 0.5
"""Seconds after which a bar is drawn again that still shows the same percent."""
_JOINED, _PATH = ("/", "\\", "-", "_", "."), ("/", "\\", "-", "_")
"""What joins a job id with the text before it, or after it, to a longer name."""
INTERRUPTED = 130
"""The exit code after Ctrl-C, as in a shell."""
_NARROWEST, _USUAL = 60, 80
"""Columns: a narrower terminal is treated as one of so many; the width where there is none."""


class Output:
    """Where a command writes. `json` asks for JSON instead of lines."""

    def __init__(self, lang: str, environ: Mapping[str, str], json: bool = False) -> None:
        self.lang = lang
        self.json = json
        #: The job that this call has submitted: if stdout is lost, its id goes to stderr.
        self.accepted = ""
        self.status = StatusLine(lambda: self._width(sys.stderr))
        self.on_terminal = _is_terminal(sys.stdout)
        self.errors_on_terminal = _is_terminal(sys.stderr)
        #: Whether stdout is a terminal that can be cleared and coloured.
        self.has_escapes = self.on_terminal and _has_escapes(1, environ)
        self._colours = self.has_escapes and not environ.get("NO_COLOR")
        self._error_colours = (
            self.errors_on_terminal and not environ.get("NO_COLOR") and _has_escapes(2, environ)
        )
        self._asked_columns = environ.get("COLUMNS", "")

    @property
    def columns(self) -> int:
        """The width of help and tables."""
        return self._width(sys.stdout)

    @property
    def in_one_place(self) -> bool:
        """Whether stderr and stdout go to the same file or terminal."""
        try:
            errors, answer = (os.fstat(stream.fileno()) for stream in (sys.stderr, sys.stdout))
        except (OSError, ValueError):  # one of them has no file
            return False
        return (errors.st_dev, errors.st_ino) == (answer.st_dev, answer.st_ino)

    def line(self, text: str) -> None:
        self._put(text + "\n")

    def sentence(self, text: str) -> None:
        """A line for people, which a terminal breaks between words."""
        self.line(_fitted(text, self.columns) if self.on_terminal else text)

    def value(self, value: object) -> None:
        """JSON: one line for programs, several for people."""
        self._put(json_text(value, sys.stdout, indent=2 if self.on_terminal else None) + "\n")

    def raw(self, data: bytes) -> None:
        """Bytes as they are, at once."""
        self.flush()
        self._do(lambda: sys.stdout.buffer.write(data))
        self._do(sys.stdout.buffer.flush)

    def draw(self, text: str) -> None:
        """Text for the terminal itself, at once."""
        self._put(text)
        self.flush()

    def flush(self) -> None:
        self._do(sys.stdout.flush)

    def raw_aside(self, data: bytes) -> None:
        """Bytes as they are, beside the answer: on stderr."""
        sys.stderr.flush()
        sys.stderr.buffer.write(data)
        sys.stderr.buffer.flush()

    def message(self, text: str, *, wrapped: bool = True) -> None:
        """Print a message on stderr; if that cannot be written, it is dropped."""
        if wrapped and self.errors_on_terminal:
            text = _fitted(text, self._width(sys.stderr))
        self.status.give_way(lambda: self._print_error(text))

    def trace(self, text: str) -> None:
        """A line of debugging output, as it is."""
        self.message(text, wrapped=False)

    def say(self, code: str, /, **params: object) -> None:
        self.message(say(code, self.lang, **params))

    def text(self, code: str, /, **params: object) -> str:
        return say(code, self.lang, **params)

    def confirm(self, question: str) -> bool:
        """Whether the person at the terminal answers yes; False without a terminal."""
        if not (self.errors_on_terminal and _is_terminal(sys.stdin)):
            return False
        self.status.draw("")
        _put(question)
        return sys.stdin.readline().strip().lower() in ("y", "yes")

    def error(self, text: str) -> None:
        self.message(self.paint_error(text, "red"))

    def paint(self, text: str, colour: str) -> str:
        return _paint(text, colour) if self._colours and colour else text

    def paint_error(self, text: str, colour: str) -> str:
        return _paint(text, colour) if self._error_colours and colour else text

    def state(self, word: str) -> str:
        """A state for stdout: translated and coloured on a terminal."""
        return self.paint_state(self.state_name(word), word)

    def error_state(self, word: str) -> str:
        """The same for a message."""
        name = self._translated(word) if self.errors_on_terminal else word
        return self.paint_error(name, _STATES.get(word, ""))

    def state_name(self, word: str) -> str:
        """The state in the reader's language, if that is a person: 失败（failed）."""
        return self._translated(word) if self.on_terminal else word

    def paint_state(self, text: str, word: str) -> str:
        """Text for stdout in the colour of a state."""
        return self.paint(text, _STATES.get(word, ""))

    def _translated(self, word: str) -> str:
        if self.lang != "zh" or word not in STATES_ZH:
            return word
        return f"{STATES_ZH[word]}（{word}）"

    def table(self, columns: Sequence[Column | str], rows: Sequence[Sequence[str]]) -> None:
        """Aligned columns that fit, with a header, on a terminal; tab-separated rows for a
        program."""
        if not self.on_terminal:
            for row in rows:
                self._put("\t".join(map(visible, row)) + "\n")
            return
        from paddlecloud.cli import table  # noqa: PLC0415 - only for terminals

        known = [table.Column(each) if isinstance(each, str) else each for each in columns]
        shown = [[visible(cell) for cell in row] for row in rows]
        self.line("\n".join(table.lines(known, shown, self)))

    def progress(self, code: str, total: int) -> Progress:
        """A bar that shows only on a terminal, with the word of `code` before it."""
        return Progress(self.status, self.text(code), total if self.errors_on_terminal else 0)

    def _width(self, stream: TextIO) -> int:
        """Columns of the terminal, at least 60; 80 where there is none."""
        asked = self._asked_columns
        if asked.isascii() and asked.isdigit() and int(asked):
            return max(_NARROWEST, int(asked))
        try:
            return max(_NARROWEST, os.get_terminal_size(stream.fileno()).columns or _USUAL)
        except (OSError, ValueError):  # no terminal
            return _USUAL

    def _print_error(self, text: str) -> None:
        try:
            print(text, file=sys.stderr, flush=True)
        except OSError as error:
            # A reader of both has closed the pipe; otherwise the answer may still be read.
            if isinstance(error, BrokenPipeError) and self.in_one_place:
                raise
            discard(sys.stderr)

    def _put(self, text: str) -> None:
        self._do(lambda: sys.stdout.write(text))

    def _do(self, work: Callable[[], object]) -> None:
        """Write to stdout; a closed pipe ends the command silently."""
        try:
            work()
        except BrokenPipeError:
            raise
        except OSError as error:
            discard(sys.stdout)
            reason, job_id = error.strerror or str(error), self.accepted
            if job_id:
                raise PaddleCloudError("stdout_lost_job", reason=reason, job_id=job_id) from error
            raise PaddleCloudError("stdout_lost", reason=reason) from error


class StatusLine:
    """The last line of a terminal, on stderr, that any thread redraws. It is removed
    before a message is printed, and drawn again below it. A longer text than the terminal is wide
    is cut: the rest could not be taken away again."""

    def __init__(self, columns: Callable[[], int]) -> None:
        self._columns = columns
        self._lock = allocate_lock()
        self._shown = ""

    def draw(self, text: str) -> None:
        """Show this instead; nothing: take it away."""
        with self._lock:
            self._draw(text)

    def give_way(self, work: Callable[[], object]) -> None:
        """Have something else written in its place."""
        with self._lock:
            shown = self._shown
            self._draw("")
            work()
            self._draw(shown)

    def leave(self) -> None:
        """Let it stand, and go on below."""
        with self._lock:
            if self._shown:
                _put("\n")
            self._shown = ""

    def _draw(self, text: str) -> None:
        if text or self._shown:
            from paddlecloud.cli._text_width import clip, width  # noqa: PLC0415 - as above

            text = clip(text, self._columns() - 1)
            rest = " " * (width(self._shown) - width(text))
            _put(f"\r{text}{rest}" if text else f"\r{rest}\r")
        self._shown = text


class Progress:
    """A bar that redraws itself in place, with its speed and how long it will take; `done`, or the
    end of `with`, leaves the line. Of a `total` of nothing there is none to see."""

    def __init__(
        self,
        line: StatusLine,
        label: str,
        total: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._line = line
        self._label = label
        self._total = total
        self._clock = clock
        self._began = clock()
        self._count = 0
        self._moved = 0
        self._shown = -1
        self._drawn = self._began

    def add(self, count: int) -> None:
        self._moved += count
        self._show(count)

    def skip(self, count: int) -> None:
        """So many more bytes were there before: they do not count for the speed, nor does the time
        that it took to find them."""
        if not self._moved:
            self._began = self._clock()
        self._show(count)

    def _show(self, count: int) -> None:
        if not self._total:
            return
        self._count += count
        percent = min(100, self._count * 100 // self._total)
        now = self._clock()
        if percent == self._shown and now - self._drawn < _OFTEN:
            return
        self._shown, self._drawn = percent, now
        filled = percent * _BAR // 100
        bar = "#" * filled + "-" * (_BAR - filled)
        numbers = size(self._total) + self._speed(now)
        self._line.draw(f"{self._label} [{bar}] {percent:3d}% {numbers}")

    def _speed(self, now: float) -> str:
        """Bytes a second so far, and minutes and seconds that are left at that pace."""
        spent = now - self._began
        if spent < _SOON or self._moved <= 0:  # what came may have been worth nothing
            return ""
        left = round(max(0, self._total - self._count) * spent / self._moved)
        hours = f"{left // 3600}:" if left >= 3600 else ""
        rest = f", {hours}{left // 60 % 60:02d}:{left % 60:02d}" if left else ""
        return f", {size(round(self._moved / spent))}/s{rest}"

    def done(self) -> None:
        if self._shown >= 0:
            self._line.leave()
        self._shown = -1

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self.done()


def json_text(value: object, stream: TextIO, indent: int | None = None) -> str:
    """JSON that arrives as it is: a stream that is not UTF-8, or text that no encoding can carry,
    gets escapes, because `?` in the place of a letter would be another value."""
    from json import dumps  # noqa: PLC0415 - only --json writes it

    text = dumps(value, ensure_ascii=False, indent=indent)
    encoding = (getattr(stream, "encoding", None) or "utf-8").lower().replace("_", "-")
    try:
        text.encode("utf-8" if encoding in ("utf-8", "utf8") else "ascii")
    except UnicodeEncodeError:
        return dumps(value, indent=indent)
    return text


def discard(stream: TextIO) -> None:
    """Let what this stream still holds go nowhere, instead of failing again when Python ends."""
    try:
        behind = stream.fileno()
    except (OSError, ValueError):  # it has no file
        return
    os.dup2(os.open(os.devnull, os.O_WRONLY), behind)


def visible(text: str) -> str:
    """Text without a letter that a terminal obeys or that breaks a row."""
    if text.isprintable():
        return text
    from paddlecloud.client.file_names import escaped  # noqa: PLC0415 - few names need it

    return escaped(text)


def one_line(value: object) -> str:
    """A value as one line: lists with commas, booleans as 0 and 1, line ends as blanks, and letters
    that a terminal obeys escaped."""
    if isinstance(value, str) and value.isprintable():  # nearly all of them, and there are many
        return value
    if isinstance(value, list):
        return ",".join(one_line(item) for item in value)
    if isinstance(value, dict):
        return ",".join(f"{key}={one_line(item)}" for key, item in value.items())
    if isinstance(value, bool):
        return str(int(value))
    if value is None:
        return ""
    return visible(" ".join(str(value).splitlines()))


def key_lines(view: Mapping[str, object], keys: Iterable[str]) -> list[str]:
    """`key: value`, sorted; nothing after the colon where there is no value."""
    lines = []
    for key in sorted(keys):
        text = one_line(view.get(key))
        lines.append(f"{key}: {text}" if text else f"{key}:")
    return lines


def with_short_ids(text: str) -> str:
    """The text with `job-` and 8 digits in place of each whole job id: enough to name a job in any
    command. An id in a path stays whole."""
    if "job-" not in text:
        return text
    first, *parts = text.split("job-")
    shown = first
    for part in parts:
        before, after = shown[-1:], part[32:33]
        is_id = len(part) >= 32 and all(letter in "0123456789abcdef" for letter in part[:32])
        is_alone = not (before.isalnum() or after.isalnum() or before in _JOINED or after in _PATH)
        shown += "job-" + (part[:8] + part[32:] if is_id and is_alone else part)
    return shown


def size(count: int) -> str:
    """Bytes in words: 17 B, 1.5 MiB."""
    if count < 1024:
        return f"{count} B"
    power = min(5, (count.bit_length() - 1) // 10)
    return f"{count / 1024**power:.1f} {'KMGTP'[power - 1]}iB"


def _fitted(text: str, columns: int) -> str:
    """A text as a terminal of so many columns shows it."""
    from paddlecloud.cli._text_width import wrap  # noqa: PLC0415 - only for terminals

    shown = with_short_ids(text).split("\n")
    return "\n".join(part for line in shown for part in wrap(line, columns))


def _put(text: str) -> None:
    """Draw a status line; errors are ignored."""
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except OSError:
        return


def _paint(text: str, colour: str) -> str:
    return f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m"


def _is_terminal(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # closed
        return False


def _has_escapes(stream: int, environ: Mapping[str, str]) -> bool:
    """Whether a terminal obeys escape sequences."""
    if environ.get("TERM") == "dumb":
        return False
    if sys.platform != "win32":
        return True
    from paddlecloud.cli import _windows_console  # noqa: PLC0415 - only there

    return _windows_console.takes_escapes(stream)
