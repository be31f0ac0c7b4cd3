"""Commands next to running workers (`exec`): started by users, run by agents.

A command is a row that its agent gets with the next response to a poll. Input and output are in the
log store, not among the job's listed files, and are deleted with the job. Output comes at offsets
like a log and is passed on to the reader (`output`); an end counts only when all output is here. A
command lives as long as it has a reader: a client that is gone could not stop it any more.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from paddlecloud.db.engine.base import Tx
from paddlecloud.db.tables import attempts, exec_commands
from paddlecloud.db.tables.exec_commands import Command, Terminal
from paddlecloud.model.errors import Conflict, Invalid, NotFound, TooLarge, TooMany
from paddlecloud.model.jobs.job import Attempt, Job, Reason, Replica, ReplicaState
from paddlecloud.server.deps import Deps
from paddlecloud.server.http.auth import Caller
from paddlecloud.server.schemas.agent import CommandOrder
from paddlecloud.server.schemas.exec import CommandEnd, CommandRequest, CommandView, StreamAnswer
from paddlecloud.server.services.accounts.audit import record
from paddlecloud.server.services.exec import output
from paddlecloud.server.services.exec.output import STREAMS, job_of, path_of, root_of
from paddlecloud.server.services.jobs import queries
from paddlecloud.server.services.jobs.settle import current_attempt
from paddlecloud.server.services.jobs.views import iso, say

MOST_BESIDE = 16
"""Commands that may run next to one worker at once."""
MOST_BYTES = 128 * 1024
"""Of the arguments of one command."""
MOST_STDIN = 1024 * 1024
FRAME = 256 * 1024
GIVEN_UP = timedelta(seconds=30)
"""So long after the end of its worker, and after its agent last sent output, a command without a
reported end is given up."""
HELD_EVERY = timedelta(seconds=10)
"""How often it is stored that a command has a reader, or that its agent sends output."""
LEFT_AFTER = timedelta(seconds=120)
"""How long a command lives without a reader."""
CAUSES = {
    "exit": "",
    "stopped": "exec_ended_stopped",
    "left": "exec_ended_left",
    "timeout": "exec_ended_timeout",
    "replica_over": "exec_ended_replica_over",
    "output_lost": "exec_ended_output_lost",
    "failed": "exec_ended_failed",
}
"""The message for each cause of an end."""
_WALL_TIME = "wall_time"


def start(deps: Deps, caller: Caller, job_id: str, request: CommandRequest) -> Command:
    """Start a command next to a worker of a running job."""
    job = queries.get(deps, caller, job_id)
    _check(request)
    now, name = deps.clock(), secrets.token_hex(16)
    wanted = request.terminal
    terminal = None
    if wanted is not None:
        term = wanted.term if wanted.term.isascii() and wanted.term.isprintable() else ""
        terminal = Terminal(term, wanted.rows, wanted.columns)
    deps.db.read(lambda tx: _worker_for(tx, job, request.worker))
    if request.stdin:
        deps.logs.append(f"{root_of(job.owner, job.id)}/{name}.in", 0, request.stdin)

    def ask(tx: Tx) -> Command:
        replica = _worker_for(tx, job, request.worker)
        command = Command(
            id=name,
            replica=replica.id,
            node=replica.node,
            owner=job.owner,
            argv=tuple(request.argv),
            timeout=request.timeout,
            input=len(request.stdin),
            terminal=terminal,
            created_at=now,
        )
        exec_commands.insert(tx, command)
        # The program only: its arguments may contain secrets.
        detail = {"owner": job.owner, "worker": replica.worker, "program": request.argv[0][:100]}
        record(tx, caller, now, "job.exec", job.id, detail)
        return command

    return deps.db.write(ask)


def get(deps: Deps, caller: Caller, job_id: str, command_id: str) -> Command:
    """The command, if it belongs to this job and this caller may see the job."""
    job = queries.get(deps, caller, job_id)
    found = deps.db.read(lambda tx: exec_commands.get(tx, command_id))
    if found is None or job_of(found) != job.id:
        raise NotFound("exec_unknown", job_id=job.id, command=command_id[:100])
    return found


def hold(deps: Deps, command: Command) -> None:
    """Store that the command has a reader."""
    now = deps.clock()
    known = command.held_at or command.created_at
    if command.ended_at is None and abs(now - known) >= HELD_EVERY:
        deps.db.write(lambda tx: exec_commands.record_held(tx, command.id, now), durable=False)


def leave(deps: Deps, command: Command) -> bool:
    """Stop a command without a reader; False if it has one again."""
    return deps.db.write(lambda tx: exec_commands.stop_unread(tx, command))


def stop(deps: Deps, caller: Caller, job_id: str, command_id: str) -> Command:
    """Ask for the end of a command; idempotent."""
    command = get(deps, caller, job_id, command_id)
    deps.db.write(lambda tx: exec_commands.ask_stop(tx, command))
    return get(deps, caller, job_id, command_id)


def give_up(deps: Deps, command: Command) -> bool:
    """Store an end for a command whose end will never be reported; False if it still may be."""
    if command.ended_at is None and deps.db.read(lambda tx: _is_given_up(tx, deps, command)):
        deps.db.write(lambda tx: _give_up(tx, deps, command.id), durable=False)
        return True
    return False


def view(command: Command, lang: str) -> CommandView:
    cause, _, detail = command.message.partition(":")
    worker = command.replica.rpartition(".")[2]
    code = CAUSES.get(cause, "")
    params: dict[str, str | int | float | None] = {
        "worker": worker,
        "job_id": job_of(command),
        "detail": detail,
        "seconds": LEFT_AFTER.total_seconds() if cause == "left" else command.timeout or 0.0,
    }
    return CommandView(
        id=command.id,
        job_id=job_of(command),
        worker=worker,
        argv=list(command.argv),
        created_at=iso(command.created_at),
        ended_at=iso(command.ended_at) if command.ended_at else None,
        exit_code=command.exit_code,
        cause=cause if command.ended_at else "",
        message=say(Reason(code=code, params=params), lang) if code else "",
    )


@dataclass(frozen=True, kw_only=True)
class NewOutput:
    """New output of a command, and the command as it was before that was read."""

    out: bytes
    err: bytes
    command: Command


def read_output(deps: Deps, command_id: str, offsets: Mapping[str, int]) -> NewOutput:
    command = output.get_command(deps, command_id)
    give_up(deps, command)
    found = {name: output.read(deps, command, name, offsets[name], FRAME) for name in STREAMS}
    return NewOutput(out=found["out"], err=found["err"], command=command)


def is_taken(deps: Deps, command_id: str, offsets: Mapping[str, int]) -> bool:
    """Whether nothing can be read there because another reader has taken it."""
    try:
        output.check(output.get_command(deps, command_id), offsets)
    except Conflict:
        return True
    return False


def orders_for(tx: Tx, node: str, known: Mapping[str, bool]) -> list[CommandOrder]:
    """The live commands of a node that its agent does not know, or not that they have to stop."""
    return [
        CommandOrder(
            id=one.id,
            replica=one.replica,
            argv=list(one.argv),
            timeout=one.timeout,
            input=one.input,
            terminal=one.terminal,
            stop=one.stop_asked,
        )
        for one in exec_commands.live_on(tx, node)
        if known.get(one.id) is None or (one.stop_asked and not known[one.id])
    ]


def input_of(deps: Deps, node: str, command_id: str) -> bytes:
    command = _own(deps, node, command_id)
    return deps.logs.read(path_of(command, "in"), 0, MOST_STDIN)


def store(
    deps: Deps, node: str, command_id: str, stream: str, offset: int, data: bytes
) -> StreamAnswer:
    """Store as much of this output as fits into the window; returns the size of the stream then."""
    command = _own(deps, node, command_id)
    if command.ended_at is not None:
        return StreamAnswer(size=offset + len(data), window=output.WINDOW, left=command.left)
    now = deps.clock()
    if abs(now - (command.brought_at or command.created_at)) >= HELD_EVERY:
        deps.db.write(lambda tx: exec_commands.record_brought(tx, command.id, now), durable=False)
    size, space = output.append(deps, command, stream, offset, data)
    if data:
        deps.hub.notify("command", command.id)
        deps.notify_log(job_of(command))
    return StreamAnswer(size=size, window=space, left=command.left)


def end(deps: Deps, node: str, command_id: str, note: CommandEnd) -> bool:
    """Store the end of a command; False while some of its output is missing."""
    command = _own(deps, node, command_id)
    sizes = {name: output.size(deps, command_id, name) for name in STREAMS}
    if command.ended_at is None and (sizes["out"] < note.out_size or sizes["err"] < note.err_size):
        return False
    cause = "timeout" if note.cause == _WALL_TIME else note.cause
    if cause == "stopped" and command.left:
        cause = "left"
    detail = note.message[:1000].replace("\0", "?")
    message = f"{cause if cause in CAUSES else 'failed'}:{detail}"
    now = deps.clock()

    def write(tx: Tx) -> None:
        exec_commands.end(tx, command_id, at=now, exit_code=note.exit_code, message=message)

    deps.db.write(write)
    return True


def _check(request: CommandRequest) -> None:
    if not request.argv or not request.argv[0]:
        raise Invalid("exec_command_missing")
    size = sum(len(word.encode("utf-8", "surrogatepass")) for word in request.argv)
    if size > MOST_BYTES:
        raise Invalid("exec_command_long", size=size, limit=MOST_BYTES)
    if any("\0" in word for word in request.argv):
        raise Invalid("exec_command_zero")
    if len(request.stdin) > MOST_STDIN:
        raise TooLarge("exec_stdin_large", limit=MOST_STDIN)


def _worker_for(tx: Tx, job: Job, wanted: str | None) -> Replica:
    """The worker next to which one more command may run."""
    replica = running_worker(current_attempt(tx, job), job, wanted)
    count = exec_commands.count_live(tx, replica.id)
    if count < MOST_BESIDE:
        return replica
    raise TooMany("exec_many", job_id=job.id, worker=replica.worker, count=count, limit=MOST_BESIDE)


def running_worker(attempt: Attempt | None, job: Job, wanted: str | None) -> Replica:
    """The running worker of that name; by default the first that runs."""
    replicas = attempt.replicas if attempt else ()
    names = [replica.worker for replica in replicas]
    if replicas and wanted is not None and wanted not in names:
        raise Invalid("worker_unknown", worker=wanted[:100], known=", ".join(names))
    for replica in replicas:
        if replica.state is ReplicaState.RUNNING and wanted in (None, replica.worker):
            return replica
    states = {replica.worker: replica.state.value for replica in replicas}
    worker = wanted or (names[0] if names else "trainer-0")
    state = states.get(worker, job.state.value)
    raise Conflict("exec_not_running", job_id=job.id, worker=worker[:100], state=state)


def _own(deps: Deps, node: str, command_id: str) -> Command:
    found = output.get_command(deps, command_id)
    if found.node != node:
        raise NotFound("exec_unknown", job_id="", command=command_id[:100])
    return found


def _is_given_up(tx: Tx, deps: Deps, command: Command) -> bool:
    """Whether its end will never be reported: its worker has ended and its agent is gone."""
    attempt = attempts.attempt_of(tx, command.replica)
    if attempt is None:
        return True
    replica = next(one for one in attempt.replicas if one.id == command.replica)
    over_at = (replica.exit.finished_at if replica.exit else None) or attempt.ended_at
    if not replica.over or over_at is None:
        return False
    return deps.clock() - max(over_at, command.brought_at or over_at) > GIVEN_UP


def _give_up(tx: Tx, deps: Deps, command_id: str) -> None:
    exec_commands.end(tx, command_id, at=deps.clock(), exit_code=None, message="replica_over:")
