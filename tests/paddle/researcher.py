"""Somebody who runs the examples with their own Python, and reads what came of it.

The example is submitted by its own submit.sh, as a person would, and watched to its end. Nothing
here knows how the platform runs a job: only commands are typed.
"""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.integration.cli.person import Person

TOP = Path(__file__).resolve().parents[2]
PATIENCE = 170.0


@dataclass(frozen=True, kw_only=True)
class Finished:
    """A job that is over: how it was told, and how it is seen."""

    code: int
    told: str
    view: dict[str, Any]
    logs: dict[str, str]
    """Worker to the whole responses log."""
    files: list[str]
    """Paths as `get_files` lists them, without `output/<job_id>/`."""

    def every(self, pattern: str) -> dict[str, str]:
        """What each trainer's log says last for this pattern's group."""
        found = {}
        for worker, text in self.logs.items():
            matches = re.findall(pattern, text)
            if worker.startswith("trainer") and matches:
                found[worker] = matches[-1]
        return found


@dataclass(frozen=True, kw_only=True)
class Researcher:
    person: Person

    def submits(self, example: str, python: Path, *words: str) -> Finished:
        """The example's submit.sh, watched to the end, with `python` first on PATH."""
        script = str(TOP / "examples" / example / "submit.sh")
        return self.runs(["sh", script, *words, "--watch_mode=1"], python)

    def types(self, python: Path, *words: str) -> Finished:
        """A command that submits a job, watched to the end, with `python` first on PATH."""
        program = Path(sys.executable).with_name("paddlecloud")
        return self.runs([str(program), *words, "--watch_mode=1"], python)

    def runs(self, command: list[str], python: Path) -> Finished:
        path = f"{python}:{Path(sys.executable).parent}:{self.person.environ()['PATH']}"
        done = subprocess.run(
            command,
            cwd=self.person.here,
            env=self.person.environ({"PATH": path}),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        told = done.stdout + done.stderr
        submitted = re.search(r"^job_id: (job-[0-9a-f]{32})$", done.stdout, re.MULTILINE)
        assert submitted, told
        return self._finished(submitted[1], done.returncode, told)

    def _finished(self, job_id: str, code: int, told: str) -> Finished:
        view = self.person.sees(job_id)
        logs = {worker["name"]: self._log(job_id, worker["name"]) for worker in view["workers"]}
        listed = self.person.types("get_files", job_id)
        assert listed.code == 0, listed.err
        names = [line.split("\t")[0] for line in listed.out.splitlines()]
        files = [name.removeprefix(f"output/{job_id}/") for name in names]
        return Finished(code=code, told=told, view=view, logs=logs, files=files)

    def _log(self, job_id: str, worker: str) -> str:
        done = self.person.types("logs", job_id, "-w", worker)
        assert done.code == 0, done.err
        return done.out
