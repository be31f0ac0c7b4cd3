"""What each user wants to be told of, and how: the notification part of a user's row.

Most users never choose anything, so the server remembers who did (`subscribers`) and asks no further
for all others. A change is told on the channel "user".
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from paddlecloud.db.engine.base import Tx
from paddlecloud.db.engine.columns import json_reader, to_json, to_micros

CHANNEL = "user"
CACHE_TTL = timedelta(minutes=1)
"""How long `subscribers` may be believed: a note of a change may be lost with a connection."""


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """The choice itself, as it is stored."""

    events: tuple[str, ...] = ()
    mail: bool = False
    webhook: str | None = None
    webhook_secret: str | None = None
    """Sealed."""
    webhook_off: str | None = None
    """When and by which address it was switched off, if the receiver said that it is gone."""


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The wishes of a user with what is needed to follow them."""

    user_id: str
    email: str | None
    lang: str
    wishes: Wishes


def subscribers(tx: Tx) -> frozenset[str]:
    """The ids of everybody who chose something and may still come in."""
    rows = tx.all("select id from users where notify is not null and disabled_at is null")
    return frozenset(row[0] for row in rows)


def get_choice(tx: Tx, user_id: str) -> Choice | None:
    """What this user chose, nothing where they did not; None if there is no such user."""
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
    """Ids of the owner's jobs that wait for a place since then, and whose event was not told."""
    told = f"'.{event}.' || jobs.id || '.' || cast(jobs.attempt as text)"
    rows = tx.all(
        "select id from jobs where pool is null and state in ('schedule', 'queue') and owner = ?"
        " and waiting_since <= ? and not exists (select 1 from outbox"
        f" where outbox.id in ('mail' || {told}, 'webhook' || {told}))"
        " order by waiting_since, number limit ?",
        (owner, to_micros(since), limit),
    )
    return [row[0] for row in rows]


def switch_webhook_off(tx: Tx, user_id: str, url: str, why: str) -> bool:
    """The receiver at `url` is gone for good; False if another one was chosen meanwhile."""
    choice = get_choice(tx, user_id)
    if choice is None or choice.wishes.webhook != url:
        return False
    gone = replace(choice.wishes, webhook=None, webhook_secret=None, webhook_off=why)
    save_wishes(tx, user_id, gone)
    return True


_read_wishes = json_reader(Wishes)
