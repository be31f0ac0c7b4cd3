"""Records real commands in a terminal of 80 columns, as the pictures of the README.

    .venv/bin/python scripts/record_terminal.py

writes docs/images/first-job.svg and first-job.zh.svg. Each line appears in the picture at the time
at which it appeared in the terminal; a viewer without animations shows all of them.
"""

from __future__ import annotations

import fcntl
import html
import os
import pty
import re
import shutil
import signal
import struct
import subprocess
import tempfile
import termios
import time
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from unicodedata import east_asian_width

TOP = Path(__file__).resolve().parents[1]
COLUMNS = 80
COMMANDS = (
    "paddlecloud submit_job --files=examples/hello_train/job \\\n"
    '      --start_cmd="sh run.sh" --watch_mode=1',
    "paddlecloud get_files last --download=1",
    "cat output/job-*/rank-0/model.json",
    "paddlecloud server stop",
)
TITLES = {"en": "A first job, from submit to results", "zh": "第一个任务：从提交到取回结果"}
#: Seconds that a reader gets for a command before its output begins.
PAUSE = 1.2

_WIDTH, _HEIGHT, _EDGE, _BAR = 8.4, 18, 16, 30
_COLOURS = {
    "31": "#ff7b72", "32": "#7ee787", "33": "#e3b341", "34": "#79c0ff", "35": "#d2a8ff",
    "36": "#76e3ea", "90": "#8b949e",
}  # fmt: skip
_FONTS = "ui-monospace,SFMono-Regular,Menlo,Consolas,DejaVu Sans Mono,monospace"
_STYLE = """\
rect.window{fill:#161b22;stroke:#6e7681}
text{fill:#e6edf3;white-space:pre}
text.title{fill:#8b949e;text-anchor:middle}
.b{font-weight:bold}
@media (prefers-reduced-motion:no-preference){
g.line{animation:appear 1ms both}
@keyframes appear{from{opacity:0}}
}"""


@dataclass
class Line:
    """One line of the screen: characters with their colours, and when it appeared."""

    at: float
    cells: list[tuple[str, str]] = field(default_factory=list)


class Screen:
    """What a terminal of 80 columns shows: line ends, carriage returns, colours and wrapping."""

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self._colour = ""
        self._column = 0
        self._fresh = True

    def write(self, text: str, at: float) -> None:
        for part in re.findall(r"\x1b\[[0-9;?]*[A-Za-z]|.", text, re.DOTALL):
            if part.startswith("\x1b["):
                self._control(part)
            elif part == "\n":
                if self._fresh:
                    self.lines.append(Line(at))
                self._fresh, self._column = True, 0
            elif part == "\r":
                self._column = 0
            else:
                self._put(part, at)

    def _control(self, sequence: str) -> None:
        if sequence.endswith("m"):
            code = sequence[2:-1]
            self._colour = "" if code in ("", "0") else code
        elif sequence.endswith("K") and self.lines and not self._fresh:
            del self.lines[-1].cells[self._column :]

    def _put(self, letter: str, at: float) -> None:
        if self._fresh or _columns([*self.lines[-1].cells[: self._column], (letter, "")]) > COLUMNS:
            self.lines.append(Line(at))
            self._fresh, self._column = False, 0
        cells = self.lines[-1].cells
        cells[self._column : self._column + 1] = [(letter, self._colour)]
        self._column += 1


def main() -> None:
    target = TOP / "docs" / "images"
    target.mkdir(exist_ok=True)
    for lang, name in (("en", "first-job.svg"), ("zh", "first-job.zh.svg")):
        screen = record(lang)
        (target / name).write_text(picture(screen, TITLES[lang]), encoding="utf-8")
        print(f"{target / name} written: {len(screen.lines)} lines")


def record(lang: str) -> Screen:
    """The screen after all commands, which run one after another in an empty home."""
    screen, passed = Screen(), 0.0
    with tempfile.TemporaryDirectory() as place:
        shutil.copytree(TOP / "examples", f"{place}/examples")
        environ = {
            "HOME": f"{place}/home", "LANG": "C.UTF-8", "PADDLECLOUD_LANG": lang,
            "PATH": f"{TOP}/bin:{os.environ['PATH']}", "TERM": "xterm-256color",
        }  # fmt: skip
        try:
            for command in COMMANDS:
                screen.write(f"\x1b[1m$ {command}\x1b[0m\n", passed)
                passed += PAUSE
                passed = _run(command, place, environ, screen, passed) + PAUSE / 2
        finally:
            _end_agent(Path(environ["HOME"]))
    return screen


def _run(command: str, place: str, environ: dict[str, str], screen: Screen, start: float) -> float:
    """Run one command in a terminal; the time at which it ended."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, COLUMNS, 0, 0))
    began = time.monotonic()
    with subprocess.Popen(
        ["sh", "-c", command], cwd=place, env=environ, stdin=slave, stdout=slave, stderr=slave,
        start_new_session=True,
    ) as process:  # fmt: skip
        os.close(slave)
        data = b""
        while chunk := _read(master):
            data += chunk
            text = data.decode("utf-8", "ignore")
            data = data[len(text.encode()) :]
            screen.write(text, start + time.monotonic() - began)
    os.close(master)
    if process.returncode:
        raise SystemExit(f"{command} ended with code {process.returncode}")
    return start + time.monotonic() - began


def _read(master: int) -> bytes:
    try:
        return os.read(master, 65536)
    except OSError:  # the other side is closed
        return b""


def _end_agent(home: Path) -> None:
    """End an agent that waits for work, so that nothing of the recording stays."""
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if f"{home}/".encode() in entry.read_bytes():
                os.kill(int(entry.parent.name), signal.SIGTERM)
        except (OSError, ProcessLookupError):
            continue


def picture(screen: Screen, title: str) -> str:
    """The screen as an SVG file that needs no other file."""
    width = COLUMNS * _WIDTH + 2 * _EDGE
    height = _BAR + len(screen.lines) * _HEIGHT + _EDGE
    rows = []
    for number, line in enumerate(screen.lines):
        y = _BAR + (number + 1) * _HEIGHT - 4
        rows.append(
            f'<g class="line" style="animation-delay:{line.at:.2f}s">{"".join(_runs(line, y))}</g>'
        )
    dots = "".join(
        f'<circle cx="{_EDGE + 6 + 20 * n}" cy="16" r="6" fill="{colour}"/>'
        for n, colour in enumerate(("#ff5f57", "#febc2e", "#28c840"))
    )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height}" '
            f'viewBox="0 0 {width:g} {height}" role="img" xml:space="preserve" '
            f'font-family="{_FONTS}" font-size="14">',
            f"<title>{html.escape(title)}</title>",
            f"<style>{_STYLE}</style>",
            f'<rect class="window" x="0.5" y="0.5" width="{width - 1:g}" height="{height - 1}" '
            'rx="8"/>',
            f'{dots}<text class="title" x="{width / 2:g}" y="21">{html.escape(title)}</text>',
            *rows,
            "</svg>\n",
        ]
    )


def _runs(line: Line, y: int) -> list[str]:
    """Texts of one colour and one width each: their place does not depend on the reader's font."""
    found, column = [], 0
    for (colour, wide), run in groupby(line.cells, lambda cell: (cell[1], _columns([cell]) == 2)):
        text = "".join(letter for letter, _ in run)
        size = len(text) * (2 if wide else 1)
        if text.strip():
            style = ' class="b"' if colour == "1" else ""
            style += f' style="fill:{_COLOURS[colour]}"' if colour in _COLOURS else ""
            found.append(
                f'<text x="{_EDGE + column * _WIDTH:g}" y="{y}" '
                f'textLength="{size * _WIDTH:g}"{style}>'
                f"{html.escape(text, quote=False)}</text>"
            )
        column += size
    return found


def _columns(cells: list[tuple[str, str]]) -> int:
    return sum(2 if east_asian_width(letter) in "WF" else 1 for letter, _ in cells)


if __name__ == "__main__":
    main()
