"""An output file in parts to the bucket where it is kept, by addresses, past the server.

The server begins and ends it, so the file gets its name only while its attempt is the current one.
It is read once: what is sent is what is digested. A file that changes meanwhile is not ended, nor
one of which a part is not taken; what is left of those the server drops. An agent that comes after
one that was ended in the middle is told which parts are there, and sends the others.

A part is in memory while it is sent. `Room` keeps those of many files at once to a few, and lets
each file have its turn.
"""

from __future__ import annotations

import hashlib
import threading
from collections import deque
from contextlib import contextmanager, nullcontext
from typing import IO, TYPE_CHECKING, Any

from paddlecloud.model.errors import PaddleCloudError, Retry, Unauthenticated
from paddlecloud.model.private import md5_of
from paddlecloud.model.signing import quote
from paddlecloud.runtime import outputs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from paddlecloud.runtime.book import Tracked
    from paddlecloud.runtime.direct import Buckets
    from paddlecloud.runtime.link import Channel
    from paddlecloud.runtime.outputs import Found

#: A smaller file is one request through the server, and would be three and more past it.
LEAST = 1024 * 1024
_TIMEOUT = 60.0
_TRIES = 3


class Room:
    """A few places, which are given in the order in which they were asked for: whoever gives one
    back and asks again is behind those who wait. Safe for several threads."""

    def __init__(self, places: int) -> None:
        self._lock = threading.Lock()
        self._free = places
        self._waiting: deque[threading.Event] = deque()

    @contextmanager
    def place(self) -> Iterator[None]:
        """Wait for a place, and have it."""
        turn = threading.Event()
        with self._lock:
            if self._free:
                self._free -= 1
                turn.set()
            else:
                self._waiting.append(turn)
        turn.wait()
        try:
            yield
        finally:
            with self._lock:
                if self._waiting:
                    self._waiting.popleft().set()
                else:
                    self._free += 1


def put(
    tracked: Tracked,
    sent: Found,
    file: IO[bytes],
    channel: Channel,
    buckets: Buckets,
    room: Room | None = None,
) -> str | None:
    """The sha256 of the file, which the bucket has now; None when it has to go another way.

    Each part waits for a place in `room`, if there is one. Retry when the server cannot be reached,
    or cannot reach the bucket.
    """
    path = f"/agent/replicas/{quote(tracked.id)}/parts/{quote(sent.name, '/')}"
    query = {"fence": tracked.fence}
    begin = {"size": sent.size, "mtime": round(sent.mtime, 6)}
    try:
        given = channel.json("POST", path, begin, query, _TIMEOUT)
        digest = _put_parts(sent, file, given, buckets, room) if given.get("upload") else None
        if digest is None or outputs.found_again(sent, file).mark != sent.mark:
            return None
        end = {"upload": given["upload"], "size": sent.size}
        channel.json("PUT", path, end, query, _TIMEOUT)
    except (Retry, Unauthenticated):
        raise
    except PaddleCloudError:
        return None
    return digest


def _put_parts(
    sent: Found, file: IO[bytes], given: dict[str, Any], buckets: Buckets, room: Room | None
) -> str | None:
    digest = hashlib.sha256()
    left, size = sent.size, int(str(given["part_size"]))
    addresses, there = given["addresses"], dict(given.get("parts") or ())
    for number, address in enumerate(addresses, 1):
        with nullcontext() if room is None else room.place():
            data = file.read(min(size, left))
            whole = len(data) == min(size, left)
            if not whole or not (
                _is_there(data, there.get(number))
                or any(buckets.put(address, data) for _ in range(_TRIES))
            ):
                return None
            digest.update(data)
            left -= len(data)
            del data
    return digest.hexdigest() if left == 0 else None


def _is_there(data: bytes, tag: str | None) -> bool:
    """Whether the bucket has these very bytes already, from an agent that was ended meanwhile."""
    return tag is not None and md5_of(tag) == hashlib.md5(data, usedforsecurity=False).hexdigest()
