"""Somebody at a terminal: a home, a working directory, and the command, typed in.

`types` runs the command inside the test process, which is fast; `runs` and `starts` run the real
program. Both see exactly the environment given here and nothing of whoever runs the tests.
Whatever a person started is ended by `leaves`, jobs and agent included.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from paddlecloud.cli.main import main
from paddlecloud.client import local_server
from tests.live_files import files_below

WAIT = 30.0
PROGRAM = str(Path(sys.executable).with_name("paddlecloud"))
# No job gets the environment of the tests, so nobody has it on PATH.
PATH = ":".join(p for p in os.environ["PATH"].split(":") if p != str(Path(PROGRAM).parent))
# Root may read and write everything: without these two rights it is a person like any other.
_AS_ANYBODY = (
    "import ctypes, os, sys; libc = ctypes.CDLL(None); libc.prctl(24, 1); libc.prctl(24, 2);"
    "os.execv(sys.argv[1], sys.argv[1:])"
)
_FINAL = ("success", "failed", "killed", "timeout", "schedule timeout")


@dataclass(frozen=True, kw_only=True)
class Done:
    """How a command ended and what it wrote."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@dataclass(kw_only=True)
class Person:
    home: Path
    """PADDLECLOUD_HOME; nothing has to be there."""
    here: Path
    """The directory in which commands are typed."""
    more: dict[str, str] = field(default_factory=dict)

    def environ(self, more: dict[str, str] | None = None) -> dict[str, str]:
        plain = {
            "PATH": PATH,
            "HOME": str(self.here),
            "PADDLECLOUD_HOME": str(self.home),
            "PADDLECLOUD_LANG": "en",
        }
        return plain | self.more | (more or {})

    def types(self, *words: str, stdin: str | None = None, **more: str) -> Done:
        """The command in this process: as quick as its work. `stdin`: lines of a pipe."""
        out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", newline="\n") for _ in range(2))
        with (
            mock.patch.dict(os.environ, self.environ(more), clear=True),
            contextlib.chdir(self.here),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            mock.patch.object(sys, "stdin", sys.stdin if stdin is None else io.StringIO(stdin)),
        ):
            code = main(list(words))
        return Done(code=code, out=_written(out), err=_written(err))

    def runs(self, *words: str | bytes, **more: str) -> Done:
        """The command as a process of its own."""
        with self.starts(*words, **more) as process:
            out, err = process.communicate(timeout=WAIT)
        return Done(code=process.returncode, out=out.decode(), err=err.decode())

    @contextlib.contextmanager
    def starts(
        self, *words: str | bytes, before: Sequence[str] = (), **more: str
    ) -> Iterator[subprocess.Popen[bytes]]:
        """The command, begun; `before` stands before its words, as `nice` would."""
        with subprocess.Popen(
            [*before, PROGRAM, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=self.here,
            env=self.environ(more),
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    def runs_as_anybody(self, *words: str, **more: str) -> Done:
        """The same without root's right to read and write everything."""
        before = (sys.executable, "-c", _AS_ANYBODY)
        with self.starts(*words, before=before, **more) as process:
            out, err = process.communicate(timeout=WAIT)
        return Done(code=process.returncode, out=out.decode(), err=err.decode())

    def submits(self, start_cmd: str, *words: str) -> str:
        """A job of an otherwise empty directory; its id."""
        source = self.here / "empty"
        source.mkdir(exist_ok=True)
        given = ("submit_job", f"--files={source}", f"--start_cmd={start_cmd}", *words)
        done = self.types(*given)
        assert done.code == 0, done.err
        return done.out.removeprefix("job_id: ").strip()

    def sees(self, job_id: str) -> dict[str, Any]:
        done = self.types("query_job", job_id, "--json")
        assert done.code == 0, done.err
        view: dict[str, Any] = done.json
        return view

    def waits_for(self, job_id: str, *states: str) -> dict[str, Any]:
        """The job when it is in one of these states, by default any final one."""
        wanted = states or _FINAL
        until(lambda: self.sees(job_id)["job_status"] in wanted)
        return self.sees(job_id)

    def stored(self) -> tuple[int, int, frozenset[str]]:
        """How many jobs and snapshots there are, and every file of the store."""
        store = self.home / "store"
        files = frozenset(str(path.relative_to(store)) for path in files_below(store))
        database = f"file:{self.home}/server/paddlecloud.db?mode=ro"
        with contextlib.closing(sqlite3.connect(database, uri=True)) as connection:
            (jobs,) = connection.execute("select count(*) from jobs").fetchone()
            (snapshots,) = connection.execute("select count(*) from snapshots").fetchone()
        return jobs, snapshots, files

    def server(self) -> int:
        """The pid of the one server of this home."""
        (pid,) = processes("paddlecloud.server", str(self.home))
        return pid

    def leaves(self) -> None:
        """End everything that was started in this home."""
        if local_server.is_alive(str(self.home)):
            for row in self.types("list_jobs", "--all", "--json").json:
                if row["job_status"] not in _FINAL:
                    self.types("kill_job", row["job_id"])
                    self.waits_for(row["job_id"])
            local_server.stop(str(self.home))
        until(lambda: not end_all(processes("paddlecloud.agent", str(self.home))))


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def end_all(pids: list[int]) -> list[int]:
    """Ask these to end; those who were there. One that was forked meanwhile is asked next time."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    return pids


def processes(*parts: str) -> list[int]:
    """Pids whose command line has all these parts."""
    return [pid for pid, command in _command_lines() if all(part in command for part in parts)]


def _command_lines() -> Iterator[tuple[int, str]]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                yield int(entry.name), (entry / "cmdline").read_bytes().decode("utf-8", "replace")


def _written(stream: io.TextIOWrapper) -> str:
    stream.flush()
    buffer = stream.buffer
    assert isinstance(buffer, io.BytesIO)
    return buffer.getvalue().decode()
