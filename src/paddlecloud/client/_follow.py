"""Follows a job: its changes of state, and its log from one attempt to the next.

Both continue across a restart of the server, of its database or of a proxy in front of it, a broken
connection and a long silence, without a byte lost or doubled. A server that never answered is not
waited for: most likely it is not there. A follower does not start an embedded server that was
stopped, because then it could not be stopped while a job is watched; it waits for the next start.
"""

from __future__ import annotations

from time import localtime, monotonic, sleep, strftime

from paddlecloud.client import response_schemas
from paddlecloud.client.file_names import shown
from paddlecloud.client.response_checks import number, refuse
from paddlecloud.client.sdk import Client, Job, job_path
from paddlecloud.model.errors import Retry
from paddlecloud.model.logs.frames import Frames, Prefixes
from paddlecloud.net.http1 import TIMEOUT
from paddlecloud.net.retry import IMMEDIATE, is_transient

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


#: How long one long poll asks the server to hold its answer, in seconds.
POLL_SECONDS = 30

#: How long a follower waits for a server that went away, in seconds.
GIVE_UP_AFTER = 600.0

#: A restart takes fewer seconds; a longer absence is reported.
REPORT_AFTER = 1.0

#: Longest silence of a log that is followed; then the follower reconnects and nothing is lost.
LOG_SILENCE = 120.0

BLOCK = 256 * 1024


class Reconnection:
    """The pauses between attempts to reach a server that went away: ever longer, for up to ten
    minutes."""

    def __init__(self, client: Client, *, follow: bool = True) -> None:
        self._client = client
        self._may_wait = follow and client.transport.answered
        self._since: float | None = None
        self._next = 0.05
        #: Whether the server has answered this follower.
        self.begun = False

    def renew(self) -> None:
        """The server answered."""
        self.begun = self._may_wait = True
        self._since, self._next = None, 0.05
        self._client.waiting_noted = False

    def pause(self, error: Retry, deadline: float | None = None) -> None:
        """Sleep before the next attempt, or raise the error if no other is worth it."""
        if not is_transient(error):
            raise error
        now = monotonic()
        if self._since is None:
            self._since = now
        limit = self._since + GIVE_UP_AFTER
        if deadline is not None:
            limit = min(limit, deadline)
        if not self._may_wait or now >= limit:
            raise error
        client = self._client
        is_long = now - self._since >= REPORT_AFTER
        if is_long and not client.waiting_noted and client.note is not None:
            # Once for every absence, however many followers share this client.
            client.waiting_noted = True
            client.note("server_awaited", reason=error.text(client.config.lang))
        sleep(min(self._next, limit - now))
        self._next = min(self._next * 2, 5.0)


def changes(
    client: Client,
    path: str,
    timeout: float | None = None,
    reconnection: Reconnection | None = None,
) -> Iterator[Job]:
    """The job of a path now and after every change, until it has ended or the time is over."""
    deadline = None if timeout is None else monotonic() + timeout
    version = -1
    reconnection = reconnection or Reconnection(client)
    while True:
        seconds: float = POLL_SECONDS
        if deadline is not None:
            seconds = round(max(0.0, min(POLL_SECONDS, deadline - monotonic())), 3)
        query = {"wait": seconds, "version": version} if version >= 0 else None
        try:
            view = client.transport.get(
                path,
                query,
                schema=response_schemas.FOLLOWED,
                timeout=seconds + TIMEOUT,
                wake=not reconnection.begun,
                policy=IMMEDIATE,
            )
        except Retry as error:
            reconnection.pause(error, deadline)
            continue
        reconnection.renew()
        job = Job(view, client)
        path = job_path(job.id)  # `last` may be another job by the next request
        if job.version > version:
            version = job.version
            yield job
        if job.final or (deadline is not None and monotonic() >= deadline):
            return


def moment(since: str | None) -> str | None:
    """`--since` for the server: a time without a zone is in the zone of this machine, in which
    `--timestamps` prints. A duration is counted by the server's clock."""
    if not isinstance(since, str) or since.strip()[-1:].lower() in ("s", "m", "h", "d"):
        return since
    from datetime import UTC, datetime  # noqa: PLC0415 - 3 ms that only this needs

    from paddlecloud.model.logs import time_index  # noqa: PLC0415 - it needs datetime too

    return time_index.since(since, now=datetime.now(UTC), zone=None).astimezone(UTC).isoformat()


def logs(client: Client, path: str, asked: Mapping[str, object]) -> Iterator[bytes]:
    """The bytes of a log of the job with this path, or lines of one or several; `asked` has the
    parameters of the route: worker, follow, tail, merge …"""
    place = Place(path, asked)
    reconnection = Reconnection(client, follow=bool(asked["follow"]))
    while True:
        for chunk in answers(client, place, reconnection):
            yield from place.take(chunk)
        if not place.moves_on or not has_newer(client, place, reconnection):
            return
        place.next_attempt()


def answers(client: Client, place: Place, reconnection: Reconnection) -> Iterator[bytes]:
    """The chunks of the server's response; a broken one is resumed at `place`."""
    follow = bool(place.query["follow"])
    while True:
        reading = False
        try:
            with client.transport.open(
                f"{place.job}/logs",
                place.query,
                LOG_SILENCE,
                wake=not reconnection.begun,
                policy=IMMEDIATE,
            ) as stream:
                place.enter(stream.headers)
                reading = True
                reconnection.renew()
                while chunk := stream.read(BLOCK):
                    reconnection.renew()
                    yield chunk
            return
        except Retry as error:
            if not (follow and reading and error.code == "server_timeout"):
                reconnection.pause(error)


#: Workers of one job: more are not from our server.
_MOST_WORKERS = 10_000

#: Bytes of a stream that is none of ours, as a person is shown it.
_SHOWN = 40


class Place:
    """Where in which attempt's log the reader is: an offset in the log of one worker, or in each
    log of a stream of frames."""

    def __init__(self, job: str, asked: Mapping[str, object]) -> None:
        #: The path of the job.
        self.job = job
        self.query = dict(asked)
        self.attempt = 0
        #: Whether the end of an attempt may not be the end of the log.
        self.moves_on = False
        #: One attempt, named or the one that failed, has no next one.
        one = asked["attempt"] is not None or bool(asked.get("failed"))
        self._goes_through_all = bool(asked["follow"]) and not one
        self._always_framed = bool(asked.get("grep") or asked.get("times"))
        self._merges = asked.get("merge") == 1
        self._prefixes: Prefixes | None = None
        self._frames: Frames | None = None
        self._offset = 0
        self._reached: dict[str, int] = {}
        if self._always_framed or asked.get("merge"):
            self.query["frames"] = 1

    def enter(self, headers: Mapping[str, str]) -> None:
        """Read from the response which attempt it shows (0: none has started yet), and whether it
        has the logs of several workers."""
        self.attempt = number(headers, "x-log-attempt")
        if "x-job-id" in headers:  # `last` may be another job by the next request
            self.job = job_path(headers["x-job-id"])
        self.moves_on = self._goes_through_all and "x-log-attempt" in headers
        self._merges = self._merges or "x-log-merged" in headers
        if self._merges or self._always_framed:
            self._frames = Frames()
            self._prefixes = self._prefixes or Prefixes(named=self._merges)
        else:
            self._offset = number(headers, "x-log-offset", self._offset)
            self._resume()
        self._pin()
        # From now on the worker that failed is asked for by its name.
        if "x-log-worker" in headers and not self._merges:
            self.query |= {"worker": headers["x-log-worker"], "failed": None}

    def take(self, chunk: bytes) -> Iterator[bytes]:
        """What the person gets of a part of the response; the place is behind it."""
        if self._frames is None or self._prefixes is None:
            if self.moves_on and self.attempt == 0:
                self.attempt = 1
            self._offset += len(chunk)
            self._resume()
            yield chunk
            return
        try:
            frames = [*self._frames.feed(chunk)]
        except ValueError:
            refuse("log", shown(chunk[:_SHOWN].decode("latin-1")), "response_frame")
        for worker, reached, data, time in frames:
            self._reach(worker, reached)
            if text := self._prefixes.add(worker, data, "" if time is None else _clock(time)):
                yield text

    def next_attempt(self) -> None:
        self.attempt += 1
        self._offset, self._reached = 0, {}
        self.query |= {"at": None, "tail": None, "since": None}
        if self._frames is None:
            self._resume()
        self._pin()

    def _reach(self, worker: str, reached: int) -> None:
        """This worker's log was read up to here."""
        self._reached[worker] = reached
        if len(self._reached) > _MOST_WORKERS:
            refuse("log", len(self._reached), "response_count", most=_MOST_WORKERS)
        self.query["at"] = ",".join(f"{name}:{offset}" for name, offset in self._reached.items())

    def _resume(self) -> None:
        self.query |= {"offset": self._offset, "tail": None, "since": None}
        self._pin()

    def _pin(self) -> None:
        """Ask for the same attempt after a reconnect."""
        if self.attempt:
            self.query["attempt"] = self.attempt


def _clock(milliseconds: int) -> str:
    """A time in the zone of this machine."""
    seconds, rest = divmod(milliseconds, 1000)
    return strftime("%Y-%m-%d %H:%M:%S", localtime(seconds)) + f".{rest:03d}"


def has_newer(client: Client, place: Place, reconnection: Reconnection) -> bool:
    """Whether another attempt follows; waits until the job has one or has ended."""
    found = changes(client, place.job, reconnection=reconnection)
    return any(int(job.view.get("attempts") or 0) > place.attempt for job in found)
