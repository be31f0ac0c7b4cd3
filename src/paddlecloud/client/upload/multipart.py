"""Sends one big file in parts, over a few connections at once.

The server keeps every part that arrived, so whoever comes again, this process or another, goes on
from there. A part is signed with its CRC-32, which costs a third of a digest and finds what a
network damages; the digest of the whole file, known from the scan and checked by the server before
the file gets its name, is what decides. Where the server gives addresses of its store, the bytes go
there and not through it.
"""

from __future__ import annotations

import os
from functools import partial
from zlib import crc32

from paddlecloud.client import response_schemas
from paddlecloud.client.display import shown
from paddlecloud.client.response_checks import refuse
from paddlecloud.client.scan.walk import stamp, unreadable
from paddlecloud.client.workers import work_off
from paddlecloud.model.errors import Conflict, PaddleCloudError, Retry, Unreachable
from paddlecloud.model.files.etag import at_once
from paddlecloud.net.endpoint import connection_to, target_in
from paddlecloud.net.retry import patiently

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any

    from paddlecloud.client.scan.walk import Source
    from paddlecloud.client.transport import Transport
    from paddlecloud.client.upload.blobs import Past
    from paddlecloud.net.http1 import Connection

#: Parts that are under way at once, at most: enough that neither side waits for the other.
AT_ONCE = 3
#: How often an upload is begun again before it is given up.
ROUNDS = 4
#: The upload is not what was thought: ask how it stands.
_ASK_AGAIN = frozenset(("blob_digest", "upload_incomplete", "upload_missing"))


def send(
    transport: Transport,
    sha256: str,
    source: Source,
    total: int,
    add: Callable[[int], None],
    skip: Callable[[int], None],
    past: Past,
) -> None:
    """Bring a file to the server; done when it has verified all of it. `total` is what all files
    have that are sent together: little of that is under way at once, for it is lost when the line
    breaks. `add` hears of bytes that arrived, `skip` of those that were there. `past` is closed
    when the store does not answer."""
    upload = _Upload(transport, sha256, source, total, add, skip, past)
    for _ in range(ROUNDS):
        try:
            if upload.go_on():
                return
        except PaddleCloudError as error:
            if error.code not in _ASK_AGAIN:
                raise
    raise Retry("upload_unfinished", files=1, path=shown(source[0]))


class _Upload:
    def __init__(
        self,
        transport: Transport,
        sha256: str,
        source: Source,
        total: int,
        add: Callable[[int], None],
        skip: Callable[[int], None],
        past: Past,
    ) -> None:
        self._source = source
        self._total = total
        self._part_size = 0
        self._transport = transport
        self._sha256 = sha256
        self._add = add
        self._skip = skip
        self._past = past
        self._counted: set[int] = set()

    def go_on(self) -> bool:
        """Bring what is missing; whether the server has the whole file."""
        left = -1
        while True:
            state = self._state()
            if state["stored"]:
                return True
            self._part_size = state.get("part_size", 0)
            if not self._part_size:
                refuse("part_size", self._part_size, "response_positive")
            missing = self._missing(state.get("parts", []))
            if not missing:
                return self._finish()
            if len(missing) == left:
                return False
            left = len(missing)
            urls = dict(state.get("urls", []))
            self._send([n for n in missing if not urls or n in urls], urls)

    def _state(self) -> dict[str, Any]:
        path, size, _ = self._source
        request = {"sha256": self._sha256, "size": size, "direct": self._past.is_open}
        allocated = _allocated(path)
        if allocated is not None and allocated < size:
            request["allocated"] = allocated
        post = self._transport.post
        return patiently(
            lambda: post("/uploads", request, schema=response_schemas.UPLOAD, again=True)
        )

    def _missing(self, there: list[int]) -> list[int]:
        count = -(-self._source[1] // self._part_size)
        known = frozenset(number for number in there if 1 <= number <= count)
        for number in known:
            self._count(number, self._skip)
        return [number for number in range(1, count + 1) if number not in known]

    def _send(self, numbers: list[int], urls: Mapping[int, str]) -> None:
        waiting = iter(numbers)
        together = min(AT_ONCE, len(numbers), at_once(self._total, self._part_size))
        try:
            work_off(together, lambda: next(waiting, None), partial(self._send_some, urls))
        except _Elsewhere:
            self._past.is_open = False

    def _send_some(self, urls: Mapping[int, str], numbers: Iterator[int]) -> None:
        """What one thread does."""
        path, size, read_at = self._source
        room = memoryview(bytearray(min(self._part_size, size)))
        try:
            file = open(path, "rb", buffering=0)  # noqa: PTH123, SIM115 - no pathlib; closed below
        except OSError as error:
            raise unreadable(path, error) from None
        with file, _Store() as store:
            for number in numbers:
                begin = (number - 1) * self._part_size
                want = min(len(room), size - begin)
                try:
                    got = _read_at(file, begin, room[:want])
                    unchanged = got == want and stamp(os.fstat(file.fileno())) == read_at
                except OSError as error:
                    raise unreadable(path, error) from None
                if not unchanged:
                    raise Conflict("files_changed", path=shown(path))
                self._put(number, room[:want], urls.get(number), store)

    def _put(self, number: int, data: memoryview, url: str | None, store: _Store) -> None:
        """Send one part, to the server or past it."""
        if url is not None:
            store.put(url, data)
        else:
            path = f"/uploads/{self._sha256}/{number}"
            check = f"{crc32(data):08x}"
            patiently(lambda: self._transport.put(path, data, check))
        self._count(number, self._add)

    def _finish(self) -> bool:
        """Have the whole file verified; a long check answers from time to time: not yet."""
        path = f"/uploads/{self._sha256}/finish"
        post = self._transport.post
        how: dict[str, Any] = {"schema": response_schemas.FINISHED, "again": True}
        while not patiently(lambda: post(path, {}, **how))["stored"]:
            pass
        return True

    def _count(self, number: int, tell: Callable[[int], None]) -> None:
        if number not in self._counted:
            self._counted.add(number)
            tell(min(self._part_size, self._source[1] - (number - 1) * self._part_size))


class _Store:
    """One thread's connection to the store itself."""

    def __init__(self) -> None:
        self._connection: Connection | None = None

    def __enter__(self) -> _Store:
        return self

    def __exit__(self, *_: object) -> None:
        if self._connection is not None:
            self._connection.close()

    def put(self, url: str, data: memoryview) -> None:
        """Send one part there; _Elsewhere when that cannot be done from here. Only a connection
        that breaks is worth another try: silence would cost as long again."""
        connection = self._connection = self._connection or connection_to(url)
        headers = {} if url.startswith("https:") else {"content-md5": _md5(data)}

        def put() -> int:
            try:
                response = connection.request("PUT", target_in(url), headers, data, repeatable=True)
                while response.read(65536):
                    pass
            except Unreachable as error:
                if error.code != "server_closed":
                    raise _Elsewhere from None
                raise
            return response.status

        try:
            status = patiently(put)
        except Unreachable:
            raise _Elsewhere from None
        if status != 200:
            raise _Elsewhere


class _Elsewhere(Exception):
    """An address of the store is of no use from here: send through the server."""


def _allocated(path: str) -> int | None:
    """The bytes that a file takes on the disk, which are fewer when it has holes."""
    try:
        blocks: int | None = getattr(os.stat(path), "st_blocks", None)  # noqa: PTH116 - no pathlib
    except OSError as error:
        raise unreadable(path, error) from None
    return None if blocks is None else blocks * 512


def _read_at(file: Any, begin: int, room: memoryview) -> int:
    file.seek(begin)
    got = 0
    while got < len(room) and (count := file.readinto(room[got:])):
        got += count
    return got


def _md5(data: memoryview) -> str:
    from base64 import b64encode  # noqa: PLC0415 - only for a store without TLS
    from hashlib import md5  # noqa: PLC0415 - as above

    return b64encode(md5(data, usedforsecurity=False).digest()).decode()
