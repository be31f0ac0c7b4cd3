"""ETags: marks of files in a user's bucket, sizes of parts, and how content is compared by its tag.

A snapshot names blobs by their sha256. That of a file in a bucket is unknown without reading it, so
a mark takes its place: the sha256 of where the file lies, its size and its tag (ETag). An unchanged
file has the same mark, and the list of them is immutable and has an id like any other snapshot. The
bytes are not ours, so a file that was replaced since can be detected, and refused, but not
restored. Values only, no I/O.
"""

from __future__ import annotations

import hashlib
import json
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

LEAST_PART = 5 * 1024 * 1024
"""No bucket takes a smaller part but the last of a file, so a smaller file goes as a whole."""
PART = 16 * 1024 * 1024
"""The largest usual part; every part of a file had this size before parts went by its size."""
MOST_PARTS = 10_000
AT_ONCE = 4
TWICE = 20
"""A sender that is killed has at most this share (one twentieth) under way, to be sent again."""
_MIB = 1024 * 1024
_USUAL = (5, 6, 8, 10, 12, 15, 16, 20, 24, 25, 32, 50, 64, 100, 128, 256, 512, 1024)
"""Parts of the usual tools, in MiB."""
_FEW = 4
_OURS = re.compile(r"output/job-[0-9a-f]{32}/")
_MD5 = re.compile(r'"?([0-9a-f]{32})"?')
_SAID = re.compile(rb"<(Code|Message)>([^<]*)<")
_TAG = re.compile(r"<[^>]*>?")
_LONGEST = 200
_JOINED = re.compile(r'"?[0-9a-f]{32}-([0-9]{1,5})"?')


def mark(bucket: str, key: str, size: int, tag: str) -> str:
    """What stands for the content of this file; `bucket` is its name with its region."""
    text = json.dumps([bucket, key, size, tag], ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(f"private {text}".encode()).hexdigest()


def is_ours(path: str) -> bool:
    """Whether a file of the directory is an output or a log of a job: these are no inputs."""
    return _OURS.match(path) is not None


def md5_of(tag: str) -> str | None:
    """The MD5 that a tag is; None for a tag of another kind, as files have that came in parts."""
    found = _MD5.fullmatch(tag.lower())
    return found[1] if found else None


def is_whole(size: int, want_size: int, md5: str, tag: str) -> bool:
    """Whether the received bytes are the file of this tag, as far as the tag shows."""
    return size == want_size and md5_of(tag) in (None, md5)


def said_by(status: int, body: bytes) -> str:
    """The response of a bucket, or of something in its place, in a few words."""
    found = {name.decode(): text.decode(errors="replace") for name, text in _SAID.findall(body)}
    words = f"{found.get('Code', '')} {found.get('Message', '')}".strip()
    if not words:
        words = _TAG.sub(" ", body[: 2 * _LONGEST].decode(errors="replace"))
    return " ".join((str(status), *words.split()))[:_LONGEST]


def part_size(size: int) -> int:
    """Of a file of this size, in a bucket: a small share of it, as far as a bucket takes parts so
    small, and no more of them than it takes."""
    share = -(-size // (TWICE * AT_ONCE))
    return max(LEAST_PART, min(PART, share), -(-size // MOST_PARTS))


def cuts(size: int) -> tuple[int, ...]:
    """The part sizes that an upload of a file of this size may have, also of earlier versions."""
    return tuple(dict.fromkeys((part_size(size), max(PART, -(-size // MOST_PARTS)))))


def at_once(total: int, largest: int) -> int:
    """How many parts of up to `largest` bytes are under way together, of `total` bytes."""
    return max(1, min(AT_ONCE, total // TWICE // max(largest, 1)))


def count_in(tag: str) -> int:
    """How many parts a file of this tag came in; 0 for a tag of another kind."""
    found = _JOINED.fullmatch(tag.lower())
    return int(found[1]) if found else 0


def part_sizes(size: int, tag: str) -> tuple[int, ...]:
    """How large the parts may be that a file of this size and tag came in: as we cut it, all alike,
    or in those of the usual tools. Few sizes make that many parts. None for a tag of another kind.
    """
    count = count_in(tag)
    if not count or not size:
        return ()
    least, most = -(-size // count), (size - 1) // (count - 1) if count > 1 else size
    whole = range(-(-least // _MIB), most // _MIB + 1)
    likely = whole if len(whole) <= _FEW else _USUAL
    guesses = (*cuts(size), least, *(each * _MIB for each in likely))
    return tuple(dict.fromkeys(each for each in guesses if -(-size // each) == count))


def joined_tag(tags: Iterable[str]) -> str | None:
    """The tag of a file that came in parts of these tags; None when one of them is no MD5."""
    known = [md5_of(tag) for tag in tags]
    digests = [bytes.fromhex(md5) for md5 in known if md5 is not None]
    if len(digests) != len(known):
        return None
    joined = hashlib.md5(b"".join(digests), usedforsecurity=False)
    return f'"{joined.hexdigest()}-{len(known)}"'
