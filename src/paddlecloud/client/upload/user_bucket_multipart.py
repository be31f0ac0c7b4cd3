"""Brings one large file into a user's own bucket, in parts, by addresses that the server signs.

The file gets its name when all parts are there, so nothing of it shows before. The bucket keeps
parts that arrived, also when this process is killed: whoever comes again is told which there are,
compares their MD5s with the file, and sends the others. No note of it is kept on this side.
"""

from __future__ import annotations

from paddlecloud.client import response_schemas
from paddlecloud.client.display import shown
from paddlecloud.client.response_checks import refuse
from paddlecloud.client.transport import DONE
from paddlecloud.client.upload.presigned_put import check_unchanged, md5_of_piece, put_all
from paddlecloud.model.errors import PaddleCloudError, Retry
from paddlecloud.model.files.etag import at_once, count_in, cuts, joined_tag, md5_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from paddlecloud.client.upload.presigned_put import Piece, Sending

    Ask = Callable[..., Any]
    """The answer of the server to a request below /private, by its path and further fields."""

#: Part addresses that are asked for at a time: few, for each is good for an hour only.
BATCH = 16
#: How often an upload is begun again that somebody else ended or changed.
ROUNDS = 4
_ASK_AGAIN = frozenset(("upload_incomplete", "upload_missing"))


def send(
    sending: Sending, ask: Ask, bos_url: str, total: int, add: Callable[[int], object]
) -> None:
    """Put a file under its path; done when the bucket has it whole and under its name.

    `total` is what all files have that are sent together. `add` hears of bytes that are there or on
    their way, and with a minus of those that have to go again.
    """
    upload = _Upload(sending, ask, bos_url, total, add)
    for tries_left in range(ROUNDS - 1, -1, -1):
        try:
            upload.go_on()
        except PaddleCloudError as error:
            if error.code not in _ASK_AGAIN:
                raise
            if not tries_left:
                raise Retry("upload_unfinished", files=1, path=shown(sending[0])) from None
        else:
            return


def is_of_parts(source: str, size: int, tag: str) -> bool:
    """Whether a bucket gives this tag to this file when it comes in our parts."""
    for each in cuts(size):
        if count_in(tag) == -(-size // each):
            md5s = (md5_of_piece(source, begin, each).hex() for begin in range(0, size, each))
            if joined_tag(md5s) == tag:
                return True
    return False


class _Upload:
    def __init__(
        self,
        sending: Sending,
        ask: Ask,
        bos_url: str,
        total: int,
        add: Callable[[int], object],
    ) -> None:
        self._sending = sending
        self._path, self._source, self._size, self._seen = sending
        self._ask = ask
        self._bos_url = bos_url
        self._total = total
        self._add = add
        self._each = 0
        self._tags: dict[int, str] = {}
        """Of the parts that are in the bucket, by number."""
        self._told = 0
        self._rounds = 0

    def go_on(self) -> None:
        """Bring what is missing, and have it joined."""
        asked = {"path": self._path, "size": self._size}
        state = self._ask("/uploads", response_schemas.PRIVATE_UPLOAD, **asked)
        self._rounds += 1
        if self._rounds > 1 and is_of_parts(self._source, self._size, state["tag"]):
            check_unchanged(self._sending)
            return
        self._tags.clear()
        self._went(-self._told)
        self._each = state["part_size"]
        if not self._each:
            refuse("part_size", self._each, "response_positive")
        upload = state["upload"]
        pieces = self._pieces(upload, dict(state["parts"]))
        together = at_once(self._total, self._each)
        put_all(pieces, self._bos_url, self._took, self._went, at_once=together)
        check_unchanged(self._sending)
        tags = [self._tags[number] for number in sorted(self._tags)]
        self._ask("/uploads/join", DONE, **asked, upload=upload, tags=tags)

    def _pieces(self, upload: str, there: dict[int, str]) -> Iterator[Piece]:
        """The parts that have to be sent; addresses are asked for when they are needed."""
        count = -(-self._size // self._each)
        missing: list[int] = []
        for number in range(1, count + 1):
            if not self._is_there(number, there.get(number)):
                missing.append(number)
            if missing and (len(missing) == BATCH or number == count):
                asked = {"path": self._path, "upload": upload, "numbers": missing}
                given = self._ask("/uploads/addresses", response_schemas.ADDRESSES, **asked)[
                    "addresses"
                ]
                if len(given) != len(missing):
                    refuse("addresses", given, "response_row", count=len(missing))
                for part, address in zip(missing, given, strict=True):
                    begin, size = self._span(part)
                    yield self._path, self._source, begin, size, address, self._seen
                missing = []

    def _is_there(self, number: int, tag: str | None) -> bool:
        begin, size = self._span(number)
        if tag is None or md5_of(tag) != md5_of_piece(self._source, begin, size).hex():
            return False
        self._took(begin, size, tag)
        self._went(size)
        return True

    def _span(self, number: int) -> tuple[int, int]:
        begin = (number - 1) * self._each
        return begin, min(self._each, self._size - begin)

    def _took(self, begin: int, _size: int, tag: str) -> None:
        self._tags[begin // self._each + 1] = tag

    def _went(self, size: int) -> None:
        self._told += size
        self._add(size)
