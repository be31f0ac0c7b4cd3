"""What commands print on its way to who reads it: a window of each stream, never all of it.

A stream lies in the log store in pieces of one size. Whoever reads says with each question how far
he has come, for good; pieces before that are let go, and the agent may bring as many new ones. So a
command may print any amount, and waits while nobody takes it. How far was taken is written down
before a piece goes: whoever measures a stream and finds a piece missing sees that on a second look.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from paddlecloud.db.tables import exec_commands
from paddlecloud.db.tables.exec_commands import Command
from paddlecloud.model.errors import Conflict, NotFound
from paddlecloud.server.deps import Deps
from paddlecloud.server.services.files.job_files import user_root

PIECE = 4 * 1024 * 1024
WINDOW = 4 * PIECE
"""Most bytes of one stream that are kept."""
STREAMS = ("out", "err")


def root_of(owner: str, job_id: str) -> str:
    """Where input and output of a job's commands lie."""
    return f"{user_root(owner)}/commands/{job_id}"


def job_of(command: Command) -> str:
    return command.replica.partition(".")[0]


def path_of(command: Command, stream: str, number: int = 0) -> str:
    """Where a piece of a stream lies, or what it gets on stdin ("in")."""
    name = f"{root_of(command.owner, job_of(command))}/{command.id}.{stream}"
    return f"{name}.{number}" if number else name


def check(command: Command, offsets: Mapping[str, int]) -> None:
    """Refuse to read what is not kept any more: it would look like the whole."""
    for stream in STREAMS:
        kept_from = _kept_from(command, stream)
        if offsets[stream] < kept_from:
            raise Conflict("exec_output_taken", command=command.id, offset=kept_from)


def take(deps: Deps, command: Command, offsets: Mapping[str, int]) -> None:
    """Whoever reads it has everything before these offsets: let go of what is not needed."""
    taken = {}
    for stream in STREAMS:
        offset = offsets[stream]
        further = offset // PIECE > command.taken.get(stream, 0) // PIECE
        if not further or _is_one_file(deps, command, stream):
            continue
        if offset <= size(deps, command.id, stream):
            taken[stream] = offset
    if not taken:
        return
    # May be forgotten in a power cut, like the bytes themselves.
    deps.db.write(
        partial(exec_commands.note_taken, command_id=command.id, taken=taken), durable=False
    )
    for stream, offset in taken.items():
        for number in range(_kept_from(command, stream) // PIECE, offset // PIECE):
            deps.logs.delete(path_of(command, stream, number))


def read(deps: Deps, command: Command, stream: str, offset: int, limit: int) -> bytes:
    """At most so many bytes; none at the end, or where they were let go."""
    number, inside = divmod(offset, PIECE)
    if number and _is_one_file(deps, command, stream):
        number, inside = 0, offset
    return deps.logs.read(path_of(command, stream, number), inside, limit)


def append(deps: Deps, command: Command, stream: str, offset: int, data: bytes) -> tuple[int, int]:
    """Keep what there is room for; the size of the stream then, and the room that is left.

    As with a log the same bytes are kept once, and behind a gap nothing is."""
    command, grown = _measured(deps, command.id, stream)
    if _is_one_file(deps, command, stream):
        return deps.logs.append(path_of(command, stream), offset, data), WINDOW
    most = _kept_from(command, stream) + WINDOW
    rest = memoryview(data)[: max(0, most - offset)][grown - offset :] if offset <= grown else b""
    while rest:
        number, inside = divmod(grown, PIECE)
        path = path_of(command, stream, number)
        now = number * PIECE + deps.logs.append(path, inside, rest[: PIECE - inside])
        if now <= grown:  # taken and let go meanwhile: somebody else brought it
            break
        rest, grown = rest[now - grown :], now
    return grown, max(0, most - grown)


def size(deps: Deps, command_id: str, stream: str) -> int:
    """How many bytes have come, with those that were let go."""
    return _measured(deps, command_id, stream)[1]


def _measured(deps: Deps, command_id: str, stream: str) -> tuple[Command, int]:
    command = _get(deps, command_id)
    while True:
        found = _sum(deps, command, stream)
        again = _get(deps, command_id)
        if again.taken.get(stream) == command.taken.get(stream):
            return again, found
        command = again


def _sum(deps: Deps, command: Command, stream: str) -> int:
    number = _kept_from(command, stream) // PIECE
    while (part := deps.logs.size(path_of(command, stream, number))) == PIECE:
        number += 1
    return number * PIECE + part


def _is_one_file(deps: Deps, command: Command, stream: str) -> bool:
    """Whether an earlier version kept it: all in the first file, of which nothing is let go."""
    return not _kept_from(command, stream) and deps.logs.size(path_of(command, stream)) > PIECE


def _kept_from(command: Command, stream: str) -> int:
    return command.taken.get(stream, 0) // PIECE * PIECE


def _get(deps: Deps, command_id: str) -> Command:
    found = deps.db.read(lambda tx: exec_commands.get(tx, command_id))
    if found is None:
        raise NotFound("exec_unknown", job_id="", command=command_id[:100])
    return found
