"""Commands of `exec`, which run next to a replica: one row each.

Like an order, a command is a row that its agent polls, not a message: it is live until its end is
stored, so an agent that was disconnected still gets it. Its output is not stored here, but how far
it was read and when a client last asked for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

import msgspec

from paddlecloud.db.engine.base import Row, Tx
from paddlecloud.db.engine.columns import (
    from_micros,
    json_reader,
    maybe_from_micros,
    maybe_to_micros,
    to_json,
    to_micros,
)

_COLUMNS = "id, replica, node, owner, command, created_at, stop_asked, ended_at, exit_code, message"


class Terminal(msgspec.Struct, frozen=True):
    """The terminal of a client, as a command finds it at its start."""

    term: str
    """TERM."""
    rows: int
    columns: int


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
    terminal: Terminal | None = None
    """None: it has pipes, and its output is kept until it is read."""
    taken: Mapping[str, int] = field(default_factory=dict)
    """Bytes of each stream that the client has acknowledged."""
    held_at: datetime | None = None
    """When a client last read its output; None: not yet."""
    brought_at: datetime | None = None
    """When its agent last sent output, or asked whether it may."""
    left: bool = False
    """No client reads it any more, so it has to stop."""
    stop_asked: bool = False
    ended_at: datetime | None = None
    exit_code: int | None = None
    message: str = ""
    """Why it was ended: a word, and details after a colon; empty if it exited by itself."""


class _Asked(msgspec.Struct, frozen=True):
    argv: tuple[str, ...]
    timeout: float | None = None
    input: int = 0
    taken: dict[str, int] = {}
    held_at: int | None = None
    brought_at: int | None = None
    left: bool = False
    terminal: Terminal | None = None


def insert(tx: Tx, command: Command) -> None:
    """Store a new command and wake its agent."""
    tx.run(
        f"insert into commands ({_COLUMNS}) values (?, ?, ?, ?, ?, ?, 0, null, null, '')",
        (
            command.id,
            command.replica,
            command.node,
            command.owner,
            to_json(_asked(command)),
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


def live(tx: Tx, limit: int = 10_000) -> list[Command]:
    """All that have not ended."""
    rows = tx.all(f"select {_COLUMNS} from commands where ended_at is null limit ?", (limit,))
    return [_command(row) for row in rows]


def count_live(tx: Tx, replica: str) -> int:
    """How many commands run, or are about to, next to a replica."""
    row = tx.one("select count(*) from commands where replica = ? and ended_at is null", (replica,))
    return 0 if row is None else int(row[0])


def record_taken(tx: Tx, command_id: str, taken: Mapping[str, int]) -> None:
    """Store how many bytes of its streams were read; never decreases."""
    command = get(tx, command_id)
    if command is not None:
        most = {name: max(size, command.taken.get(name, 0)) for name, size in taken.items()}
        _save(tx, replace(command, taken={**command.taken, **most}))


def record_held(tx: Tx, command_id: str, at: datetime) -> None:
    """Store that a client reads it at this time."""
    command = get(tx, command_id)
    if command is not None and not command.left:
        _save(tx, replace(command, held_at=at))


def record_brought(tx: Tx, command_id: str, at: datetime) -> None:
    """Store that its agent sends output at this time."""
    command = get(tx, command_id)
    if command is not None:
        _save(tx, replace(command, brought_at=at))


def stop_unread(tx: Tx, known: Command) -> bool:
    """Stop a command that no client reads; False if one has read it since `known`."""
    command = get(tx, known.id)
    if command is None or command.left or command.held_at != known.held_at:
        return False
    _save(tx, replace(command, left=True))
    ask_stop(tx, command)
    return True


def ask_stop(tx: Tx, command: Command) -> None:
    """Ask its agent to end it; idempotent."""
    changed = tx.execute(
        "update commands set stop_asked = 1 where id = ? and stop_asked = 0 and ended_at is null",
        (command.id,),
    )
    if changed:
        tx.notify("agent", command.node)


def end(tx: Tx, command_id: str, *, at: datetime, exit_code: int | None, message: str) -> bool:
    """Store how it ended; False if that was stored before, which then stays."""
    changed = tx.execute(
        "update commands set ended_at = ?, exit_code = ?, message = ?"
        " where id = ? and ended_at is null",
        (to_micros(at), exit_code, message, command_id),
    )
    tx.notify("command", command_id)
    return changed == 1


def _save(tx: Tx, command: Command) -> None:
    text = to_json(_asked(command))
    tx.execute("update commands set command = ? where id = ?", (text, command.id))


def _asked(command: Command) -> _Asked:
    return _Asked(
        argv=command.argv,
        timeout=command.timeout,
        input=command.input,
        taken=dict(command.taken),
        held_at=maybe_to_micros(command.held_at),
        brought_at=maybe_to_micros(command.brought_at),
        left=command.left,
        terminal=command.terminal,
    )


_read_asked = json_reader(_Asked)


def _command(row: Row) -> Command:
    id_, replica, node, owner, asked_text, created_at, stop_asked = row[:7]
    ended_at, exit_code, message = row[7:]
    asked = _read_asked(asked_text)
    return Command(
        id=id_,
        replica=replica,
        node=node,
        owner=owner,
        argv=asked.argv,
        timeout=asked.timeout,
        input=asked.input,
        taken=asked.taken,
        held_at=maybe_from_micros(asked.held_at),
        brought_at=maybe_from_micros(asked.brought_at),
        left=asked.left,
        terminal=asked.terminal,
        created_at=from_micros(created_at),
        stop_asked=bool(stop_asked),
        ended_at=maybe_from_micros(ended_at),
        exit_code=exit_code,
        message=message,
    )
