"""Links of a download: each leads to something in the download directory, or is not made.

A listing may come from a server that means harm, and what it names lies among a person's files. So
nothing is made below a link, a link is looked at before it is made, and it must stay harmless
whatever is added to the directory later.
"""

# pathlib costs 8 ms:
# ruff: noqa: PTH103, PTH112, PTH114, PTH117, PTH118, PTH120, PTH211

from __future__ import annotations

import os
from stat import S_ISDIR

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container, Mapping


def make_links(root: str, targets: Mapping[str, str]) -> list[str]:
    """Make links of these names below `root`; those that cannot be made or would lead out."""
    root = os.path.realpath(root)
    return [
        name
        for name, target in targets.items()
        if _is_below(name, targets) or not _is_linked(root, name, target)
    ]


def is_barred(root: str, name: str) -> bool:
    """Whether the way to a name below `root` leads through what is no directory, as a link is."""
    above = root
    for part in name.split("/")[:-1]:
        above = os.path.join(above, part)
        try:
            status = os.lstat(above)
        except OSError:  # nor is anything below it
            return False
        if not S_ISDIR(status.st_mode):
            return True
    return False


def _is_below(name: str, others: Container[str]) -> bool:
    while name := os.path.dirname(name):
        if name in others:
            return True
    return False


def _is_linked(root: str, name: str, target: str) -> bool:
    link = os.path.join(root, name)
    try:
        if is_barred(root, name):
            return False
        os.makedirs(os.path.dirname(link), exist_ok=True)
        if not _stays_in(link, target, root):
            return False
        os.symlink(target.replace("/", os.sep), link)
    except (OSError, ValueError):  # a name that no system takes
        return False
    return True


def _stays_in(link: str, target: str, root: str) -> bool:
    """Whether a link would lead to below `root`, whatever else gets a name there later.

    So it goes up only from what is a directory already: a link in that place would lead elsewhere.
    """
    if os.path.isabs(target):
        return False
    at = os.path.dirname(link)
    for name in target.split("/"):
        if name == ".." and (at == root or os.path.islink(at) or not os.path.isdir(at)):
            return False
        at = os.path.normpath(os.path.join(at, name))
    return os.path.realpath(at).startswith(os.path.join(root, ""))
