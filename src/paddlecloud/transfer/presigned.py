"""PUTs to presigned URLs of a bucket.

A presigned URL is all that is known of the bucket. Every request has a Content-MD5, so the bucket
refuses bytes that were damaged on the way, and counts only if the response has an ETag, as an
object has: a sign-in page that answers any URL has none.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from math import inf
from time import monotonic

from paddlecloud.model.errors import NotFound, PaddleCloudError, Refused, Retry
from paddlecloud.model.files.etag import said_by
from paddlecloud.net.endpoint import split_url
from paddlecloud.net.retry import TRANSPORT, RetryPolicy, run

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from paddlecloud.net.connection_pool import Pool
    from paddlecloud.net.http1 import Response

    Report = Callable[[int], object]

#: Seconds until a bucket accepts a connection, and longest silence.
TIMEOUT = (8.0, 60.0)
#: A bucket that cannot be reached, or is silent, is not asked again at once.
POLICY = RetryPolicy(
    TRANSPORT.attempts,
    TRANSPORT.first_pause,
    budget=TRANSPORT.budget,
    never=("server_timeout", "server_unreachable"),
)
#: Bytes that are reported at a time while they are sent.
_REPORTED = 256 * 1024
#: Most bytes of a response that are read.
_MOST_SAID = 64 * 1024
#: Of statuses below 500, those that may be gone in a moment: damage on the way, too many requests.
_TRANSIENT = (400, 408, 429)


class PutFailed(Exception):
    """A bucket did not store what was sent to a presigned URL; the message is the reason."""


class PresignedConnections:
    """Connections to the hosts of presigned URLs. Safe for several threads."""

    def __init__(self, pool: Pool, away_for: float = inf) -> None:
        """`away_for`: seconds for which a host that failed counts as away."""
        self._pool = pool
        self._away_for = away_for
        self._away: dict[tuple[str, str, int], float] = {}

    @property
    def is_any_away(self) -> bool:
        return any(monotonic() < until for until in self._away.values())

    def is_away(self, url: str) -> bool:
        """Whether the host of this URL failed a while ago."""
        return monotonic() < self._away.get(split_url(url), 0.0)

    def mark_away(self, url: str) -> None:
        """The host of this URL cannot be reached from here, or does not do what it should."""
        self._away[split_url(url)] = monotonic() + self._away_for

    def put(self, url: str, data: bytes | memoryview, report: Report | None = None) -> str:
        """Store these bytes; their ETag.

        `report` is called with the bytes of each block as it is sent, and with a negative number
        for those of an attempt that failed. PutFailed when the bucket does not store them,
        NotFound("upload_missing") when there is no such multipart upload.
        """
        headers = {
            "content-length": str(len(data)),
            "content-md5": b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode(),
        }
        try:
            return run(lambda: self._put_once(url, headers, data, report), POLICY)
        except NotFound:
            raise
        except PaddleCloudError as error:
            self.mark_away(url)
            raise PutFailed(str(error.params.get("detail") or error)) from error

    def _put_once(
        self, url: str, headers: dict[str, str], data: bytes | memoryview, report: Report | None
    ) -> str:
        sent = 0

        def blocks() -> Iterator[bytes]:
            nonlocal sent
            for begin in range(0, len(data), _REPORTED):
                block = bytes(data[begin : begin + _REPORTED])
                sent += len(block)
                if report is not None:
                    report(len(block))
                yield block

        try:
            with self._pool.request("PUT", url, headers, blocks(), timeout=TIMEOUT) as response:
                return _etag(url, response)
        except PaddleCloudError:
            if report is not None:
                report(-sent)
            raise


def _etag(url: str, response: Response) -> str:
    said, etag = response.take(_MOST_SAID), response.headers.get("etag", "")
    if 200 <= response.status < 300 and etag:
        return etag
    if response.status == 404 and "uploadId=" in url:
        raise NotFound("upload_missing", upload=url.partition("uploadId=")[2][:100])
    kind = Retry if response.status >= 500 or response.status in _TRANSIENT else Refused
    raise kind("store_failed", place=split_url(url)[1], detail=said_by(response.status, said))
