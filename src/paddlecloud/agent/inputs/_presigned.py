"""The agent's way past the server: bytes from and to a bucket, by addresses that the server signs.

An address is all the agent has: no key, and one file each. No failure is told here: whoever asked
goes the way through the server instead, which tells what is wrong. A bucket that cannot be reached
from here is left alone for a while. What came is measured by its sha256, or by its tag; the tag of
a file that came in parts does not say how large they were, so the sizes that they may have had are
tried.
"""

from __future__ import annotations

import hashlib
import threading
import time
from base64 import b64encode
from typing import TYPE_CHECKING, NamedTuple

from paddlecloud.model.errors import Unreachable
from paddlecloud.model.files.etag import is_whole, joined_tag, md5_of, part_sizes, said_by
from paddlecloud.model.protocol.bce_auth import quote
from paddlecloud.net.endpoint import split_url
from paddlecloud.net.http1 import Connection

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from paddlecloud.agent.server_link.channel import Channel
    from paddlecloud.net.http1 import Response

#: Seconds that a bucket may take to be connected to, and to say something.
_CONNECT = 5.0
_SILENT = 60.0
_AWAY = 60.0
#: Addresses are good for an hour; a transfer that begins late must still be let in.
_FRESH = 1800.0
_AT_ONCE = 8
#: Seconds between two looks whether anybody still wants what is fetched.
_LOOK = 0.2
_PARTIAL = 206
#: Bytes of a refusal that are looked at.
_HEARD = 4096


class Wanted(NamedTuple):
    """A content: its digest, or the mark that stands for it, and where it can be had."""

    sha256: str
    size: int
    address: str = ""
    """Empty: only through the server."""
    tag: str = ""
    """Not empty: it is known by this, and `sha256` is a mark."""


class Check:
    """What came, measured against what was wanted."""

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        self._digest = hashlib.md5(usedforsecurity=False) if wanted.tag else hashlib.sha256()
        self._cut = [_Parts(each) for each in part_sizes(wanted.size, wanted.tag)]
        self.size = 0

    def take(self, piece: bytes) -> None:
        self._digest.update(piece)
        for parts in self._cut:
            parts.take(piece)
        self.size += len(piece)

    @property
    def received(self) -> str:
        return self._digest.hexdigest()

    def is_good(self) -> bool:
        """Whether nothing speaks against it."""
        if self._wanted.tag:
            return is_whole(self.size, self._wanted.size, self.received, self._wanted.tag)
        return self.received == self._wanted.sha256

    def is_proven(self) -> bool:
        """Whether it can be nothing else; if not, and it is good, its parts may have any size."""
        tag = self._wanted.tag.strip('"').lower()
        known = not tag or md5_of(tag) is not None
        return self.is_good() and (known or tag in [parts.tag for parts in self._cut])


class _Parts:
    """The tag that bytes have which came in parts of one size."""

    def __init__(self, each: int) -> None:
        self._each = self._left = each
        self._part = hashlib.md5(usedforsecurity=False)
        self._md5s: list[str] = []

    def take(self, piece: bytes) -> None:
        rest = memoryview(piece)
        while rest:
            if not self._left:
                self._md5s.append(self._part.hexdigest())
                self._part, self._left = hashlib.md5(usedforsecurity=False), self._each
            self._part.update(rest[: self._left])
            taken = min(len(rest), self._left)
            rest, self._left = rest[taken:], self._left - taken

    @property
    def tag(self) -> str:
        return (joined_tag([*self._md5s, self._part.hexdigest()]) or "").strip('"')


class Addresses:
    """Of the contents of one replica's files, asked for many at a time. Belongs to one thread."""

    def __init__(self, replica: str, channel: Channel) -> None:
        self._path = f"/agent/replicas/{quote(replica)}/contents"
        self._channel = channel
        self._known: dict[str, Wanted] = {}
        self._asked_at = 0.0

    def of(self, sha256: str) -> tuple[Wanted, tuple[Wanted, ...]]:
        """Where this content is, and those that will be wanted next, if that is news."""
        known = self._known.get(sha256)
        if known is not None and time.monotonic() - self._asked_at < _FRESH:
            return known, ()
        self._asked_at = time.monotonic()
        rows = self._channel.json("POST", self._path, {"sha256": sha256})["contents"]
        self._known = {row[0]: Wanted(row[0], int(row[1]), row[2], row[3]) for row in rows}
        return self._known[sha256], tuple(self._known.values())


class Buckets:
    """Connections to buckets, each thread its own. Safe for several threads."""

    def __init__(self) -> None:
        self._own = threading.local()
        self._away: dict[str, float] = {}
        """Who could not be reached, and until when nobody tries."""

    def fetch(
        self, address: str, take: Callable[[bytes], object], tag: str = "", start: int = 0
    ) -> bool:
        """Whether the file came to its end, from the byte `start` on; only the one of this tag, if
        there is one. What `take` raises is raised."""
        headers = {"if-match": tag} if tag else {}
        if start:
            headers["range"] = f"bytes={start}-"
        return self._ask("GET", address, headers, b"", take, start)

    def put(self, address: str, data: bytes, *, anyway: bool = False) -> bool:
        """Whether the bucket took these bytes, unharmed; `anyway`: it is asked although it could
        not be reached a moment ago."""
        if anyway:
            self._away.pop(_split(address)[0], None)
        md5 = hashlib.md5(data, usedforsecurity=False).digest()
        headers = {"content-md5": b64encode(md5).decode("ascii")}
        return self._ask("PUT", address, headers, data, len)

    def said(self) -> str:
        """What the last answer to the calling thread was if it was no good one; empty: none."""
        return str(getattr(self._own, "said", ""))

    def leave(self) -> None:
        """Close the connections of the calling thread."""
        for connection in self._connections().values():
            connection.close()

    def _ask(
        self,
        method: str,
        address: str,
        headers: dict[str, str],
        body: bytes,
        take: Callable[[bytes], object],
        start: int = 0,
    ) -> bool:
        origin, target = _split(address)
        if not address or time.monotonic() < self._away.get(origin, 0.0):
            return False
        connection = self._connection(origin)
        came = False
        try:
            answer = connection.request(
                method, target, headers, body, idempotent=True, timeout=_SILENT
            )
            # Whoever keeps an object has a tag for it: a page shown for any address has none.
            kept = method != "PUT" or bool(answer.headers.get("etag"))
            good = 200 <= answer.status < 300 and kept and _begins_at(start, answer)
            said = b""
            for piece in answer.iter_chunks():
                if good:
                    take(piece)
                    came = True
                elif len(said) < _HEARD:
                    said += piece
            self._own.said = "" if good else said_by(answer.status, said)
            return good
        except Unreachable:
            self._own.said = ""
            connection.close()
            if not came:
                self._away[origin] = time.monotonic() + _AWAY
            return False
        except BaseException:
            connection.close()
            raise

    def _connection(self, origin: str) -> Connection:
        known = self._connections()
        if origin not in known:
            scheme, host, port = split_url(origin)
            known[origin] = Connection(host, port, scheme == "https", _CONNECT)
        return known[origin]

    def _connections(self) -> dict[str, Connection]:
        found: dict[str, Connection] = self._own.__dict__.setdefault("connections", {})
        return found


def side_by_side(
    rows: Sequence[Wanted],
    work: Callable[[Wanted], object],
    leave: Callable[[], object],
    is_wanted: Callable[[], bool] = lambda: True,
) -> None:
    """Do the work for all rows by a few threads, each of which ends with `leave`. When nobody wants
    it any more they are not waited for: a bucket may be silent, and they end when it speaks."""
    left = iter(rows)
    turn = threading.Lock()

    def run() -> None:
        try:
            while is_wanted():
                with turn:
                    row = next(left, None)
                if row is None:
                    return
                work(row)
        finally:
            leave()

    count = min(_AT_ONCE, len(rows))
    threads = [threading.Thread(target=run, name="fetch", daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive() and is_wanted():
            thread.join(_LOOK)


def _begins_at(start: int, answer: Response) -> bool:
    """Whether it is the rest that was asked for: who knows no ranges sends all of it."""
    said = answer.headers.get("content-range", "")
    return not start or (answer.status == _PARTIAL and said.startswith(f"bytes {start}-"))


def _split(address: str) -> tuple[str, str]:
    """The server of an address, and what is asked of it."""
    scheme, _, rest = address.partition("://")
    name, _, target = rest.partition("/")
    return f"{scheme}://{name}", f"/{target}"
