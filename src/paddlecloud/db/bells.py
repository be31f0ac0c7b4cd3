"""Wakes those who wait at other servers for something that is no change of the database.

A log grows in the store and nobody writes a row for that; who follows it at another server would
have to ask again and again. Notes of the same kind that come while one is on its way share the
next, so a job that prints a lot rings a few times a second. A lost note costs a second's delay.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Sequence

from paddlecloud.db.base import Apart, Tx
from paddlecloud.model.errors import PaddleCloudError

log = logging.getLogger(__name__)
EVERY = 0.05
"""Seconds between two notes of one server."""
MOST = 100
"""Payloads in one note: PostgreSQL takes 8000 bytes."""


class Bell:
    """Rings one channel at the other servers."""

    def __init__(self, db: Apart, channel: str) -> None:
        self._db = db
        self._channel = channel
        self._waiting: dict[str, None] = {}
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def ring(self, payload: str) -> None:
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
        # The form of pglisten, from nobody: our own listeners are woken once more, for nothing.
        note = json.dumps(["", [[self._channel, payload] for payload in payloads]])

        def notify(tx: Tx) -> None:
            tx.all("select pg_notify('paddlecloud', ?)", (note,))

        self._db.apart(notify)
