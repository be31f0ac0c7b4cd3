"""Wakes callers at other servers that wait for something that is no change of the database.

A log grows in the store without a row being written, so a follower at another server would have to
poll. Notices that come while one is being sent share the next, so a job that prints a lot causes a
few a second. A lost notice costs a second's delay.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Sequence

from paddlecloud.db.engine.base import CanAutocommit, Tx
from paddlecloud.model.errors import PaddleCloudError

log = logging.getLogger(__name__)

EVERY = 0.05
"""Seconds between two notes of one server."""

MOST = 100
"""Payloads in one note: PostgreSQL takes 8000 bytes."""


class Notifier:
    """Rings one channel at the other servers."""

    def __init__(self, db: CanAutocommit, channel: str) -> None:
        self._db = db
        self._channel = channel
        self._waiting: dict[str, None] = {}
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def notify(self, payload: str) -> None:
        """Returns at once."""
        with self._changed:
            self._waiting[payload] = None
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name="bell", daemon=True)
                self._thread.start()
            self._changed.notify()

    def _serve(self) -> None:
        while True:
            payloads = self._next()
            try:
                self._send(payloads)
            except PaddleCloudError as error:
                log.debug("others were not told of %d things: %s", len(payloads), error)
            time.sleep(EVERY)

    def _next(self) -> list[str]:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting)
            found = list(self._waiting)[:MOST]
            for payload in found:
                del self._waiting[payload]
            return found

    def _send(self, payloads: Sequence[str]) -> None:
        # The form of `pg_listen`, without a sender: our own listeners are woken once more.
        note = json.dumps(["", [[self._channel, payload] for payload in payloads]])

        def notify(tx: Tx) -> None:
            tx.all("select pg_notify('paddlecloud', ?)", (note,))

        self._db.autocommit(notify)
