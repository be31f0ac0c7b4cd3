"""Sends due mails and webhooks, a few at a time, and retries failed deliveries.

Every server runs it: a server that takes a row holds it for a while, so that two never send the
same one, and a slow receiver does not delay the deliveries of another server. The loop has no
lease, which could be lost during a long delivery together with its outcome. Each delivery has a
thread, because it mostly waits; mails and webhooks have separate limits, so that no webhook delays
a mail with a token.
"""

from __future__ import annotations

import logging
import threading
from datetime import datetime, timedelta
from functools import partial

from paddlecloud.db.engine.base import Tx
from paddlecloud.db.tables import outbox
from paddlecloud.db.tables.outbox import MAIL, WEBHOOK, Outgoing
from paddlecloud.model.errors import ConfigError, PaddleCloudError, Retry
from paddlecloud.model.jobs.job import Reason
from paddlecloud.server.deps import Deps
from paddlecloud.server.loops.runner import Loop
from paddlecloud.server.services.notifications import notify

log = logging.getLogger(__name__)
MAX_CONCURRENT = {MAIL: 4, WEBHOOK: 4}
"""Concurrent deliveries of each kind."""
BACK_OFF = (
    timedelta(seconds=10),
    timedelta(minutes=1),
    timedelta(minutes=5),
    timedelta(minutes=30),
    timedelta(hours=1),
)
"""Delay after the first failure, the second, and so on; the last one is repeated."""
NOTICE_EVERY = timedelta(minutes=1)
KEPT = timedelta(days=30)
DELETE_EVERY = timedelta(hours=1)


class Sender:
    """The deliveries of this server."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._busy: dict[str, set[str]] = {kind: set() for kind in MAX_CONCURRENT}
        """Owners with a delivery in progress."""
        self._noticed_at: datetime | None = None
        self._deleted_at: datetime | None = None

    def tick(self, deps: Deps, now: datetime) -> None:
        """Start due deliveries. Each runs in a thread, and wakes the loop when it ends."""
        if self._noticed_at is None or not timedelta() <= now - self._noticed_at < NOTICE_EVERY:
            self._noticed_at = now
            notify.check_waits_and_quota(deps, now)
        self._deleted_at = self._deleted_at or now
        if not timedelta() <= now - self._deleted_at < DELETE_EVERY:
            self._deleted_at = now
            deps.db.write(lambda tx: outbox.delete_old(tx, now - KEPT), durable=False)
        if deps.db.read(lambda tx: outbox.has_due(tx, now)):
            for kind in MAX_CONCURRENT:
                self._begin(deps, kind, now)

    def wait(self, seconds: float) -> bool:
        """Whether all deliveries ended within `seconds`."""
        with self._changed:
            return self._changed.wait_for(lambda: not any(self._busy.values()), seconds)

    def _begin(self, deps: Deps, kind: str, now: datetime) -> None:
        with self._changed:
            busy = frozenset(self._busy[kind])
        free = MAX_CONCURRENT[kind] - len(busy)
        if free <= 0:
            return
        # Longer than any delivery takes: a mail is a dozen exchanges, each with its own timeout.
        lease = max(timedelta(minutes=5), 15 * deps.settings.mail.timeout)
        take = partial(outbox.take_due, now=now, limit=free, kind=kind, lease=lease, busy=busy)
        for row in deps.db.write(take):
            with self._changed:
                self._busy[kind].add(row.owner)
            name = f"send-{kind}"
            threading.Thread(target=self._run, args=(deps, row), name=name, daemon=True).start()

    def _run(self, deps: Deps, row: Outgoing) -> None:
        try:
            deliver(deps, row)
        except PaddleCloudError as error:
            # The row is due again when its lease is over.
            log.warning("the outcome of %s could not be stored: %s", row.id, error)
        except Exception:
            log.exception("%s could not be sent; it is retried", row.id)
        finally:
            with self._changed:
                self._busy[row.kind].discard(row.owner)
                self._changed.notify_all()
            deps.hub.notify(outbox.CHANNEL, "")


def deliver(deps: Deps, row: Outgoing) -> None:
    """Deliver a row that was taken, and store the outcome."""
    try:
        notify.deliver(deps, row, deps.clock())
    except PaddleCloudError as error:
        _failed(deps, row, error, deps.clock())
        return
    now = deps.clock()
    deps.db.write(lambda tx: outbox.sent(tx, row.id, now))
    deps.metrics.outbox("sent", row.kind)


def next_try(row: Outgoing, now: datetime, retry_for: timedelta) -> datetime | None:
    """When a failed row is retried; None when its time is over."""
    due = now + BACK_OFF[min(max(row.tries, 1), len(BACK_OFF)) - 1]
    return due if due <= row.created_at + retry_for else None


def _failed(deps: Deps, row: Outgoing, error: PaddleCloudError, now: datetime) -> None:
    """Retry only what may work later: a server that is down, or settings to be corrected."""
    retry_for = deps.settings.notifications.retry_for
    again = isinstance(error, Retry | ConfigError)
    due = next_try(row, now, retry_for) if again else None
    reason = notify.reason_of(error)
    if again and due is None:
        hours = round(retry_for.total_seconds() / 3600, 1)
        reason = Reason(code="notify_undelivered", params={"hours": hours, "last": str(error)})

    def note(tx: Tx) -> None:
        if due is None:
            outbox.give_up(tx, row.id, reason, now)
            return
        outbox.failed(tx, row.id, reason, due)
        if row.kind == WEBHOOK:
            outbox.postpone(tx, row.owner, row.kind, due)

    deps.db.write(note)
    outcome = "given_up" if due is None else "failed"
    deps.metrics.outbox(outcome, row.kind)
    log.warning("%s %s, try %d: %s", row.id, outcome.replace("_", " "), row.tries, error)


LOOP = Loop(
    name="outbox",
    tick=Sender().tick,
    every=timedelta(seconds=5),
    channel=outbox.CHANNEL,
    leased=False,
)
