"""Reads large request bodies in a thread, straight from the socket.

Each chunk of a body that goes through the event loop is parsed, copied and handed over; a thread
that reads into one buffer takes half the CPU for the same bytes. The connection gets a new parser
afterwards and goes on. With TLS, or anything else between the socket and the server, the body is
read the usual way.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import TypeVar
from weakref import WeakValueDictionary
from zlib import crc32

from starlette.requests import Request

from paddlecloud.model.errors import Invalid, Retry
from paddlecloud.model.protocol.bce_auth import CONTENT_CRC32, CONTENT_SHA256, UNSIGNED, check_body
from paddlecloud.server.http._request_parser import RequestParser
from paddlecloud.server.http.connection_limits import LEAST_PROGRESS, Connection, connection_of
from paddlecloud.server.http.request_body import read_body
from paddlecloud.server.http.routing import Call
from paddlecloud.server.services.transfer.open_uploads import Record
from paddlecloud.stores.deadline import be_prompt

AT_ONCE = 12
"""Bodies that are in memory at the same time, per thread pool."""
SILENCE = 30.0
"""Seconds without enough progress after which a sender is given up."""
SPARE = 4
_CHUNK = 1024 * 1024
T = TypeVar("T")
Work = Callable[["bytes | bytearray", int], T]
"""What is done with a body and its CRC-32."""
POOL = ThreadPoolExecutor(max_workers=AT_ONCE, thread_name_prefix="body", initializer=be_prompt)
_spare: list[bytearray] = []
"""Buffers to use again: fresh memory costs as much as a copy. list.pop and append are atomic."""
_OF_ONE = 4
"""Parts for the buckets of one user that are in memory at the same time."""
_OF_ALL = 8 * _OF_ONE
_TURN = 20.0
"""Seconds to wait for a slot: an agent that waits much longer takes the server for gone."""
_slots: WeakValueDictionary[tuple[object, str], asyncio.Semaphore] = WeakValueDictionary()
"""By event loop and user, for as long as one is held or waited for."""
_all_slots = threading.Semaphore(_OF_ALL)


async def with_body(
    request: Request, size: int, work: Work[T], threads: ThreadPoolExecutor = POOL
) -> T:
    """What `work` returns for the body, which has `size` bytes; it runs in one of these threads."""
    taken = _Taken.of(request, size)
    loop = asyncio.get_running_loop()
    if taken is None:
        body = await read_body(request, size)
        if len(body) != size:
            raise Retry("body_cut", size=len(body))
        return await loop.run_in_executor(threads, lambda: work(body, crc32(body)))
    try:
        return await loop.run_in_executor(threads, taken.run, work)
    finally:
        taken.give_back()


async def with_part(
    call: Call,
    request: Request,
    record: Record,
    number: int,
    work: Callable[[bytes | bytearray], T],
    threads: ThreadPoolExecutor = POOL,
) -> T:
    """The result of `work` on one part, once that has its size and is what was signed: by its
    digest, its CRC-32, or both."""
    size, headers = record.size_of(number), call.headers
    checksum, is_signed = headers.get(CONTENT_CRC32, ""), headers[CONTENT_SHA256] != UNSIGNED
    is_valid = len(checksum) == 8 and not checksum.strip("0123456789abcdef")
    if not is_valid and (checksum or not is_signed):
        raise Invalid("upload_checksum", header=CONTENT_CRC32, value=checksum[:20])
    length = headers.get("content-length", "")
    if not size or length != str(size):
        limit = record.part_size
        raise Invalid("upload_part", number=number, size=length[:20] or "?", limit=limit)

    def checked(data: bytes | bytearray, got: int) -> T:
        if is_signed:
            check_body(headers, hashlib.sha256(data).hexdigest())
        if checksum and f"{got:08x}" != checksum:
            raise Retry("upload_damaged", reason=f"part {number}: {got:08x}, not {checksum}")
        return work(data)

    return await with_body(request, size, checked, threads)


@asynccontextmanager
async def slot(whose: str) -> AsyncIterator[None]:
    """Hold one of a user's slots for parts in memory, before anything is read; Retry when none
    becomes free in time, or all users together hold too many."""
    key = (asyncio.get_running_loop(), whose)
    slots = _slots.setdefault(key, asyncio.Semaphore(_OF_ONE))
    try:
        async with asyncio.timeout(_TURN):
            await slots.acquire()
    except TimeoutError:
        raise Retry("store_crowded", limit=_OF_ONE) from None
    try:
        if not _all_slots.acquire(blocking=False):
            raise Retry("store_crowded", limit=_OF_ALL)
        try:
            yield
        finally:
            _all_slots.release()
    finally:
        slots.release()


class _Taken:
    """A connection that a thread reads from."""

    def __init__(self, connection: Connection, size: int) -> None:
        cycle = connection.cycle
        assert cycle is not None
        self._connection, self._cycle, self._size = connection, cycle, size
        connection.flow.pause_reading()
        self._first = bytes(cycle.body)
        cycle.body = bytearray()
        fd = os.dup(connection.transport.get_extra_info("socket").fileno())
        self._socket = socket.socket(fileno=fd)
        self._socket.settimeout(SILENCE)
        self._whole = False

    @staticmethod
    def of(request: Request, size: int) -> _Taken | None:
        """The connection of a request whose body is still to come; None if it cannot be taken."""
        connection = connection_of(request.scope)
        if connection is None or connection.scheme != "http":
            return None
        cycle = connection.cycle
        ready = cycle is not None and cycle.scope is request.scope and cycle.more_body
        if cycle is None or not ready or cycle.waiting_for_100_continue:
            return None
        if request.headers.get("content-length") != str(size) or len(cycle.body) > size:
            return None
        return _Taken(connection, size)

    def run(self, work: Work[T]) -> T:
        """In a thread: read, then work."""
        buffer = _buffer(self._size)
        try:
            check = self._read(memoryview(buffer)[: self._size])
            self._whole = True
            data = buffer if len(buffer) == self._size else bytes(memoryview(buffer)[: self._size])
            return work(data, check)
        finally:
            if len(_spare) < SPARE:
                _spare.append(buffer)

    def give_back(self) -> None:
        """In the event loop: the connection goes on with the next request, or is closed."""
        self._socket.close()
        self._cycle.more_body = False
        if not self._whole:
            self._cycle.keep_alive = False
            return
        # The previous parser still waits for the body that it did not see.
        self._connection.parser = RequestParser(self._connection)

    def _read(self, buffer: memoryview) -> int:
        got = len(self._first)
        buffer[:got] = self._first
        check = crc32(self._first)
        enough, deadline = 0, 0.0
        while got < len(buffer):
            now = time.monotonic()
            if got >= enough:
                enough, deadline = got + LEAST_PROGRESS, now + SILENCE
            if now >= deadline:
                raise Retry("body_cut", size=got)
            try:
                count = self._socket.recv_into(buffer[got : got + _CHUNK])
            except OSError as error:
                raise Retry("body_cut", size=got) from error
            if not count:
                raise Retry("body_cut", size=got)
            check = crc32(buffer[got : got + count], check)
            got += count
        return check


def _buffer(size: int) -> bytearray:
    """A buffer of at least that size: a spare one if it is long enough and not much longer."""
    while _spare:
        try:
            buffer = _spare.pop()
        except IndexError:  # another thread was faster
            break
        if size <= len(buffer) <= 2 * size:
            return buffer
    return bytearray(size)
