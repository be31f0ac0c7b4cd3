"""Receives notifications of other servers on the same PostgreSQL, by LISTEN and NOTIFY.

One thread with a connection of its own passes them to the listeners of this server. A notification
names its sender, because a server has called its own listeners already. After a lost connection all
listeners are called once, since some may have been missed.
"""

from __future__ import annotations

import json
import logging
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import psycopg

from paddlecloud.db.engine._group_commit import Notice
from paddlecloud.db.engine._pg_session import Address, readable
from paddlecloud.db.engine.base import EVERYTHING
from paddlecloud.model.errors import Retry

log = logging.getLogger(__name__)

CHANNEL = "paddlecloud"

MAX_PAYLOAD = 7900
"""Bytes; PostgreSQL refuses 8000."""

AGAIN_AFTER = 1.0
"""Seconds until another attempt to listen."""

Deliver = Callable[[Sequence[Notice]], None]


def packed(sender: str, notices: Sequence[Notice]) -> Iterator[str]:
    """The payloads of these notices, as few as fit; one that is too long becomes `EVERYTHING`."""
    kept: list[Notice] = []
    size = 0
    for notice in notices:
        cost = len(json.dumps(notice))
        if cost > MAX_PAYLOAD // 2:
            notice, cost = (EVERYTHING, ""), 16
        if size + cost > MAX_PAYLOAD - 64:
            yield json.dumps([sender, kept])
            kept, size = [], 0
        kept.append(notice)
        size += cost + 2
    if kept:
        yield json.dumps([sender, kept])


def unpacked(payload: str) -> tuple[str, list[Notice]]:
    """Sender and notices of a payload; an unknown payload becomes `EVERYTHING`."""
    try:
        sender, notices = json.loads(payload)
        return str(sender), [(str(channel), str(text)) for channel, text in notices]
    except (ValueError, TypeError):
        return "", [(EVERYTHING, "")]


class ListenThread:
    """The listening thread of one server."""

    def __init__(self, address: Address, sender: str, deliver: Deliver) -> None:
        self._address, self._sender, self._deliver = address, sender, deliver
        self._connection: psycopg.Connection[Any] | None = None
        self._connect()
        self._stop = threading.Event()
        self._wake, self._waker = socket.socketpair()
        self._thread = threading.Thread(target=self._serve, name="database-listen", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._waker.close()
        self._thread.join()

    def _serve(self) -> None:
        while not self._stop.is_set():
            try:
                self._listen()
            except (psycopg.Error, Retry) as error:
                reason = error if isinstance(error, Retry) else type(error).__name__
                log.warning("lost the connection that listens for notifications: %s", reason)
                self._drop()
                self._stop.wait(AGAIN_AFTER)
        self._drop()
        self._wake.close()

    def _listen(self) -> None:
        """Deliver notifications until `close`."""
        if self._connection is None:
            self._connect()
            self._deliver([(EVERYTHING, "")])
        connection = self._connection
        assert connection is not None  # `_connect` made it
        own = json.dumps([self._sender])[:-1]
        while not self._stop.is_set():
            for note in connection.notifies(timeout=0):
                if not note.payload.startswith(own):
                    self._deliver(unpacked(note.payload)[1])
            readable(connection.fileno(), self._wake.fileno(), seconds=None)

    def _connect(self) -> None:
        connection = self._address.connect(())
        try:
            connection.execute(f"listen {CHANNEL}")
        except psycopg.Error:
            connection.close()
            raise
        self._connection = connection

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(psycopg.Error):
                connection.close()
