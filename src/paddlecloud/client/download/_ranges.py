"""The files of a download, and the byte ranges in which they are fetched.

The size of a range follows from the size of the whole download, so a resumed download may use
another one. The ranges that are here are kept as they are, and only the gaps between them are
divided again.
"""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    Row = Mapping[str, Any]
    Range = tuple[int, int]
    """Offset and length."""

#: Requests under way at once; more where files are small and the round trip is most of their time.
FEW, MANY = 4, 16
#: Average size up to which files count as small for that.
SMALL_FILE = 128 * 1024
#: A download of no more bytes than this is fetched file by file.
SMALL_DOWNLOAD = 1024 * 1024
MAX_RANGE = 8 * 1024 * 1024
#: With smaller ranges most of the time would be that of the requests.
MIN_RANGE = 64 * 1024
#: At most one part in so many is under way, and lost when the process is killed.
LOSS = 20
#: Each range takes memory until it is here, so a huge download has larger ones.
MAX_RANGES = 200_000
_PAGE = 4096


def concurrency(rows: Sequence[Row], *, local: bool) -> int:
    """Requests under way at once; `local`: files are copied from a store on this machine."""
    total = _total(rows)
    if local or total > SMALL_FILE * len(rows):
        return FEW
    if total <= SMALL_DOWNLOAD:
        return MANY
    return min(MANY, max(FEW, total // (LOSS * MIN_RANGE)))


def range_size(rows: Sequence[Row], at_once: int) -> int:
    total = _total(rows)
    if total <= SMALL_DOWNLOAD:
        return MAX_RANGE
    share = total // (LOSS * at_once) // _PAGE * _PAGE
    return at_least(min(MAX_RANGE, max(MIN_RANGE, share)), total)


def at_least(size: int, total: int) -> int:
    """That size, or the one with which `total` bytes have no more than MAX_RANGES ranges."""
    return max(size, -(-total // MAX_RANGES))


def _total(rows: Sequence[Row]) -> int:
    return sum(row["size"] for row in rows)


class File:
    """One row of the listing, and the state of its download."""

    __slots__ = (
        *("done", "executable", "generation", "journal_time", "link", "location", "lock", "name"),
        *("path", "range_size", "record_time", "sha256", "size", "time", "unproven", "verified"),
        *("version", "written"),
    )

    def __init__(self, row: Row, name: str, settled: str, range_size: int, location: str) -> None:
        """`settled`: a file last changed before this time has another time after every change."""
        self.path = str(row["path"])
        self.name = name
        self.size = int(row["size"])
        self.time = str(row["time"])
        self.sha256 = str(row.get("sha256") or "")
        """Of the listed version, if it is known."""
        self.written = str(row.get("written_sha256") or "")
        """Of what the job wrote, if the stored file may be another one by now."""
        identifies = self.sha256 or self.written or self.time < settled
        self.record_time = self.time if identifies else ""
        """The time on record: none if the next version of the file might have the same."""
        self.journal_time = self.time if self.size > MAX_RANGE else self.record_time
        """The same for its ranges: those of a large file are also known by its version, which the
        server sends with the next range."""
        self.executable = bool(row.get("executable"))
        self.link = str(row.get("link") or "")
        """The target, if it is a symbolic link."""
        self.location = location
        """A path of this machine or a presigned URL, if the file can be had directly."""
        self.version = ""
        """Of which its ranges are; empty until the server has sent it."""
        self.generation = 0
        """How often the download of this file was restarted because it had changed."""
        self.range_size = range_size
        self.done: dict[int, int] = {}
        """Offsets and lengths of the ranges that are here."""
        self.verified = False
        """It was fetched as a whole, and compared if its sha256 was known."""
        self.unproven = False
        """Some ranges were not compared with a digest of the server: they are from a bucket or an
        earlier download. If the file is wrong, the server may have it right."""
        self.lock = Lock()

    @property
    def is_directory(self) -> bool:
        return self.path.endswith("/")

    def missing(self) -> list[Range]:
        """The ranges that are not here; one without any bytes for an empty file."""
        if not self.size:
            return [] if self.done else [(0, 0)]
        found: list[Range] = []
        at = 0
        for start, length in [*sorted(self.done.items()), (self.size, 0)]:
            for begin in range(at, start, self.range_size):
                found.append((begin, min(self.range_size, start - begin)))
            at = max(at, start + length)
        return found

    def is_whole(self, start: int, length: int) -> bool:
        return not start and length >= self.size
