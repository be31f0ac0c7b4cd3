"""The git repository that a submitted directory lies in: which commit it is, and what differs.

git runs beside the scan and is never waited for long: a job does not depend on what is found here.
No hook, pager or external program of the repository is run for it.
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
            diff = _output(self._diff, MAX_DIFF, self._until)
            status = _output(self._status, MAX_DIFF, self._until)
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


def _started(
    directory: str, words: tuple[str, ...], environ: Mapping[str, str]
) -> Popen[bytes] | None:
    from subprocess import DEVNULL, PIPE, Popen  # noqa: PLC0415 - only where there is a repository

    env = {**environ, "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
    try:
        return Popen(
            (*_GIT, *words), cwd=directory, stdin=DEVNULL, stdout=PIPE, stderr=DEVNULL, env=env
        )
    except OSError:  # there is no git
        return None


def _output(process: Popen[bytes], limit: int, until: float) -> tuple[bytes, bool] | None:
    """At most `limit` bytes, and whether there were more; None when git failed or took too long."""
    from select import select  # noqa: PLC0415 - only where there is a repository

    assert process.stdout is not None
    pieces, size = [], 0
    with process.stdout:
        while size <= limit:
            left = until - monotonic()
            if left <= 0 or not select((process.stdout,), (), (), left)[0]:
                process.kill()
                process.wait()
                return None
            piece = os.read(process.stdout.fileno(), 65536)
            if not piece:
                break
            pieces.append(piece)
            size += len(piece)
    if size > limit:
        process.kill()
    failed = process.wait() != 0 and size <= limit
    return None if failed else (b"".join(pieces)[:limit], size > limit)


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
