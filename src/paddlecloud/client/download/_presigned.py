"""GETs byte ranges from presigned URLs of the server's store."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from paddlecloud.model.errors import PaddleCloudError

if TYPE_CHECKING:
    from collections.abc import Callable

    from paddlecloud.net.connection_pool import Pool

_BLOCK = 1024 * 1024
#: Seconds until a bucket accepts a connection, and longest silence.
_TIMEOUT = (8.0, 60.0)


def fetch(pool: Pool, url: str, start: int, length: int, write: Callable[[bytes], None]) -> str:
    """Pass `length` bytes from `start` on to `write`; their sha256.

    Empty if the bucket cannot be reached, the URL has expired, or the response is not this range:
    the caller asks the server instead. Whether the bytes are the right ones is not known here.
    """
    headers = {"range": f"bytes={start}-{start + length - 1}"} if length else {}
    digest, left = hashlib.sha256(), length
    try:
        response = pool.request("GET", url, headers, idempotent=True, timeout=_TIMEOUT)
    except PaddleCloudError:
        return ""
    with response:
        if response.status != (206 if length else 200):
            return ""
        while True:
            try:
                block = response.read(_BLOCK)
            except PaddleCloudError:
                return ""
            left -= len(block)
            if not block or left < 0:
                return "" if left else digest.hexdigest()
            digest.update(block)
            write(block)
