"""Which lines match: a regular expression over bytes, with a quick way for what is mostly asked.

A line is tried alone, whatever the expression could match beyond its end. Most expressions hold
some letters that must be there (`loss: \\d+` has "loss: "); those are looked for first, which is
many times quicker than the expression itself. An expression without such letters that cannot match
a line's end is tried on many lines at once. Only what is left is tried line by line.

The pattern is Python's, in UTF-8; outside of a set ([...]) a letter of several bytes counts as one.
How long it may take is the caller's business: whoever takes patterns from others has to bound it.
"""

from __future__ import annotations

import re
from heapq import merge
from importlib import import_module

from paddlecloud.model.errors import Invalid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

MAX_PATTERN = 1000
MAX_WAYS = 8
"""Beside more letters than these, the expression itself is as quick."""
OFTEN = 200
"""Lines with the needed letters that did not match, after which looking for these is given up."""
_NEWLINE = 10


class Pattern:
    def __init__(
        self, regex: re.Pattern[bytes] | None, needs: tuple[bytes, ...], *, fold: bool, stays: bool
    ) -> None:
        #: None: the needed letters say all.
        self._regex = regex
        #: Letters one of which every match has; none where that is not known.
        self._needs = needs
        #: Whether they are in small letters and stand for capitals too.
        self._fold = fold
        #: Whether no match can reach over a line's end.
        self._stays = stays

    def matches(self, line: bytes) -> bool:
        """Whether one line matches; without its line end."""
        if self._regex is not None:
            return self._regex.search(line) is not None
        return any(letters in line for letters in self._needs)

    def lines(self, block: bytes, end: int | None = None) -> Iterator[bytes]:
        """The lines that match of a block of whole lines, each with its line end.

        `end` is where the last line ends, if that is not the end of the block.
        """
        end = len(block) if end is None else end
        if self._needs:
            return self._by_letters(block, end)
        if self._stays and self._regex is not None:
            return _by_regex(self._regex, block, 0, end)
        return self._one_by_one(block[:end])

    def _by_letters(self, block: bytes, limit: int) -> Iterator[bytes]:
        searched = block.lower() if self._fold else block
        position = vain = 0
        for found in _places(searched, self._needs, limit):
            if found < position:
                continue
            begin, end = _line(block, position, found)
            position = end + 1
            if self._regex is None or self._regex.search(block[begin:end]):
                yield block[begin:position]
            else:
                vain += 1
            if vain > OFTEN and self._stays and self._regex is not None:
                yield from _by_regex(self._regex, block, position, limit)
                return

    def _one_by_one(self, block: bytes) -> Iterator[bytes]:
        for line in block.removesuffix(b"\n").split(b"\n"):
            if self.matches(line):
                yield line + b"\n"


def compiled(text: str) -> Pattern:
    """Invalid("grep_invalid") when it is no regular expression, with what is wrong with it."""
    if len(text) > MAX_PATTERN:
        raise Invalid("grep_too_long", limit=MAX_PATTERN)
    try:
        pattern = _in_bytes(text)
        regex = re.compile(pattern, re.MULTILINE)
        tree = import_module("re._parser").parse(pattern, re.MULTILINE)
    except (re.error, RecursionError, OverflowError) as error:
        raise Invalid("grep_invalid", pattern=text[:100], detail=str(error)) from None
    except ImportError:  # a Python that keeps its parser elsewhere: right, and slower
        return Pattern(regex, (), fold=False, stays=False)
    fold = bool(regex.flags & re.IGNORECASE)
    needs = _needed(list(tree))
    bare = not fold and all(str(op) == "LITERAL" and value != _NEWLINE for op, value in tree)
    stays = not regex.flags & re.DOTALL and _stays(list(tree))
    needs = tuple(letters.lower() for letters in needs) if fold else needs
    return Pattern(None if bare and needs else regex, needs, fold=fold, stays=stays)


def _places(block: bytes, needs: tuple[bytes, ...], limit: int) -> Iterator[int]:
    """Where any of these letters are, in order; at most one place in each line for each."""
    if len(needs) > 1:
        yield from merge(*(_places(block, (letters,), limit) for letters in needs))
        return
    found = block.find(needs[0], 0, limit)
    while found >= 0:
        yield found
        end = block.find(b"\n", found, limit)
        found = block.find(needs[0], end, limit) if end >= 0 else -1


def _by_regex(regex: re.Pattern[bytes], block: bytes, position: int, limit: int) -> Iterator[bytes]:
    while position < limit:
        match = regex.search(block, position, limit)
        if match is None or match.start() >= limit:
            return
        begin, end = _line(block, position, match.start())
        position = end + 1
        yield block[begin:position]


def _line(block: bytes, position: int, found: int) -> tuple[int, int]:
    """Where the line begins and ends in which something was found, no line before `position`."""
    begin = block.rfind(b"\n", position, found) + 1 or position
    end = block.find(b"\n", found)
    return begin, len(block) if end < 0 else end


def _in_bytes(text: str) -> bytes:
    """A letter of several bytes is put into a group, so that `中+` repeats all of it."""
    told: list[bytes] = []
    inside = escaped = False
    for letter in text:
        raw = letter.encode("utf-8", "surrogateescape")
        if len(raw) > 1:
            if inside:
                raise Invalid("grep_set_letter", letter=letter)
            told.append(b"(?:%b)" % raw)
        else:
            told.append(raw)
        inside = not escaped and (letter == "[" or (inside and letter != "]"))
        escaped = not escaped and letter == "\\"
    return b"".join(told)


def _needed(tree: list[Any]) -> tuple[bytes, ...]:
    """The longest run of letters that is in every match, or one for each of several ways."""
    runs = [bytearray()]
    ways: tuple[bytes, ...] = ()
    for op, value in _flat(tree):
        if str(op) == "LITERAL":
            runs[-1].append(value)
            continue
        repeated = _repeated(str(op), value)
        runs[-1] += repeated
        if repeated and value[0] == value[1]:
            continue
        runs.append(bytearray())
        if str(op) == "BRANCH":
            ways = ways or _needed_by_each(value[1])
    longest = bytes(max(runs, key=len))
    if ways and len(longest) < min(map(len, ways)):
        return ways
    return (longest,) if longest else ways


def _repeated(op: str, value: Any) -> bytes:
    """What `a{3}` and `a{3,}` have at least."""
    if op not in ("MAX_REPEAT", "MIN_REPEAT") or not 0 < value[0] <= MAX_PATTERN:
        return b""
    inner = list(value[2])
    plain = len(inner) == 1 and str(inner[0][0]) == "LITERAL"
    return bytes([inner[0][1]]) * value[0] if plain else b""


def _needed_by_each(ways: list[Any]) -> tuple[bytes, ...]:
    found = [_needed(list(way)) for way in ways]
    if not all(found) or sum(map(len, found)) > MAX_WAYS:
        return ()
    return tuple(letters for each in found for letters in each)


def _flat(tree: list[Any]) -> Iterator[tuple[Any, Any]]:
    """The parts one after another, those of groups too; a group with flags stays closed."""
    for op, value in tree:
        if str(op) == "SUBPATTERN" and not value[1]:
            yield from _flat(list(value[-1]))
        else:
            yield op, value


def _stays(tree: list[Any]) -> bool:
    return all(_part_stays(str(op), value) for op, value in tree)


def _part_stays(op: str, value: Any) -> bool:
    """Whether this part can match no line end, nor look beyond one."""
    if op in ("ANY", "GROUPREF"):
        return True
    if op in ("LITERAL", "NOT_LITERAL"):
        return bool((value == _NEWLINE) == (op == "NOT_LITERAL"))
    if op == "IN":
        return not _set_has_newline(value)
    if op == "AT":
        return str(value) not in ("AT_BEGINNING_STRING", "AT_END_STRING")
    if op == "BRANCH":
        return all(_stays(list(way)) for way in value[1])
    if op == "SUBPATTERN" and value[1]:
        return False
    inner = op in ("SUBPATTERN", "MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT")
    return inner and _stays(list(value[-1]))


def _set_has_newline(parts: list[tuple[Any, Any]]) -> bool:
    negated = str(parts[0][0]) == "NEGATE"
    return negated != any(_has_newline(str(op), value) for op, value in parts)


def _has_newline(op: str, value: Any) -> bool:
    if op == "LITERAL":
        return bool(value == _NEWLINE)
    if op == "RANGE":
        return bool(value[0] <= _NEWLINE <= value[1])
    if op == "CATEGORY":
        return str(value) in ("CATEGORY_SPACE", "CATEGORY_NOT_DIGIT", "CATEGORY_NOT_WORD")
    return False
