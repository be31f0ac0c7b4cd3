"""A seekable file behind an http(s) URL, read by range requests.

For plain and presigned URLs; a caller that signs requests passes an opener instead. From a server
without ranges the file is read from the beginning.
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
    """Open a URL for reading; OSError if it does not respond."""
    return io.BufferedReader(_HttpFile(url))


class _HttpFile(io.RawIOBase):
    def __init__(self, url: str) -> None:
        super().__init__()
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"not an http address: {url}")
        self._url = url
        self._position = 0
        self._response: HTTPResponse | None = self._ask(0)
        self._response_at = 0
        self._ranges = self._response.headers.get("Accept-Ranges") == "bytes"
        length = self._response.headers.get("Content-Length")
        self._size = int(length) if length else None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return self._size is not None and self._ranges

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        if not self.seekable():
            raise io.UnsupportedOperation("this server does not support ranges")
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size or 0}[whence]
        self._position = base + offset
        return self._position

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # what BufferedReader passes
        if self._size is not None and self._position >= self._size:
            return 0
        for attempt in range(_TRIES):
            try:
                if self._response is None or self._response_at != self._position:
                    self._hang_up()
                    self._response = self._ask(self._position)
                    self._response_at = self._position
                count = self._response.readinto(buffer)
                if not count and self._size is not None:
                    raise ConnectionError(f"{self._url} ended early, at byte {self._position}")
            except (HTTPException, ConnectionError, TimeoutError):
                self._hang_up()
                if attempt + 1 == _TRIES or not self.seekable():
                    raise
            else:
                self._position += count
                self._response_at = self._position
                return count
        return 0

    def close(self) -> None:
        self._hang_up()
        super().close()

    def _hang_up(self) -> None:
        response, self._response = getattr(self, "_response", None), None
        if response is not None:
            response.close()

    def _ask(self, offset: int) -> HTTPResponse:
        headers = {"Range": f"bytes={offset}-"} if offset else {}
        try:
            asked = Request(self._url, headers=headers)
            response: HTTPResponse = urlopen(asked, timeout=SECONDS)
        except HTTPError as error:
            error.close()
            raise OSError(f"{self._url}: the server answers {error.code} {error.reason}") from None
        if offset and response.status != 206:  # it has the whole file: skip to the range
            left = offset
            while left > 0:
                data = response.read(min(left, 2**20))
                if not data:
                    raise ConnectionError("the response ends before the requested range")
                left -= len(data)
        return response
