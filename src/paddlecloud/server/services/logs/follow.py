"""Log streams: one worker's bytes, the lines of several, or matching lines; followed or to the end.

A follower of a silent log costs next to nothing, and one of a busy log little: new bytes are pushed
to the connections of all followers without a thread or a read of the database. Only older bytes,
and long ones, are read from the store.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from paddlecloud.model.logs.frames import Frames, Prefixes
from paddlecloud.server.deps import Deps
from paddlecloud.server.events import Notification, Topic
from paddlecloud.server.http.auth import Caller
from paddlecloud.server.http.connection_limits import Connection
from paddlecloud.server.http.executors import in_search_thread, in_thread
from paddlecloud.server.http.routing import Cut
from paddlecloud.server.http.token_recheck import KeyRecheck
from paddlecloud.server.schemas.logs import LogsQuery
from paddlecloud.server.services.logs import read
from paddlecloud.server.services.logs.read import LogChunk, MergedLog, News, Reading

IDLE_SECONDS = 20.0
"""A follower without a notification for this long reads the log by itself."""
IDLE_SECONDS_SHARED = 1.0
"""The same where other servers write logs too, and a notification may be lost."""
HOLD_SECONDS = 1.0
"""How long an unfinished line is held back from a merged log."""


@dataclass(frozen=True, kw_only=True)
class LogStream:
    reading: Reading
    chunks: AsyncIterator[bytes]


async def stream(
    deps: Deps, caller: Caller, job_id: str, query: LogsQuery, connection: Connection | None
) -> LogStream:
    """What the query asks for; `connection` is the one on which new bytes may be pushed."""
    reading = await in_thread(read.begin, deps, caller, job_id, query)
    recheck = KeyRecheck(deps, caller)
    if not (reading.merged or query.times) and query.grep is None:
        chunks = _chunks(deps, reading, connection, recheck, follow=bool(query.follow))
    else:
        chunks = _frames(deps, reading, query, recheck)
        if not query.frames:
            chunks = _text(chunks, named=reading.merged)
    return LogStream(reading=reading, chunks=chunks)


class _Follower:
    """The offset of one follower. While it waits at the end of a log, new bytes are pushed to its
    connection: a hundred followers are served without waking one."""

    __slots__ = ("_connection", "offset", "own")

    def __init__(self, own: Topic, offset: int, connection: Connection | None) -> None:
        self.own = own
        self.offset = offset
        self._connection = connection

    def push(self, notification: Notification) -> bool:
        """Send the news at once; False if the follower has to wake up for them."""
        news = notification[1]
        # Only the one log that is followed brings any.
        if news.__class__ is not News or self._connection is None:
            return False
        begin, end, _, chunk = news
        if begin != self.offset or not self._connection.push(chunk):
            return False
        self.offset = end
        return True

    def take(self, received: Sequence[Notification]) -> tuple[bytes, bool]:
        """The new bytes in these notifications, and whether they hold nothing else."""
        data: list[bytes] = []
        for topic, news in received:
            if topic != self.own or not isinstance(news, News) or news.begin > self.offset:
                return b"".join(data), False
            rest = news.data[self.offset - news.begin :]
            data.append(rest)
            self.offset += len(rest)
        return b"".join(data), True


async def _chunks(
    deps: Deps,
    reading: Reading,
    connection: Connection | None,
    recheck: KeyRecheck,
    *,
    follow: bool,
) -> AsyncIterator[bytes]:
    """The bytes of one worker's log."""
    own = read.topic(reading.job_id, reading.attempt, reading.workers[0])
    follower = _Follower(own, reading.offsets[0], connection)
    topics = (own, ("job", reading.job_id), recheck.topic)

    def next_chunk() -> LogChunk:
        recheck.check()
        return read.chunk(deps, reading, follower.offset)

    with recheck, deps.hub.waiter(*topics, handler=follower.push) as waiter:
        while True:
            chunk = await in_thread(next_chunk)
            if chunk.data:
                follower.offset += len(chunk.data)
                yield chunk.data
                continue
            if chunk.over or not follow:
                return
            only_news = True
            while only_news:
                _check_open(deps)
                woken = await waiter.wait(_idle_seconds(deps))
                data, only_news = follower.take(waiter.received)
                only_news = only_news and woken
                if data:
                    yield data


async def _frames(
    deps: Deps, reading: Reading, query: LogsQuery, recheck: KeyRecheck
) -> AsyncIterator[bytes]:
    """The lines of several workers, or those that match, as frames."""
    merged = MergedLog(deps, reading, query)
    in_own_thread = in_thread if query.grep is None else in_search_thread
    flush = False

    def step(flush: bool) -> tuple[bytes, bool]:
        recheck.check()
        return merged.step(flush=flush)

    with recheck:
        while True:
            topics = merged.topics
            with deps.hub.waiter(*topics, recheck.topic) as waiter:
                while topics == merged.topics:
                    frames, last = await in_own_thread(step, flush)
                    flush = False
                    if frames:
                        yield frames
                    if last:
                        return
                    if not frames and topics == merged.topics:
                        _check_open(deps)
                        seconds = HOLD_SECONDS if merged.holds else _idle_seconds(deps)
                        flush = not await waiter.wait(seconds)


async def _text(frames: AsyncIterator[bytes], *, named: bool) -> AsyncIterator[bytes]:
    """The lines without frames; with `named` each line starts with its worker."""
    parser, prefixes = Frames(), Prefixes(named=named)
    async for chunk in frames:
        for worker, _, data, time in parser.feed(chunk):
            if text := prefixes.add(worker, data, "" if time is None else _utc(time)):
                yield text


def _utc(milliseconds: int) -> str:
    at = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _check_open(deps: Deps) -> None:
    if deps.hub.closed:
        raise Cut("the server stops; the follower reconnects")


def _idle_seconds(deps: Deps) -> float:
    return IDLE_SECONDS_SHARED if deps.db.shared else IDLE_SECONDS
