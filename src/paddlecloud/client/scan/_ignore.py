"""Ignore files with git's meaning: which entries of a directory are left out, and by which line.

Patterns are translated here as git's `dir.c` and `wildmatch.c` read them, corners included: what a
rule misses is sent. What git adds to that (the last match wins, a file of rules further down wins,
a directory that is left out is not read) is here and in the walk, which goes from the top
down. git compares bytes, and so does this: texts and names have a letter for each byte.

Unlike git, rules are also read through a symbolic link.
"""

# pathlib costs 8 ms at every submit:
# ruff: noqa: PTH114, PTH116, PTH118, PTH123

from __future__ import annotations

import os
import re
import stat

from paddlecloud.client.file_names import shown
from paddlecloud.client.scan.walk import GITS_IGNORE_FILE, OUR_IGNORE_FILE, unreadable
from paddlecloud.model.errors import Invalid, PaddleCloudError

MAX_BYTES = 1024 * 1024

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_BYTES = "latin-1"
_BOM = "\xef\xbb\xbf"
"""What Notepad writes first; git passes over it, too."""
_DIRECTORY = "\0"
"""Stands behind the path of a directory, where no name can have it."""
_SPECIAL = "*?[\\"
_ANY, _IN_NAME, _ONE = "[^\0]*", "[^/\0]*", "[^/\0]"
_CLASSES = {
    "alnum": "09AZaz",
    "alpha": "AZaz",
    "blank": "\t\t  ",
    "cntrl": "\0\x1f\x7f\x7f",
    "digit": "09",
    "graph": "!~",
    "lower": "az",
    "print": " ~",
    "punct": "!/:@[`{~",
    "space": "\t\n\r\r  ",
    "upper": "AZ",
    "xdigit": "09AFaf",
}
"""First and last letter of each range that belongs to a class."""


class Line:
    """One line: its number, whether it leaves out or brings back, and the expression for a name, or
    for a path relative to the directory of its file."""

    __slots__ = ("expression", "leaves_out", "number", "of_name")

    def __init__(self, number: int, leaves_out: bool, of_name: bool, expression: str) -> None:
        self.number = number
        self.leaves_out = leaves_out
        self.of_name = of_name
        self.expression = expression


class Rules:
    """The lines of one ignore file, and those of the directories above."""

    def __init__(self, where: str, above: str, lines: Sequence[Line], upper: Rules | None) -> None:
        self.where = where
        """The file itself, from the root on."""
        self._start = len(above)
        """Which part of a path is above the directory of the file."""
        self._upper = upper
        self.is_ours: bool = where.endswith(OUR_IGNORE_FILE) or (
            upper is not None and upper.is_ours
        )
        """Whether they are of a .paddlecloudignore: then .gitignore files below do not count."""
        self._of_name = _Any([line for line in lines if line.of_name])
        self._of_path = _Any([line for line in lines if not line.of_name])

    def verdict(self, path: str, name: str, directory: bool) -> str | None:
        """The rule that leaves this entry out, "" if one brings it back, None if none matches."""
        end = _DIRECTORY if directory else ""
        below = _as_bytes(path[self._start :])
        found = _later(self._of_name.last(_as_bytes(name) + end), self._of_path.last(below + end))
        if found is not None:
            return f"{self.where}:{found.number}" if found.leaves_out else ""
        return self._upper.verdict(path, name, directory) if self._upper is not None else None


def load(root: str, above: str, name: str, upper: Rules | None) -> Rules | None:
    """The rules of the ignore file `name` in the directory `above` (with its slash, or empty); None
    where that is no file: a pipe of that name would be waited for.

    A link of that name that leads nowhere is refused, and so is a directory with our own name: who
    made one wants something to stay away. A directory with git's name holds no rules for git.
    """
    text = _read(os.path.join(root, above, name), above + name)
    return Rules(above + name, above, lines_of(text), upper) if text is not None else None


def undone(root: str, above: str, upper: Rules | None) -> Rules | None:
    """The rules of .gitignore files in and above a directory that a .paddlecloudignore overrides:
    only a notice depends on them, so a file that cannot be read counts as empty."""
    try:
        return load(root, above, GITS_IGNORE_FILE, upper) or upper
    except PaddleCloudError:
        return upper


def is_brought(rules: Rules, void: Rules, path: str, name: str, directory: bool) -> bool:
    """Whether an entry is submitted only because git's rules are void: ours do not name it."""
    unnamed = rules.verdict(path, name, directory) is None
    return unnamed and bool(void.verdict(path, name, directory))


def lines_of(text: str) -> list[Line]:
    """The lines of an ignore file that can match anything."""
    lines = enumerate(text.removeprefix(_BOM).split("\n"), 1)
    found = (_line(number, line) for number, line in lines if not line.startswith("#"))
    return [line for line in found if line is not None]


class _Any:
    """Several lines as one expression: every entry costs one question, and not one for each."""

    def __init__(self, lines: Sequence[Line]) -> None:
        self._lines = lines[::-1]
        # The first alternative that matches is the last such line.
        text = "|".join(f"({line.expression})" for line in self._lines)
        self._expression = re.compile(text) if lines else None

    def last(self, text: str) -> Line | None:
        """The last line that matches."""
        found = self._expression.fullmatch(text) if self._expression is not None else None
        return self._lines[found.lastindex - 1] if found is not None and found.lastindex else None


def _later(one: Line | None, two: Line | None) -> Line | None:
    if one is None or two is None:
        return one or two
    return one if one.number > two.number else two


def _as_bytes(text: str) -> str:
    return text if text.isascii() else os.fsencode(text).decode(_BYTES)


def _read(absolute: str, path: str) -> str | None:
    try:
        mode = os.stat(absolute).st_mode
        if not stat.S_ISREG(mode) and not (stat.S_ISDIR(mode) and path.endswith(OUR_IGNORE_FILE)):
            return None
        with open(absolute, encoding=_BYTES, newline="") as file:
            text = file.read(MAX_BYTES + 1)
    except OSError as error:
        vanished = isinstance(error, FileNotFoundError) and not os.path.islink(absolute)
        if vanished:
            raise unreadable(path, error) from None
        reason = error.strerror or str(error)
        raise Invalid("ignore_unreadable", path=shown(path), reason=reason) from None
    if len(text) > MAX_BYTES:
        raise Invalid("ignore_too_large", path=shown(path), limit=MAX_BYTES)
    return text


def _line(number: int, line: str) -> Line | None:
    """None for what matches nothing, as most mistakes in a pattern do."""
    pattern = _without_blanks(line.removesuffix("\r").partition("\0")[0])
    brings_back = pattern.startswith("!")
    pattern = pattern[1:] if brings_back else pattern
    of_directory = pattern.endswith("/")
    pattern = pattern[:-1] if of_directory else pattern
    of_name = "/" not in pattern
    expression = _expression(pattern.removeprefix("/"), of_name) if pattern else None
    if expression is None:
        return None
    end = _DIRECTORY if of_directory else f"{_DIRECTORY}?"
    return Line(number, not brings_back, of_name, expression + end)


def _without_blanks(line: str) -> str:
    """A line without the spaces at its end, of which one behind a backslash is none."""
    kept = line.rstrip(" ")
    escapes = len(kept) - len(kept.rstrip("\\"))
    return line[: len(kept) + 1] if escapes % 2 else kept


def _expression(pattern: str, of_name: bool) -> str | None:
    """The pattern as a regular expression; None if it can match nothing.

    git compares what comes before the first special character by itself, and then starts again:
    `**` after it counts as being at the beginning.
    """
    first = next((at for at, letter in enumerate(pattern) if letter in _SPECIAL), len(pattern))
    found = [re.escape(pattern[:first])]
    start = at = first
    while at < len(pattern):
        letter = pattern[at]
        if letter == "*":
            text, at = _stars(pattern, at, start, of_name)
        elif letter == "[":
            text, at = _bracket(pattern, at + 1)
        elif letter == "?":
            text, at = _ONE, at + 1
        else:
            at += letter == "\\"
            text, at = re.escape(pattern[at : at + 1]), at + 1
        if not text:
            return None
        found.append(text)
    return "".join(found)


def _stars(pattern: str, at: int, start: int, of_name: bool) -> tuple[str, int]:
    """The expression for stars, and where the pattern goes on."""
    end = at
    while pattern[end : end + 1] == "*":
        end += 1
    alone = (at == start or pattern[at - 1] == "/") and (
        end == len(pattern) or pattern.startswith(("/", "\\/"), end)
    )
    if of_name or end - at < 2 or not alone:
        return (_ANY if of_name else _IN_NAME), end
    if pattern[end : end + 1] == "/":
        return f"(?:{_ANY}/)?", end + 1
    return _ANY, end


def _bracket(pattern: str, at: int) -> tuple[str, int]:
    """The expression for a set of bytes, and where the pattern goes on; "" for a set that is empty
    or has no end: nothing matches that."""
    negated = pattern[at : at + 1] in ("!", "^")
    at = first = at + negated
    members: set[int] = set()
    before = ""
    while at == first or pattern[at : at + 1] != "]":
        name = _class_at(pattern, at)
        if name is None:
            ends, before, at = _span(pattern, at, before)
        else:
            ends, before, at = _CLASSES.get(name, ""), "", at + len(name) + len("[::]")
        if not ends:
            return "", at
        for low, high in zip(ends[::2], ends[1::2], strict=True):
            members.update(range(ord(low), ord(high) + 1))
    kept = (set(range(256)) - members if negated else members) - {0, ord("/")}
    return _set(sorted(kept)), at + 1


def _class_at(pattern: str, at: int) -> str | None:
    """The name in `[:name:]`; None where there is none."""
    end = pattern.find("]", at + 2)
    is_class = pattern.startswith("[:", at) and end > at + 2 and pattern[end - 1] == ":"
    return pattern[at + 2 : end - 1] if is_class else None


def _span(pattern: str, at: int, before: str) -> tuple[str, str, int]:
    """First and last letter of what stands there, from which letter a `-` behind it would go on,
    and where the pattern does; no letters at its end."""
    follows = pattern[at + 1 : at + 2] not in ("", "]")
    is_range = bool(before) and follows and pattern[at : at + 1] == "-"
    at += is_range
    at += pattern[at : at + 1] == "\\"
    letter = pattern[at : at + 1]
    if not letter:
        return "", "", at
    return (before + letter, "", at + 1) if is_range else (letter * 2, letter, at + 1)


def _set(members: Sequence[int]) -> str:
    """Bytes as a set of a regular expression, each run of them as a range."""
    ends: list[list[int]] = []
    for member in members:
        if ends and ends[-1][1] == member - 1:
            ends[-1][1] = member
        else:
            ends.append([member, member])
    runs = "".join(f"\\x{low:02x}-\\x{high:02x}" for low, high in ends)
    return f"[{runs}]" if runs else ""
