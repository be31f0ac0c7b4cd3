"""Logs, out: one worker's bytes as they are, or lines of several, or those that match.

Who follows a log costs next to nothing while it is silent, and little when it speaks: the piece
that came in is handed to all of them as it is, without a thread or a look at the database. Only
what is older, or longer, is read from the store.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from paddlecloud.model.logs.frames import TROUBLE, Frames, Prefixes
from paddlecloud.server.deps import Deps
from paddlecloud.server.events import Notification, Topic
from paddlecloud.server.http.connection_limits import Connection, connection_of
from paddlecloud.server.http.executors import in_thread
from paddlecloud.server.http.routing import BYTES, Call, Cut, Route
from paddlecloud.server.http.token_recheck import Stay
from paddlecloud.server.schemas.logs import LogsQuery
from paddlecloud.server.services.logs import grep
from paddlecloud.server.services.logs import read as logs_read
from paddlecloud.server.services.logs.read import LogPiece, Merge, News, Reading

IDLE_SECONDS = 20.0
"""A follower that heard nothing for so long looks by itself."""
IDLE_AMONG_MANY = 1.0
"""The same where another server may have told it, and the note was lost."""
HELD_SECONDS = 1.0
"""So long a line without an end is kept back from among the lines of others."""


async def read(deps: Deps, call: Call, request: Request) -> Response:
    """The bytes of one worker's log from an offset on; with follow, until that attempt is over.

    Of a job that is tried again the next attempt has a log of its own, which begins at 0: the
    follower asks for it. x-log-attempt says whose log this is.
    """
    query: LogsQuery = call.query
    reading = await in_thread(logs_read.begin, deps, call.caller, call.path["job_id"], query)
    headers = {"x-log-attempt": str(reading.attempt)}
    if not query.merge:
        headers |= {"x-log-offset": str(reading.offsets[0]), "x-log-worker": reading.workers[0]}
    if query.grep is not None:
        search = await grep.begun(deps, call.caller.user_id, reading, query)
        frames = search.frames(reading.job_id)
    elif query.merge:
        frames = _merged(deps, reading, query, Stay(deps, call.caller))
    else:
        connection = connection_of(request.scope)
        stay = Stay(deps, call.caller)
        pieces = _pieces(deps, reading, connection, stay, follow=bool(query.follow))
        return StreamingResponse(pieces, media_type=BYTES, headers=headers)
    told = frames if query.frames else _plain(frames, prefixed=bool(query.merge))
    return StreamingResponse(told, media_type=BYTES, headers=headers)


class _Follower:
    """Where one follower is. While it sleeps at the end of a log, what is new goes straight out on
    its connection: a hundred of them are served without waking one."""

    __slots__ = ("_connection", "offset", "own")

    def __init__(self, own: Topic, offset: int, connection: Connection | None) -> None:
        self.own = own
        self.offset = offset
        self._connection = connection

    def take(self, notification: Notification) -> bool:
        """Send what was heard at once; False if the follower has to look into it."""
        news = notification[1]
        # Only the one log that is followed brings any.
        if news.__class__ is not News or self._connection is None:
            return False
        begin, end, _, chunk = news
        if begin != self.offset or not self._connection.push(chunk):
            return False
        self.offset = end
        return True

    def fresh(self, received: Sequence[Notification]) -> tuple[bytes, bool]:
        """The bytes that came along, and whether nothing else was heard of."""
        told: list[bytes] = []
        for topic, news in received:
            if topic != self.own or not isinstance(news, News) or news.begin > self.offset:
                return b"".join(told), False
            left = news.data[self.offset - news.begin :]
            told.append(left)
            self.offset += len(left)
        return b"".join(told), True


async def _pieces(
    deps: Deps, reading: Reading, connection: Connection | None, stay: Stay, *, follow: bool
) -> AsyncIterator[bytes]:
    own = logs_read.topic(reading.job_id, reading.attempt, reading.workers[0])
    at = _Follower(own, reading.offsets[0], connection)
    topics = (own, ("job", reading.job_id), stay.topic)
    with stay, deps.hub.waiter(*topics, handler=at.take) as waiter:
        while True:
            piece = await in_thread(_piece, deps, stay, reading, at.offset)
            if piece.data:
                at.offset += len(piece.data)
                yield piece.data
                continue
            if piece.over or not follow:
                return
            certain = True
            while certain:
                _check_open(deps)
                certain = await waiter.wait(_idle(deps))
                data, only_news = at.fresh(waiter.received)
                certain = certain and only_news
                if data:
                    yield data


def _piece(deps: Deps, stay: Stay, reading: Reading, offset: int) -> LogPiece:
    stay.check()
    return logs_read.piece(deps, reading, offset)


async def _merged(
    deps: Deps, reading: Reading, query: LogsQuery, stay: Stay
) -> AsyncIterator[bytes]:
    merge = Merge(deps, reading, query, follow=bool(query.follow))
    flush = False
    with stay:
        while True:
            topics = merge.topics
            with deps.hub.waiter(*topics, stay.topic) as waiter:
                while topics == merge.topics:
                    frames, last = await in_thread(_step, merge, stay, flush)
                    flush = False
                    if frames:
                        yield frames
                    elif last:
                        return
                    else:
                        _check_open(deps)
                        seconds = HELD_SECONDS if merge.holds else _idle(deps)
                        flush = not await waiter.wait(seconds)


def _step(merge: Merge, stay: Stay, flush: bool) -> tuple[bytes, bool]:
    stay.check()
    return merge.step(flush=flush)


async def _plain(frames: AsyncIterator[bytes], *, prefixed: bool) -> AsyncIterator[bytes]:
    parser, prefixes = Frames(), Prefixes()
    async for piece in frames:
        for worker, _, data in parser.feed(piece):
            if worker == TROUBLE:
                raise Cut(data.decode())
            told = prefixes.add(worker, data) if prefixed else data
            if told:
                yield told


def _check_open(deps: Deps) -> None:
    if deps.hub.closed:
        raise Cut("the log goes on; the follower comes back for it")


def _idle(deps: Deps) -> float:
    return IDLE_AMONG_MANY if deps.db.shared else IDLE_SECONDS


ROUTES = (
    Route(
        method="GET",
        path="/api/v1/jobs/{job_id}/logs",
        summary="A worker's log",
        streaming=read,
        query=LogsQuery,
        media=BYTES,
    ),
)
