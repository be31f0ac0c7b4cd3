"""Ignore files with git's meaning: which entries of a directory are left out, and by which line.

`pathspec` translates a pattern; what git adds to that (the last match wins, a file of rules further
down wins, a directory that is left out is not looked into) is here and in the walk that asks from
the top down. Importing pathspec takes longer than a whole submit, so translations are kept beside
the cache of digests.
"""

# pathlib costs 8 ms at every submit:
# ruff: noqa: PTH118, PTH123

from __future__ import annotations

import hashlib
import os
import re
import warnings

from paddlecloud.client.caching import write_cache
from paddlecloud.client.naming import shown
from paddlecloud.client.scanning import unreadable
from paddlecloud.model.errors import Invalid

MAX_BYTES = 1024 * 1024
_HEADER = "paddlecloud-ignore\t1"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    Line = tuple[int, int, str, str]
    """Number, whether it leaves out (1) or brings back (0), what it looks at, expression."""

_MARK = "(?P<ps_d>/)"
"""Where pathspec notes that it has matched a directory."""
_NOTHING = "(?!)"
_NAME, _PATH, _INSIDE = "name", "path", "inside"
"""A pattern without a slash looks at the name alone, others at the path from the directory of their
file on; `x/**` means what is inside, never x itself."""


class Rules:
    """The lines of one ignore file, and those of the directories above."""

    def __init__(self, where: str, above: str, lines: list[Line], upper: Rules | None) -> None:
        self._start = len(above)
        """Which part of a path is above the directory of the file."""
        self._upper = upper
        self._lines = [
            (f"{where}:{number}", bool(leaves), looks, re.compile(text))
            for number, leaves, looks, text in reversed(lines)
        ]
        self._any_name = _any(text for _, _, looks, text in lines if looks == _NAME)
        self._any_path = _any(text for _, _, looks, text in lines if looks != _NAME)

    def verdict(self, path: str, name: str, directory: bool) -> str | None:
        """The rule that leaves this entry out, "" if one brings it back, None if none says."""
        slash = "/" if directory else ""
        below = path[self._start :]
        if self._any_name.search(name + slash) or self._any_path.search(below + slash):
            for rule, leaves, looks, expression in self._lines:
                text = name + slash if looks == _NAME else below + (slash if looks == _PATH else "")
                found = expression.search(text)
                if found is not None and _is_itself(found, text):
                    return rule if leaves else ""
        return self._upper.verdict(path, name, directory) if self._upper is not None else None


def load(root: str, above: str, name: str, upper: Rules | None, home: str) -> Rules:
    """The rules of the ignore file `name` in the directory `above` (with its slash, or empty)."""
    text = _read(os.path.join(root, above, name), above + name)
    # A bracket within brackets means itself; `re` warns that this may change one day.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return Rules(above + name, above, _translated(text, above + name, home), upper)


def translate(text: str, where: str) -> list[Line]:
    """The patterns of an ignore file as regular expressions."""
    try:
        from pathspec.patterns.gitignore.spec import (  # noqa: PLC0415 - only where it is needed
            GitIgnoreSpecPattern,
        )
    except ImportError:
        raise Invalid("ignore_no_matcher", path=where) from None
    found = []
    for number, line in enumerate(text.split("\n"), 1):
        try:
            pattern = GitIgnoreSpecPattern(_as_git_reads(line))
        except ValueError:  # git passes over what it cannot read, too
            continue
        if pattern.include is not None and pattern.regex is not None:
            found.append((number, int(pattern.include), _looks_at(line), pattern.regex.pattern))
    return found


def _as_git_reads(line: str) -> str:
    """A line without its end; of blanks at the end git strips spaces alone."""
    line = line.removesuffix("\r").rstrip(" ") if not line.endswith("\\ ") else line
    return f"{line[:-1]}\\\t" if line.endswith("\t") and line.strip() else line


def _any(expressions: Iterable[str]) -> re.Pattern[str]:
    """What matches if one of them does: most entries are done with one question."""
    plain = [text.replace(_MARK, "/") for text in expressions]
    return re.compile("|".join(plain) if plain else _NOTHING)


def _is_itself(found: re.Match[str], text: str) -> bool:
    """Whether the pattern means this entry, not a directory above it."""
    end = found.end("ps_d") if "ps_d" in found.re.groupindex else -1
    return end in (-1, len(text))


def _read(absolute: str, path: str) -> str:
    try:
        with open(absolute, encoding="utf-8", errors="surrogateescape", newline="") as file:
            text = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise unreadable(path, error) from None
    if len(text) > MAX_BYTES:
        raise Invalid("ignore_too_large", path=shown(path), limit=MAX_BYTES)
    return text


def _translated(text: str, where: str, home: str) -> list[Line]:
    name = hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:32]
    kept = os.path.join(home, "cache", "ignore", name) if home else ""
    lines = _kept(kept) if kept else None
    if lines is None:
        lines = translate(text, where)
        rows = ("\t".join(map(str, line)) for line in lines)
        if kept and all("\n" not in line[3] and line[3].isprintable() for line in lines):
            write_cache(kept, "\n".join((_HEADER, *rows)))
    return lines


def _kept(path: str) -> list[Line] | None:
    try:
        with open(path, encoding="utf-8") as file:
            header, *rows = file.read().split("\n")
        if header != _HEADER:
            return None
        split = [row.split("\t", 3) for row in rows]
        return [(int(number), int(leaves), looks, text) for number, leaves, looks, text in split]
    except (OSError, ValueError):
        return None


def _looks_at(line: str) -> str:
    pattern = line.removeprefix("!").rstrip()
    if pattern.endswith("/**"):
        return _INSIDE
    return _PATH if "/" in pattern.rstrip("/") else _NAME
