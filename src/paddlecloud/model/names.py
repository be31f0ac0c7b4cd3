"""Which paths every system can hold, and what a link among them means.

Client, server and agent read them by the same rules. Nothing is imported here, because every submit
pays for what it imports; who refuses a path, and with which words, is the caller's.
"""

from __future__ import annotations

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
