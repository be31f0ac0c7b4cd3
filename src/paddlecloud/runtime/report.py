"""What one report says of which replica, and when. Reads logs; sends nothing.

The rules: a start is held back for a moment, because a short job's end often follows and both fit
into one request; log bytes go out at once, then further ones of the same file wait a moment; the
end goes out when everything before it is at the server, or in the same request.
"""

from __future__ import annotations

import json
import os
import struct
from typing import TYPE_CHECKING, Any

from paddlecloud.runtime.book import Stage
from paddlecloud.runtime.record import STDOUT

if TYPE_CHECKING:
    from collections.abc import Iterable

    from paddlecloud.runtime.book import Tracked

MAX_LOG_BYTES = 4 * 1024 * 1024
START_HOLD = 0.008
LOG_HOLD = 0.015
#: Of one replica while others wait, so that a loud one does not silence the rest.
_SHARE = 1024 * 1024


class Batch:
    """The items of one report, with their log bytes and the replicas they are about."""

    def __init__(self) -> None:
        self.items: list[dict[str, Any]] = []
        self.pieces: list[bytes] = []
        self.members: list[Tracked] = []

    def restore(self) -> None:
        """It did not arrive: everything in it has to be said again."""
        for tracked in self.members:
            tracked.dirty = True


def due(tracked: Tracked) -> float | None:
    """When there is something to say of it (monotonic seconds); None when there is nothing."""
    if tracked.forget or tracked.stage in (Stage.ORDERED, Stage.DONE):
        return None
    moments = []
    if tracked.acked is None or (tracked.stage is Stage.OVER and tracked.shipped):
        moments.append(0.0)
    if tracked.started is not None and not tracked.started_told:
        moments.append(tracked.started_noticed + START_HOLD)
    if tracked.dirty:
        moments.append(0.0 if tracked.stage is Stage.OVER else tracked.sent_at + LOG_HOLD)
    return max(min(moments), tracked.hold_until) if moments else None


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
        item, piece = _item(tracked, min(room, share))
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


def _item(tracked: Tracked, room: int) -> tuple[dict[str, Any], bytes]:
    item: dict[str, Any] = {"replica": tracked.id, "fence": tracked.fence}
    if tracked.started is not None and not tracked.started_told:
        item["started"] = tracked.started
    tracked.dirty = False
    offset, piece, size = _log(tracked, room)
    if piece or tracked.acked is None:
        item["log"] = {"offset": offset, "length": len(piece)}
    complete = offset + len(piece) == size or tracked.acked is None
    if not complete:
        tracked.dirty = True
    elif tracked.stage is Stage.OVER and tracked.shipped:
        item |= {"lost": True} if tracked.exit is None else {"exited": _exited(tracked, size)}
    return item, piece


def _log(tracked: Tracked, room: int) -> tuple[int, bytes, int]:
    """Offset and bytes of the next piece, and how long the whole log is."""
    try:
        fd = os.open(tracked.root / STDOUT, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return tracked.acked or 0, b"", tracked.acked or 0
    try:
        length = os.fstat(fd).st_size
        if tracked.acked is None:
            return 0, b"", length
        if length < tracked.acked - tracked.log_base:
            # `echo x > /dev/stderr` truncates a log that is a file. What was sent stays; the
            # rest goes on behind it.
            tracked.log_base = tracked.acked
        start = tracked.acked - tracked.log_base
        piece = os.pread(fd, min(length - start, room), start)
        return tracked.acked, piece, tracked.log_base + length
    finally:
        os.close(fd)


def _exited(tracked: Tracked, size: int) -> dict[str, Any]:
    return {**(tracked.exit or {}), "log_size": size}
