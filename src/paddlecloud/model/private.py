"""Files in a user's own bucket: how a list of them is a snapshot, and how their content is checked.

A snapshot names contents by their sha256. Of a file in a bucket nobody knows that without reading
it, so there its place is taken by a mark: the sha256 of where the file lies, its size and its tag
(ETag). The same file unchanged has the same mark, and the list of them is immutable and has an id
like any other snapshot. What differs: the bytes are not ours, so a file that was replaced since can
be noticed, and refused, but not brought back. Values only, no I/O.
"""

from __future__ import annotations

import hashlib
import json
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

PART = 16 * 1024 * 1024
"""A larger file goes into a bucket in parts of this size."""
MOST_PARTS = 10_000
_OURS = re.compile(r"output/job-[0-9a-f]{32}/")
_MD5 = re.compile(r'"?([0-9a-f]{32})"?')


def mark(bucket: str, key: str, size: int, tag: str) -> str:
    """What stands for the content of this file; `bucket` is its name with its region."""
    text = json.dumps([bucket, key, size, tag], ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(f"private {text}".encode()).hexdigest()


def is_ours(path: str) -> bool:
    """Whether a file of the directory is an output or a log of some job: no job is given these."""
    return _OURS.match(path) is not None


def md5_of(tag: str) -> str | None:
    """The MD5 that a tag is; None for a tag of another kind, as files have that came in parts."""
    found = _MD5.fullmatch(tag.lower())
    return found[1] if found else None


def is_whole(size: int, want_size: int, md5: str, tag: str) -> bool:
    """Whether what came is the file of this tag, as far as the tag can tell."""
    return size == want_size and md5_of(tag) in (None, md5)


def part_size(size: int) -> int:
    """Of a file of this size: larger where there would be more parts than a bucket takes."""
    return max(PART, -(-size // MOST_PARTS))


def joined_tag(tags: Iterable[str]) -> str | None:
    """The tag of a file that came in parts of these tags; None when one of them is no MD5."""
    known = [md5_of(tag) for tag in tags]
    digests = [bytes.fromhex(md5) for md5 in known if md5 is not None]
    if len(digests) != len(known):
        return None
    joined = hashlib.md5(b"".join(digests), usedforsecurity=False)
    return f'"{joined.hexdigest()}-{len(known)}"'
