"""Where the links of a submitted directory lead, and how they are written in its snapshot.

What is refused is decided by `walk`.
"""

# pathlib costs 8 ms at every submit:
# ruff: noqa: PTH114, PTH118, PTH120

from __future__ import annotations

import os

from paddlecloud.model.files.path_rules import link_meaning


class LinkResolver:
    """Resolves the links of one directory; each real path is looked up once."""

    def __init__(self, root: str) -> None:
        self._real = os.path.realpath(root)
        self._inside = os.path.join(self._real, "")
        self._roots = (os.path.join(root, ""), self._inside)
        self._places: dict[str, str] = {}

    def end(self, path: str, target: str) -> str | None:
        """Where a link leads in the end, relative to the root: empty for the root itself, None for
        a path outside. No directory above a link is a link itself: the walk follows none."""
        above, name = os.path.split(os.path.join(self._inside, os.path.dirname(path), target))
        if above not in self._places:
            self._places[above] = os.path.realpath(above)
        end = os.path.join(self._places[above], name)
        if name in ("", ".", "..") or os.path.islink(end):
            end = os.path.realpath(end)
        if end == self._real:
            return ""
        inside = end.startswith(self._inside)
        return end.removeprefix(self._inside).replace(os.sep, "/") if inside else None

    def relative(self, path: str, target: str, end: str) -> str:
        """The target of a link; as written if that is valid in a copy of the directory, too."""
        kept = target.replace(os.sep, "/")
        for root in self._roots:
            if target.startswith(root):
                kept = self.relative_to(path, target[len(root) :])
                break
        meant = link_meaning(path, kept)
        # After a link `..` goes up from its target: maybe out of the root, and in again.
        holds = meant == end or (meant and ".." not in target.lstrip("./"))
        return kept if holds else self.relative_to(path, end)

    def relative_to(self, path: str, inner: str) -> str:
        """The relative path from the directory of a link to a path below the root."""
        above = os.path.join(self._inside, os.path.dirname(path))
        return os.path.relpath(self._inside + inner, above).replace(os.sep, "/")
