"""Encodes paths as object keys that every server accepts, and back.

A path may contain bytes that are not UTF-8 (lone surrogates in Python). They are encoded as two
characters, the first of which follows the surrogates, so that keys sort like paths.
"""

from __future__ import annotations

import re

from paddlecloud.model.errors import Invalid

MAX_KEY_BYTES = 1024
_MARK = "\ue000"
_ODD = re.compile("[\udc80-\udcff\ue000]")
_WRITTEN = re.compile(f"{_MARK}([\ue080-\ue100])")


def name_of(path: str) -> str:
    """The key of a path; Invalid if it is too long."""
    name = _ODD.sub(_write, path)
    if len(name.encode("utf-8", "surrogatepass")) > MAX_KEY_BYTES:
        raise Invalid("store_path_long", path=path[:200], limit=MAX_KEY_BYTES)
    return name


def path_of(name: str) -> str:
    return _WRITTEN.sub(_read, name)


def stem(path: str) -> str:
    """The beginning of a path up to the first character that sorts no later than a slash.

    Whether a server sorts by whole keys or by directory, files of one stem are adjacent.
    """
    return _STEM.split(path, maxsplit=1)[0]


_STEM = re.compile("[\0-/]")


def _write(found: re.Match[str]) -> str:
    code = ord(found[0])
    return _MARK + ("\ue100" if code == 0xE000 else chr(code - 0xDC00 + 0xE000))


def _read(found: re.Match[str]) -> str:
    code = ord(found[1])
    return "\ue000" if code == 0xE100 else chr(code - 0xE000 + 0xDC00)
