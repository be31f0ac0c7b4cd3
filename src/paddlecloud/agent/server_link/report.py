"""Tells the server what happened: starts, log bytes, use, ends. One thread, one request at a time.

The thread sleeps until inotify, a monitor's notice, another thread or the clock wakes it. When
nothing is under way it sends at once; while a request is under way the rest gathers for the next
one. A report may be lost, repeated or answered late: only what the server acknowledged counts, and
its word on how many log bytes it has decides where the log goes on.

What a report says (`due`, `compose`): a start is held back for a moment, because a short job's end
often follows and both fit into one request; log bytes go out at once, then further ones of the same
file wait a moment; the end goes out when everything before it is at the server, or in the same
request.
"""

from __future__ import annotations

import json
import os
import select
import socket
import struct
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paddlecloud.agent.inotify import OVERFLOW
from paddlecloud.agent.outputs import scan, unsent
from paddlecloud.agent.registry import Stage
from paddlecloud.agent.replica import notices as replica_notices
from paddlecloud.agent.replica.records import STDOUT
from paddlecloud.agent.server_link.channel import Backoff, is_stumble
from paddlecloud.agent.server_link.report_stream import Exchange
from paddlecloud.model.errors import PaddleCloudError, Retry, StorageFull, Unauthenticated

if TYPE_CHECKING:
    from collections.abc import Iterable

    from paddlecloud.agent.context import Site
    from paddlecloud.agent.registry import Tracked
    from paddlecloud.agent.replica.lifecycle import Care
    from paddlecloud.agent.replica.records import ExitRecord
    from paddlecloud.agent.usage.sampler import Sampler

MAX_LOG_BYTES = 4 * 1024 * 1024
START_HOLD = 0.008
LOG_HOLD = 0.015
#: Of one replica while others wait, so that a loud one does not silence the rest.
_SHARE = 1024 * 1024
#: Every replica is looked at so often, in case nobody told of its end (its monitor was killed).
SWEEP = 1.0
#: The same where nothing tells of new log bytes.
SWEEP_BLIND = 0.2
#: What holds a replica up is told if it lasts so long, and then once in so many seconds.
HELD_HOLD = 2.0
HELD_AGAIN = 5.0
NOT_HELD = replica_notices.of("held_no_more")
_REFUSED_PAUSE = 2.0
_UNANSWERED_PAUSE = 1.0
_MOST_ITEMS = 256
_BARE = ("replica", "fence", "started", "held")


class Reporter:
    def __init__(self, site: Site, care: Care, sampler: Sampler | None = None) -> None:
        self._site = site
        self._care = care
        self._sampler = sampler
        self._channel = site.link.channel()
        self._exchange = Exchange(site.link)
        self._notices = open_notices(site.notices)
        self._is_told = site.watcher is not None and bool(self._notices.getsockname())
        """Of new log bytes, and by monitors."""
        self._backoff = Backoff()
        self._quiet_until = 0.0
        self._quiet_since = 0
        self._swept_at = 0.0
        self._sequence = 0
        self._singly = 0
        """So many of the next reports carry one item: one of theirs was refused."""

    def work(self) -> None:
        """The body of the thread."""
        self._site.guarded("the reporter", self._turn)

    def _turn(self) -> None:
        told = self._wait(self._pause(time.monotonic()))
        now = time.monotonic()
        if now - self._swept_at >= self._sweep_interval():
            self._swept_at = now
            told.update(self._sweep())
            if self._sampler is not None and any(t.started for t in told):
                self._sampler.nudge(now)
        told.update(t for t in self._site.book.active() if _is_to_be_seen(t))
        for tracked in told:
            tracked.just_launched = False
            self._care.look(tracked, now)
        if now >= self._quiet_until or self._site.link.generation != self._quiet_since:
            self._report(now)

    def _pause(self, now: float) -> float | None:
        """Seconds until there is something to do by itself; None: somebody has to wake us."""
        replicas = self._site.book.active()
        moments = [moment for tracked in replicas if (moment := due(tracked)) is not None]
        quiet = self._quiet_until if self._site.link.generation == self._quiet_since else 0.0
        waits = [max(moment, quiet) for moment in moments]
        if any(tracked.alive for tracked in replicas):
            waits.append(self._swept_at + self._sweep_interval())
        return max(0.0, min(waits) - now) if waits else None

    def _sweep_interval(self) -> float:
        return SWEEP if self._is_told else SWEEP_BLIND

    def _sweep(self) -> list[Tracked]:
        launched = [t for t in self._site.book.active() if t.stage is Stage.LAUNCHED]
        for tracked in launched:
            tracked.dirty = tracked.dirty or tracked.watch is None
        return launched

    def _wait(self, seconds: float | None) -> set[Tracked]:
        """Sleep; then the replicas of which something was told.

        While log bytes are held back for a moment, new ones do not wake us: at thousands of lines
        a second that would be a wake-up for each. Starts and ends come as notices and do.
        """
        watcher = self._site.watcher
        poll = select.poll()
        poll.register(self._notices, select.POLLIN)
        poll.register(self._site.wake_reader, select.POLLIN)
        if watcher is not None and (seconds is None or seconds > LOG_HOLD):
            poll.register(watcher, select.POLLIN)
        ready = {fd for fd, _ in poll.poll(None if seconds is None else seconds * 1000 + 0.5)}
        if self._site.wake_reader in ready:
            os.read(self._site.wake_reader, 4096)
        told = self._note_logs() if watcher is not None else set()
        return told | self._heard() if self._notices.fileno() in ready else told

    def _heard(self) -> set[Tracked]:
        """The replicas whose monitors sent a notice."""
        told = set()
        with suppress(BlockingIOError):
            while True:
                name = self._notices.recv(512).decode("utf-8", "replace")
                tracked = self._site.book.get(name)
                if tracked is not None:
                    told.add(tracked)
        return told

    def _note_logs(self) -> set[Tracked]:
        """Note whose log grew. If the kernel lost count, every replica is looked at."""
        assert self._site.watcher is not None
        for watch, mask, _ in self._site.watcher.read():
            if mask & OVERFLOW:
                return self._everything()
            tracked = self._site.book.watched.get(watch)
            if tracked is not None:
                tracked.dirty = True
        return set()

    def _everything(self) -> set[Tracked]:
        replicas = self._site.book.active()
        for tracked in replicas:
            tracked.dirty = True
        return set(replicas)

    def _report(self, now: float) -> None:
        most = 1 if self._singly else _MOST_ITEMS
        batch = compose(self._site.book.active(), now=now, most=most)
        for tracked, error in batch.unread:
            self._site.journal.warning(f"its log cannot be read: {error}", tracked.id)
            self._wait_for_log(tracked, error, now)
        if not batch.items:
            return
        self._singly = max(0, self._singly - 1)
        try:
            answer = self._send(batch)
            self._backoff.reset()
            self._quiet_until = 0.0
            self._apply(batch, answer, now)
        except PaddleCloudError as error:
            if isinstance(error, Retry | Unauthenticated) and not is_stumble(error):
                self._pause_after(error, batch)
            else:
                self._refused(error, batch)
        except BaseException:
            batch.restore()
            raise

    def _send(self, batch: Batch) -> dict[str, Any]:
        self._sequence += 1
        body = encode(self._site.config.agent_id, self._site.boot, self._sequence, batch)
        answer = self._exchange.ask(body, time.monotonic())
        if answer is None:
            answer = self._channel.parsed(self._channel.call("POST", "/agent/report", body))
            self._exchange.follow(time.monotonic())
        return answer

    def _pause_after(self, error: PaddleCloudError, batch: Batch) -> None:
        batch.restore()
        if isinstance(error, Unauthenticated):
            self._site.link.renew_keys()
        if isinstance(error, StorageFull):
            self._care.make_room()
            for tracked in batch.members:
                self._wait_for_room(tracked, error)
            self._tell_bare(batch.bare())
        pause = self._backoff.next()
        self._quiet_since = self._site.link.generation
        self._quiet_until = time.monotonic() + pause
        if pause >= 1.0:
            self._site.journal.warning(f"the report waits: {error} {_notes(error)}")

    def _wait_for_room(self, tracked: Tracked, error: StorageFull) -> None:
        """Of one that is over the end waits for its log; but not for ever."""
        if not _only_log_is_left(tracked):
            return
        now = time.monotonic()
        tracked.full_since = now if tracked.full_since is None else tracked.full_since
        tracked.hold(replica_notices.of_error(error), now=now)
        if tracked.patience is not None and now - tracked.full_since > tracked.patience:
            self._give_up_log(tracked, error)

    def _wait_for_log(self, tracked: Tracked, error: OSError, now: float) -> None:
        """The same where its disk does not give the log: for as long as outputs are waited for."""
        if not _only_log_is_left(tracked):
            return
        tracked.unread_since = now if tracked.unread_since is None else tracked.unread_since
        told, lasted = scan.unreadable(STDOUT, error), now - tracked.unread_since
        tracked.hold(replica_notices.of_error(told), now=now)
        if not scan.may_be_read(error, lasted=lasted, patience=tracked.patience):
            self._give_up_log(tracked, told)

    def _give_up_log(self, tracked: Tracked, error: PaddleCloudError) -> None:
        tracked.log_given_up = True
        unsent.leave(tracked, {STDOUT: error}, self._site, lost=False)

    def _tell_bare(self, bare: Batch) -> None:
        """A start needs no room, nor does what a job waits for: the rest of a log may."""
        if bare.items:
            with suppress(PaddleCloudError):
                self._apply(bare, self._send(bare), time.monotonic())

    def _refused(self, error: PaddleCloudError, batch: Batch) -> None:
        """The server will not take it, now or later, or makes a mistake about it: find out which
        item it is, and hold that."""
        batch.restore()
        if len(batch.items) > 1:
            self._singly = len(batch.items)
            return
        tracked = batch.members[0]
        tracked.hold_until = time.monotonic() + _REFUSED_PAUSE
        self._site.journal.warning(f"its report was refused: {error} {_notes(error)}", tracked.id)

    def _apply(self, batch: Batch, answer: dict[str, Any], now: float) -> None:
        acks = {ack["replica"]: ack for ack in answer.get("acks", [])}
        stale = set(answer.get("stale", []))
        for tracked, item in zip(batch.members, batch.items, strict=True):
            ack = acks.get(tracked.id)
            if tracked.id in stale:
                self._care.expel(tracked)
            elif ack is None:
                tracked.dirty = True
                tracked.hold_until = now + _UNANSWERED_PAUSE
            else:
                self._acknowledged(tracked, item, ack, now)

    def _acknowledged(
        self, tracked: Tracked, item: dict[str, Any], ack: dict[str, Any], now: float
    ) -> None:
        first = tracked.acked is None
        if "held" in item:
            tracked.held_known = item["held"] != NOT_HELD
        if int(ack["log_size"]) != tracked.acked:
            tracked.full_since = None
        tracked.acked = int(ack["log_size"])
        tracked.started_told = tracked.started_told or "started" in item
        if ack["exited"] or "lost" in item:
            self._care.finished(tracked)
        elif first or tracked.stage is Stage.OVER:
            tracked.dirty = True
            if "exited" in item and not first:
                tracked.hold_until = now + _UNANSWERED_PAUSE


class Batch:
    """The items of one report, with their log bytes and the replicas they are about."""

    def __init__(self) -> None:
        self.items: list[dict[str, Any]] = []
        self.pieces: list[bytes] = []
        self.members: list[Tracked] = []
        self.unread: list[tuple[Tracked, OSError]] = []
        """Those whose logs could not be read; they are looked at again, and hold up nobody. What
        needs no log is told of them."""

    def restore(self) -> None:
        """It did not arrive: everything in it has to be said again."""
        for tracked in self.members:
            tracked.dirty = True

    def bare(self) -> Batch:
        """That of it which says that a replica has started, or waits, without a byte of a log."""
        bare = Batch()
        for tracked, item in zip(self.members, self.items, strict=True):
            said = {key: value for key, value in item.items() if key in _BARE}
            if len(said) > 2:
                bare.items.append(said)
                bare.members.append(tracked)
        return bare


def due(tracked: Tracked) -> float | None:
    """When there is something to say of it (monotonic seconds); None when there is nothing."""
    if tracked.forget or tracked.fence < 0 or tracked.stage is Stage.DONE:
        return None
    waits = held_due(tracked)
    if tracked.stage is Stage.ORDERED and (
        tracked.acked is None or not (tracked.dirty or waits is not None)
    ):
        return None
    moments = [] if waits is None else [waits]
    if tracked.acked is None or (tracked.stage is Stage.OVER and tracked.shipped):
        moments.append(0.0)
    if tracked.started is not None and not tracked.started_told:
        moments.append(tracked.started_noticed + START_HOLD)
    if tracked.dirty:
        moments.append(0.0 if tracked.stage is Stage.OVER else tracked.sent_at + LOG_HOLD)
    if tracked.usage is not None and tracked.stage is Stage.LAUNCHED:
        moments.append(tracked.sent_at + LOG_HOLD)
    return max(min(moments), tracked.hold_until) if moments else None


def held_due(tracked: Tracked) -> float | None:
    """When to tell what holds it up, not before that lasts, and not again at once; and once that
    it does not any more."""
    if tracked.held is None:
        return 0.0 if tracked.held_known and tracked.stage is Stage.LAUNCHED else None
    return max(tracked.held_since + HELD_HOLD, tracked.held_told + HELD_AGAIN)


def compose(replicas: Iterable[Tracked], *, now: float, most: int = 256) -> Batch:
    """Everything that is due, those first that waited longest, up to a limit of bytes."""
    ready = [(t.sent_at, t) for t in replicas if (moment := due(t)) is not None and moment <= now]
    ready.sort(key=lambda pair: pair[0])
    batch = Batch()
    room = MAX_LOG_BYTES
    share = MAX_LOG_BYTES if len(ready) == 1 else _SHARE
    for _, tracked in ready[:most]:
        if not room:
            break
        item, piece = _bare_item(tracked, now), b""
        try:
            piece = _add_log(item, tracked, min(room, share))
            tracked.unread_since = None
        except OSError as error:
            tracked.dirty = True
            tracked.hold_until = now + _REFUSED_PAUSE
            batch.unread.append((tracked, error))
        tracked.sent_at = now
        if len(item) > 2:
            batch.items.append(item)
            batch.pieces.append(piece)
            batch.members.append(tracked)
            room -= len(piece)
    return batch


def encode(agent: str, boot: str, sequence: int, batch: Batch) -> bytes:
    """The body of the request: length of the JSON, the JSON, the log bytes of all items."""
    head = {"agent": agent, "boot": boot, "seq": sequence, "items": batch.items}
    text = json.dumps(head).encode()
    return b"".join((struct.pack(">I", len(text)), text, *batch.pieces))


def _bare_item(tracked: Tracked, now: float) -> dict[str, Any]:
    """What is to be said of it without its log."""
    item: dict[str, Any] = {"replica": tracked.id, "fence": tracked.fence}
    if tracked.started is not None and not tracked.started_told:
        item["started"] = tracked.started
    usage, tracked.usage = tracked.usage, None
    if usage is not None and tracked.stage is Stage.LAUNCHED:
        item["usage"] = usage
    waits = held_due(tracked)
    if waits is not None and waits <= now:
        tracked.held_told = now
        item["held"] = tracked.held or NOT_HELD
    return item


def _add_log(item: dict[str, Any], tracked: Tracked, room: int) -> bytes:
    """Let the item tell of the next bytes of the log, which are returned, and of the end if they
    are the last. Raises OSError before it does either."""
    # Before the log is read: whatever comes to the log after its end is not missed then.
    over = tracked.stage is Stage.OVER and tracked.shipped
    tracked.dirty = False
    offset, piece, size = _log(tracked, room)
    if piece or tracked.acked is None:
        item["log"] = {"offset": offset, "length": len(piece)}
    complete = offset + len(piece) == size
    if tracked.acked is None:
        # The answer says what the server has; only an end that tells the log's size can go along.
        if over and tracked.exit is not None and not tracked.log_given_up:
            item["exited"] = _exited(tracked, tracked.exit, size)
    elif not complete:
        tracked.dirty = True
    elif over:
        ended = tracked.exit
        if ended is None:
            item |= {"lost": True, "all_ended": tracked.all_ended}
        else:
            item["exited"] = _exited(tracked, ended, size)
    return piece


def _log(tracked: Tracked, room: int) -> tuple[int, bytes, int]:
    """Offset and bytes of the next piece, and how long the whole log is."""
    known = tracked.acked or 0
    if tracked.log_given_up:
        return known, b"", known
    try:
        fd = os.open(tracked.place(STDOUT), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return known, b"", known
    try:
        # A job that reaches for its log and cuts it takes nothing back of what was sent.
        size = max(os.fstat(fd).st_size, known)
        left = 0 if tracked.acked is None else min(size - known, room)
        return known, os.pread(fd, left, known) if left else b"", size
    finally:
        os.close(fd)


def _exited(tracked: Tracked, exit: ExitRecord, size: int) -> dict[str, Any]:
    """The end, with the most memory that was seen; the largest process alone is at least that."""
    peak = max(tracked.peak_memory, exit.get("max_rss") or 0)
    return {**exit, "log_size": size, "peak_memory": peak or None}


def _only_log_is_left(tracked: Tracked) -> bool:
    """Whether its end waits for nothing but the rest of its log."""
    return tracked.stage is Stage.OVER and tracked.shipped and not tracked.log_given_up


def _is_to_be_seen(tracked: Tracked) -> bool:
    return tracked.just_launched or (tracked.forget and not tracked.alive)


def open_notices(path: str) -> socket.socket:
    """The datagram socket at `path`, in place of one that a dead agent left.

    If it cannot be had (a full disk, a path too long) nobody hears of it: we look more often then.
    """
    notices = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    notices.setblocking(False)
    folder = os.open(Path(path).parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        # A socket's address holds about 100 bytes; a home directory may be deeper.
        short = f"/proc/self/fd/{folder}/{Path(path).name}"
        Path(path).unlink(missing_ok=True)
        notices.bind(short if len(os.fsencode(path)) > 100 else path)
    except OSError:
        return notices
    finally:
        os.close(folder)
    return notices


def _notes(error: PaddleCloudError) -> str:
    return " ".join(getattr(error, "__notes__", []))
