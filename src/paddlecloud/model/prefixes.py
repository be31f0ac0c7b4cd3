"""The one rule of what a prefix means among the files of a job, for the server and for a client.

Whoever names rank-1 means that directory, and not rank-10 beside it; but the beginning of a name
does as well where nothing is called so. Imports nothing: the command line starts with it.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


def means(prefix: str, paths: Iterable[str]) -> Callable[[str], bool]:
    """Whether a path is meant: the file or the directory of that very name, with what is below it,
    if one of these paths is that; else every path that begins so."""
    below = prefix.rstrip("/") + "/"

    def is_named(path: str) -> bool:
        return path == prefix or path.startswith(below)

    if any(map(is_named, paths)):
        return is_named
    return lambda path: path.startswith(prefix)
