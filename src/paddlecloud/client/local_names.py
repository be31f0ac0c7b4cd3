"""What the files of a job are called on this machine, below the download directory.

A listing may come from a server that means harm, and not every system can call files alike: what
would lead out, cannot be called so here or would be one with another is refused.
"""

from __future__ import annotations

import os
import sys

from paddlecloud.client.naming import shown, why_not
from paddlecloud.model.errors import Invalid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from paddlecloud.client.pieces import File

NAME_TWICE = "download_name_twice"
_WINDOWS_DEVICES = frozenset(
    ("CON", "PRN", "AUX", "NUL", *(f"{kind}{n}" for kind in ("COM", "LPT") for n in range(1, 10)))
)


def local_name(path: str, job_id: str, *, windows: bool = os.name == "nt") -> str:
    """Where a file of a job goes below the download directory; Invalid if it would lead out, or
    cannot be called so here. What the job itself left behind does without its `output/`."""
    reason = why_not(path.rstrip("/"))
    if reason:
        raise Invalid("download_name", path=shown(path), reason=reason)
    _check_letters(path)
    names = path.rstrip("/").split("/")
    if names[:2] == ["output", job_id]:
        del names[0]
    if windows:
        names = [_windows_name(name) for name in names]
    return "/".join(names)


def check_twice(files: Sequence[File]) -> None:
    """Invalid(NAME_TWICE) for files that no directory can hold beside each other."""
    names: set[str] = set()
    for file in files:
        if file.name in names:
            raise Invalid(NAME_TWICE, path=shown(file.path))
        names.add(file.name)
    # A bucket can hold a file of that name beside what is below it; no directory can.
    plain = {file.name for file in files if not file.is_directory and not file.link}
    above = {file.name.rpartition("/")[0] for file in files}
    while above:
        for name in above & plain:
            raise Invalid(NAME_TWICE, path=shown(name))
        above = {name.rpartition("/")[0] for name in above} - {""}


def _check_letters(path: str) -> None:
    """A name is bytes to this system, and a few encodings have no bytes for most letters."""
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        how = {"path": shown(path), "encoding": sys.getfilesystemencoding()}
        raise Invalid("download_name_letters", **how) from None


def _windows_name(name: str) -> str:
    """A name that Windows takes: what it refuses is written as %XX, as in a URL."""
    safe = "".join(f"%{ord(c):02X}" if c in '<>:"|?*%' or ord(c) < 32 else c for c in name)
    if safe[-1] in ". ":
        safe = f"{safe[:-1]}%{ord(safe[-1]):02X}"
    if safe.partition(".")[0].upper() in _WINDOWS_DEVICES:
        safe = f"%{ord(safe[0]):02X}{safe[1:]}"
    return safe
