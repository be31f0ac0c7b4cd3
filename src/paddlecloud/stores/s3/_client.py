"""Signed requests (SigV4) to one S3-compatible server, with retries and our errors.

Every request is idempotent. It is retried when the server or the network failed, not when it was
refused (`errors`). What the requests are for is the work of `store` and `multipart`.
"""

from __future__ import annotations

import hashlib
import json
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from itertools import count
from typing import TypeVar
from urllib.parse import quote, urlsplit
from xml.etree.ElementTree import Element

from paddlecloud.messages import CAUSE, GIVEN
from paddlecloud.model.errors import PaddleCloudError, Retry, Unreachable
from paddlecloud.net.connection_pool import Pool
from paddlecloud.net.http1 import Response
from paddlecloud.net.proxy import DIRECT, Proxies
from paddlecloud.stores.deadline import is_prompt
from paddlecloud.stores.s3._checksums import ChecksumHeaders
from paddlecloud.stores.s3._errors import (
    CLOCK,
    OUTAGE_TRIES,
    TRIES,
    Failure,
    document,
    error_in,
    failure_of,
    is_foreign,
    lacks_etag,
    unexpected,
)
from paddlecloud.stores.s3.sigv4 import EMPTY, Keys, Query, Signer, query_text

Clock = Callable[[], datetime]
Sleep = Callable[[float], None]
Body = bytes | bytearray
T = TypeVar("T")

TIMEOUTS = (10.0, 60.0)
"""Seconds for a connection and for a response."""
PROMPT = (4.0, 8.0)
"""The same where a caller waits (`stores.deadline`)."""
PROMPT_AGAIN = 3.0
"""For a response after a timeout: callers that queue for the store get an error in time as well."""
PROMPT_SLOW = 20.0
"""For requests that take a store longer: parts, and completing them."""
_SILENCE_COUNTS = 60.0
"""Seconds in which a timeout shortens the next ones."""
_LONGEST_PAUSE = 4.0
_UNCLEAR = (400, 405)
"""Statuses with many causes: an odd name, or a session that has ended."""
_skews: dict[str, timedelta] = {}
"""How far the clock of each server is ahead of ours, once it rejected a signature for that. Shared
by all clients: one that only presigns URLs sends no request. Values are replaced, so no lock."""
_LARGEST = 16 * 1024 * 1024
"""Bytes of a document: a page of a listing has at most four million."""
CONNECTION_BROKEN = ("server_closed", "server_malformed", "server_timeout")
"""What reading a response fails with."""
_REASONS = {
    "server_closed": "reason_ended",
    "server_malformed": "reason_no_http",
    "server_timeout": "reason_timed_out",
}


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
    """Names in lower case."""
    part: bool = False
    """A part of a multipart upload: not visible before the upload is complete."""
    slow: bool = False
    """It takes servers long."""
    good: tuple[int, ...] = (200, 204)
    tries: int = TRIES
    wanted: Callable[[], bool] = _always
    """Called before each retry; False ends the attempts."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes
    place: str

    def xml(self, name: str) -> Element:
        """The document in the response, which has this name; its names without their namespace."""
        top = document(self.body, name)
        if top is None:
            raise unexpected(self.place, self.status, self.headers, self.body)
        return top


class S3Client:
    """Sends requests to one bucket with one pair of keys. May be used by many threads."""

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
        proxies: Proxies = DIRECT,
    ) -> None:
        parts = urlsplit(endpoint)
        host = parts.netloc.rpartition("@")[2]
        self._scheme, self._endpoint_host = parts.scheme, host
        self._host = host if path_style else f"{bucket}.{host}"
        self.place = f"{bucket} ({self._host})"
        """Name of the bucket in messages, with the host that requests go to."""
        self._top = parts.path.rstrip("/") + (f"/{bucket}" if path_style else "")
        self._signer = Signer(keys=keys, region=region, host=self._host)
        self._clock, self.sleep = clock, sleep
        self._timeouts = TIMEOUTS
        self._checksums = ChecksumHeaders(parts.hostname or "", tls=parts.scheme == "https")
        self._pool = Pool(proxies)
        self._silent_at: float | None = None
        """When a request last timed out, if none was answered since."""

    def ask(self, request: Request) -> Answer:
        """One request with a short response; one whose status is not `good` is raised as an
        error."""

        def whole(response: Response) -> Answer:
            data = response.take(_LARGEST + 1)
            response.close()
            status, headers = response.status, response.headers
            return Answer(status=status, headers=headers, body=data, place=self.place)

        answer = self._repeated(request, whole)
        if len(answer.body) > _LARGEST:
            raise unexpected(self.place, answer.status, answer.headers, answer.body)
        return answer

    def begin(self, request: Request) -> Response:
        """The same, for a caller that reads the response, or closes it."""
        return self._repeated(request, lambda response: response)

    def pause(self, number: int) -> None:
        """Wait before the retry of this number, longer each time and no two threads the same."""
        self.sleep(min(0.05 * 4 ** (number - 1), _LONGEST_PAUSE) * (0.5 + random.random()))

    def url(self, method: str, key: str, query: Query, good_for: timedelta, now: datetime) -> str:
        """A presigned URL for this one request, valid for `good_for`."""
        path = self._path(key)
        signed = self._signer.query(method, path, query, good_for, now + self._skew())
        return f"{self._scheme}://{self._host}{path}?{signed}"

    def close(self) -> None:
        """Requests under way continue, but no connection is kept any more."""
        self._pool.close()

    def _repeated(self, request: Request, use: Callable[[Response], T]) -> T:
        """What `use` makes of the response, in one of the attempts that the request allows."""
        digest = hashlib.sha256(request.body).hexdigest() if request.body else EMPTY
        for number in count(1):
            outcome = self._once(request, digest)
            if isinstance(outcome, Response):
                try:
                    return use(outcome)
                except Unreachable as error:
                    outcome = self._broken(error)
            if number >= min(request.tries, outcome.worth):
                raise outcome.error
            self.pause(number)
            if not request.wanted():
                raise outcome.error
        raise AssertionError("the last attempt returns or raises")

    def _once(self, request: Request, digest: str) -> Response | Failure:
        """One attempt: a good response, or why it failed."""
        checks = self._checksums.headers(request.body, digest, part=request.part)
        now = self._clock() + self._skew()
        more = {**request.headers, **checks}
        path, query = self._path(request.key), query_text(request.query)
        headers = self._signer.headers(request.method, path, request.query, digest, now, more)
        try:
            response = self._pool.request(
                request.method,
                f"{self._scheme}://{self._host}{path}" + (f"?{query}" if query else ""),
                headers,
                request.body,
                idempotent=True,
                timeout=self._seconds(request),
            )
        except Unreachable as error:
            return self._broken(error)
        self._silent_at = None
        # After a response starts, the normal timeout applies to the rest.
        response.set_timeout(self._seconds(request)[1])
        self._refuse_foreign(request, response)
        good = response.status in request.good
        if good and self._checksums.is_checked(checks, response.headers):
            return response
        failure = self._refusal(request, response, now)
        if failure.worth > 1:
            return failure
        again = good or self._checksums.is_at_fault(checks, response.status)
        return Failure(failure.error, OUTAGE_TRIES) if again else failure

    def _broken(self, error: Unreachable) -> Failure:
        """What a connection that failed means for the request."""
        worth = OUTAGE_TRIES
        if error.code == "server_timeout":
            # The other kept connections lead to the same silent server.
            self._pool.drop_idle()
            self._silent_at = time.monotonic()
            # Silence has taken minutes by then: fewer attempts.
            worth = 1 if is_prompt() else TRIES
        return Failure(self.unreachable(error), worth)

    def _path(self, key: str) -> str:
        return f"{self._top}/{quote(key, safe='/-_.~')}" if key else self._top or "/"

    def _seconds(self, request: Request) -> tuple[float, float]:
        """The timeouts for a connection and for a response."""
        connect, silent = self._timeouts
        if not is_prompt():
            return connect, silent
        at, soon = self._silent_at, PROMPT[1]
        if request.slow or request.part:
            soon = PROMPT_SLOW
        elif at is not None and not request.body and time.monotonic() - at < _SILENCE_COUNTS:
            soon = PROMPT_AGAIN
        return min(connect, PROMPT[0]), min(silent, soon)

    def _refuse_foreign(self, request: Request, response: Response) -> None:
        """A successful response that no object store gives is an error."""
        asked, status = (request.method, request.key, request.query), response.status
        if lacks_etag(*asked, status, response.headers):
            response.close()
            raise unexpected(self.place, status, response.headers)

    def _refusal(self, request: Request, response: Response, signed: datetime) -> Failure:
        """What an unexpected status means for a request that was signed at that time."""
        try:
            data = response.take(64 * 1024)
            response.close()
        except Unreachable as error:
            return Failure(self.unreachable(error), OUTAGE_TRIES)
        code, detail = error_in(data)
        if request.method == "HEAD" and response.status in _UNCLEAR:
            return self._reason_of(request, response.status)
        if is_foreign(request.method, response.status, code, response.headers):
            return Failure(unexpected(self.place, response.status, response.headers, data))
        if code in CLOCK and self._learn_skew(response, signed):
            return Failure(Retry("store_failed", place=self.place, detail=code), OUTAGE_TRIES)
        return failure_of(response.status, code, detail, request.key, self.place)

    def _reason_of(self, request: Request, status: int) -> Failure:
        """A response to HEAD has no body that names the reason: a GET asks for it."""
        asked = replace(request, method="GET", headers={"range": "bytes=0-0"}, tries=1)
        try:
            self.begin(replace(asked, good=(200, 206, 416))).close()
        except PaddleCloudError as error:
            return Failure(error)
        return failure_of(status, "", "", request.key, self.place)

    def unreachable(self, error: Unreachable) -> PaddleCloudError:
        """The error of the network as one of this store."""
        params = {"place": self.place, "reason": str(error.params.get("reason", error))[:200]}
        if "reason" not in error.params:
            cause = _REASONS.get(error.code, error.code)
            params |= {CAUSE: cause, GIVEN: json.dumps(error.params)}
        return Unreachable("store_unreachable", **params)

    def _skew(self) -> timedelta:
        """How far the server's clock is ahead of ours."""
        return _skews.get(self._endpoint_host, timedelta())

    def _learn_skew(self, response: Response, signed: datetime) -> bool:
        """Sign by the server's clock from now on; False when that was not the reason."""
        there = http_time(response.headers.get("date", ""))
        if there is None:
            return False
        _skews[self._endpoint_host] = there - self._clock()
        return abs(there - signed) > timedelta(minutes=1)


def http_time(text: str) -> datetime | None:
    """A time as HTTP writes it, or None."""
    try:
        return parsedate_to_datetime(text).astimezone(UTC)
    except (ValueError, OverflowError):
        return None
