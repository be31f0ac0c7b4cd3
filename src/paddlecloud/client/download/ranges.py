"""The files of a download, and the pieces in which they come.

How large a piece is follows from how much there is to download in all, so a file that is taken up
later may come in other pieces than before. So what is here of it is kept as what it is, ranges of
bytes, and only the gaps between them are cut into pieces.
"""

from __future__ import annotations

from threading import Lock

from paddlecloud.client.response_checks import number, refuse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    Row = Mapping[str, Any]
    Piece = tuple[int, int]
    """Where it begins, and how long it is."""

#: So many are under way at once, and of small files from elsewhere, where most of the time is that
#: of the way there and back.
FEW, MANY = 4, 16
#: Files of that size on average are small.
SMALL = 128 * 1024
#: The largest piece. A file of one such piece is small.
PIECE = 8 * 1024 * 1024
#: The smallest: below, most of the time would be that of the requests.
LEAST = 64 * 1024
#: A download of so few bytes is not worth more requests than files.
LITTLE = 1024 * 1024
#: Whoever is killed has at most this share (one twentieth) under way, to be sent once more.
LOSS = 20
#: Pieces of one download: each takes memory until it is here, so a huge one comes in larger pieces.
MOST = 200_000
_PAGE = 4096


def at_once(rows: Sequence[Row]) -> int:
    """How many requests of a download of these files are under way at once."""
    total = _total(rows)
    is_near = any(str(row.get("way") or "").startswith("/") for row in rows)
    if is_near or total > SMALL * len(rows):
        return FEW
    return MANY if total <= LITTLE else min(MANY, max(FEW, total // (LOSS * LEAST)))


def piece_of(rows: Sequence[Row]) -> int:
    """How large the pieces of a download of these files are."""
    total = _total(rows)
    if total <= LITTLE:
        return PIECE
    share = total // (LOSS * at_once(rows)) // _PAGE * _PAGE
    return largest(min(PIECE, max(LEAST, share)), total)


def largest(piece: int, total: int) -> int:
    """That piece, or a larger one where there would be more than MOST of so many bytes."""
    return max(piece, -(-total // MOST))


def _total(rows: Sequence[Row]) -> int:
    return sum(row["size"] for row in rows)


def check_length(headers: Mapping[str, str], behind: int, most: int | None) -> None:
    """Refuse an answer that does not tell its length, or tells one of more than `most` bytes (None:
    as many as there are) and those `behind` them."""
    length = number(headers, "content-length")
    if length < behind:
        refuse("content-length", length, "response_at_least", least=behind)
    if most is not None and length > most + behind:
        refuse("content-length", length, "response_count", most=most + behind)


class File:
    """One row of the listing, and how far we are with it."""

    __slots__ = (
        *("aside", "done", "executable", "lasting", "link", "lock", "name", "noted", "path"),
        *("piece", "sha256", "size", "time", "verified", "version", "versions", "way"),
        "written",
    )

    def __init__(self, row: Row, name: str, settled: str, piece: int) -> None:
        """`settled`: what was changed before that time is another file with every later time."""
        self.path = str(row["path"])
        self.name = name
        self.size = int(row["size"])
        self.time = str(row["time"])
        self.sha256 = str(row.get("sha256") or "")
        """Of the state that comes, as a whole; empty where nobody knows it."""
        self.verified = False
        """Whether it came as a whole: then it was compared, if anything was known of it."""
        self.written = str(row.get("written_sha256") or "")
        """What the job wrote there, if the stored file may be another one by now."""
        is_told = self.sha256 or self.written or self.time < settled
        self.lasting = self.time if is_told else ""
        """The time that is remembered of it when it is whole: none if it may not tell this file
        from the next one, and nothing else does."""
        self.noted = self.time if self.size > PIECE else self.lasting
        """The time that is written down of its pieces. Their versions, which are exact to the
        microsecond, tell them from those of the next one: the next piece comes with its own."""
        self.executable = bool(row.get("executable"))
        self.link = str(row.get("link") or "")
        """Where it points, if it is a link."""
        self.way = str(row.get("way") or "")
        """Where it can be had past the server: a path of this machine or an address, if any."""
        self.version = ""
        """Which state of the file its pieces are of; empty until the server has said."""
        self.versions = 0
        self.piece = piece
        """How much of it is asked for at once."""
        self.done: dict[int, int] = {}
        """Where the pieces begin that are here, and how long each is."""
        self.aside = ""
        """Where it is written while others still hold the file that it was before."""
        self.lock = Lock()

    @property
    def is_directory(self) -> bool:
        return self.path.endswith("/")

    def missing(self) -> list[Piece]:
        """What is not here of it, in pieces; of a file without bytes that is one without any."""
        if not self.size:
            return [] if self.done else [(0, 0)]
        found: list[Piece] = []
        at = 0
        for start, length in [*sorted(self.done.items()), (self.size, 0)]:
            found += _cut(at, start, self.piece)
            at = max(at, start + length)
        return found

    def is_whole(self, start: int, length: int) -> bool:
        """Whether such a piece is all of it."""
        return not start and length >= self.size


def _cut(start: int, end: int, piece: int) -> list[Piece]:
    return [(at, min(piece, end - at)) for at in range(start, end, piece)]
