"""Commands that people run beside their replicas (`exec`): the agent's side of them.

The server names each live command of this machine in its answers to polls; the agent says in its
questions which ones it has heard of. Each has a directory of its own, made before its process is
asked for and deleted when the server has all of it, so a command is started at most once, also
across a restart of the agent. One thread carries them all and sleeps while there is none; output
goes to the server at offsets as far as that has room, and is deleted here; the end goes only when
all output is there, or nobody wants it any more.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from paddlecloud.agent.exec import runner, spool
from paddlecloud.agent.registry import Stage
from paddlecloud.agent.replica import inspect, records
from paddlecloud.agent.server_link.channel import Backoff, is_stumble
from paddlecloud.model.errors import NotFound, PaddleCloudError, Retry, Unauthenticated

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from paddlecloud.agent.context import Site
    from paddlecloud.agent.server_link.channel import Channel

#: Seconds between two looks at what a command has printed.
_LOOK = 0.05
_PIECE = 1024 * 1024
#: Of one stream, before the others get their turn.
_PIECES = 8
#: Longest pause between two questions whether the server has room again.
_LONGEST = 0.5
#: Seconds in which the process beside a command has to come up.
_BIRTH = 5.0


class Commands:
    def __init__(self, site: Site) -> None:
        self._site = site
        self._directory = site.directory / "commands"
        self._changed = threading.Condition()
        self._live: dict[str, _One] = {}
        self._swept = False
        self._backoff = Backoff()

    def heard(self) -> dict[str, bool]:
        """Which commands are known here, and of which it is known that they have to stop."""
        with self._changed:
            return {one.id: one.stop for one in self._live.values()}

    def obey(self, orders: Iterable[dict[str, Any]]) -> None:
        """What the server said of commands in its last answer: new ones, and ones to stop."""
        with self._changed:
            for order in orders:
                one = self._live.get(str(order["id"])) or self._new(order)
                one.stop = one.stop or bool(order.get("stop"))
                self._live[one.id] = one
            swept, self._swept = self._swept, True
            if self._live:
                self._changed.notify()
        if not swept:
            self._sweep()

    def work(self) -> None:
        """The body of the thread."""
        channel = self._site.link.channel()
        self._site.guarded("the commands", lambda: self._turn(channel))

    def close(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _new(self, order: dict[str, Any]) -> _One:
        name = str(order["id"])
        if not name.isalnum():
            raise ValueError(f"not the id of a command: {name[:100]!r}")
        return _One(name, order, self._directory / name)

    def _sweep(self) -> None:
        """Forget what an earlier agent left and the server does not name any more."""
        if not self._directory.is_dir():
            return
        for root in self._directory.iterdir():
            if root.name not in self._live:
                with suppress(OSError):
                    inspect.request_stop(root, grace=0.0, now=time.time())
                shutil.rmtree(root, ignore_errors=True)

    def _turn(self, channel: Channel) -> None:
        with self._changed:
            while not self._live and not self._site.stopping.is_set():
                self._changed.wait()
            live = list(self._live.values())
        try:
            for one in live:
                if self._is_done(one, channel):
                    self._drop(one)
        except (Retry, Unauthenticated) as error:
            if isinstance(error, Unauthenticated):
                self._site.link.renew_keys()
            self._site.stopping.wait(self._backoff.next())
        else:
            self._backoff.reset()
            if not any(one.has_more for one in live if one.id in self._live):
                self._site.stopping.wait(_LOOK)

    def _is_done(self, one: _One, channel: Channel) -> bool:
        """Bring one a step further; whether the server has all of it."""
        try:
            return self._step(one, channel)
        except NotFound:
            with suppress(OSError):
                inspect.request_stop(one.root, grace=0.0, now=time.time())
            return True
        except (OSError, ValueError) as error:
            self._site.journal.warning(f"command {one.id} cannot go on: {error}", one.replica)
            return self._tell_end(one, channel, runner.CAUSE_FAILED, None, str(error))
        except PaddleCloudError as error:
            if isinstance(error, Retry | Unauthenticated) and not is_stumble(error):
                raise
            self._site.journal.warning(f"command {one.id} was refused: {error}", one.replica)
            return self._tell_refusal(one, channel, error)

    def _step(self, one: _One, channel: Channel) -> bool:
        if one.begun_at is None and not self._begin(one, channel):
            if self._may_come(one):
                return False
            cause = records.CAUSE_STOPPED if one.stop else runner.CAUSE_REPLICA_OVER
            return self._tell_end(one, channel, cause, None, "")
        if one.stop and not one.stop_told:
            inspect.request_stop(one.root, grace=0.0, now=time.time())
            one.stop_told = True
        # Before the output is read: whatever comes after the end is not missed then.
        ended = records.read(one.root / records.EXIT)
        lost = ended is None and self._is_lost(one)
        whole = all([stream.ship(one, channel) for stream in one.streams])
        if not whole and not any(stream.unwanted for stream in one.streams):
            return False
        if ended is not None:
            how = (ended["cause"], ended["exit_code"], str(ended.get("message") or ""))
            return self._tell_end(one, channel, *how)
        if lost:
            # Its helper was killed: no other process would ever end what is left of it.
            self._site.spawner.kill_orphans()
            return self._tell_end(one, channel, runner.CAUSE_FAILED, None, "killed")
        return False

    def _begin(self, one: _One, channel: Channel) -> bool:
        """Start it, unless an earlier agent did; False when its replica does not run."""
        if (one.root / runner.COMMAND).exists():
            begun = records.read(one.root / runner.COMMAND)
            one.in_pieces = bool(begun and begun.get("pieces"))
            one.begun_at = time.monotonic()
            for stream in one.streams:
                stream.is_known = False
            return True
        tracked = self._site.book.get(one.replica)
        if one.stop or tracked is None or tracked.stage is not Stage.LAUNCHED:
            return False
        if not tracked.started:
            return False
        one.root.mkdir(parents=True, exist_ok=True, mode=0o700)
        if one.order.get("input"):
            data = channel.call("GET", f"/agent/commands/{one.id}/input")
            _write(one.root / runner.STDIN, data)
        records.write(
            one.root / runner.COMMAND,
            {
                "beside": str(tracked.root),
                "argv": one.order["argv"],
                "timeout": one.order.get("timeout"),
                "pieces": True,
            },
        )
        one.begun_at = time.monotonic()
        self._site.spawner.spawn_beside(one.root, one.id)
        self._site.journal.info(f"command {one.id} begins", one.replica)
        return True

    def _may_come(self, one: _One) -> bool:
        """Whether its replica may still come to run here."""
        tracked = self._site.book.get(one.replica)
        return not one.stop and tracked is not None and tracked.alive

    def _is_lost(self, one: _One) -> bool:
        """Whether the process beside it is gone without a word."""
        assert one.begun_at is not None
        if time.monotonic() - one.begun_at < _BIRTH:
            return False
        held = records.lock_holder(one.root / records.LOCK) is not None
        return not held and not (one.root / records.EXIT).exists()

    def _tell_end(
        self, one: _One, channel: Channel, cause: str, code: int | None, message: str
    ) -> bool:
        sizes = {f"{stream.name}_size": stream.acked for stream in one.streams}
        note = {"cause": cause, "exit_code": code, "message": message[:1000], **sizes}
        answer = channel.json("POST", f"/agent/commands/{one.id}/end", note)
        return bool(answer.get("ended"))

    def _tell_refusal(self, one: _One, channel: Channel, error: PaddleCloudError) -> bool:
        """Whoever waits for it hears of an end, unless that is refused as well."""
        try:
            return self._tell_end(one, channel, runner.CAUSE_FAILED, None, str(error))
        except PaddleCloudError as again:
            if isinstance(again, Retry | Unauthenticated) and not is_stumble(again):
                raise
            return True

    def _drop(self, one: _One) -> None:
        shutil.rmtree(one.root, ignore_errors=True)
        with self._changed:
            self._live.pop(one.id, None)


class _One:
    """One command as this agent knows it."""

    def __init__(self, name: str, order: dict[str, Any], root: Path) -> None:
        self.id = name
        self.replica = str(order["replica"])
        self.order = order
        self.root = root
        self.stop = False
        self.stop_told = False
        self.begun_at: float | None = None
        self.in_pieces = True
        """False: begun by an earlier version, which put each stream into one file."""
        self.streams = [_Stream(name) for name in runner.STREAMS]

    @property
    def has_more(self) -> bool:
        """Whether there is output that can be sent at once."""
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
        """Nobody reads it; what the server has no room for is not sent any more."""
        self.has_more = False
        self._room = _PIECE
        self._pause = _LOOK
        self._ask_at = 0.0

    def ship(self, one: _One, channel: Channel) -> bool:
        """Send what is new, as far as there is room for it; whether that was all."""
        self.has_more = False
        if not self.is_known:
            self._send(one, channel, b"")
        for _ in range(_PIECES):
            piece = self._next(one)
            if not piece:
                return True
            if self._room <= 0 and time.monotonic() < self._ask_at:
                return False
            self._send(one, channel, piece[: max(0, self._room)])
        self.has_more = self._room > 0
        return False

    def _next(self, one: _One) -> bytes:
        return spool.read(one.root, self.name, self.acked, _PIECE, in_pieces=one.in_pieces)

    def _send(self, one: _One, channel: Channel, piece: bytes) -> None:
        """With an empty piece: ask how things stand."""
        query = {"stream": self.name, "offset": self.acked if self.is_known else 0}
        raw = channel.call("PUT", f"/agent/commands/{one.id}/output", piece, query)
        answer = channel.parsed(raw)
        before, self.acked, self.is_known = self.acked, int(answer["size"]), True
        self._room, self.unwanted = int(answer.get("room", _PIECE)), bool(answer.get("left"))
        if piece and self.acked <= before:  # whatever was said of room: asking at once is no use
            self._room = 0
        if one.in_pieces:
            spool.let_go(one.root, self.name, self.acked)
        self._pause = _LOOK if self._room > 0 else min(2 * self._pause, _LONGEST)
        self._ask_at = time.monotonic() + self._pause


def _write(path: Path, data: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(data)
