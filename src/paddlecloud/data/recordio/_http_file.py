"""A file behind an http(s) address that can be read at any offset, by asking for ranges.

Only what plain addresses need, presigned ones of object stores included. Whoever signs requests
passes an opener instead. A server that does not know ranges is read from the beginning.
"""

from __future__ import annotations

import io
import os
from http.client import HTTPException, HTTPResponse
from urllib.error import HTTPError
from urllib.request import Request, urlopen

SECONDS = 60.0
_TRIES = 3


def open_http(url: str) -> io.BufferedReader:
    """Open an address for reading; OSError if it does not answer."""
    return io.BufferedReader(_HttpFile(url))


class _HttpFile(io.RawIOBase):
    def __init__(self, url: str) -> None:
        super().__init__()
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"not an http address: {url}")
        self._url = url
        self._position = 0
        self._answer: HTTPResponse | None = self._ask(0)
        self._answer_at = 0
        self._ranges = self._answer.headers.get("Accept-Ranges") == "bytes"
        length = self._answer.headers.get("Content-Length")
        self._size = int(length) if length else None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return self._size is not None and self._ranges

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        if not self.seekable():
            raise io.UnsupportedOperation("this server gives no ranges")
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size or 0}[whence]
        self._position = base + offset
        return self._position

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # what BufferedReader passes
        if self._size is not None and self._position >= self._size:
            return 0
        for attempt in range(_TRIES):
            try:
                if self._answer is None or self._answer_at != self._position:
                    self._hang_up()
                    self._answer = self._ask(self._position)
                    self._answer_at = self._position
                count = self._answer.readinto(buffer)
                if not count and self._size is not None:
                    raise ConnectionError(f"{self._url} ended early, at byte {self._position}")
            except (HTTPException, ConnectionError, TimeoutError):
                self._hang_up()
                if attempt + 1 == _TRIES or not self.seekable():
                    raise
            else:
                self._position += count
                self._answer_at = self._position
                return count
        return 0

    def close(self) -> None:
        self._hang_up()
        super().close()

    def _hang_up(self) -> None:
        answer, self._answer = getattr(self, "_answer", None), None
        if answer is not None:
            answer.close()

    def _ask(self, offset: int) -> HTTPResponse:
        headers = {"Range": f"bytes={offset}-"} if offset else {}
        try:
            asked = Request(self._url, headers=headers)
            answer: HTTPResponse = urlopen(asked, timeout=SECONDS)
        except HTTPError as error:
            error.close()
            raise OSError(f"{self._url}: the server answers {error.code} {error.reason}") from None
        if offset and answer.status != 206:
            _skip(answer, offset)
        return answer


def _skip(answer: HTTPResponse, count: int) -> None:
    """A server may answer a range with the whole: read up to where it should begin."""
    while count > 0:
        piece = answer.read(min(count, 2**20))
        if not piece:
            raise ConnectionError("the server's answer ends before the range that was asked for")
        count -= len(piece)
