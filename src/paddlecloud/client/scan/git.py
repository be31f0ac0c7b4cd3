"""The git repository that a submitted directory lies in: which commit it is, and what differs.

git runs beside the scan and is never waited for long: a job does not depend on what is found here.
What differs is asked for by name, of submitted files alone: what a rule leaves out of a job has no
business in its record either. No hook, pager or external differ of the repository is run for it;
its filters are, for without them git cannot tell what was changed.
Threads read what it says: of a pipe Windows does not tell whether there is something to read.
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

    Said = tuple[bytes, bool]
    """What git said, and whether it was cut."""

MAX_DIFF = 1024 * 1024
#: Seconds that git may take to say what was changed, and once more to say how.
PATIENCE = 5.0
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


class Looking:
    """git at work; `result` is what it said."""

    def __init__(self, directory: str, environ: Mapping[str, str]) -> None:
        self._directory = directory
        self._environ = environ
        self._until = monotonic() + PATIENCE
        self._begun = [_started(directory, words, environ) for words in (_STATUS, _NAMES)]
        self._said: list[Said | None] = []

    def result(self, submitted: Collection[str]) -> tuple[dict[str, str], str]:
        """Words about the repository (`git` of a spec), and what differs in the paths that were
        submitted; empty when git says nothing."""
        if not self._said:
            self._said = [each.result(self._until) if each else None for each in self._begun]
        status, names = self._said
        if status is None or names is None:
            return {}, ""
        words = _summary(status[0])
        wanted, left_out = _sorted_out(_changes(names[0]), submitted)
        if left_out:
            words["left_out"] = few(left_out)[:_LONGEST_WORD]
        asked = _fitting(wanted)
        diff, cut = self._differences(asked) if asked else (b"", False)
        if cut or names[1] or len(asked) < len(wanted):
            words["cut"] = "1"
        return words, diff.decode("utf-8", "replace")

    def _differences(self, paths: Iterable[str]) -> Said:
        """Of a git that is too slow nothing: then the record says that it was cut."""
        started = _started(self._directory, (*_DIFF, *paths), self._environ)
        said = started.result(monotonic() + PATIENCE) if started is not None else None
        return said or (b"", True)


def look(directory: str, environ: Mapping[str, str]) -> Looking | None:
    """Begin to look at the repository of a directory; None where there is none."""
    try:
        directory = above = os.path.realpath(directory)
    except ValueError:  # no directory can have that name
        return None
    while not os.path.exists(f"{above}/.git"):
        above, below = os.path.dirname(above), above
        if above == below:
            return None
    return Looking(directory, environ)


def _started(directory: str, words: tuple[str, ...], environ: Mapping[str, str]) -> _Reading | None:
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
    return _Reading(process)


class _Reading:
    """One git, and the thread that reads what it says and sees it end."""

    def __init__(self, process: Popen[bytes]) -> None:
        from threading import Thread  # noqa: PLC0415 - only where there is a repository

        self._process = process
        self._said: Said | None = None
        self._thread = Thread(target=self._read, daemon=True)
        self._thread.start()

    def result(self, until: float) -> Said | None:
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


def _changes(names: bytes) -> list[tuple[str, str]]:
    """Letter and path of each change; one that was cut is no pair."""
    words = os.fsdecode(names).split("\0")[:-1]
    return list(zip(words[::2], words[1::2], strict=False))


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
    found, room = [], _MOST_WORDS
    for path in paths:
        room -= len(os.fsencode(path)) + 3  # Windows puts some into quotes
        if room < 0:
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
