"""The contents of one report: the replicas that are due, their items, the next bytes of logs.

A start is held back for a moment, because the end of a short job often follows and both fit into
one request. Log bytes go out at once; further ones of the same log wait a moment. The end goes out
when everything before it is at the server, or in the same request. What a replica waits for
(`held`) is reported when it lasts, and then from time to time.
"""

from __future__ import annotations

import json
import os
import struct
from typing import TYPE_CHECKING, Any

from paddlecloud.agent.registry import Stage
from paddlecloud.agent.replica import notices
from paddlecloud.agent.replica.records import STDOUT

if TYPE_CHECKING:
    from collections.abc import Iterable

    from paddlecloud.agent.registry import Tracked

MAX_LOG_BYTES = 4 * 1024 * 1024
#: Of one replica while others wait, so that a chatty one does not block the rest.
_SHARE = 1024 * 1024
MAX_ITEMS = 256
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
    head = {"agent": agent, "boot": boot, "seq": sequence, "items": batch.items}
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


def _exited(tracked: Tracked, size: int) -> dict[str, Any]:
    """The exit record with the log's size and the peak of memory, which is at least that of the
    largest process."""
    assert tracked.exit is not None
    peak = max(tracked.peak_memory, tracked.exit.get("max_rss") or 0)
    return {**tracked.exit, "log_size": size, "peak_memory": peak or None}
