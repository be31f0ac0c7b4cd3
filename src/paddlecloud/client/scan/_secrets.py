"""Detects files and directories with keys, which are never submitted."""

# ruff: noqa: PTH118, PTH123, PTH208 - pathlib costs 8 ms at every submit

from __future__ import annotations

import os
import stat

CLIENT_CONF = "client.conf"

#: A directory with two of these may be that of a PaddleCloud server or agent. Their contents
#: decide, because other programs have files with such names, too.
_KEY_FILES = frozenset(("agent.json", "credentials.json", "lock", "server.key"))
_HOME_PARTS = ("agent", "server")
#: What a home has beside those, and a directory of code hardly ever.
_HOME_SIGNS = frozenset(("cache", "server.toml"))
_KEY_NAMES = frozenset((b"ak", b"sk", b"session_token"))
_KEY_PAIR = (b'"ak"', b'"sk"')
#: Hexadecimal digits of a server's own key.
_MIN_DIGITS = 32
_READ = 256 * 1024


def holds_keys(directory: str, names: set[str]) -> bool:
    """Whether a directory with these names in it is, or holds, that of a server or an agent."""
    if _is_key_directory(directory, names):
        return True
    parts = [os.path.join(directory, part) for part in _HOME_PARTS if part in names]
    return any(_is_key_directory(part, names_in(part)) for part in parts)


def is_home(directory: str, names: set[str]) -> bool:
    """Whether a directory with these names in it has keys itself, or is a PADDLECLOUD_HOME."""
    if _is_key_directory(directory, names):
        return True
    return not _HOME_SIGNS.isdisjoint(names) and holds_keys(directory, names)


def config_has_keys(path: str) -> bool:
    """Whether a configuration file has a line `ak = ...` or `sk = ...` with a value."""
    lines = _beginning(path).lower().splitlines()
    pairs = (line.replace(b":", b"=", 1).partition(b"=") for line in lines)
    return any(key.strip() in _KEY_NAMES and value.strip() for key, _, value in pairs)


def names_in(directory: str) -> set[str]:
    """The names in a directory; none if it cannot be read, which the walk reports."""
    try:
        return set(os.listdir(directory))
    except OSError:
        return set()


def _is_key_directory(directory: str, names: set[str]) -> bool:
    found = names & _KEY_FILES
    return len(found) > 1 and any(_is_key(os.path.join(directory, name)) for name in found)


def _is_key(path: str) -> bool:
    """Whether a file holds a pair of keys, or the digits from which a server derives its keys."""
    data = _beginning(path)
    digits = data.strip()
    is_hex = len(digits) >= _MIN_DIGITS and not digits.strip(b"0123456789abcdef")
    return is_hex or all(name in data for name in _KEY_PAIR)


def _beginning(path: str) -> bytes:
    """The first bytes of a regular file; none if it cannot be read, which the walk reports."""
    try:
        if not stat.S_ISREG(os.lstat(path).st_mode):
            return b""
        with open(path, "rb") as file:
            return file.read(_READ)
    except OSError:
        return b""
