"""Follows a job: its changes of state, and its log from one attempt to the next.

Both continue across a restart of the server, of its database or of a proxy in front of it, a broken
connection and a long silence, without a byte lost or doubled. A server that never answered is not
waited for: most likely it is not there. A follower does not start an embedded server that was
stopped, because then it could not be stopped while a job is watched; it waits for the next start.
"""

from __future__ import annotations

from time import monotonic, sleep

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
        job = Job(view)
        path = job_path(job.id)  # `last` may be another job by the next request
        if job.version > version:
            version = job.version
            yield job
        if job.final or (deadline is not None and monotonic() >= deadline):
            return


def logs(client: Client, path: str, asked: Mapping[str, object]) -> Iterator[bytes]:
    """The bytes of a log of the job with this path; `asked` has the parameters of the route:
    worker, follow, tail …"""
    if asked.get("merge") or asked.get("grep"):
        yield from lines(client, path, asked)
        return
    place = _BytePlace(path, asked)
    reconnection = Reconnection(client, follow=bool(asked["follow"]))
    while True:
        for chunk in answers(client, place, reconnection):
            place.advance(len(chunk))
            yield chunk
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


class Place:
    """Where in which attempt's log the reader is."""

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
        self._merges = bool(asked.get("merge"))

    def enter(self, headers: Mapping[str, str]) -> None:
        """Read from the response which attempt it shows (0: none has started yet)."""
        self.attempt = number(headers, "x-log-attempt")
        if "x-job-id" in headers:  # `last` may be another job by the next request
            self.job = job_path(headers["x-job-id"])
        self.moves_on = self._goes_through_all and "x-log-attempt" in headers
        self.pin()
        # From now on the worker that failed is asked for by its name.
        if "x-log-worker" in headers and not self._merges:
            self.query |= {"worker": headers["x-log-worker"], "failed": None}

    def pin(self) -> None:
        """Ask for the same attempt after a reconnect."""
        if self.attempt:
            self.query["attempt"] = self.attempt

    def next_attempt(self) -> None:
        self.attempt += 1
        self.pin()


class _BytePlace(Place):
    """The same for one worker's log, which is a byte in it."""

    def __init__(self, job: str, asked: Mapping[str, object]) -> None:
        super().__init__(job, asked)
        self._offset = 0

    def enter(self, headers: Mapping[str, str]) -> None:
        self._offset = number(headers, "x-log-offset", self._offset)
        super().enter(headers)
        self._resume()

    def advance(self, count: int) -> None:
        if self.moves_on and self.attempt == 0:
            self.attempt = 1
        self._offset += count
        self._resume()

    def next_attempt(self) -> None:
        self._offset = 0
        super().next_attempt()
        self._resume()

    def _resume(self) -> None:
        self.query |= {"offset": self._offset, "tail": None, "since": None}
        self.pin()


def has_newer(client: Client, place: Place, reconnection: Reconnection) -> bool:
    """Whether another attempt follows; waits until the job has one or has ended."""
    found = changes(client, place.job, reconnection=reconnection)
    return any(int(job.view.get("attempts") or 0) > place.attempt for job in found)


#: Workers of one job: more are not from our server.
_MOST_WORKERS = 10_000

#: Bytes of a stream that is none of ours, as a person is shown it.
_SHOWN = 40


def lines(client: Client, path: str, asked: Mapping[str, object]) -> Iterator[bytes]:
    """What is asked for, as text: with `merge` each line names its worker."""
    place, prefixes = _LinePlace(path, asked), Prefixes()
    reconnection = Reconnection(client, follow=bool(asked["follow"]))
    while True:
        for chunk in answers(client, place, reconnection):
            try:
                frames = [*place.parser.feed(chunk)]
            except ValueError:
                refuse("log", shown(chunk[:_SHOWN].decode("latin-1")), "response_frame")
            for worker, reached, data in frames:
                place.reach(worker, reached)
                if text := prefixes.add(worker, data) if asked.get("merge") else data:
                    yield text
        if not place.moves_on or not has_newer(client, place, reconnection):
            return
        place.next_attempt()


class _LinePlace(Place):
    """Where the reader is in each worker's log of one attempt."""

    def __init__(self, job: str, asked: Mapping[str, object]) -> None:
        super().__init__(job, asked)
        self._reached: dict[str, int] = {}
        self.parser = Frames()
        self.query["frames"] = 1

    def enter(self, headers: Mapping[str, str]) -> None:
        super().enter(headers)
        self.parser = Frames()

    def reach(self, worker: str, reached: int) -> None:
        """This worker's log was read up to here."""
        self._reached[worker] = reached
        if len(self._reached) > _MOST_WORKERS:
            refuse("log", len(self._reached), "response_count", most=_MOST_WORKERS)
        self.query["at"] = ",".join(f"{name}:{offset}" for name, offset in self._reached.items())

    def next_attempt(self) -> None:
        self._reached = {}
        self.query |= {"at": None, "tail": None, "since": None}
        super().next_attempt()
