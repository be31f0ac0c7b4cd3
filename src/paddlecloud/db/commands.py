"""Commands that people run beside their replicas: a row each, from the wish to the end.

Like an order, a command is a fact that its agent asks for, not a message: it is live until its end
is written, and an agent that was away hears of it when it is back. Its output is not here.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import msgspec

from paddlecloud.db.base import Row, Tx
from paddlecloud.db.columns import (
    from_micros,
    json_reader,
    maybe_from_micros,
    to_json,
    to_micros,
)

_COLUMNS = "id, replica, node, owner, command, created_at, stop_asked, ended_at, exit_code, message"


@dataclass(frozen=True, kw_only=True)
class Command:
    id: str
    replica: str
    node: str
    owner: str
    """Whose job it is about."""
    argv: tuple[str, ...]
    timeout: float | None
    """Seconds after which it is ended."""
    input: int
    """Bytes that it gets on stdin."""
    created_at: datetime
    stop_asked: bool = False
    ended_at: datetime | None = None
    exit_code: int | None = None
    message: str = ""
    """Why it ended, other than by itself: a word, and after a colon what else is known."""


class _Asked(msgspec.Struct, frozen=True):
    argv: tuple[str, ...]
    timeout: float | None = None
    input: int = 0


def insert(tx: Tx, command: Command) -> None:
    """Store a new command and wake its agent."""
    asked = _Asked(argv=command.argv, timeout=command.timeout, input=command.input)
    tx.run(
        f"insert into commands ({_COLUMNS}) values (?, ?, ?, ?, ?, ?, 0, null, null, '')",
        (
            command.id,
            command.replica,
            command.node,
            command.owner,
            to_json(asked),
            to_micros(command.created_at),
        ),
    )
    tx.notify("agent", command.node)


def get(tx: Tx, command_id: str) -> Command | None:
    row = tx.one(f"select {_COLUMNS} from commands where id = ?", (command_id,))
    return None if row is None else _command(row)


def live_on(tx: Tx, node: str, limit: int = 200) -> list[Command]:
    """The commands of a node that have not ended, oldest first."""
    rows = tx.all(
        f"select {_COLUMNS} from commands where node = ? and ended_at is null"
        " order by created_at limit ?",
        (node, limit),
    )
    return [_command(row) for row in rows]


def count_live(tx: Tx, replica: str) -> int:
    """How many commands run, or are about to, beside a replica."""
    row = tx.one("select count(*) from commands where replica = ? and ended_at is null", (replica,))
    return 0 if row is None else int(row[0])


def ask_stop(tx: Tx, command: Command) -> None:
    """It has to end; its agent is woken unless it knows."""
    changed = tx.execute(
        "update commands set stop_asked = 1 where id = ? and stop_asked = 0 and ended_at is null",
        (command.id,),
    )
    if changed:
        tx.notify("agent", command.node)


def end(tx: Tx, command_id: str, *, at: datetime, exit_code: int | None, message: str) -> bool:
    """Write how it ended; False if that was written before (it then stays as it is)."""
    changed = tx.execute(
        "update commands set ended_at = ?, exit_code = ?, message = ?"
        " where id = ? and ended_at is null",
        (to_micros(at), exit_code, message, command_id),
    )
    tx.notify("command", command_id)
    return changed == 1


_read_asked = json_reader(_Asked)


def _command(row: Row) -> Command:
    id_, replica, node, owner, asked_text, created_at, stop_asked, ended_at, *rest = row
    exit_code, message = rest
    asked = _read_asked(asked_text)
    return Command(
        id=id_,
        replica=replica,
        node=node,
        owner=owner,
        argv=asked.argv,
        timeout=asked.timeout,
        input=asked.input,
        created_at=from_micros(created_at),
        stop_asked=bool(stop_asked),
        ended_at=maybe_from_micros(ended_at),
        exit_code=exit_code,
        message=message,
    )
