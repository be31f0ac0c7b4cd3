"""File names for people: how one is shown, and why one is refused.

The rules are those of `model.files.path_rules`; in addition a name has to be text.
"""

from __future__ import annotations

from paddlecloud.messages import words
from paddlecloud.model.errors import Invalid
from paddlecloud.model.files.path_rules import fault_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

#: How the hidden directory ends in which a download lies until it is whole.
CUT_DOWNLOAD = ".paddlecloud-part"
_LONGEST = 200
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_TURNS = "\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"


def shown(path: str) -> str:
    """The path as text that any encoder takes and no terminal obeys, cut to a readable length: a
    byte of a name that is not UTF-8 as `\\xb0`."""
    cut = path[:_LONGEST]
    try:
        text = cut.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    except UnicodeEncodeError:  # half of a character, which no name of a file holds
        text = cut.encode("utf-8", "backslashreplace").decode()
    return escaped(text) + ("..." if len(path) > _LONGEST else "")


def escaped(text: str) -> str:
    """Text without a letter that a terminal obeys or that breaks a row, written as `ls -b` does.

    Names of files and jobs are other people's: one with an escape in it could redraw the screen.
    """
    if text.isprintable():
        return text
    return "".join(map(_escaped, text))


def few(paths: Sequence[str], most: int = 3) -> str:
    """The first of these paths, and how many more there are."""
    named = ", ".join(map(shown, paths[:most]))
    more = len(paths) - most
    return words("paths_more", paths=named, count=more) if more > 0 else named


def alike(paths: Iterable[str]) -> frozenset[str]:
    """Names that differ only in how they are written, `folded`: on some systems they are one."""
    found: set[str] = set()
    twice: set[str] = set()
    for path in paths:
        name = folded(path)
        (twice if name in found else found).add(name)
    return frozenset(twice)


def folded(name: str) -> str:
    """Without the size of letters, and with one of the ways to write an accent."""
    if name.isascii():
        return name.lower()
    from unicodedata import normalize  # noqa: PLC0415 - few names need it

    return normalize("NFC", name.casefold())


def is_plain(path: str) -> bool:
    """Whether a name from a directory listing needs no further check: nearly all are plain."""
    return path.isascii() and len(path) < 250 and "\\" not in path


def check_name(path: str) -> None:
    """Invalid("files_name") for a path that not every system can hold."""
    reason = why_not(path)
    if reason:
        raise Invalid("files_name", path=shown(path), reason=reason)


def why_not(path: str) -> str:
    """Why no path below another one can be called so; else empty."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return words("name_encoding")
    code = fault_of(path, below=True)
    return words(code) if code else ""


def _escaped(letter: str) -> str:
    """Control characters, line ends, and letters that turn the direction of writing are escaped."""
    code = ord(letter)
    if not (code < 0x20 or 0x7F <= code < 0xA0 or letter in _TURNS):
        return letter
    return _SHORT.get(letter) or (f"\\{code:03o}" if code < 0x100 else f"\\u{code:04x}")
