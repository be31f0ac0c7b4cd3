"""Fetches pieces of files from the addresses that a server gave for its store.

The store knows nothing of us: an address that cannot be reached from here, has run out or answers
anything unexpected is of no use, and the caller asks the server instead. Whether the bytes are the
right ones is the caller's to compare.
"""

from __future__ import annotations

import hashlib

from paddlecloud.model.errors import PaddleCloudError
from paddlecloud.net.endpoint import connection_to, split_url, target_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from paddlecloud.net.http1 import Connection, Response

_BLOCK = 1024 * 1024


class Addresses:
    """Connections to stores, for several threads at once."""

    def __init__(self) -> None:
        self._idle: dict[tuple[str, str, int], list[Connection]] = {}

    def fetch(self, url: str, start: int, length: int, write: Callable[[bytes], None]) -> str:
        """Hand `length` bytes from `start` on to `write`; their sha256, empty when they did not
        come, or not whole. What `write` raises is not caught."""
        idle = self._idle.setdefault(split_url(url), [])
        connection = taken(idle) or connection_to(url)
        pieces = _Pieces(length, write)
        whole = False
        try:
            whole = pieces.take(_asked(connection, url, start, length))
        except _Refused:
            return ""
        finally:
            if whole:
                idle.append(connection)
            else:
                connection.close()
        return pieces.digest.hexdigest() if whole else ""

    def close(self) -> None:
        for idle in self._idle.values():
            while (connection := taken(idle)) is not None:
                connection.close()


def taken(idle: list[Connection]) -> Connection | None:
    """An idle connection, if there is any: list.pop and append are atomic."""
    try:
        return idle.pop()
    except IndexError:
        return None


class _Refused(Exception):
    """The store did not give what was asked for."""


class _Pieces:
    def __init__(self, length: int, write: Callable[[bytes], None]) -> None:
        self.digest = hashlib.sha256()
        self._left = length
        self._write = write

    def take(self, response: Response) -> bool:
        while piece := _read(response):
            if len(piece) > self._left:
                return False
            self._left -= len(piece)
            self.digest.update(piece)
            self._write(piece)
        return not self._left


def _asked(connection: Connection, url: str, start: int, length: int) -> Response:
    headers = {"range": f"bytes={start}-{start + length - 1}"} if length else {}
    try:
        response = connection.request("GET", target_in(url), headers, idempotent=True)
    except PaddleCloudError:
        raise _Refused from None
    if response.status not in ((206,) if length else (200,)):
        raise _Refused
    return response


def _read(response: Response) -> bytes:
    try:
        return response.read(_BLOCK)
    except PaddleCloudError:
        raise _Refused from None
