"""Reads the pages of the documentation, and runs them as a person would who types them in.

A page is a list of blocks. What runs: `sh` blocks, `python` blocks, and the `$ ` lines of `console`
blocks, whose output is compared after masking what differs from run to run. All blocks of a page
share one working directory and one set of variables; nothing of a page reaches the next one.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
DOCS = TOP / "docs"
PAGES = sorted([*TOP.glob("*.md"), *DOCS.rglob("*.md")])
#: The person of the console blocks.
PERSON = "ann"
PERSON_HOME = "/home/ann"
SECONDS = 180.0
COLUMNS = 500
PROGRAM = Path(sys.executable).with_name("paddlecloud")


@dataclass(frozen=True, kw_only=True)
class Block:
    """One fenced block: its info string, its text, the line where it begins."""

    info: str
    text: str
    line: int


def name_of(page: Path) -> str:
    return page.relative_to(TOP).as_posix()


def english_of(page: Path) -> Path:
    """The page of which this one is the Chinese; an English page itself."""
    return page.with_name(page.name.replace(".zh.md", ".md"))


def chinese_of(page: Path) -> Path:
    return page.with_name(english_of(page).name.replace(".md", ".zh.md"))


def prose(text: str) -> str:
    """A page without its fenced blocks."""
    return re.sub(r"(?ms)^ *(`{3,}).*?^ *\1 *$", "", text)


def links(text: str) -> list[str]:
    """The targets of a page's links; blocks of code have none."""
    return re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`\n]*`", "", prose(text)))


def headings(text: str) -> list[tuple[int, str]]:
    """Level and text of each heading."""
    return [(len(marks), told) for marks, told in re.findall(r"(?m)^(#+) +(.+?)\s*$", prose(text))]


def blocks(text: str) -> list[Block]:
    """The fenced blocks of a page, in order; indented fences belong to lists and count too."""
    found: list[Block] = []
    opened: tuple[str, str, int, list[str]] | None = None
    for number, line in enumerate(text.splitlines(), 1):
        fence = re.match(r"( *)(`{3,})(.*)$", line)
        if opened is None and fence:
            opened = (fence[1], fence[2], number, [fence[3].strip()])
        elif opened is not None and fence and fence[2] == opened[1] and not fence[3].strip():
            info, *lines = opened[3]
            found.append(Block(info=info, text="\n".join(lines) + "\n", line=opened[2]))
            opened = None
        elif opened is not None:
            opened[3].append(line.removeprefix(opened[0]))
    if opened is not None:
        raise AssertionError(f"the block of line {opened[2]} is never closed")
    return found


def steps(text: str) -> list[tuple[str, str]]:
    """The commands of a console block, each with the output shown below it."""
    found: list[tuple[str, str]] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], ""))
        elif not found:
            raise AssertionError(f"a console block begins with a command, not with {line!r}")
        else:
            command, output = found[-1]
            found[-1] = (command, f"{output}{line}\n")
    return found


MASKS = [
    (r"\x1b\[[0-9;]*m", ""),
    (r"\bjob-[0-9a-f]{32}\b|\bjob-[0-9a-f]{8}\b", "JOB"),
    # A job that was just submitted may have begun when its log is asked for, or not.
    (r"(?m)^JOB (has not begun: it waits|尚未开始运行，正在等待).*\n", ""),
    (r"sha256:[0-9a-f]{64}", "SNAPSHOT"),
    (r"\b[0-9a-f]{32}\b", "KEY"),
    (r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(,\d+|Z)?", "TIME"),
    (r"(?m)^\d\d:\d\d:\d\d ", "CLOCK "),
    (r"127\.0\.0\.1:\d+", "ADDRESS"),
    (r"\bpid \d+", "pid N"),
    (r"instance_ids_list: \d+", "instance_ids_list: N"),
    (r"\(\d+ ms\)", "(N ms)"),
    (r"\b\d+(\.\d+)? (B|KiB|MiB|GiB)\b", "SIZE"),
    (r"\b\d+ CPU\b", "N CPU"),
    (r"\t\d+\t", "\tSIZE\t"),
    (r"(?m)^paddlecloud \d+\.\d+\.\d+$", "paddlecloud VERSION"),
    (r"[ \t]+(?m:$)", ""),
    (r" {2,}", "  "),
]


def masked(output: str) -> list[str]:
    """Lines without what differs from run to run; of a line drawn anew, only its last state."""
    lines = [line.rsplit("\r", 1)[-1] for line in output.replace("\r\n", "\n").split("\n")]
    text = "\n".join(lines)
    for pattern, instead in MASKS:
        text = re.sub(pattern, instead, text)
    return text.strip("\n").split("\n") if text.strip("\n") else []


def shows(output: str, shown: str) -> bool:
    """Whether the output is what a page shows; a line `...` there stands for any lines."""
    want = masked(shown)
    parts = "".join(r"(?:.*\n)*?" if line == "..." else re.escape(line) + r"\n" for line in want)
    return re.fullmatch(parts, "".join(f"{line}\n" for line in masked(output))) is not None


class Session:
    """One person at one terminal, with a home of their own and a copy of the examples.

    The directory `bin` of the project is on PATH, and an environment of the person's own is
    activated, in which the package is installed for scripts and for the code of jobs."""

    def __init__(self, root: Path, lang: str = "") -> None:
        self.home = root / "home"
        self.work = root / "work"
        self._state = root / "state"
        self._place = root / "place"
        self.home.mkdir(parents=True)
        (root / "tmp").mkdir()
        shutil.copytree(TOP / "examples", self.work / "examples")
        (self.work / "bin").mkdir()
        (self.work / "bin" / "paddlecloud").symlink_to(PROGRAM)
        own = _environment(root / "env")
        self._place.write_text(f"{self.work}\n")
        self._state.write_text("")
        self._environ = {
            "COLUMNS": "1000",  # a page shows each message on one line
            "HOME": str(self.home),
            "LANG": "C.UTF-8",
            "LOGNAME": PERSON,
            "NO_COLOR": "1",
            "PATH": f"{own}/bin:{self.work}/bin:{os.environ['PATH']}",
            "SHELL": "/bin/sh",
            "TERM": "dumb",
            "TMPDIR": str(root / "tmp"),
            "USER": PERSON,
            "VIRTUAL_ENV": str(own),
        }
        if lang:
            self._environ["PADDLECLOUD_LANG"] = lang

    def run(self, script: str) -> tuple[int, str]:
        """Exit code and output of a block of shell."""
        done = subprocess.run(
            ["sh", "-c", self._wrapped(script)],
            env=self._environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=SECONDS,
            check=False,
        )
        return done.returncode, self._told(done.stdout)

    def run_python(self, program: str) -> tuple[int, str]:
        file = self._state.with_name("block.py")
        file.write_text(program, encoding="utf-8")
        return self.run(f"python3 -P '{file}'")

    def type(self, command: str) -> tuple[int, str]:
        """Exit code of a command, and all that a terminal shows of it."""
        master, slave = pty.openpty()
        # The paths of a test are longer than those of a person, and lines are wrapped at the width.
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, COLUMNS, 0, 0))
        process = subprocess.Popen(
            ["sh", "-c", self._wrapped(command)],
            env=self._environ,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
        )
        os.close(slave)
        try:
            output = b"".join(_received(master, process))
        finally:
            os.close(master)
        return process.wait(), self._told(output)

    def end(self) -> None:
        """End the server, the agent and whatever a page left running."""
        self.run("paddlecloud server stop")
        deadline = time.monotonic() + SECONDS
        while pids := processes_of(self.home):
            assert time.monotonic() < deadline, f"{pids} do not end"
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)

    def _wrapped(self, script: str) -> str:
        """Every variable and the directory are kept for the next block; a failure ends a block."""
        return (
            f". '{self._state}'\n"
            f"cd \"$(cat '{self._place}')\"\n"
            f'trap \'code=$?; export -p >"{self._state}"; pwd >"{self._place}"; exit $code\' EXIT\n'
            f"set -ea\n{script}\n"
        )

    def _told(self, output: bytes) -> str:
        return output.decode("utf-8", "replace").replace(str(self.home), PERSON_HOME)


def _environment(home: Path) -> Path:
    """A virtual environment in which the package and what it needs can be imported."""
    site = home / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    site.mkdir(parents=True)
    (site / "installed.pth").write_text("".join(f"{path}\n" for path in sys.path if path))
    (home / "bin").mkdir()
    for name in ("python", "python3"):
        (home / "bin" / name).symlink_to(os.path.realpath(sys.executable))
    (home / "pyvenv.cfg").write_text(f"home = {Path(sys.base_prefix) / 'bin'}\n")
    return home


def _received(master: int, process: subprocess.Popen[bytes]) -> Iterator[bytes]:
    deadline = time.monotonic() + SECONDS
    while True:
        readable, _, _ = select.select([master], [], [], max(0.0, deadline - time.monotonic()))
        if not readable:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise AssertionError(f"not done after {SECONDS:g} s")
        try:
            data = os.read(master, 65536)
        except OSError:  # nobody has the other side open any more
            return
        if not data:
            return
        yield data


def processes_of(home: Path) -> list[int]:
    """Every process whose command line or environment names this home."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                about = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
                if str(home).encode() in about:
                    found.append(int(entry.name))
    return found
