"""Snapshots: immutable lists of files with their hashes, and the rules for paths in them.

The id of a snapshot is the sha256 of its canonical form, so the same directory always has the same
id. Transferring the blobs is the business of client, server and agent.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from paddlecloud.model.errors import Invalid
from paddlecloud.model.files.path_rules import (
    MAX_NAME_BYTES,
    MAX_PATH_BYTES,
    fault_of,
    link_meaning,
)

MAX_DEPTH = 200
"""Names in a path: walking a tree needs an open descriptor and a stack frame for each."""

MAX_SIZE = 2**62
"""Bytes of all files, limited by the integers of databases."""


class EntryKind(StrEnum):
    FILE = "file"
    DIRECTORY = "dir"
    LINK = "link"


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One name in a snapshot. `path` is relative, with forward slashes."""

    path: str
    kind: EntryKind = EntryKind.FILE
    size: int = 0
    sha256: str = ""
    executable: bool = False
    target: str = ""
    """Where a link points: relative to its own directory and inside the snapshot, or absolute,
    where jobs run on the machine of their submitter."""


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    id: str
    entries: tuple[Entry, ...]

    @property
    def size(self) -> int:
        """Bytes of its files; sizes of directories and links are ignored."""
        return sum(entry.size for entry in self.entries if entry.kind is EntryKind.FILE)

    @property
    def digests(self) -> dict[str, int]:
        """Every blob it needs, with its size."""
        return {e.sha256: e.size for e in self.entries if e.kind is EntryKind.FILE}


def snapshot_of(entries: Iterable[Entry], *, outside_links: bool = False) -> Snapshot:
    """The snapshot of these entries. Invalid for unsafe paths, duplicates, and links that leave it,
    unless they may (`check_link`)."""
    ordered = tuple(sorted(entries, key=lambda entry: entry.path))
    _check(ordered, outside_links=outside_links)
    digest = hashlib.sha256(canonical_json(ordered).encode()).hexdigest()
    return Snapshot(id=f"sha256:{digest}", entries=ordered)


def canonical_json(entries: Sequence[Entry]) -> str:
    """The text of which the id is the digest. ASCII: a file name need not be valid Unicode."""
    rows = [[e.path, e.kind.value, e.size, e.sha256, int(e.executable), e.target] for e in entries]
    return json.dumps(rows, ensure_ascii=True, separators=(",", ":"))


def check_path(path: str, *, below: bool = False) -> None:
    """Invalid for a path that is not portable (`path_rules`), or is too deep."""
    fault = fault_of(path, below=below)
    if fault:
        raise _too_long(path) if fault == "name_long" else Invalid("path_unsafe", path=_shown(path))
    depth = path.count("/") + 1
    if depth > MAX_DEPTH:
        raise Invalid("path_deep", path=_shown(path), depth=depth, limit=MAX_DEPTH)


def _check(entries: tuple[Entry, ...], *, outside_links: bool) -> None:
    kinds: dict[str, EntryKind] = {}
    for entry in entries:
        _check_text(entry.path, entry.path)
        _check_text(entry.path, entry.target)
        check_path(entry.path, below=True)
        if entry.path in kinds:
            raise Invalid("snapshot_name_twice", path=entry.path)
        kinds[entry.path] = entry.kind
        if entry.kind is EntryKind.LINK:
            check_link(entry.path, entry.target, outside=outside_links)
    _check_contents(entry for entry in entries if entry.kind is EntryKind.FILE)
    for path in kinds:
        above = path.rpartition("/")[0]
        while above:
            if kinds.get(above, EntryKind.DIRECTORY) is not EntryKind.DIRECTORY:
                raise Invalid("snapshot_below_file", path=path, above=above)
            above = above.rpartition("/")[0]


def _check_contents(files: Iterable[Entry]) -> None:
    """Each blob has one size, and the total can be stored."""
    sizes: dict[str, int] = {}
    total = 0
    for file in files:
        total += file.size
        known = is_digest(file.sha256) and sizes.setdefault(file.sha256, file.size) == file.size
        if not known or total > MAX_SIZE:
            raise Invalid("snapshot_digest", path=file.path)


def _check_text(path: str, text: str) -> None:
    """A name must be valid Unicode: JSON and other systems cannot hold anything else."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Invalid("path_encoding", path=_shown(path)) from None


def _too_long(path: str) -> Invalid:
    try:
        size = max(len(part.encode("utf-8", "surrogateescape")) for part in path.split("/"))
    except UnicodeEncodeError:  # half of a surrogate pair, which no file name can hold
        return Invalid("path_unsafe", path=_shown(path))
    limits = {"most": MAX_NAME_BYTES, "limit": MAX_PATH_BYTES}
    return Invalid("path_long", path=_shown(path), size=size, **limits)


def _shown(path: str) -> str:
    """The path for messages: encodable and not too long."""
    return path[:200].encode("utf-8", "backslashreplace").decode()


def check_link(path: str, target: str, *, outside: bool = False) -> None:
    """Invalid for a link at `path` that leaves the snapshot or has an unsafe target. `outside`: an
    absolute target is allowed, which is the same file for the submitter and the job."""
    is_outside = outside and target.startswith("/")
    check_path(target[1:] if is_outside else resolve_link(path, target), below=True)


def resolve_link(path: str, target: str) -> str:
    """The path in the snapshot that a link at `path` points to; Invalid if it leaves it."""
    meant = link_meaning(path, target)
    if not meant or "\\" in target or "\0" in target:
        raise Invalid("snapshot_link", path=path, target=target[:200])
    return meant


def is_digest(text: str) -> bool:
    """Whether this is a sha256 in hex."""
    return len(text) == 64 and not text.strip("0123456789abcdef")
