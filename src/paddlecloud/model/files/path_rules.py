"""Rules for paths: which names are portable, where a link may lead, what `--prefix` means."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

MAX_PATH_BYTES = 4096

MAX_NAME_BYTES = 255

_NOT_NAMES = frozenset(("", ".", ".."))


def fault_of(path: str, *, below: bool = False) -> str:
    """The code of why a path is refused: it is absolute, leaves its root, or could mean two things.
    Empty when it is good. `below`: it is always joined to another one, where `c:` is a name like
    any other and no drive."""
    parts = path.split("/")
    if "\\" in path or "\0" in path:
        return "name_letters"
    if not _NOT_NAMES.isdisjoint(parts):
        return "name_unsafe"
    if parts[0][1:2] == ":" and not below:
        return "name_drive"
    return "name_long" if _is_too_long(path, parts) else ""


def link_meaning(path: str, target: str) -> str:
    """The path that a link at `path` means; empty if it leaves the root, or means that itself."""
    if not target or target.startswith("/"):
        return ""
    parts = path.split("/")[:-1]
    for part in target.split("/"):
        if part == ".." and not parts:
            return ""
        if part == "..":
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    return "/".join(parts)


def _is_too_long(path: str, parts: list[str]) -> bool:
    if path.isascii() and len(path) <= MAX_NAME_BYTES:
        return False
    try:
        sizes = [len(part.encode("utf-8", "surrogateescape")) for part in parts]
    except UnicodeEncodeError:  # half of a surrogate pair, which no file name can hold
        return True
    return max(sizes) > MAX_NAME_BYTES or sum(sizes) + len(parts) - 1 > MAX_PATH_BYTES


def means(prefix: str, paths: Iterable[str]) -> Callable[[str], bool]:
    """Whether a path is meant: the file or the directory of that very name, with what is below it,
    if one of these paths is that; else every path that begins so."""
    below = prefix.rstrip("/") + "/"

    def is_named(path: str) -> bool:
        return path == prefix or path.startswith(below)

    if any(map(is_named, paths)):
        return is_named
    return lambda path: path.startswith(prefix)
