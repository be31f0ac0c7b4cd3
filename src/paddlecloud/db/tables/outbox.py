"""The outbox: mails and webhooks to send, stored in the transaction that causes them.

A row is delivered at least once. Taking a row moves its due time ahead, which is a lease: after a
crash the row is due again. A crash between delivery and `sent` causes a second delivery; both carry
the row's id, by which the receiver can deduplicate. An id is used once, so an event is sent once
however often it is detected. A row holds no secret: secrets are added when it is sent.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from paddlecloud.db.engine.base import Row, Tx
from paddlecloud.db.engine.columns import (
    from_micros,
    json_reader,
    maybe_from_micros,
    maybe_json_reader,
    to_json,
    to_micros,
)
from paddlecloud.model.jobs.job import Reason

CHANNEL = "outbox"
"""Notified when a row is added."""
MAIL, WEBHOOK = "mail", "webhook"

_COLUMNS = (
    "id, kind, owner, address, template, params, lang, created_at, tries, last_error, sent_at,"
    " given_up_at"
)
_WAITING = "sent_at is null and given_up_at is null"

Params = Mapping[str, str | int | float | None]


@dataclass(frozen=True, kw_only=True)
class Outgoing:
    """One message to one receiver."""

    id: str
    kind: str
    owner: str
    address: str
    template: str
    params: Params
    lang: str
    created_at: datetime
    tries: int = 0
    """Attempts to send it, including the one in progress."""
    last_error: Reason | None = None
    sent_at: datetime | None = None
    given_up_at: datetime | None = None


def put(  # noqa: PLR0913 - a row has as many values
    tx: Tx,
    *,
    kind: str,
    owner: str,
    address: str,
    template: str,
    params: Params,
    lang: str,
    now: datetime,
    id: str | None = None,
    taken_for: timedelta | None = None,
) -> bool:
    """Store a message; False, and nothing changed, if the id exists.

    `taken_for`: the caller sends it at once and holds a lease for so long.
    """
    due = now + (taken_for or timedelta())
    changed = tx.execute(
        "insert into outbox (id, kind, owner, address, template, params, lang, created_at, due_at,"
        " tries) values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) on conflict (id) do nothing",
        (
            id or uuid.uuid4().hex,
            kind,
            owner,
            address,
            template,
            to_json(params),
            lang,
            to_micros(now),
            to_micros(due),
            0 if taken_for is None else 1,
        ),
    )
    if changed and taken_for is None:
        tx.notify(CHANNEL, "")
    return changed == 1


def has_due(tx: Tx, now: datetime) -> bool:
    """Whether anything is due, without a write."""
    row = tx.one(
        f"select 1 from outbox where {_WAITING} and due_at <= ? limit 1", (to_micros(now),)
    )
    return row is not None


def take_due(
    tx: Tx,
    now: datetime,
    limit: int,
    *,
    kind: str,
    lease: timedelta,
    busy: Iterable[str] = (),
) -> list[Outgoing]:
    """Take the messages that wait longest, one of each owner who is not `busy`, for `lease`.

    One at a time of each owner, so that a slow receiver or a thousand mails do not delay others.
    """
    owners = tx.all(
        f"select owner, min(due_at) from outbox where {_WAITING} and kind = ? and due_at <= ?"
        " group by owner order by min(due_at), owner",
        (kind, to_micros(now)),
    )
    resting = set(busy)
    chosen = [owner for owner, _ in owners if owner not in resting][:limit]
    return [_take(tx, owner, kind, now, lease) for owner in chosen]


def sent(tx: Tx, id: str, now: datetime) -> None:
    """Store that it was delivered."""
    tx.execute(
        "update outbox set sent_at = ?, last_error = null where id = ? and sent_at is null",
        (to_micros(now), id),
    )


def failed(tx: Tx, id: str, error: Reason, next_due: datetime) -> None:
    """Store why it was not delivered; it is due again at `next_due`."""
    tx.execute(
        f"update outbox set last_error = ?, due_at = ? where id = ? and {_WAITING}",
        (to_json(error), to_micros(next_due), id),
    )


def give_up(tx: Tx, id: str, error: Reason, now: datetime) -> None:
    """Store why it was not delivered; it is not tried again."""
    tx.execute(
        f"update outbox set last_error = ?, given_up_at = ? where id = ? and {_WAITING}",
        (to_json(error), to_micros(now), id),
    )


def postpone(tx: Tx, owner: str, kind: str, until: datetime) -> None:
    """Postpone all messages for a receiver that does not respond."""
    tx.execute(
        f"update outbox set due_at = ? where {_WAITING} and owner = ? and kind = ? and due_at < ?",
        (to_micros(until), owner, kind, to_micros(until)),
    )


def drop(tx: Tx, owner: str, kind: str) -> int:
    """Delete what waits for a receiver that was removed; returns how many rows."""
    return tx.execute(
        f"delete from outbox where {_WAITING} and owner = ? and kind = ?", (owner, kind)
    )


def get(tx: Tx, id: str) -> Outgoing | None:
    row = tx.one(f"select {_COLUMNS} from outbox where id = ?", (id,))
    return _outgoing(row) if row else None


def count_since(tx: Tx, owner: str, template: str, since: datetime) -> int:
    """How many rows of one template an owner has since then."""
    row = tx.one(
        "select count(*) from outbox where owner = ? and template = ? and created_at > ?",
        (owner, template, to_micros(since)),
    )
    return int(row[0]) if row else 0


def count_waiting(tx: Tx) -> dict[str, int]:
    """How many rows of each kind are not delivered yet."""
    rows = tx.all(f"select kind, count(*) from outbox where {_WAITING} group by kind")
    return {kind: int(count) for kind, count in rows}


def delete_old(tx: Tx, before: datetime) -> int:
    """Delete older rows that are sent or given up; returns how many."""
    return tx.execute(
        f"delete from outbox where created_at < ? and not ({_WAITING})", (to_micros(before),)
    )


def _take(tx: Tx, owner: str, kind: str, now: datetime, lease: timedelta) -> Outgoing:
    row = tx.one(
        f"update outbox set due_at = ?, tries = tries + 1 where id = (select id from outbox where"
        f" {_WAITING} and owner = ? and kind = ? and due_at <= ? order by created_at, id limit 1)"
        f" returning {_COLUMNS}",
        (to_micros(now + lease), owner, kind, to_micros(now)),
    )
    assert row is not None  # the owner has one that is due, and writes come one after another
    return _outgoing(row)


_read_params = json_reader(dict[str, str | int | float | None])
_read_error = maybe_json_reader(Reason)


def _outgoing(row: Row) -> Outgoing:
    (id_, kind, owner, address, template, params, lang, created_at, tries) = row[:9]
    (last_error, sent_at, given_up_at) = row[9:]
    return Outgoing(
        id=id_,
        kind=kind,
        owner=owner,
        address=address,
        template=template,
        params=_read_params(params),
        lang=lang,
        created_at=from_micros(created_at),
        tries=tries,
        last_error=_read_error(last_error),
        sent_at=maybe_from_micros(sent_at),
        given_up_at=maybe_from_micros(given_up_at),
    )
