"""Breaks text into lines of a terminal: at blanks, and between Chinese characters.

A command that a person may copy (`paddlecloud logs -f last`) is kept on one line where it fits.
"""

from __future__ import annotations

from paddlecloud.cli import registry

_NOT_FIRST = "，。；：、！？）】」』》”’…"
_NOT_LAST = "（【「『《“‘"
_COMMAND = "paddlecloud"
_ENDS = ";,.:)?`；，。：）？"
_GROUPS = {"help", *(word for group in registry.GROUPS for word in group.split())}
"""Words of a command after which another one follows."""
_QUOTE = 30
"""Columns after which a quotation may be broken."""
_WIDTHS: dict[str, int] = {}
"""Of texts that were measured: the cells of a table repeat."""
_BRACKET = 24
"""Columns of a bracket that is not broken: (default: 1)."""


def wrap(text: str, columns: int, indent: str = "") -> list[str]:
    """Lines of at most so many columns, `indent` before all but the first. A word that is wider
    than a line stays whole."""
    if width(text) <= columns:
        return [text]
    lines: list[str] = []
    line = text[: len(text) - len(text.lstrip(" "))]
    used, is_empty = len(line), True
    for atom, blank in _glued(_atoms(text), columns - width(indent)):
        gap = " " if blank and not is_empty else ""
        space = width(atom)
        if not is_empty and used + len(gap) + space > columns:
            lines.append(line)
            line, gap, used = indent, "", width(indent)
        line += gap + atom
        used += len(gap) + space
        is_empty = False
    return [*lines, line]


def cut(text: str, columns: int) -> list[str]:
    """Lines of at most so many columns, wherever that breaks a word."""
    lines = []
    for line in wrap(text, columns):
        while width(line) > columns:
            head = clip(line, columns)
            lines.append(head)
            line = line[len(head) :]
        lines.append(line)
    return lines


def clip(text: str, columns: int) -> str:
    """As much of the beginning as fits."""
    taken = len(text)
    while width(text[:taken]) > columns:
        taken -= max(1, (width(text[:taken]) - columns) // 2)
    return text[:taken]


def width(text: str) -> int:
    """Columns on a terminal: East Asian wide characters take two, combining marks and colours
    none."""
    if "\x1b" in text:
        first, *parts = text.split("\x1b[")
        text = first + "".join(part.partition("m")[2] for part in parts)
    if text.isascii():
        return len(text)
    found = _WIDTHS.get(text)
    if found is None:
        from unicodedata import combining, east_asian_width  # noqa: PLC0415 - few texts need it

        wide = sum(east_asian_width(letter) in "WF" for letter in text)
        found = len(text) + wide - sum(1 for letter in text if combining(letter))
        _WIDTHS[text] = found
    return found


def _atoms(text: str) -> list[tuple[str, bool]]:
    """What must not be broken, each with whether a blank stands before it."""
    atoms: list[tuple[str, bool]] = []
    for number, word in enumerate(text.split()):
        blank = number > 0
        if atoms and atoms[-1][0].count('"') % 2 and width(atoms[-1][0]) < _QUOTE:
            atoms[-1] = (f"{atoms[-1][0]} {word}", atoms[-1][1])  # a quotation
            continue
        if word.isascii():
            atoms.append((word, blank))
            continue
        atom = ""
        for letter in word:
            if atom and _may_break(atom[-1], letter):
                atoms.append((atom, blank))
                atom, blank = "", False
            atom += letter
        atoms.append((atom, blank))
    return atoms


def _may_break(before: str, after: str) -> bool:
    if after in _NOT_FIRST or before in _NOT_LAST:
        return False
    return width(before) == 2 or width(after) == 2


def _glued(atoms: list[tuple[str, bool]], columns: int) -> list[tuple[str, bool]]:
    """The same with the words of each command as one, and those of a short bracket."""
    found: list[tuple[str, bool]] = []
    place = 0
    while place < len(atoms):
        atom, blank = atoms[place]
        place += 1
        whole, end = atom, place
        if atom.lstrip("`(（") == _COMMAND:
            most = columns
            while end < len(atoms) and _continues(whole, atoms[end]):
                whole += " " + atoms[end][0]
                end += 1
        else:
            most = min(_BRACKET, columns) if atom[0] in "(（" else 0
            while end < len(atoms) and width(whole) <= most and whole[-1] not in ")）":
                whole += " " * atoms[end][1] + atoms[end][0]
                end += 1
        if width(whole) <= most:
            atom, place = whole, end
        found.append((atom, blank))
    return found


def _continues(command: str, atom: tuple[str, bool]) -> bool:
    """Whether an atom is one more word of this command, and not of the sentence around it."""
    word, blank = atom
    if not blank or command[-1] in _ENDS:
        return False
    words = command.split()
    is_named = len(words) > 1 and words[-1] not in _GROUPS
    return not is_named or word[0] in "-'\"" or not (word.isalpha() and word.islower())
