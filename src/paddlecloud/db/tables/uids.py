"""The uid under which the processes of a user run: assigned once and never reused.

Numbers come from a counter, because files of a deleted user may still exist, and another user must
not own them.
"""

from __future__ import annotations

from paddlecloud.db.engine.base import Tx
from paddlecloud.db.tables.counters import next_number


def known(tx: Tx, user_id: str) -> int | None:
    """The uid of this user, None if none was assigned."""
    row = tx.one("select uid from users where id = ?", (user_id,))
    return None if row is None or row[0] is None else int(row[0])


def assign(tx: Tx, user_id: str, base: int) -> int:
    """The uid of this user, assigned now if needed, from `base` on.

    A deleted user gets an unused one each time.
    """
    found = known(tx, user_id)
    if found is not None:
        return found
    uid = base + next_number(tx, "uid") - 1
    while tx.one("select id from users where uid = ?", (uid,)) is not None:
        uid = base + next_number(tx, "uid") - 1
    tx.execute("update users set uid = ? where id = ?", (uid, user_id))
    return uid
