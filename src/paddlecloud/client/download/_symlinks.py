"""Symbolic links of a download: each stays in the download directory, or is not made; only links
that the user submitted to a server of their own may lead out.

A listing may come from a hostile server, and the download lies among the user's files. So nothing
is created below a link, a link is checked before it is made, and it must stay in the directory
whatever is added later.
"""

# ruff: noqa: PTH103, PTH112, PTH114, PTH117, PTH118, PTH120, PTH211 - paths are text

from __future__ import annotations

import os
from stat import S_ISDIR
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Container, Mapping


def make_links(root: str, targets: Mapping[str, str], *, outside: bool = False) -> list[str]:
    """Make links of these names below `root`; the names of those that are not made. `outside`: the
    server is the user's own, and absolute targets are those that the user submitted."""
    root = os.path.realpath(root)
    return [
        name
        for name, target in targets.items()
        if _is_below(name, targets) or not _is_linked(root, name, target, outside=outside)
    ]


def is_barred(root: str, name: str) -> bool:
    """Whether the path to a name below `root` leads through a link or a file."""
    above = root
    for part in name.split("/")[:-1]:
        above = os.path.join(above, part)
        try:
            status = os.lstat(above)
        except OSError:  # it does not exist
            return False
        if not S_ISDIR(status.st_mode):
            return True
    return False


def _is_below(name: str, others: Container[str]) -> bool:
    while name := os.path.dirname(name):
        if name in others:
            return True
    return False


def _is_linked(root: str, name: str, target: str, *, outside: bool) -> bool:
    link = os.path.join(root, name)
    try:
        if is_barred(root, name):
            return False
        os.makedirs(os.path.dirname(link), exist_ok=True)
        if not (outside and os.path.isabs(target)) and not _stays_in(link, target, root):
            return False
        os.symlink(target.replace("/", os.sep), link)
    except (OSError, ValueError):  # not a valid name
        return False
    return True


def _stays_in(link: str, target: str, root: str) -> bool:
    """Whether a link would lead below `root`, whatever is created there later.

    So it may go up only from an existing directory: a link created in its place could lead out.
    """
    if os.path.isabs(target):
        return False
    at = os.path.dirname(link)
    for name in target.split("/"):
        if name == ".." and (at == root or os.path.islink(at) or not os.path.isdir(at)):
            return False
        at = os.path.normpath(os.path.join(at, name))
    return os.path.realpath(at).startswith(os.path.join(root, ""))
