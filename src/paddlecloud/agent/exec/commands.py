"""Runs `exec` commands next to replicas, and sends their output to the server.

The server lists each live command of this machine in its responses to polls; the agent lists in its
polls which ones it knows. Each command has a directory of its own, created before its process is
started and deleted when the server has all of its output, so a command is started at most once,
also across a restart of the agent. One thread serves them all and sleeps while there is none.
Output goes to the server at offsets as long as the server has space for it, and is deleted here;
the end is reported when all output was sent, or no client reads it any more.

A command with a terminal starts when the tunnel to its client is there (`tunnels`), which takes its
output; it ends with the tunnel.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from paddlecloud.agent.exec import _spool, runner
from paddlecloud.agent.registry import Stage
from paddlecloud.agent.replica import inspect, records
from paddlecloud.agent.server_link.channel import Backoff, is_internal_error
from paddlecloud.model.errors import NotFound, PaddleCloudError, Retry, Unauthenticated

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from paddlecloud.agent.context import Context
    from paddlecloud.agent.exec._terminal import Terminal
    from paddlecloud.agent.server_link.channel import Channel

#: Seconds between two reads of what a command has printed.
_POLL_SECONDS = 0.05
_REQUEST_BYTES = 1024 * 1024
#: Requests for one stream, before the others get their turn.
_REQUESTS = 8
#: Longest pause between two requests whether the server has space again.
_LONGEST_PAUSE = 0.5
#: Seconds in which the supervisor of a command has to come up.
_START_SECONDS = 5.0


class Commands:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._directory = context.directory / "commands"
        self._changed = threading.Condition()
        self._live: dict[str, _Command] = {}
        self._swept = False
        self._backoff = Backoff()

    def known(self) -> dict[str, bool]:
        """The ids of the commands that this agent knows, and whether they have to stop."""
        with self._changed:
            return {one.id: one.stop for one in self._live.values()}

    def apply(self, orders: Iterable[dict[str, Any]]) -> None:
        """Take the commands of a response to a poll: new ones, and ones to stop."""
        with self._changed:
            for order in orders:
                name = str(order["id"])
                if not name.isalnum():
                    raise ValueError(f"not the id of a command: {name[:100]!r}")
                one = self._live.get(name) or _Command(name, order, self._directory / name)
                one.stop = one.stop or bool(order.get("stop"))
                self._live[one.id] = one
            swept, self._swept = self._swept, True
            if self._live:
                self._changed.notify_all()
        if swept or not self._directory.is_dir():
            return
        # Delete what an earlier agent left and the server does not list any more.
        for root in self._directory.iterdir():
            if root.name not in self._live:
                with suppress(OSError):
                    inspect.request_stop(root, grace=0.0, now=time.time())
                shutil.rmtree(root, ignore_errors=True)

    def wants_terminal(self, name: str, seconds: float) -> tuple[int, int] | None:
        """Rows and columns of the terminal that this command waits for; None if it does not, also
        not within so many seconds: its order may come after that of the tunnel."""
        with self._changed:
            self._changed.wait_for(lambda: name in self._live, seconds)
            one = self._live.get(name)
            wanted = one.order.get("terminal") if one is not None else None
            if one is None or wanted is None or one.terminal is not None or one.stop:
                return None
            return int(wanted["rows"]), int(wanted["columns"])

    def give_terminal(self, name: str, terminal: Terminal) -> None:
        """The command has a client, and may start."""
        with self._changed:
            if (one := self._live.get(name)) is not None and one.terminal is None:
                one.terminal = terminal
                self._changed.notify_all()

    def take_terminal_back(self, name: str, terminal: Terminal) -> bool:
        """The client is gone, so the command has to stop; False if it is not known any more."""
        with self._changed:
            one = self._live.get(name)
            if one is None or one.terminal is not terminal:
                return False
            one.stop = True
            return True

    def work(self) -> None:
        """The body of the thread."""
        channel = self._context.link.channel()
        self._context.guarded("the commands", lambda: self._turn(channel))

    def close(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _turn(self, channel: Channel) -> None:
        with self._changed:
            while not self._live and not self._context.stopping.is_set():
                self._changed.wait()
            live = list(self._live.values())
        try:
            for one in live:
                if self._is_done(one, channel):
                    shutil.rmtree(one.root, ignore_errors=True)
                    with self._changed:
                        self._live.pop(one.id, None)
                    if one.terminal is not None:
                        one.terminal.finish()
        except (Retry, Unauthenticated) as error:
            if isinstance(error, Unauthenticated):
                self._context.link.renew_keys()
            self._context.stopping.wait(self._backoff.next())
        else:
            self._backoff.reset()
            if not any(one.has_more for one in live if one.id in self._live):
                self._context.stopping.wait(_POLL_SECONDS)

    def _is_done(self, one: _Command, channel: Channel) -> bool:
        """Do the next step of one command; whether the server has all of it."""
        try:
            return self._step(one, channel)
        except NotFound:
            with suppress(OSError):
                inspect.request_stop(one.root, grace=0.0, now=time.time())
            return True
        except (OSError, ValueError) as error:
            self._context.log.warning(f"command {one.id} cannot go on: {error}", one.replica)
            return self._report_end(one, channel, runner.CAUSE_FAILED, None, str(error))
        except PaddleCloudError as error:
            if isinstance(error, Retry | Unauthenticated) and not is_internal_error(error):
                raise
            self._context.log.warning(f"command {one.id} was refused: {error}", one.replica)
            try:
                return self._report_end(one, channel, runner.CAUSE_FAILED, None, str(error))
            except PaddleCloudError as again:
                if isinstance(again, Retry | Unauthenticated) and not is_internal_error(again):
                    raise
                return True  # that is refused as well

    def _step(self, one: _Command, channel: Channel) -> bool:
        if one.started_at is None and not self._start(one, channel):
            tracked = self._context.registry.get(one.replica)
            if not one.stop and tracked is not None and tracked.alive:
                return False  # its replica may still start here
            cause = records.CAUSE_STOPPED if one.stop else runner.CAUSE_REPLICA_OVER
            return self._report_end(one, channel, cause, None, "")
        if one.stop and not one.stop_sent:
            inspect.request_stop(one.root, grace=0.0, now=time.time())
            one.stop_sent = True
        # Before the output is read, so that nothing printed before the end is missed.
        ended = records.read(one.root / records.EXIT)
        assert one.started_at is not None
        # Its supervisor is gone without an exit record.
        lost = (
            ended is None
            and time.monotonic() - one.started_at >= _START_SECONDS
            and records.lock_holder(one.root / records.LOCK) is None
            and not (one.root / records.EXIT).exists()
        )
        whole = all([stream.ship(one, channel) for stream in one.streams])
        if not whole and not any(stream.unwanted for stream in one.streams):
            return False
        if ended is not None:
            if one.terminal is not None:
                one.terminal.finish()
            how = (ended["cause"], ended["exit_code"], str(ended.get("message") or ""))
            return self._report_end(one, channel, *how)
        if lost:
            # Its supervisor was killed: nothing else ends what is left of it.
            self._context.spawner.kill_orphans()
            return self._report_end(one, channel, runner.CAUSE_FAILED, None, "killed")
        return False

    def _start(self, one: _Command, channel: Channel) -> bool:
        """Start it, unless an earlier agent did; False when its replica does not run."""
        if (one.root / runner.COMMAND).exists():
            command = records.read(one.root / runner.COMMAND)
            one.chunked = bool(command and command.get("pieces"))
            one.started_at = time.monotonic()
            for stream in one.streams:
                stream.is_known = False
            # Its terminal went with the agent before.
            one.stop = one.stop or one.order.get("terminal") is not None
            return True
        tracked = self._context.registry.get(one.replica)
        if one.stop or tracked is None or tracked.stage is not Stage.LAUNCHED:
            return False
        if not tracked.started or (one.order.get("terminal") and one.terminal is None):
            return False
        one.root.mkdir(parents=True, exist_ok=True, mode=0o700)
        if one.order.get("input"):
            data = channel.call("GET", f"/agent/commands/{one.id}/input")
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
            with os.fdopen(os.open(one.root / runner.STDIN, flags, 0o600), "wb") as file:
                file.write(data)
        records.write(
            one.root / runner.COMMAND,
            {
                "beside": str(tracked.root),
                "argv": one.order["argv"],
                "timeout": one.order.get("timeout"),
                "pieces": True,
                "terminal": one.terminal.path if one.terminal is not None else None,
                "term": (one.order.get("terminal") or {}).get("term", ""),
            },
        )
        one.started_at = time.monotonic()
        self._context.spawner.spawn_root(one.root, one.id)
        self._context.log.info(f"command {one.id} started", one.replica)
        return True

    def _report_end(
        self, one: _Command, channel: Channel, cause: str, code: int | None, message: str
    ) -> bool:
        sizes = {f"{stream.name}_size": stream.acked for stream in one.streams}
        note = {"cause": cause, "exit_code": code, "message": message[:1000], **sizes}
        answer = channel.json("POST", f"/agent/commands/{one.id}/end", note)
        return bool(answer.get("ended"))


class _Command:
    """One command as this agent knows it."""

    def __init__(self, name: str, order: dict[str, Any], root: Path) -> None:
        self.id = name
        self.replica = str(order["replica"])
        self.order = order
        self.root = root
        self.stop = False
        self.stop_sent = False
        self.started_at: float | None = None
        self.chunked = True
        """False: started by an earlier version, which wrote each stream into one file."""
        self.terminal: Terminal | None = None
        names = runner.STREAMS if order.get("terminal") is None else ()
        self.streams = [_Stream(name) for name in names]

    @property
    def has_more(self) -> bool:
        """Whether there is output that can be sent now."""
        return any(stream.has_more for stream in self.streams)


class _Stream:
    """One stream of a command on its way to the server."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.acked = 0
        """Bytes that the server has."""
        self.is_known = True
        """False: an earlier agent sent some, and only the server knows how much."""
        self.unwanted = False
        """No client reads it; what the server has no space for is not sent any more."""
        self.has_more = False
        self._space = _REQUEST_BYTES
        self._pause = _POLL_SECONDS
        self._ask_at = 0.0

    def ship(self, one: _Command, channel: Channel) -> bool:
        """Send what is new, as far as the server has space for it; whether that was all."""
        self.has_more = False
        if not self.is_known:
            self._send(one, channel, b"")
        for _ in range(_REQUESTS):
            limit = _REQUEST_BYTES
            data = _spool.read(one.root, self.name, self.acked, limit, chunked=one.chunked)
            if not data:
                return True
            if self._space <= 0 and time.monotonic() < self._ask_at:
                return False
            self._send(one, channel, data[: max(0, self._space)])
        self.has_more = self._space > 0
        return False

    def _send(self, one: _Command, channel: Channel, data: bytes) -> None:
        """Without data it only asks how much the server has."""
        query = {"stream": self.name, "offset": self.acked if self.is_known else 0}
        raw = channel.call("PUT", f"/agent/commands/{one.id}/output", data, query)
        answer = channel.parsed(raw)
        before, self.acked, self.is_known = self.acked, int(answer["size"]), True
        self._space = int(answer.get("room", _REQUEST_BYTES))
        self.unwanted = bool(answer.get("left"))
        if data and self.acked <= before:  # nothing was taken: do not ask again at once
            self._space = 0
        if one.chunked:
            _spool.delete_before(one.root, self.name, self.acked)
        self._pause = _POLL_SECONDS if self._space > 0 else min(2 * self._pause, _LONGEST_PAUSE)
        self._ask_at = time.monotonic() + self._pause
