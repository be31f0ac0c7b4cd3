"""Direct downloads of blobs from a bucket by presigned URLs.

The agent has no keys of the bucket, only one URL per file. No error is reported from here: the
caller downloads the blob through the server instead, which reports what is wrong. A bucket that
cannot be reached from this machine is not tried again for a while.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from paddlecloud.agent.inputs._blob_check import WantedBlob
from paddlecloud.model.errors import Unreachable
from paddlecloud.model.protocol.bce_auth import quote
from paddlecloud.net.connection_pool import Pool
from paddlecloud.net.endpoint import split_url

if TYPE_CHECKING:
    from collections.abc import Callable

    from paddlecloud.agent.server_link.channel import Channel
    from paddlecloud.net.proxy import Proxies

#: Seconds until a bucket accepts a connection, and longest silence.
_TIMEOUT = (5.0, 60.0)
_AWAY_SECONDS = 60.0
#: Presigned URLs are valid for an hour; a download that starts late must still be accepted.
_URL_SECONDS = 1800.0
_PARTIAL_CONTENT = 206
#: Most bytes of an error response that are read, so that the connection can be used again.
_MAX_ERROR_BYTES = 4096


class PresignedUrls:
    """The presigned URLs of one replica's blobs, many per request. Belongs to one thread."""

    def __init__(self, replica: str, channel: Channel) -> None:
        self._path = f"/agent/replicas/{quote(replica)}/contents"
        self._channel = channel
        self._known: dict[str, WantedBlob] = {}
        self._asked_at = 0.0

    def of(self, sha256: str) -> tuple[WantedBlob, tuple[WantedBlob, ...]]:
        """This blob with its URL. If that had to be requested, also all blobs of the response: they
        are needed next."""
        known = self._known.get(sha256)
        if known is not None and time.monotonic() - self._asked_at < _URL_SECONDS:
            return known, ()
        self._asked_at = time.monotonic()
        rows = self._channel.json("POST", self._path, {"sha256": sha256})["contents"]
        self._known = {row[0]: WantedBlob(row[0], int(row[1]), row[2], row[3]) for row in rows}
        return self._known[sha256], tuple(self._known.values())


class DirectDownloads:
    """Thread-safe."""

    def __init__(self, proxies: Proxies) -> None:
        self._pool = Pool(proxies)
        self._away: dict[tuple[str, str, int], float] = {}
        """Hosts that could not be reached, and until when they are not tried."""

    def fetch(
        self, url: str, write: Callable[[bytes], object], tag: str = "", start: int = 0
    ) -> bool:
        """Pass the file from the byte `start` on to `write`; whether it came to its end. With `tag`
        only the file of this ETag. What `write` raises is raised."""
        host = split_url(url)
        if time.monotonic() < self._away.get(host, 0.0):
            return False
        headers = {"if-match": tag} if tag else {}
        if start:
            headers["range"] = f"bytes={start}-"
        received = False
        try:
            with self._pool.request("GET", url, headers, idempotent=True, timeout=_TIMEOUT) as got:
                # A server without ranges sends the whole file.
                begins = got.headers.get("content-range", "").startswith(f"bytes {start}-")
                in_range = not start or (got.status == _PARTIAL_CONTENT and begins)
                if not 200 <= got.status < 300 or not in_range:
                    got.take(_MAX_ERROR_BYTES)
                    return False
                for chunk in got.iter_chunks():
                    received = True
                    write(chunk)
                return True
        except Unreachable:
            if not received:
                self._away[host] = time.monotonic() + _AWAY_SECONDS
            return False

    def drop_idle(self) -> None:
        """Close the connections that no thread uses."""
        self._pool.drop_idle()
