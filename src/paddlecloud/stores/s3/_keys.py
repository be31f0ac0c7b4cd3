"""Names of files in a bucket: any path of ours as UTF-8 that every server takes, and back.

A path may hold bytes that are no UTF-8 (Python shows them as lone surrogates). They are written
with two characters, the first of which is the next one after the surrogates: so names in a bucket
sort as paths do.
"""

from __future__ import annotations

import re

from paddlecloud.model.errors import Invalid

MAX_KEY_BYTES = 1024
_MARK = "\ue000"
_ODD = re.compile("[\udc80-\udcff\ue000]")
_WRITTEN = re.compile(f"{_MARK}([\ue080-\ue100])")


def name_of(path: str) -> str:
    """The path as a name in a bucket; Invalid when it is longer than one can be."""
    name = _ODD.sub(_write, path)
    if len(name.encode("utf-8", "surrogatepass")) > MAX_KEY_BYTES:
        raise Invalid("store_path_long", path=path[:200], limit=MAX_KEY_BYTES)
    return name


def path_of(name: str) -> str:
    return _WRITTEN.sub(_read, name)


def stem(path: str) -> str:
    """The beginning of a path up to the first sign that sorts no later than a slash.

    Whether a server sorts by whole names or directory by directory, files of one stem are together.
    """
    return _STEM.split(path, maxsplit=1)[0]


_STEM = re.compile("[\0-/]")


def _write(found: re.Match[str]) -> str:
    code = ord(found[0])
    return _MARK + ("\ue100" if code == 0xE000 else chr(code - 0xDC00 + 0xE000))


def _read(found: re.Match[str]) -> str:
    code = ord(found[1])
    return "\ue000" if code == 0xE100 else chr(code - 0xE000 + 0xDC00)
