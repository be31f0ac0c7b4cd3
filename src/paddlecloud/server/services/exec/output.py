"""Output of commands: a window of each stream is kept, never all of it.

A stream is stored in the log store in files of one size. The reader confirms with each request how
far it has got; files before that are deleted, and the agent may send as many new ones. So a command
may print any amount, and blocks while it has no reader. The confirmed offset is stored before a
file is deleted, so a concurrent reader that misses a file finds the reason in the row.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from paddlecloud.db.tables import exec_commands
from paddlecloud.db.tables.exec_commands import Command
from paddlecloud.model.errors import Conflict, NotFound
from paddlecloud.server.deps import Deps
from paddlecloud.server.services.files.job_files import user_root

SEGMENT = 4 * 1024 * 1024
WINDOW = 4 * SEGMENT
"""Bytes of one stream that are kept at most."""
STREAMS = ("out", "err")


def root_of(owner: str, job_id: str) -> str:
    """The directory of input and output of a job's commands."""
    return f"{user_root(owner)}/commands/{job_id}"


def job_of(command: Command) -> str:
    return command.replica.partition(".")[0]


def path_of(command: Command, stream: str, number: int = 0) -> str:
    """The path of a segment of a stream, or of stdin ("in")."""
    name = f"{root_of(command.owner, job_of(command))}/{command.id}.{stream}"
    return f"{name}.{number}" if number else name


def check(command: Command, offsets: Mapping[str, int]) -> None:
    """Conflict if the output at these offsets was deleted."""
    for stream in STREAMS:
        kept_from = _kept_from(command, stream)
        if offsets[stream] < kept_from:
            raise Conflict("exec_output_taken", command=command.id, offset=kept_from)


def take(deps: Deps, command: Command, offsets: Mapping[str, int]) -> None:
    """The reader has everything before these offsets: delete what is not needed any more."""
    taken = {}
    for stream in STREAMS:
        offset = offsets[stream]
        further = offset // SEGMENT > command.taken.get(stream, 0) // SEGMENT
        if not further or _is_one_file(deps, command, stream):
            continue
        if offset <= size(deps, command.id, stream):
            taken[stream] = offset
    if not taken:
        return
    # Need not survive a loss of power: the bytes themselves do not either.
    deps.db.write(
        partial(exec_commands.record_taken, command_id=command.id, taken=taken), durable=False
    )
    for stream, offset in taken.items():
        for number in range(_kept_from(command, stream) // SEGMENT, offset // SEGMENT):
            deps.logs.delete(path_of(command, stream, number))


def read(deps: Deps, command: Command, stream: str, offset: int, limit: int) -> bytes:
    """At most so many bytes; none at the end, or if they were deleted."""
    number, inside = divmod(offset, SEGMENT)
    if number and _is_one_file(deps, command, stream):
        number, inside = 0, offset
    return deps.logs.read(path_of(command, stream, number), inside, limit)


def append(deps: Deps, command: Command, stream: str, offset: int, data: bytes) -> tuple[int, int]:
    """Store what fits into the window; returns the size of the stream then, and the space left.

    As with a log the same bytes are stored once, and nothing is stored behind a gap."""
    command, grown = _measured(deps, command.id, stream)
    if _is_one_file(deps, command, stream):
        return deps.logs.append(path_of(command, stream), offset, data), WINDOW
    most = _kept_from(command, stream) + WINDOW
    rest = memoryview(data)[: max(0, most - offset)][grown - offset :] if offset <= grown else b""
    while rest:
        number, inside = divmod(grown, SEGMENT)
        path = path_of(command, stream, number)
        now = number * SEGMENT + deps.logs.append(path, inside, rest[: SEGMENT - inside])
        if now <= grown:  # another request has sent it, and the reader has taken it
            break
        rest, grown = rest[now - grown :], now
    return grown, max(0, most - grown)


def size(deps: Deps, command_id: str, stream: str) -> int:
    """How many bytes have arrived, including those that were deleted."""
    return _measured(deps, command_id, stream)[1]


def _measured(deps: Deps, command_id: str, stream: str) -> tuple[Command, int]:
    command = get_command(deps, command_id)
    while True:
        number = _kept_from(command, stream) // SEGMENT
        while (part := deps.logs.size(path_of(command, stream, number))) == SEGMENT:
            number += 1
        again = get_command(deps, command_id)
        if again.taken.get(stream) == command.taken.get(stream):
            return again, number * SEGMENT + part
        command = again


def _is_one_file(deps: Deps, command: Command, stream: str) -> bool:
    """Whether an earlier version stored it: all in the first file, which is not shortened."""
    return not _kept_from(command, stream) and deps.logs.size(path_of(command, stream)) > SEGMENT


def _kept_from(command: Command, stream: str) -> int:
    return command.taken.get(stream, 0) // SEGMENT * SEGMENT


def get_command(deps: Deps, command_id: str) -> Command:
    found = deps.db.read(lambda tx: exec_commands.get(tx, command_id))
    if found is None:
        raise NotFound("exec_unknown", job_id="", command=command_id[:100])
    return found
