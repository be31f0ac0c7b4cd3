"""Notification preferences of users: which events, by mail or webhook.

Most users have none, so the server caches who has (`subscribers`) and reads nothing for all others.
A change is notified on the channel "user".
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from paddlecloud.db.engine.base import Tx
from paddlecloud.db.engine.columns import json_reader, to_json, to_micros

CHANNEL = "user"
CACHE_TTL = timedelta(minutes=1)
"""How long `subscribers` may be cached: the notification of a change may be lost."""


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """The preferences as they are stored."""

    events: tuple[str, ...] = ()
    mail: bool = False
    webhook: str | None = None
    webhook_secret: str | None = None
    """Sealed."""
    webhook_off: str | None = None
    """When and for which URL it was switched off, because the receiver answered that it is gone."""


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The preferences of a user with address and language."""

    user_id: str
    email: str | None
    lang: str
    wishes: Wishes


def subscribers(tx: Tx) -> frozenset[str]:
    """The ids of enabled users with preferences."""
    rows = tx.all("select id from users where notify is not null and disabled_at is null")
    return frozenset(row[0] for row in rows)


def get_choice(tx: Tx, user_id: str) -> Choice | None:
    """The preferences of a user, empty by default; None if there is no such user."""
    row = tx.one("select email, lang, notify from users where id = ?", (user_id,))
    if row is None:
        return None
    email, lang, notify = row
    wishes = _read_wishes(notify) if notify else Wishes()
    return Choice(user_id=user_id, email=email, lang=lang, wishes=wishes)


def save_wishes(tx: Tx, user_id: str, wishes: Wishes) -> None:
    notify = None if wishes == Wishes() else to_json(wishes)
    tx.execute("update users set notify = ? where id = ?", (notify, user_id))
    tx.notify(CHANNEL, user_id)


def waiting_unnotified(tx: Tx, owner: str, since: datetime, event: str, limit: int) -> list[str]:
    """Ids of the owner's jobs that wait since `since` and have no notification of `event`."""
    sent = f"'.{event}.' || jobs.id || '.' || cast(jobs.attempt as text)"
    rows = tx.all(
        "select id from jobs where pool is null and state in ('schedule', 'queue') and owner = ?"
        " and waiting_since <= ? and not exists (select 1 from outbox"
        f" where outbox.id in ('mail' || {sent}, 'webhook' || {sent}))"
        " order by waiting_since, number limit ?",
        (owner, to_micros(since), limit),
    )
    return [row[0] for row in rows]


def switch_webhook_off(tx: Tx, user_id: str, url: str, why: str) -> bool:
    """Remove the webhook because `url` is gone; False if the user has changed it since."""
    choice = get_choice(tx, user_id)
    if choice is None or choice.wishes.webhook != url:
        return False
    gone = replace(choice.wishes, webhook=None, webhook_secret=None, webhook_off=why)
    save_wishes(tx, user_id, gone)
    return True


_read_wishes = json_reader(Wishes)
