"""The reporter thread: sends starts, log bytes, resource use and ends to the server.

One request is under way at a time. The thread sleeps until inotify, a notice of a supervisor,
another thread or the clock wakes it. When nothing is under way it sends at once; what happens while
a request is under way goes out with the next one. A report may be lost, repeated or answered late:
only what the server acknowledged counts, and its response has the size of each log.

A start is held back for a moment, because the end of a short job often follows and both fit into
one request. Log bytes go out at once; further ones of the same log wait a moment. The end goes out
when everything before it is at the server, or in the same request. What a replica waits for
(`held`) is reported when it lasts, and then from time to time.
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
from paddlecloud.agent.outputs.retry_limits import retry_seconds
from paddlecloud.agent.registry import Stage
from paddlecloud.agent.replica import notices
from paddlecloud.agent.replica import notices as replica_notices
from paddlecloud.agent.replica.records import STDOUT, STDOUT_TIMES
from paddlecloud.agent.server_link.channel import Backoff, is_internal_error
from paddlecloud.model.errors import PaddleCloudError, Retry, StorageFull, Unauthenticated
from paddlecloud.model.logs.index_format import SIZE, unpacked

if TYPE_CHECKING:
    from collections.abc import Iterable

    from paddlecloud.agent.context import Context
    from paddlecloud.agent.registry import Tracked
    from paddlecloud.agent.replica.lifecycle import Lifecycle
    from paddlecloud.agent.usage.sampler import Sampler

#: Every replica is inspected after this many seconds, in case its supervisor was killed and sent no
#: notice.
SWEEP_SECONDS = 1.0
#: The same where neither inotify nor notices work.
SWEEP_SECONDS_BLIND = 0.2
_UNANSWERED_SECONDS = 1.0


class Reporter:
    def __init__(
        self, context: Context, lifecycle: Lifecycle, sampler: Sampler | None = None
    ) -> None:
        self._context = context
        self._lifecycle = lifecycle
        self._sampler = sampler
        self._channel = context.link.channel()
        self._notices = open_notices(context.notices)
        has_notices = context.watcher is not None and bool(self._notices.getsockname())
        self._sweep_seconds = SWEEP_SECONDS if has_notices else SWEEP_SECONDS_BLIND
        self._backoff = Backoff()
        self._paused_until = 0.0
        self._paused_since = 0
        """The generation of the link when the pause began: it ends when the server is back."""
        self._swept_at = 0.0
        self._sequence = 0
        self._single_items = 0
        """How many of the next reports carry one item, because a batch was refused."""

    def work(self) -> None:
        """The body of the thread."""
        self._context.guarded("the reporter", self._turn)

    def _turn(self) -> None:
        changed = self._wait(self._seconds_to_wait(time.monotonic()))
        now = time.monotonic()
        if now - self._swept_at >= self._sweep_seconds:
            self._swept_at = now
            launched = [t for t in self._context.registry.active() if t.stage is Stage.LAUNCHED]
            for tracked in launched:
                tracked.dirty = tracked.dirty or tracked.watch is None
            changed.update(launched)
            if self._sampler is not None and any(t.started for t in changed):
                self._sampler.request(now)
        for tracked in self._context.registry.active():
            if tracked.just_launched or (tracked.released and not tracked.alive):
                changed.add(tracked)
        for tracked in changed:
            tracked.just_launched = False
            self._lifecycle.reconcile(tracked, now)
        if now >= self._paused_until or self._context.link.generation != self._paused_since:
            self._report(now)

    def _seconds_to_wait(self, now: float) -> float | None:
        """Until something is due; None when only an event can make it so."""
        replicas = self._context.registry.active()
        is_paused = self._context.link.generation == self._paused_since
        paused_until = self._paused_until if is_paused else 0.0
        moments = [max(at, paused_until) for t in replicas if (at := due(t)) is not None]
        if any(tracked.alive for tracked in replicas):
            moments.append(self._swept_at + self._sweep_seconds)
        return max(0.0, min(moments) - now) if moments else None

    def _wait(self, seconds: float | None) -> set[Tracked]:
        """Sleep; then the replicas that have to be inspected.

        While log bytes are held back for a moment, new ones do not wake the thread: at thousands of
        lines a second that would be a wake-up for each. Starts and ends come as notices and do.
        """
        watcher = self._context.watcher
        poll = select.poll()
        poll.register(self._notices, select.POLLIN)
        poll.register(self._context.wake_reader, select.POLLIN)
        if watcher is not None and (seconds is None or seconds > LOG_DELAY):
            poll.register(watcher, select.POLLIN)
        ready = {fd for fd, _ in poll.poll(None if seconds is None else seconds * 1000 + 0.5)}
        if self._context.wake_reader in ready:
            os.read(self._context.wake_reader, 4096)
        changed = self._mark_grown_logs() if watcher is not None else set()
        if self._notices.fileno() in ready:
            changed |= self._noticed()
        return changed

    def _noticed(self) -> set[Tracked]:
        """The replicas whose supervisors sent a notice."""
        found = set()
        with suppress(BlockingIOError):
            while True:
                name = self._notices.recv(512).decode("utf-8", "replace")
                tracked = self._context.registry.get(name)
                if tracked is not None:
                    found.add(tracked)
        return found

    def _mark_grown_logs(self) -> set[Tracked]:
        """Mark the replicas whose logs grew. Returns all if the kernel dropped events."""
        assert self._context.watcher is not None
        for watch, mask, _ in self._context.watcher.read():
            if mask & OVERFLOW:
                replicas = self._context.registry.active()
                for tracked in replicas:
                    tracked.dirty = True
                return set(replicas)
            grown = self._context.registry.watched.get(watch)
            if grown is not None:
                grown.dirty = True
        return set()

    def _report(self, now: float) -> None:
        most = 1 if self._single_items else MAX_ITEMS
        batch = compose(self._context.registry.active(), now=now, most=most)
        for tracked, error in batch.unreadable:
            self._context.log.warning(f"its log cannot be read: {error}", tracked.id)
            self._wait_for_log(tracked, error, now)
        if not batch.items:
            return
        self._single_items = max(0, self._single_items - 1)
        try:
            answer = self._send(batch)
            self._backoff.reset()
            self._paused_until = 0.0
            self._apply(batch, answer, now)
        except PaddleCloudError as error:
            batch.restore()
            if isinstance(error, Retry | Unauthenticated) and not is_internal_error(error):
                self._pause(error, batch)
            elif len(batch.items) > 1:
                # Find the item that is refused, and hold that one back.
                self._single_items = len(batch.items)
            else:
                tracked = batch.replicas[0]
                tracked.hold_until = time.monotonic() + RETRY_SECONDS
                refused = f"its report was refused: {_with_notes(error)}"
                self._context.log.warning(refused, tracked.id)
        except BaseException:
            batch.restore()
            raise

    def _send(self, batch: Batch) -> dict[str, Any]:
        self._sequence += 1
        body = encode(self._context.config.agent_id, self._context.boot, self._sequence, batch)
        return self._channel.parsed(self._channel.call("POST", "/agent/report", body))

    def _pause(self, error: PaddleCloudError, batch: Batch) -> None:
        """The server is away or has no space: try again after a pause."""
        if isinstance(error, Unauthenticated):
            self._context.link.renew_keys()
        if isinstance(error, StorageFull):
            self._lifecycle.free_disk()
            for tracked in batch.replicas:
                self._wait_for_log(tracked, error, time.monotonic())
            rest = batch.without_logs()
            if rest.items:
                with suppress(PaddleCloudError):
                    self._apply(rest, self._send(rest), time.monotonic())
        pause = self._backoff.next()
        self._paused_since = self._context.link.generation
        self._paused_until = time.monotonic() + pause
        if pause >= 1.0:
            self._context.log.warning(f"the report waits: {_with_notes(error)}")

    def _wait_for_log(self, tracked: Tracked, error: OSError | StorageFull, now: float) -> None:
        """The rest of the log of a replica that is over cannot be read or stored: its end waits for
        that as long as it waits for outputs."""
        if tracked.stage is not Stage.OVER or not tracked.shipped or tracked.log_given_up:
            return
        if isinstance(error, StorageFull):
            since = tracked.log_unstored_since = tracked.log_unstored_since or now
        else:
            since = tracked.log_unread_since = tracked.log_unread_since or now
        reason = scan.unreadable(STDOUT, error)
        tracked.hold(replica_notices.from_error(reason), now=now)
        if now - since >= retry_seconds(error, tracked.store_timeout):
            tracked.log_given_up = True
            unsent.keep(tracked, {STDOUT: reason}, self._context, lost=False)

    def _apply(self, batch: Batch, answer: dict[str, Any], now: float) -> None:
        acks = {ack["replica"]: ack for ack in answer.get("acks", [])}
        stale = set(answer.get("stale", []))
        for tracked, item in zip(batch.replicas, batch.items, strict=True):
            ack = acks.get(tracked.id)
            if tracked.id in stale:
                self._lifecycle.expel(tracked)
            elif ack is None:
                tracked.dirty = True
                tracked.hold_until = now + _UNANSWERED_SECONDS
            else:
                self._acknowledged(tracked, item, ack, now)

    def _acknowledged(
        self, tracked: Tracked, item: dict[str, Any], ack: dict[str, Any], now: float
    ) -> None:
        is_first = tracked.acked is None
        if "held" in item:
            tracked.held_known = item["held"] != NOT_HELD
        if int(ack["log_size"]) != tracked.acked:
            tracked.log_unstored_since = None
        tracked.acked = int(ack["log_size"])
        tracked.started_reported = tracked.started_reported or "started" in item
        if ack["exited"] or "lost" in item:
            self._lifecycle.finished(tracked)
        elif is_first or tracked.stage is Stage.OVER:
            tracked.dirty = True
            if "exited" in item and not is_first:
                tracked.hold_until = now + _UNANSWERED_SECONDS


def open_notices(path: str) -> socket.socket:
    """The datagram socket at `path`, in place of one that a dead agent left.

    Where it cannot be bound (a full disk, a path that is too long) replicas are inspected more
    often.
    """
    notices = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    notices.setblocking(False)
    folder = os.open(Path(path).parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        # A socket's address has about 100 bytes; a home directory may be deeper.
        short = f"/proc/self/fd/{folder}/{Path(path).name}"
        Path(path).unlink(missing_ok=True)
        notices.bind(short if len(os.fsencode(path)) > 100 else path)
    except OSError:
        return notices
    finally:
        os.close(folder)
    return notices


def _with_notes(error: PaddleCloudError) -> str:
    return " ".join([str(error), *getattr(error, "__notes__", [])])


MAX_LOG_BYTES = 4 * 1024 * 1024
#: Of one replica while others wait, so that a chatty one does not block the rest.
_SHARE = 1024 * 1024
MAX_ITEMS = 256
#: Entries of the time index of a log in one report: of more of them, the last bytes get the time of
#: the last one.
MAX_TIMES = 4000
START_DELAY = 0.008
LOG_DELAY = 0.015
#: Seconds until `held` is reported, and until it is reported again.
HELD_DELAY = 2.0
HELD_REPEAT = 5.0
NOT_HELD = notices.message("held_no_more")
#: Pause of a replica whose log cannot be read, or whose item was refused.
RETRY_SECONDS = 2.0
_WITHOUT_LOG = ("replica", "fence", "started", "held")


class Batch:
    """The items of one report, with their log bytes and replicas, in the same order."""

    def __init__(self) -> None:
        self.items: list[dict[str, Any]] = []
        self.logs: list[bytes] = []
        self.replicas: list[Tracked] = []
        self.unreadable: list[tuple[Tracked, OSError]] = []
        """Replicas whose logs could not be read; what needs no log is reported of them."""

    def restore(self) -> None:
        """It did not arrive: everything in it has to be reported again."""
        for tracked in self.replicas:
            tracked.dirty = True

    def without_logs(self) -> Batch:
        """Starts, and what replicas wait for: they need no space on the server."""
        batch = Batch()
        for tracked, item in zip(self.replicas, self.items, strict=True):
            rest = {key: value for key, value in item.items() if key in _WITHOUT_LOG}
            if len(rest) > 2:
                batch.items.append(rest)
                batch.replicas.append(tracked)
        return batch


def due(tracked: Tracked) -> float | None:
    """When there is something to report of it (monotonic seconds); None when there is nothing."""
    if tracked.released or tracked.fence < 0 or tracked.stage is Stage.DONE:
        return None
    held = held_due(tracked)
    if tracked.stage is Stage.ORDERED and (
        tracked.acked is None or not (tracked.dirty or held is not None)
    ):
        return None
    moments = [] if held is None else [held]
    if tracked.acked is None or (tracked.stage is Stage.OVER and tracked.shipped):
        moments.append(0.0)
    if tracked.started is not None and not tracked.started_reported:
        moments.append(tracked.started_noticed + START_DELAY)
    if tracked.dirty:
        moments.append(0.0 if tracked.stage is Stage.OVER else tracked.sent_at + LOG_DELAY)
    if tracked.usage is not None and tracked.stage is Stage.LAUNCHED:
        moments.append(tracked.sent_at + LOG_DELAY)
    return max(min(moments), tracked.hold_until) if moments else None


def held_due(tracked: Tracked) -> float | None:
    """When to report what it waits for, or once that it does not wait any more."""
    if tracked.held is None:
        return 0.0 if tracked.held_known and tracked.stage is Stage.LAUNCHED else None
    return max(tracked.held_since + HELD_DELAY, tracked.held_reported_at + HELD_REPEAT)


def compose(replicas: Iterable[Tracked], *, now: float, most: int = MAX_ITEMS) -> Batch:
    """Everything that is due, up to `most` items and a number of log bytes; those first that have
    waited longest."""
    ready = [(t.sent_at, t) for t in replicas if (moment := due(t)) is not None and moment <= now]
    ready.sort(key=lambda pair: pair[0])
    batch = Batch()
    bytes_left = MAX_LOG_BYTES
    share = MAX_LOG_BYTES if len(ready) == 1 else _SHARE
    for _, tracked in ready[:most]:
        if not bytes_left:
            break
        item, log = _item_without_log(tracked, now), b""
        try:
            log = _add_log(item, tracked, min(bytes_left, share))
            tracked.log_unread_since = None
        except OSError as error:
            tracked.dirty = True
            tracked.hold_until = now + RETRY_SECONDS
            batch.unreadable.append((tracked, error))
        tracked.sent_at = now
        if len(item) > 2:
            batch.items.append(item)
            batch.logs.append(log)
            batch.replicas.append(tracked)
            bytes_left -= len(log)
    return batch


def encode(agent: str, boot: str, sequence: int, batch: Batch) -> bytes:
    """The body of the request: length of the JSON, the JSON, the log bytes of all items."""
    clock = int(time.time() * 1000)
    head = {"agent": agent, "boot": boot, "seq": sequence, "items": batch.items, "clock": clock}
    text = json.dumps(head).encode()
    return b"".join((struct.pack(">I", len(text)), text, *batch.logs))


def _item_without_log(tracked: Tracked, now: float) -> dict[str, Any]:
    item: dict[str, Any] = {"replica": tracked.id, "fence": tracked.fence}
    if tracked.started is not None and not tracked.started_reported:
        item["started"] = tracked.started
    usage, tracked.usage = tracked.usage, None
    if usage is not None and tracked.stage is Stage.LAUNCHED:
        item["usage"] = usage
    held = held_due(tracked)
    if held is not None and held <= now:
        tracked.held_reported_at = now
        item["held"] = tracked.held or NOT_HELD
    return item


def _add_log(item: dict[str, Any], tracked: Tracked, most: int) -> bytes:
    """Add the next bytes of the log to the item, and the end if they are the last; returns the
    bytes. Raises OSError before it changes the item."""
    # Before the log is read, so that nothing is missed that was written before the end.
    is_over = tracked.stage is Stage.OVER and tracked.shipped
    tracked.dirty = False
    offset, log, size = _read_log(tracked, most)
    if log or tracked.acked is None:
        item["log"] = {"offset": offset, "length": len(log)}
    if log:
        item["log"]["times"] = _written_at(tracked, offset, offset + len(log))
    complete = offset + len(log) == size
    if tracked.acked is None:
        # The response has the size on the server; only an end with the log's size can go along.
        if is_over and tracked.exit is not None and not tracked.log_given_up:
            item["exited"] = _exited(tracked, size)
    elif not complete:
        tracked.dirty = True
    elif is_over and tracked.exit is None:
        item |= {"lost": True, "all_ended": tracked.all_ended}
    elif is_over:
        item["exited"] = _exited(tracked, size)
    return log


def _read_log(tracked: Tracked, most: int) -> tuple[int, bytes, int]:
    """Offset and bytes of the next part, and the size of the whole log."""
    acked = tracked.acked or 0
    if tracked.log_given_up:
        return acked, b"", acked
    try:
        fd = os.open(tracked.path(STDOUT), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return acked, b"", acked
    try:
        # A job that truncates its log takes nothing back that was sent.
        size = max(os.fstat(fd).st_size, acked)
        count = 0 if tracked.acked is None else min(size - acked, most)
        return acked, os.pread(fd, count, acked) if count else b"", size
    finally:
        os.close(fd)


def _written_at(tracked: Tracked, begin: int, end: int) -> list[tuple[int, int]]:
    """When the bytes of the log from `begin` to `end` were written: offsets and milliseconds. Empty
    where that is not known exactly; then they were written just now, or all at once."""
    try:
        fd = os.open(tracked.path(STDOUT_TIMES), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        with suppress(OSError):
            written = os.stat(tracked.path(STDOUT)).st_mtime  # noqa: PTH116 - see `Tracked.path`
            return [(begin, int(written * 1000))]
        return []
    try:
        # Bisect for the last entry at or before `begin`.
        low, high = 0, os.fstat(fd).st_size // SIZE
        while low < high:
            middle = (low + high) // 2
            if unpacked(os.pread(fd, SIZE, middle * SIZE))[0][1] <= begin:
                low = middle + 1
            else:
                high = middle
        notes = unpacked(os.pread(fd, MAX_TIMES * SIZE, max(0, low - 1) * SIZE))
    finally:
        os.close(fd)
    found = [(max(begin, offset), int(at * 1000)) for at, offset in notes if offset < end]
    return found if not found or found[0][0] <= begin else [(begin, found[0][1]), *found[1:]]


def _exited(tracked: Tracked, size: int) -> dict[str, Any]:
    """The exit record with the log's size and the peak of memory, which is at least that of the
    largest process."""
    assert tracked.exit is not None
    peak = max(tracked.peak_memory, tracked.exit.get("max_rss") or 0)
    return {**tracked.exit, "log_size": size, "peak_memory": peak or None}
