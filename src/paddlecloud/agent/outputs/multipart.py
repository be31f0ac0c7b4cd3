"""An output file in parts: to the bucket where it is kept, by addresses, past the server; or to
the server, where it is kept there or the bucket cannot be reached from here.

The server begins and ends it, so the file gets its name only while its attempt is the current one.
It is read once: what is sent is what is digested. A file that changes meanwhile is not ended; what
is left of it the server drops. Whoever comes again, because it was ended in the middle, or the
server or the bucket was away, is told which parts are there, and sends the others. A bucket that
took parts of a file and takes no more is waited for (`Patience`); then the rest goes to the server.

A part is in memory while it is sent. `Room` keeps those of many files at once to a few, and lets
each file have its turn.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections import deque
from contextlib import contextmanager, nullcontext
from math import inf
from typing import IO, TYPE_CHECKING, Any

from paddlecloud.agent.outputs import scan
from paddlecloud.agent.server_link.channel import PartBody
from paddlecloud.model.errors import PaddleCloudError, Retry, Unauthenticated, Unreachable
from paddlecloud.model.files.etag import joined_tag, md5_of
from paddlecloud.model.protocol.bce_auth import quote

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from paddlecloud.agent.inputs.presigned import Buckets
    from paddlecloud.agent.outputs.scan import Found
    from paddlecloud.agent.registry import Tracked
    from paddlecloud.agent.server_link.channel import Channel

#: A smaller file is one request through the server, and would be three and more past it.
_LEAST_PAST = 1024 * 1024
#: A smaller file that goes through the server is soon sent once more.
_LEAST_THROUGH = 64 * 1024 * 1024
_TIMEOUT = 60.0
_TRIES = 3
_PATIENCE = 180.0
_BLOCK = 1024 * 1024


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


class Patience:
    """With a bucket that takes no more of one file, of which it has parts."""

    def __init__(self) -> None:
        self._since: float | None = None
        self.moved_at = -inf
        """When it took a part last (monotonic)."""

    def moved(self, now: float) -> None:
        """It took a part."""
        self._since, self.moved_at = None, now

    def is_left(self, now: float) -> bool:
        """Whether to try it there again, after a part was not taken."""
        if self._since is None:
            self._since = now
        return now - self._since < _PATIENCE


def least(tracked: Tracked) -> int:
    """The size from which on files of this replica are worth asking for parts."""
    return _LEAST_PAST if tracked.direct else _LEAST_THROUGH


def put(
    tracked: Tracked,
    sent: Found,
    file: IO[bytes],
    channel: Channel,
    buckets: Buckets,
    room: Room | None = None,
    patience: Patience | None = None,
) -> str | None:
    """The sha256 of the file, which the store has now; None when it has to go another way.

    Each part waits for a place in `room`, if there is one. Retry when the server cannot be reached,
    or cannot reach the bucket, or the bucket took a part and not the next; `patience` is kept from
    one try to the next.
    """
    path = _path(tracked, "parts", sent)
    query = {"fence": tracked.fence}
    try:
        given = channel.json("POST", path, _described(sent, file), query, _TIMEOUT)
        if given.get("tag") or given.get("sha256"):
            return _digest_of(sent, file, given)
        if not given.get("upload"):
            return None

        def through(number: int, body: bytes | PartBody) -> None:
            asked = {**query, "upload": given["upload"], "number": number}
            channel.call("PUT", _path(tracked, "part", sent), body, asked, timeout=_TIMEOUT)

        sender = _Sender(given, buckets, through, room, patience or Patience())
        digest = sender.put_all(sent, file)
        if digest is None or scan.found_again(sent, file).mark != sent.mark:
            return None
        end: dict[str, Any] = {"upload": given["upload"], "size": sent.size}
        if given.get("through"):
            end["sha256"] = digest
        while channel.json("PUT", path, end, query, _TIMEOUT).get("stored") is False:
            pass
    except (Retry, Unauthenticated):
        raise
    except PaddleCloudError:
        return None
    return digest


class _Sender:
    """Of the parts of one file, as the server gave it to be sent."""

    def __init__(
        self,
        given: dict[str, Any],
        buckets: Buckets,
        through: Callable[[int, bytes | PartBody], None],
        room: Room | None,
        patience: Patience,
    ) -> None:
        self._given, self._buckets, self._through = given, buckets, through
        self._room, self._patience = room, patience
        self._addresses: list[str] = given["addresses"]
        """Where the bucket takes the parts; none (any more): they go through the server."""
        self._checked = not given["addresses"]
        """The server compares the digest of the whole in the end."""

    def put_all(self, sent: Found, file: IO[bytes]) -> str | None:
        digest = hashlib.sha256()
        left, size = sent.size, int(str(self._given["part_size"]))
        there = dict(self._given.get("parts") or ())
        for number in range(1, -(-sent.size // size) + 1):
            with nullcontext() if self._room is None else self._room.place():
                data = file.read(min(size, left))
                if len(data) != min(size, left):
                    return None
                with _beside(digest.update, data):
                    known = number > 1 or bool(there)
                    there_is = self._is_there(data, there.get(number))
                    if not there_is and not self._put(number, data, is_known=known):
                        return None
                left -= len(data)
                del data
        return digest.hexdigest() if left == 0 else None

    def _is_there(self, data: bytes, tag: str | None) -> bool:
        """Whether the store has these very bytes already, from an agent that was ended meanwhile.
        What has no tag is believed only where the whole is compared in the end."""
        if not tag:
            return tag is not None and self._checked
        return md5_of(tag) == hashlib.md5(data, usedforsecurity=False).hexdigest()

    def _put(self, number: int, data: bytes, *, is_known: bool) -> bool:
        if self._addresses:
            if self._put_past(self._addresses[number - 1], data, is_known=is_known):
                return True
            self._addresses = []
        if not self._given.get("through"):
            return False
        self._through(number, PartBody(data=data) if self._checked else data)
        self._patience.moved(time.monotonic())
        return True

    def _put_past(self, address: str, data: bytes, *, is_known: bool) -> bool:
        """Whether the bucket took this part; Retry if it did not, but has parts of the file."""
        tries = range(_TRIES)
        if any(self._buckets.put(address, data, anyway=is_known and n == 0) for n in tries):
            self._patience.moved(time.monotonic())
            return True
        if is_known and self._patience.is_left(time.monotonic()):
            place = address.partition("://")[2].partition("/")[0]
            if said := self._buckets.said():
                raise Retry("store_failed", place=place, detail=said)
            raise Unreachable("store_unreachable", place=place, reason="it took no further part")
        return False


def _path(tracked: Tracked, what: str, sent: Found) -> str:
    return f"/agent/replicas/{quote(tracked.id)}/{what}/{quote(sent.name, '/')}"


def _described(sent: Found, file: IO[bytes]) -> dict[str, Any]:
    """What the server has to know of a file before it comes: a hole needs no room there."""
    described: dict[str, Any] = {"size": sent.size, "mtime": sent.mtime}
    allocated = os.fstat(file.fileno()).st_blocks * 512
    if allocated < sent.size:
        described["allocated"] = allocated
    return described


@contextmanager
def _beside(work: Callable[[bytes], object], data: bytes) -> Iterator[None]:
    """Have this done with the data by another thread meanwhile."""
    thread = threading.Thread(target=work, args=(data,), name="digest", daemon=True)
    thread.start()
    try:
        yield
    finally:
        thread.join()


def _digest_of(sent: Found, file: IO[bytes], given: dict[str, Any]) -> str | None:
    """The sha256 of the file, if it is the one that has its name in the store by now."""
    whole, tags = hashlib.sha256(), []
    each = int(str(given["part_size"]))
    for start in range(0, sent.size, each):
        part = hashlib.md5(usedforsecurity=False)
        left = min(each, sent.size - start)
        while left:
            piece = file.read(min(left, _BLOCK))
            if not piece:
                return None
            whole.update(piece)
            part.update(piece)
            left -= len(piece)
        tags.append(part.hexdigest())
    if given.get("sha256"):
        same = whole.hexdigest() == given["sha256"]
    else:
        same = (joined_tag(tags) or "").strip('"') == str(given["tag"]).strip('"')
    same = same and scan.found_again(sent, file).mark == sent.mark
    return whole.hexdigest() if same else None
