"""The git repository that a submitted directory lies in: which commit it is, and what differs.

git runs beside the scan and is never waited for long: a job does not depend on what is found here.
No hook, pager or external program of the repository is run for it. Threads read what it says: of a
pipe Windows does not tell whether there is something to read.
"""

# pathlib costs 8 ms at every submit:
# ruff: noqa: PTH100, PTH110, PTH120

from __future__ import annotations

import os
from time import monotonic

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from subprocess import Popen

MAX_DIFF = 1024 * 1024
#: Seconds that git may take in all.
PATIENCE = 5.0
_GIT = ("git", "--no-optional-locks", "--no-pager", "-c", "core.fsmonitor=false")
_STATUS = ("status", "--porcelain=v2", "--branch", "--untracked-files=normal", "--", ".")
_DIFF = ("diff", "--no-ext-diff", "--no-textconv", "--no-color", "HEAD", "--", ".")


class Looking:
    """git at work; `result` is what it said."""

    def __init__(self, directory: str, environ: Mapping[str, str]) -> None:
        self._until = monotonic() + PATIENCE
        self._status = _started(directory, _STATUS, environ)
        self._diff = _started(directory, _DIFF, environ)
        self._result: tuple[dict[str, str], str] = ({}, "")

    def result(self) -> tuple[dict[str, str], str]:
        """Words about the repository (`git` of a spec) and the difference; empty when git says
        nothing."""
        if self._diff is not None and self._status is not None:
            diff = self._diff.result(self._until)
            status = self._status.result(self._until)
            self._status = self._diff = None
            if diff is not None and status is not None:
                self._result = _summary(status[0], diff)
        return self._result


def look(directory: str, environ: Mapping[str, str]) -> Looking | None:
    """Begin to look at the repository of a directory; None where there is none."""
    above = os.path.abspath(directory)
    while not os.path.exists(f"{above}/.git"):
        above, below = os.path.dirname(above), above
        if above == below:
            return None
    return Looking(directory, environ)


def _started(directory: str, words: tuple[str, ...], environ: Mapping[str, str]) -> _Reading | None:
    from subprocess import DEVNULL, PIPE, Popen  # noqa: PLC0415 - only where there is a repository

    env = {**environ, "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
    words = (*_GIT, *words)
    try:
        process = Popen(
            words, 0, cwd=directory, stdin=DEVNULL, stdout=PIPE, stderr=DEVNULL, env=env
        )
    except OSError:  # there is no git
        return None
    return _Reading(process)


class _Reading:
    """One git, and the thread that reads what it says and sees it end."""

    def __init__(self, process: Popen[bytes]) -> None:
        from threading import Thread  # noqa: PLC0415 - only where there is a repository

        self._process = process
        self._said: tuple[bytes, bool] | None = None
        self._thread = Thread(target=self._read, daemon=True)
        self._thread.start()

    def result(self, until: float) -> tuple[bytes, bool] | None:
        """At most MAX_DIFF bytes, and whether there were more; None when git failed or is not done
        by `until`. One that was done before somebody asked was not too slow."""
        self._thread.join(max(0.0, until - monotonic()))
        if self._thread.is_alive():
            self._process.kill()
            self._process.wait()
            return None
        return self._said

    def _read(self) -> None:
        pieces, size = [], 0
        assert self._process.stdout is not None
        with self._process.stdout as pipe:
            while size <= MAX_DIFF and (piece := pipe.read(65536)):
                pieces.append(piece)
                size += len(piece)
        if size > MAX_DIFF:
            self._process.kill()
        if self._process.wait() == 0 or size > MAX_DIFF:
            self._said = b"".join(pieces)[:MAX_DIFF], size > MAX_DIFF


def _summary(status: bytes, diff: tuple[bytes, bool]) -> tuple[dict[str, str], str]:
    lines = status.decode("utf-8", "replace").split("\n")
    heads = dict(line[9:].partition(" ")[::2] for line in lines if line.startswith("# branch."))
    words = {
        "commit": heads.get("oid", ""),
        "branch": heads.get("head", "")[:200],
        "dirty": "1" if any(line and not line.startswith("#") for line in lines) else "0",
    }
    if diff[1]:
        words["cut"] = "1"
    return words, diff[0].decode("utf-8", "replace")
