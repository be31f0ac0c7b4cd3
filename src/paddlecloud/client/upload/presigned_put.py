"""Puts files, and pieces of files, to addresses in a bucket, by a few threads at once.

An address is all that is known of the bucket. Every piece goes with its MD5, so the bucket refuses
what was damaged on the way, or changed between two looks at it; what is refused is tried again.
Which pieces there are, and what they become, is the caller's work.
"""

from __future__ import annotations

import hashlib
import os
from base64 import b64encode
from functools import partial
from threading import Lock

from paddlecloud.client.display import shown
from paddlecloud.client.scan.walk import BLOCK, stamp, unreadable
from paddlecloud.client.workers import work_off
from paddlecloud.model.errors import Conflict, NotFound, Retry
from paddlecloud.model.files.etag import said_by
from paddlecloud.net.endpoint import connection_to, split_url, target_in
from paddlecloud.net.retry import patiently

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import IO

    from paddlecloud.net.http1 import Connection, Response

    Connections = dict[tuple[str, str, int], Connection]
    Took = Callable[[int, int, str], object]
    Went = Callable[[int], object]
    Piece = tuple[str, str, int, int, str, str]
    """Path in the directory, the file's own path, where it begins, its size, its address, and the
    stamp that the file must have."""
    Sending = tuple[str, str, int, str]
    """Path in the directory, the file's own path, and its size and stamp when it was scanned."""

#: Bytes that are counted at a time while they go out.
_COUNTED = 256 * 1024
#: Bytes of what a bucket says that are read.
_MOST_SAID = 64 * 1024


def put_all(pieces: Iterable[Piece], bos_url: str, took: Took, went: Went, *, at_once: int) -> None:
    """Put them all, so many together; `took` hears of each where it began, its size and its tag.

    `went` hears of bytes as they go out, and with a minus of those of a try that failed. Both are
    called by one thread at a time. NotFound("upload_missing") when the upload of which a piece is a
    part is no more.
    """
    putting = _Putting(pieces, bos_url, took, went)
    work_off(at_once, putting.following, putting.put_some)


def md5_of_piece(source: str, begin: int, size: int) -> bytes:
    """Of so many bytes of a file, or of as many as there are."""
    digest = hashlib.md5(usedforsecurity=False)
    try:
        with open(source, "rb", buffering=0) as file:  # noqa: PTH123 - a Path costs start-up time
            file.seek(begin)
            while size > 0 and (block := file.read(min(BLOCK, size))):
                digest.update(block)
                size -= len(block)
    except OSError as error:
        raise unreadable(source, error) from None
    return digest.digest()


def check_unchanged(sending: Sending) -> None:
    """Conflict("files_changed") if a file is not any more what was scanned."""
    path, source, _, seen = sending
    try:
        now = stamp(os.stat(source))  # noqa: PTH116 - a Path costs start-up time
    except OSError as error:
        raise unreadable(source, error) from None
    if now != seen:
        raise Conflict("files_changed", path=shown(path))


class _Putting:
    def __init__(self, work: Iterable[Piece], bos_url: str, took: Took, went: Went) -> None:
        self._work = iter(work)
        self._bos_url = bos_url
        self._took = took
        self._went = went
        self._lock = Lock()

    def following(self) -> Piece | None:
        """The next piece; whoever makes them may count, too."""
        with self._lock:
            return next(self._work, None)

    def put_some(self, pieces: Iterator[Piece]) -> None:
        """What one thread does."""
        connections: Connections = {}
        try:
            for piece in pieces:
                tag = patiently(partial(self._put, piece, connections))
                with self._lock:
                    self._took(piece[2], piece[3], tag)
        finally:
            for connection in connections.values():
                connection.close()

    def _put(self, piece: Piece, connections: Connections) -> str:
        """The tag that a piece has in the bucket."""
        path, source, *_ = piece
        sending = _Sending(self._count)
        try:
            tag, reason = _put_once(piece, connections, sending)
        except Retry as error:
            tag, reason = "", str(error)
        except OSError as error:
            raise unreadable(source, error) from None
        if not tag:
            self._count(-sending.out)
            told = {"path": shown(path), "bos_url": self._bos_url, "reason": reason}
            raise Retry("private_put_failed", **told)
        return tag

    def _count(self, size: int) -> None:
        with self._lock:
            self._went(size)


class _Sending:
    """One try to send a piece, and how much of it is out."""

    def __init__(self, count: Went) -> None:
        self._count = count
        self.out = 0

    def blocks(self, file: IO[bytes], size: int) -> Iterator[bytes]:
        while size > 0 and (block := file.read(min(_COUNTED, size))):
            size -= len(block)
            self.out += len(block)
            self._count(len(block))
            yield block


def _put_once(piece: Piece, connections: Connections, sending: _Sending) -> tuple[str, str]:
    """The tag that it has in the bucket; or what the bucket said instead."""
    path, source, begin, size, address, seen = piece
    md5 = md5_of_piece(source, begin, size)
    headers = {"content-length": str(size), "content-md5": b64encode(md5).decode("ascii")}
    place = split_url(address)
    if place not in connections:
        connections[place] = connection_to(address)
    with open(source, "rb") as file:  # noqa: PTH123 - a Path costs start-up time
        # What was hashed is what was scanned if it is that still.
        if stamp(os.fstat(file.fileno())) != seen:
            raise Conflict("files_changed", path=shown(path))
        file.seek(begin)
        blocks = sending.blocks(file, size)
        answer = connections[place].request("PUT", target_in(address), headers, blocks)
        said = _said(answer)
    if answer.status == 404 and "uploadId=" in address:
        raise NotFound("upload_missing", upload=shown(path))
    tag = answer.headers.get("etag", "")
    # Whoever keeps an object has a tag for it: a page that is shown for any address has none.
    if answer.status >= 300 or not tag:
        return "", said_by(answer.status, said)
    return tag, ""


def _said(answer: Response) -> bytes:
    """What a bucket answers, up to a length that no bucket needs."""
    said = b""
    while len(said) < _MOST_SAID and (piece := answer.read(_MOST_SAID)):
        said += piece
    answer.close()
    return said
