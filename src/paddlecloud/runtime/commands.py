"""Commands that people run beside their replicas (`exec`): the agent's side of them.

The server names each live command of this machine in its answers to polls; the agent says in its
questions which ones it has heard of. Each has a directory of its own, made before its process is
asked for and deleted when the server has all of it, so a command is started at most once, also
across a restart of the agent. One thread carries them all and sleeps while there is none; output
goes to the server at offsets, the end only when all output is there.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from paddlecloud.model.errors import NotFound, PaddleCloudError, Retry, Unauthenticated
from paddlecloud.runtime import beside, control, record
from paddlecloud.runtime.book import Stage
from paddlecloud.runtime.link import Backoff, is_stumble

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from paddlecloud.runtime.link import Channel
    from paddlecloud.runtime.site import Site

#: Seconds between two looks at what a command has printed.
_LOOK = 0.05
_PIECE = 1024 * 1024
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
                    control.request_stop(root, grace=0.0, now=time.time())
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
            self._site.stopping.wait(_LOOK)

    def _is_done(self, one: _One, channel: Channel) -> bool:
        """Bring one a step further; whether the server has all of it."""
        try:
            return self._step(one, channel)
        except NotFound:
            with suppress(OSError):
                control.request_stop(one.root, grace=0.0, now=time.time())
            return True
        except (OSError, ValueError) as error:
            self._site.journal.warning(f"command {one.id} cannot go on: {error}", one.replica)
            return self._tell_end(one, channel, beside.CAUSE_FAILED, None, str(error))
        except PaddleCloudError as error:
            if isinstance(error, Retry | Unauthenticated) and not is_stumble(error):
                raise
            self._site.journal.warning(f"command {one.id} was refused: {error}", one.replica)
            return True

    def _step(self, one: _One, channel: Channel) -> bool:
        if one.begun_at is None and not self._begin(one, channel):
            if self._may_come(one):
                return False
            cause = record.CAUSE_STOPPED if one.stop else beside.CAUSE_REPLICA_OVER
            return self._tell_end(one, channel, cause, None, "")
        if one.stop and not one.stop_told:
            control.request_stop(one.root, grace=0.0, now=time.time())
            one.stop_told = True
        # Before the output is read: whatever comes after the end is not missed then.
        ended = record.read(one.root / record.EXIT)
        lost = ended is None and self._is_lost(one)
        for stream in beside.STREAMS:
            _ship(one, stream, channel)
        if ended is not None:
            how = (ended["cause"], ended["exit_code"], str(ended.get("message") or ""))
            return self._tell_end(one, channel, *how)
        if lost:
            return self._tell_end(one, channel, beside.CAUSE_FAILED, None, "killed")
        return False

    def _begin(self, one: _One, channel: Channel) -> bool:
        """Start it, unless an earlier agent did; False when its replica does not run."""
        if (one.root / beside.COMMAND).exists():
            one.begun_at = time.monotonic()
            return True
        tracked = self._site.book.get(one.replica)
        if one.stop or tracked is None or tracked.stage is not Stage.LAUNCHED:
            return False
        if not tracked.started:
            return False
        one.root.mkdir(parents=True, exist_ok=True, mode=0o700)
        if one.order.get("input"):
            data = channel.call("GET", f"/agent/commands/{one.id}/input")
            _write(one.root / beside.STDIN, data)
        record.write(
            one.root / beside.COMMAND,
            {
                "beside": str(tracked.root),
                "argv": one.order["argv"],
                "timeout": one.order.get("timeout"),
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
        held = record.lock_holder(one.root / record.LOCK) is not None
        return not held and not (one.root / record.EXIT).exists()

    def _tell_end(
        self, one: _One, channel: Channel, cause: str, code: int | None, message: str
    ) -> bool:
        sizes = {f"{stream}_size": one.acked[stream] for stream in beside.STREAMS}
        note = {"cause": cause, "exit_code": code, "message": message[:1000], **sizes}
        answer = channel.json("POST", f"/agent/commands/{one.id}/end", note)
        return bool(answer.get("ended"))

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
        self.acked = dict.fromkeys(beside.STREAMS, 0)
        """Bytes of each stream that the server has."""


def _ship(one: _One, stream: str, channel: Channel) -> None:
    """Send what is new of a stream, however much it is."""
    path = one.root / stream
    while True:
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        try:
            piece = os.pread(fd, _PIECE, one.acked[stream])
        finally:
            os.close(fd)
        if not piece:
            return
        query = {"stream": stream, "offset": one.acked[stream]}
        answer = channel.call("PUT", f"/agent/commands/{one.id}/output", piece, query)
        one.acked[stream] = int(channel.parsed(answer)["size"])


def _write(path: Path, data: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(data)
