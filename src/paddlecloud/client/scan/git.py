"""The git repository that a submitted directory lies in: which commit it is, and what differs.

git runs during the scan and has a timeout: a job does not depend on what is found here. The diff is
limited to submitted files: what a rule leaves out of a job is not in its record either. No hook,
pager or external diff program of the repository is run; its filters are, because without them git
does not know what was changed. Threads read its output: Windows cannot poll a pipe.
"""

# pathlib costs 8 ms at every submit:
# ruff: noqa: PTH110, PTH120

from __future__ import annotations

import os
from time import monotonic

from paddlecloud.client.file_names import few

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from subprocess import Popen

    Output = tuple[bytes, bool]
    """What git printed, and whether it was cut."""

MAX_DIFF = 1024 * 1024
#: Seconds for git to list what was changed, and once more for the diff.
TIMEOUT = 5.0
_GIT = ("git", "--no-optional-locks", "--no-pager", "-c", "core.fsmonitor=false")
_STATUS = ("status", "--porcelain=v2", "--branch", "--untracked-files=normal", "--", ".")
_PLAIN = ("diff", "--no-ext-diff", "--no-textconv", "--no-color", "--no-renames")
_NAMES = (*_PLAIN, "--name-status", "-z", "--relative", "HEAD", "--", ".")
#: Of a deleted file the name alone: its content was not submitted. Nor is that of a submodule.
_DIFF = ("--literal-pathspecs", *_PLAIN, "--irreversible-delete", "--submodule=short", "HEAD", "--")
#: What a hook has in its environment: the repository that git runs it for, which may be another.
_ELSEWHERE = frozenset(
    f"GIT_{name}"
    for name in (
        *("ALTERNATE_OBJECT_DIRECTORIES", "COMMON_DIR", "DIR", "GRAFT_FILE"),
        *("IMPLICIT_WORK_TREE", "INDEX_FILE", "NAMESPACE", "OBJECT_DIRECTORY", "PREFIX"),
        *("REPLACE_REF_BASE", "SHALLOW_FILE", "WORK_TREE"),
    )
)
#: Characters of paths on one command line: Windows takes 32,767 in all.
_MOST_WORDS = 24_000
_LONGEST_WORD = 250


class Inspection:
    """git processes of one repository; `result` waits for their output."""

    def __init__(self, directory: str, environ: Mapping[str, str]) -> None:
        self._directory = directory
        self._environ = environ
        self._until = monotonic() + TIMEOUT
        self._begun = [_started(directory, words, environ) for words in (_STATUS, _NAMES)]
        self._outputs: list[Output | None] = []

    def result(self, submitted: Collection[str]) -> tuple[dict[str, str], str]:
        """Words about the repository (`git` of a spec), and what differs in the paths that were
        submitted; empty when git fails."""
        if not self._outputs:
            self._outputs = [each.result(self._until) if each else None for each in self._begun]
        status, names = self._outputs
        if status is None or names is None:
            return {}, ""
        words = _summary(status[0])
        listed = os.fsdecode(names[0]).split("\0")[:-1]
        # Letter and path of each change; one that was cut is no pair.
        wanted, left_out = _sorted_out(zip(listed[::2], listed[1::2], strict=False), submitted)
        if left_out:
            words["left_out"] = few(left_out)[:_LONGEST_WORD]
        asked = _fitting(wanted)
        diff, cut = b"", False
        if asked:
            started = _started(self._directory, (*_DIFF, *asked), self._environ)
            output = started.result(monotonic() + TIMEOUT) if started is not None else None
            diff, cut = output or (b"", True)  # cut, if git is too slow
        if cut or names[1] or len(asked) < len(wanted):
            words["cut"] = "1"
        return words, diff.decode("utf-8", "replace")


def inspect(directory: str, environ: Mapping[str, str]) -> Inspection | None:
    """Start to inspect the repository of a directory; None where there is none."""
    try:
        directory = above = os.path.realpath(directory)
    except ValueError:  # no directory can have that name
        return None
    while not os.path.exists(f"{above}/.git"):
        above, below = os.path.dirname(above), above
        if above == below:
            return None
    return Inspection(directory, environ)


def _started(
    directory: str, words: tuple[str, ...], environ: Mapping[str, str]
) -> _GitProcess | None:
    from subprocess import DEVNULL, PIPE, Popen  # noqa: PLC0415 - only where there is a repository

    env = {name: value for name, value in environ.items() if name not in _ELSEWHERE}
    env |= {"GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
    words = (*_GIT, *words)
    try:
        process = Popen(
            words, 0, cwd=directory, stdin=DEVNULL, stdout=PIPE, stderr=DEVNULL, env=env
        )
    except OSError:  # there is no git
        return None
    return _GitProcess(process)


class _GitProcess:
    """A git process, and the thread that reads its output and waits for it."""

    def __init__(self, process: Popen[bytes]) -> None:
        from threading import Thread  # noqa: PLC0415 - only where there is a repository

        self._process = process
        self._outputs: Output | None = None
        self._thread = Thread(target=self._read, daemon=True)
        self._thread.start()

    def result(self, until: float) -> Output | None:
        """At most MAX_DIFF bytes, and whether there were more; None when git failed or is not done
        by `until`. A process that ended before this was called was not too slow."""
        self._thread.join(max(0.0, until - monotonic()))
        if self._thread.is_alive():
            self._process.kill()
            self._process.wait()
            return None
        return self._outputs

    def _read(self) -> None:
        chunks, size = [], 0
        assert self._process.stdout is not None
        with self._process.stdout as pipe:
            while size <= MAX_DIFF and (chunk := pipe.read(65536)):
                chunks.append(chunk)
                size += len(chunk)
        if size > MAX_DIFF:
            self._process.kill()
        if self._process.wait() == 0 or size > MAX_DIFF:
            self._outputs = b"".join(chunks)[:MAX_DIFF], size > MAX_DIFF


def _sorted_out(
    changes: Iterable[tuple[str, str]], submitted: Collection[str]
) -> tuple[list[str], list[str]]:
    """The changed paths that may be asked for, and those that were left out of the job.

    git takes a path for everything below it, too: one with something left out there stays away.
    """
    wanted, left_out, holders = [], [], set()
    for letter, path in changes:
        if letter == "D" or path in submitted:
            wanted.append(path)
            continue
        left_out.append(path)
        while path := path.rpartition("/")[0]:
            holders.add(path)
    return [path for path in wanted if path not in holders], left_out


def _fitting(paths: Iterable[str]) -> list[str]:
    """As many as one command line holds."""
    found, left = [], _MOST_WORDS
    for path in paths:
        left -= len(os.fsencode(path)) + 3  # Windows puts some into quotes
        if left < 0:
            break
        found.append(path)
    return found


def _summary(status: bytes) -> dict[str, str]:
    lines = status.decode("utf-8", "replace").split("\n")
    heads = dict(line[9:].partition(" ")[::2] for line in lines if line.startswith("# branch."))
    return {
        "commit": heads.get("oid", ""),
        "branch": heads.get("head", "")[:200],
        "dirty": "1" if any(line and not line.startswith("#") for line in lines) else "0",
    }
