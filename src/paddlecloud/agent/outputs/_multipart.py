"""Sends a large output file in parts: by presigned URLs to its bucket, or through the server.

The server begins and completes the upload, so the file gets its name only while its attempt is the
current one. The file is read once: what is sent is what is hashed. One that changes while it is
sent is not completed; the server drops what was sent of it. An agent that comes again, because it
was killed or the server or the bucket was away, sends the parts that are not there.
"""

from __future__ import annotations

import hashlib
import os
import time
from math import inf
from typing import IO, TYPE_CHECKING, Any

from paddlecloud.agent.outputs import scan
from paddlecloud.agent.server_link.channel import PartBody
from paddlecloud.model.errors import PaddleCloudError, Retry, Unauthenticated
from paddlecloud.model.files.etag import joined_tag
from paddlecloud.model.protocol.bce_auth import quote
from paddlecloud.transfer.parts import PartSender, Target, Upload
from paddlecloud.transfer.presigned import PutFailed
from paddlecloud.transfer.resume import Progress

if TYPE_CHECKING:
    from collections.abc import Sequence

    from paddlecloud.agent.outputs.scan import Found
    from paddlecloud.agent.registry import Tracked
    from paddlecloud.agent.server_link.channel import Channel
    from paddlecloud.transfer.presigned import PresignedConnections
    from paddlecloud.transfer.slots import Slots

#: A smaller file is one request to the server, and would be three and more with presigned URLs.
_LEAST_DIRECT = 1024 * 1024
#: A smaller file that goes through the server is one request, sent again as a whole if it breaks.
_LEAST_THROUGH = 64 * 1024 * 1024
_TIMEOUT = 60.0
_BLOCK = 1024 * 1024


class PartProgress:
    """When a part of one file was last stored (monotonic)."""

    def __init__(self) -> None:
        self.moved_at = -inf


def least(tracked: Tracked) -> int:
    """The size from which on files of this replica are sent in parts."""
    return _LEAST_DIRECT if tracked.direct else _LEAST_THROUGH


def put(
    tracked: Tracked,
    sent: Found,
    file: IO[bytes],
    channel: Channel,
    connections: PresignedConnections,
    slots: Slots | None = None,
    progress: PartProgress | None = None,
) -> str | None:
    """The sha256 of the file, which the store has now; None when it has to be sent as a whole.

    Each part in memory holds one of the `slots`. Retry when the server cannot be reached, or cannot
    reach the bucket; `progress` is kept from one call to the next.
    """
    source = _OutputFile(sent, file)
    target = _OutputTarget(tracked, source, channel, progress or PartProgress())
    try:
        sender = PartSender(source, target, connections, Progress(), slots=slots, hashes=True)
        return sender.send() or target.known_sha256
    except (Retry, Unauthenticated):
        raise
    except (PaddleCloudError, PutFailed, _SendWhole):
        return None


class _SendWhole(Exception):
    """The file changed, or the server does not take it in parts."""


class _OutputFile:
    """An open output file, which its job may change at any moment."""

    def __init__(self, found: Found, file: IO[bytes]) -> None:
        self.found = found
        self.size = found.size
        self._file = file

    @property
    def allocated(self) -> int:
        return os.fstat(self._file.fileno()).st_blocks * 512

    def read(self, begin: int, buffer: memoryview) -> None:
        got = 0
        while got < len(buffer):
            count = os.preadv(self._file.fileno(), [buffer[got:]], begin + got)
            if not count:
                raise _SendWhole
            got += count

    def check(self) -> None:
        if scan.refreshed(self.found, self._file).mark != self.found.mark:
            raise _SendWhole


class _OutputTarget(Target):
    def __init__(
        self, tracked: Tracked, source: _OutputFile, channel: Channel, progress: PartProgress
    ) -> None:
        self._channel = channel
        self._source = source
        self._progress = progress
        self._name = quote(source.found.name, "/")
        self._replica = f"/agent/replicas/{quote(tracked.id)}"
        self._query: dict[str, object] = {"fence": tracked.fence}
        self._given: dict[str, Any] = {}
        self.known_sha256: str | None = None
        """Of the file, which the server had already."""

    def begin(self) -> Upload:
        described: dict[str, Any] = {"size": self._source.size, "mtime": self._source.found.mtime}
        if self._source.allocated < self._source.size:  # a hole needs no space in a directory
            described["allocated"] = self._source.allocated
        self._given = given = self._json("POST", described)
        if given.get("tag") or given.get("sha256"):
            self.known_sha256 = self._compared()
            return Upload(stored=True)
        if not given.get("upload"):
            raise _SendWhole
        urls = dict(enumerate(given["addresses"], 1))
        return Upload(
            int(str(given["part_size"])),
            dict(given.get("parts") or ()),
            verified=not urls,
            through=bool(given.get("through")),
            urls=urls or None,
        )

    def put(self, number: int, data: memoryview) -> str:
        """Signed by its CRC-32 where the server verifies the whole; in a bucket by its digest."""
        query = {**self._query, "upload": self._given["upload"], "number": number}
        body = data if self._given["addresses"] else PartBody(data=data)
        path = f"{self._replica}/part/{self._name}"
        self._channel.call("PUT", path, body, query, timeout=_TIMEOUT)
        return ""

    def stored(self, number: int) -> None:
        self._progress.moved_at = time.monotonic()

    def complete(self, tags: Sequence[str], sha256: str) -> None:
        end: dict[str, Any] = {"upload": self._given["upload"], "size": self._source.size}
        if self._given.get("through"):
            end["sha256"] = sha256
        while self._json("PUT", end).get("stored") is False:
            pass

    def _json(self, method: str, body: dict[str, Any]) -> dict[str, Any]:
        path = f"{self._replica}/parts/{self._name}"
        return self._channel.json(method, path, body, self._query, _TIMEOUT)

    def _compared(self) -> str:
        """The sha256 of the file, which has its name in the store already: the response to an
        earlier completion was lost. Another one has to be sent as a whole."""
        whole, tags = hashlib.sha256(), []
        each = int(str(self._given["part_size"]))
        buffer = memoryview(bytearray(_BLOCK))
        for begin in range(0, self._source.size, each):
            part = hashlib.md5(usedforsecurity=False)
            end = min(begin + each, self._source.size)
            for at in range(begin, end, _BLOCK):
                block = buffer[: min(_BLOCK, end - at)]
                self._source.read(at, block)
                whole.update(block)
                part.update(block)
            tags.append(part.hexdigest())
        self._source.check()
        if self._given.get("sha256"):
            is_same = whole.hexdigest() == self._given["sha256"]
        else:
            is_same = (joined_tag(tags) or "").strip('"') == str(self._given["tag"]).strip('"')
        if not is_same:
            raise _SendWhole
        return whole.hexdigest()
