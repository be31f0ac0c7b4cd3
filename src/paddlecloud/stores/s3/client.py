"""Signed requests to one S3-compatible server: kept connections, repeats, and errors in our words.

Every request may be repeated: whoever makes one that must not run twice says so by what it asks
for. A request is tried again when the server or the network failed, not when it was refused
(`s3refusals`). What the requests mean is the work of `s3`.
"""

from __future__ import annotations

import hashlib
import random
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from urllib.parse import quote, urlsplit
from xml.etree.ElementTree import Element

from paddlecloud.messages import CAUSE, GIVEN
from paddlecloud.model.errors import PaddleCloudError, Retry, Unreachable
from paddlecloud.net.http11 import CONNECT_SECONDS, SILENT_SECONDS, Connection, Ended, Response
from paddlecloud.stores.deadline import is_prompt
from paddlecloud.stores.s3.checksums import Guard
from paddlecloud.stores.s3.errors import (
    CLOCK,
    PATIENT,
    TRIES,
    Failure,
    document,
    is_no_refusal,
    lacks_tag,
    meaning,
    said_in,
    stranger,
)
from paddlecloud.stores.s3.sigv4 import EMPTY, Keys, Query, Signer, query_text

Clock = Callable[[], datetime]
Sleep = Callable[[float], None]
Body = bytes | bytearray

IDLE = 32
"""Connections that are kept open for the next request."""

PROMPT = (4.0, 8.0)
"""Seconds for a connection and for an answer, where a caller waits (`patience`)."""
PROMPT_AGAIN = 3.0
"""The same for an answer after a silence: those who stand in line are told in time as well."""
PROMPT_SLOW = 20.0
"""The same for what a store may have to think about: parts, and their being joined."""
_FORGOTTEN = 60.0
"""Seconds after which a silence says nothing any more."""
_LONGEST_PAUSE = 4.0
_UNSAID = (400, 405)
"""Statuses for anything: an odd name, or a session that is over."""
_skews: dict[str, timedelta] = {}
"""How far the clock of each server that refused ours is ahead of it. Whoever opens a bucket only to
sign addresses asks nothing, and would never learn it. Values are replaced whole: no lock."""
_REASONS = {TimeoutError: "reason_timed_out", Ended: "reason_ended"}


def _always() -> bool:
    return True


@dataclass(frozen=True, kw_only=True)
class Request:
    method: str
    key: str = ""
    """Empty: the bucket itself."""
    query: tuple[tuple[str, str], ...] = ()
    body: Body = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Names in small letters."""
    part: bool = False
    """Of a file that is joined later: nobody sees these bytes before."""
    slow: bool = False
    """Good servers may take long over it."""
    good: tuple[int, ...] = (200, 204)
    tries: int = TRIES
    wanted: Callable[[], bool] = _always
    """Asked before each repeat: whoever has given up is not kept waiting."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes
    place: str

    def xml(self, name: str) -> Element:
        """The document of the answer, which has this name, its names without their space."""
        top = document(self.body, name)
        if top is None:
            raise stranger(self.place, self.status, self.headers, self.body)
        return top


class Wire:
    """A bucket of a server, reached with one pair of keys; may be used by many threads."""

    def __init__(
        self,
        endpoint: str,
        bucket: str,
        keys: Keys,
        *,
        region: str,
        path_style: bool,
        clock: Clock,
        sleep: Sleep = time.sleep,
    ) -> None:
        parts = urlsplit(endpoint)
        host = parts.netloc.rpartition("@")[2]
        self._scheme, self._door = parts.scheme, host
        self._host = host if path_style else f"{bucket}.{host}"
        self.place = f"{bucket} ({self._host})"
        """What a sentence calls it: with the host that is asked."""
        self._name = parts.hostname or "" if path_style else f"{bucket}.{parts.hostname}"
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._top = parts.path.rstrip("/") + (f"/{bucket}" if path_style else "")
        self._signer = Signer(keys=keys, region=region, host=self._host)
        self._clock, self.sleep = clock, sleep
        self._patience = CONNECT_SECONDS, SILENT_SECONDS
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._guard = Guard(self._name, tls=self._tls is not None)
        self._idle: list[Connection] = []
        self._closed = False
        self._lock = threading.Lock()
        self._silent_at: float | None = None
        """When it last left somebody without an answer, if it has given none since."""

    def ask(self, request: Request) -> Answer:
        """One request with a short answer; an answer that is not `good` is raised as an error."""
        number = 0
        while True:
            number += 1
            connection, response = self.begin(request)
            try:
                data = response.read_all()
            except OSError as error:
                connection.close()
                failure = self._broken(error)
                if number >= min(request.tries, failure.worth, TRIES):
                    raise failure.error from error
                continue
            self.give_back(connection, response)
            status, headers = response.status, response.headers
            return Answer(status=status, headers=headers, body=data, place=self.place)

    def begin(self, request: Request) -> tuple[Connection, Response]:
        """The same, for whoever reads the answer and gives the connection back, or closes it."""
        digest = hashlib.sha256(request.body).hexdigest() if request.body else EMPTY
        number = 0
        while True:
            number += 1
            came = self._once(request, digest)
            if not isinstance(came, Failure):
                return came
            if number >= min(request.tries, came.worth):
                raise came.error
            self.pause(number)
            if not request.wanted():
                raise came.error

    def pause(self, number: int) -> None:
        """Wait before the repeat of this number, longer each time and no two threads the same."""
        self.sleep(min(0.05 * 4 ** (number - 1), _LONGEST_PAUSE) * (0.5 + random.random()))

    def give_back(self, connection: Connection, response: Response) -> None:
        """Keep the connection for the next request if its answer was read to the end."""
        if response.reusable:
            with self._lock:
                if len(self._idle) < IDLE and not self._closed:
                    self._idle.append(connection)
                    return
        connection.close()

    def url(self, method: str, key: str, query: Query, good_for: timedelta, now: datetime) -> str:
        """An address that lets anybody make this one request until `good_for` is over."""
        path = self._path(key)
        signed = self._signer.query(method, path, query, good_for, now + self._skew())
        return f"{self._scheme}://{self._host}{path}?{signed}"

    def close(self) -> None:
        """Whoever is at it just now may go on, but no connection is kept any more."""
        self._closed = True
        self._drop_idle()

    def _drop_idle(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _once(self, request: Request, digest: str) -> tuple[Connection, Response] | Failure:
        """One try: an answer that is as it should be, or what it failed by."""
        checks = self._guard.headers(request.body, digest, part=request.part)
        now = self._clock() + self._skew()
        more = {**request.headers, **checks}
        path = self._path(request.key)
        headers = self._signer.headers(request.method, path, request.query, digest, now, more)
        try:
            connection, response = self._exchange(request, path, headers)
        except OSError as error:
            return self._broken(error)
        self._silent_at = None
        # It answers: for the rest it has the time of one that was never silent.
        connection.wait_at_most(self._seconds(request)[1])
        self._refuse_stranger(connection, request, response)
        good = response.status in request.good
        if good and self._guard.is_checked(checks, response.headers):
            return connection, response
        failure = self._refusal(connection, request, response, now)
        if failure.worth > 1:
            return failure
        again = good or self._guard.is_at_fault(checks, response.status)
        return Failure(failure.error, PATIENT) if again else failure

    def _broken(self, error: OSError) -> Failure:
        """What it means that a connection failed."""
        worth = PATIENT
        if isinstance(error, TimeoutError):
            self._silent_at = time.monotonic()
            # Silence has taken minutes by then: no patience beyond that.
            worth = 1 if is_prompt() else TRIES
        return Failure(self.unreachable(error), worth)

    def _exchange(
        self, request: Request, path: str, headers: Mapping[str, str]
    ) -> tuple[Connection, Response]:
        """A kept connection may have been closed meanwhile: then a new one is used."""
        text = query_text(request.query)
        target = f"{path}?{text}" if text else path
        connect, silent = self._seconds(request)
        kept = self._kept()
        if kept is not None:
            try:
                kept.wait_at_most(silent)
                return kept, kept.exchange(request.method, target, headers, request.body)
            except TimeoutError:
                # It is there and silent: that was a try, and the other kept ones are no better.
                kept.close()
                self._drop_idle()
                raise
            except OSError:
                kept.close()
        connection = Connection(self._name, self._port, self._tls, connect, silent)
        try:
            return connection, connection.exchange(request.method, target, headers, request.body)
        except BaseException:
            connection.close()
            raise

    def _path(self, key: str) -> str:
        return f"{self._top}/{quote(key, safe='/-_.~')}" if key else self._top or "/"

    def _kept(self) -> Connection | None:
        with self._lock:
            return self._idle.pop() if self._idle else None

    def _seconds(self, request: Request) -> tuple[float, float]:
        """How long to wait for a connection, and for an answer."""
        connect, silent = self._patience
        if not is_prompt():
            return connect, silent
        at, soon = self._silent_at, PROMPT[1]
        if request.slow or request.part:
            soon = PROMPT_SLOW
        elif at is not None and not request.body and time.monotonic() - at < _FORGOTTEN:
            soon = PROMPT_AGAIN
        return min(connect, PROMPT[0]), min(silent, soon)

    def _refuse_stranger(
        self, connection: Connection, request: Request, response: Response
    ) -> None:
        """An answer that only something else than an object store gives is no success."""
        asked, status = (request.method, request.key, request.query), response.status
        if lacks_tag(*asked, status, response.headers):
            connection.close()
            raise stranger(self.place, status, response.headers)

    def _refusal(
        self, connection: Connection, request: Request, response: Response, signed: datetime
    ) -> Failure:
        """What an answer means that was not asked for, to a request that was signed then."""
        try:
            data = response.read_all(64 * 1024)
            self.give_back(connection, response)
        except OSError as error:
            connection.close()
            return Failure(self.unreachable(error), PATIENT)
        code, detail = said_in(data)
        if request.method == "HEAD" and response.status in _UNSAID:
            return self._reason_of(request, response.status)
        if is_no_refusal(request.method, response.status, code, response.headers):
            return Failure(stranger(self.place, response.status, response.headers, data))
        if code in CLOCK and self._learn_skew(response, signed):
            return Failure(Retry("store_failed", place=self.place, detail=code), PATIENT)
        return meaning(response.status, code, detail, request.key, self.place)

    def _reason_of(self, request: Request, status: int) -> Failure:
        """No answer to a HEAD says why it is refused: that is asked in another way."""
        asked = replace(request, method="GET", headers={"range": "bytes=0-0"}, tries=1)
        try:
            connection, _ = self.begin(replace(asked, good=(200, 206, 416)))
            connection.close()
        except PaddleCloudError as error:
            return Failure(error)
        return meaning(status, "", "", request.key, self.place)

    def unreachable(self, error: Exception) -> PaddleCloudError:
        """What is in words of ours is told in the reader's language."""
        reason = " ".join((getattr(error, "strerror", None) or str(error) or "no answer").split())
        told = {"place": self.place, "reason": reason[:200]}
        ours = [code for kind, code in _REASONS.items() if isinstance(error, kind)]
        why = {CAUSE: ours[0], GIVEN: "{}"} if ours else {}
        return Unreachable("store_unreachable", **told, **why)

    def _skew(self) -> timedelta:
        """How far the server's clock is ahead of ours."""
        return _skews.get(self._door, timedelta())

    def _learn_skew(self, response: Response, signed: datetime) -> bool:
        """Sign by the server's clock from now on; False when that was not the reason."""
        there = http_time(response.headers.get("date", ""))
        if there is None:
            return False
        _skews[self._door] = there - self._clock()
        return abs(there - signed) > timedelta(minutes=1)


def http_time(text: str) -> datetime | None:
    """A time as HTTP writes it, or None."""
    try:
        return parsedate_to_datetime(text).astimezone(UTC)
    except ValueError:
        return None
