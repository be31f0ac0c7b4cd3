"""Names of files: what a person is told of one that not every system can hold, and how one is
shown. The rules are those of `model.names`, and that it is text."""

from __future__ import annotations

from paddlecloud.model.errors import Invalid
from paddlecloud.model.names import fault_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


def shown(path: str) -> str:
    """The path as text that any encoder takes, cut to a readable length: a byte of a name that is
    not UTF-8 as `\\xb0`."""
    try:
        return path[:200].encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    except UnicodeEncodeError:  # half of a character, which no name of a file holds
        return path[:200].encode("utf-8", "backslashreplace").decode()


def few(paths: Sequence[str], most: int = 3) -> str:
    """The first of these paths, and how many more there are."""
    more = f" (+{len(paths) - most})" if len(paths) > most else ""
    return ", ".join(map(shown, paths[:most])) + more


def is_plain(path: str) -> bool:
    """Whether a name that a directory gave needs no further look: nearly all are plain."""
    return path.isascii() and len(path) < 250 and "\\" not in path and ":" not in path


def check_name(path: str) -> None:
    """Invalid("files_name") for a path that not every system can hold."""
    try:
        path.encode()
        reason = fault_of(path)
    except UnicodeEncodeError:
        reason = "not UTF-8"
    if reason:
        raise Invalid("files_name", path=shown(path), reason=reason)
