"""Sends what is due, a few at a time, and tries again what could not be delivered.

Every server runs it: whoever takes a row keeps it for a while, so that two never send the same one,
and a slow receiver here does not stop another server's deliveries. That is why it needs no lease of
its own, which would be lost in the middle of a long delivery together with the note that it is
done. Each delivery has a thread, because most of it is waiting; mails and webhooks have separate
places, so that no webhook holds up a token.
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
PLACES = {MAIL: 4, WEBHOOK: 4}
"""How many deliveries of a kind are under way at once."""
BACK_OFF = (
    timedelta(seconds=10),
    timedelta(minutes=1),
    timedelta(minutes=5),
    timedelta(minutes=30),
    timedelta(hours=1),
)
"""After the first failed try, the second, and so on; the last one is repeated."""
LOOK_EVERY = timedelta(minutes=1)
KEPT = timedelta(days=30)
FORGET_EVERY = timedelta(hours=1)


class Sender:
    """What this server is sending now."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._busy: dict[str, set[str]] = {kind: set() for kind in PLACES}
        """Owners for whom something is on its way."""
        self._looked: datetime | None = None
        self._forgot: datetime | None = None

    def tick(self, deps: Deps, now: datetime) -> None:
        """Begin what can be begun; the ends come on their own threads and ring the bell again."""
        if self._looked is None or not timedelta() <= now - self._looked < LOOK_EVERY:
            self._looked = now
            notify.look(deps, now)
        self._forgot = self._forgot or now
        if not timedelta() <= now - self._forgot < FORGET_EVERY:
            self._forgot = now
            deps.db.write(lambda tx: outbox.forget(tx, now - KEPT), durable=False)
        if deps.db.read(lambda tx: outbox.has_due(tx, now)):
            for kind in PLACES:
                self._begin(deps, kind, now)

    def wait(self, seconds: float) -> bool:
        """Whether everything that is on its way came to its end within `seconds`."""
        with self._changed:
            return self._changed.wait_for(lambda: not any(self._busy.values()), seconds)

    def _begin(self, deps: Deps, kind: str, now: datetime) -> None:
        with self._changed:
            busy = frozenset(self._busy[kind])
        free = PLACES[kind] - len(busy)
        if free <= 0:
            return
        take = partial(
            outbox.take_due, now=now, limit=free, kind=kind, lease=_lease(deps), busy=busy
        )
        for row in deps.db.write(take):
            with self._changed:
                self._busy[kind].add(row.owner)
            name = f"send-{kind}"
            threading.Thread(target=self._run, args=(deps, row), name=name, daemon=True).start()

    def _run(self, deps: Deps, row: Outgoing) -> None:
        try:
            deliver(deps, row)
        except PaddleCloudError as error:
            # Not noted: the row is due again when its time is over.
            log.warning("the outcome of %s could not be stored: %s", row.id, error)
        except Exception:
            log.exception("%s could not be sent; it is tried again", row.id)
        finally:
            with self._changed:
                self._busy[row.kind].discard(row.owner)
                self._changed.notify_all()
            deps.hub.tell(outbox.BELL, "")


def deliver(deps: Deps, row: Outgoing) -> None:
    """Try a row that was taken, and note what became of it."""
    try:
        notify.deliver(deps, row, deps.clock())
    except PaddleCloudError as error:
        _failed(deps, row, error, deps.clock())
        return
    now = deps.clock()
    deps.db.write(lambda tx: outbox.sent(tx, row.id, now))
    deps.metrics.add("paddlecloud_outbox_sent_total", (("kind", row.kind),))


def next_try(row: Outgoing, now: datetime, retry_for: timedelta) -> datetime | None:
    """When a row that failed is tried again; None when its time is over."""
    wait = BACK_OFF[min(max(row.tries, 1), len(BACK_OFF)) - 1]
    due = now + wait
    return due if due <= row.created_at + retry_for else None


def _failed(deps: Deps, row: Outgoing, error: PaddleCloudError, now: datetime) -> None:
    """Only what may work later is tried again: a server away, or settings to be corrected."""
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
    deps.metrics.add(f"paddlecloud_outbox_{outcome}_total", (("kind", row.kind),))
    log.warning("%s %s, try %d: %s", row.id, outcome.replace("_", " "), row.tries, error)


def _lease(deps: Deps) -> timedelta:
    """Longer than any delivery takes: a mail is a dozen exchanges, each with its own timeout."""
    return max(timedelta(minutes=5), 15 * deps.settings.mail.timeout)


LOOP = Loop(
    name="outbox",
    tick=Sender().tick,
    every=timedelta(seconds=5),
    bell=outbox.BELL,
    leased=False,
)
