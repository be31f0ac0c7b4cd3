"""Notifies other servers of events that do not change the database.

A log grows in the store without a row being written, so a follower at another server would have to
poll. Notifications are coalesced: a job that prints a lot causes a few a second. A lost one costs a
second's delay.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from functools import partial

from paddlecloud.db.engine.base import CanAutocommit, Tx
from paddlecloud.model.errors import PaddleCloudError

log = logging.getLogger(__name__)

EVERY = 0.05
"""Seconds between two notifications of one server."""

MOST = 100
"""Payloads in one notification: PostgreSQL allows 8000 bytes."""


class Notifier:
    """Notifies the other servers on one channel, from a thread of its own."""

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
                self._thread = threading.Thread(target=self._serve, name="notifier", daemon=True)
                self._thread.start()
            self._changed.notify()

    def _serve(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting)
                payloads = list(self._waiting)[:MOST]
                for payload in payloads:
                    del self._waiting[payload]
            # The format of `_pg_listen`, without a sender: listeners here are called again.
            message = json.dumps(["", [[self._channel, payload] for payload in payloads]])
            try:
                self._db.autocommit(partial(_send, message))
            except PaddleCloudError as error:
                log.debug("could not notify other servers of %d events: %s", len(payloads), error)
            time.sleep(EVERY)


def _send(message: str, tx: Tx) -> None:
    tx.all("select pg_notify('paddlecloud', ?)", (message,))
