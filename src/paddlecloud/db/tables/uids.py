"""Which uid runs the processes of which user: given once, kept for ever, never given again.

Numbers come from a counter and not from what is free, because files of a user who is gone may still
lie somewhere, and the next one must not come to own them.
"""

from __future__ import annotations

from paddlecloud.db.engine.base import Tx
from paddlecloud.db.tables.counters import next_number


def known(tx: Tx, user_id: str) -> int | None:
    """The uid of this user; None for one who was never given any."""
    row = tx.one("select uid from users where id = ?", (user_id,))
    return None if row is None or row[0] is None else int(row[0])


def assign(tx: Tx, user_id: str, base: int) -> int:
    """The uid of this user, given now if need be, from `base` on.

    Somebody who is no user any more gets one that is nobody's.
    """
    found = known(tx, user_id)
    if found is not None:
        return found
    uid = base + next_number(tx, "uid") - 1
    while tx.one("select id from users where uid = ?", (uid,)) is not None:
        uid = base + next_number(tx, "uid") - 1
    tx.execute("update users set uid = ? where id = ?", (uid, user_id))
    return uid
