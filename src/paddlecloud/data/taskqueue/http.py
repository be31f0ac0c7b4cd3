"""Calls to the server that runs this job, signed with the job's own key.

The key and the server's address come from the file that PADDLECLOUD_TOKEN_FILE names. It is the
standard library alone, so that a training image needs nothing else of ours: one kept connection,
one call at a time, JSON both ways. A server that is away is waited for; an embedded one comes back
under another address, which it writes where the file says.
"""

from __future__ import annotations

import hashlib
import hmac
import http.client
import json
import logging
import secrets
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from paddlecloud.data.shard import told_by_job

VARIABLE = "PADDLECLOUD_TOKEN_FILE"
TIMEOUT = 30.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 2.0
_EXPIRE = 1800
_TOLD_AFTER = 5.0
log = logging.getLogger("paddlecloud.data")


class ServerRefused(Exception):
    """The server understood and said no. `code` is stable, the text is for people."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


class WorkerIsOver(ServerRefused):
    """This worker no longer belongs to its job: it was replaced, or the job is over."""


class Caller:
    """May be shared by threads. `closed` ends every wait."""

    def __init__(self, token: dict[str, Any], closed: threading.Event | None = None) -> None:
        self.job_id = str(token["job_id"])
        self.worker = str(token.get("worker", ""))
        self._token = token
        self._closed = closed or threading.Event()
        self._lock = threading.Lock()
        self._connection: http.client.HTTPConnection | None = None
        self._turn = 0

    def call(
        self, method: str, path: str, body: object = None, *, patient: bool = True
    ) -> dict[str, Any]:
        """The answer, however long the server is away if we are `patient`. Every call has to be
        one that may be made twice: an answer can get lost."""
        data = b"" if body is None else json.dumps(body).encode()
        if not patient:
            return self._once(method, path, data)
        return self._patiently(lambda: self._once(method, path, data))

    def close(self) -> None:
        with self._lock:
            self._drop()

    def _patiently(self, ask: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        began, pause, told = time.monotonic(), _FIRST_PAUSE, False
        while True:
            try:
                return ask()
            except (OSError, http.client.HTTPException, ValueError) as error:
                reason = error
            if self._closed.wait(pause):
                raise reason
            pause = min(2 * pause, _LONGEST_PAUSE)
            if not told and time.monotonic() - began > _TOLD_AFTER:
                told = True
                log.warning("[paddlecloud] waiting for the server: %s", reason)

    def _once(self, method: str, path: str, data: bytes) -> dict[str, Any]:
        with self._lock:
            try:
                status, raw = self._exchange(method, path, data)
            except (OSError, http.client.HTTPException):
                self._drop()
                self._turn += 1
                raise
        if 200 <= status < 300:
            found: dict[str, Any] = json.loads(raw)
            return found
        raise _refusal(status, raw)

    def _exchange(self, method: str, path: str, data: bytes) -> tuple[int, bytes]:
        if self._connection is None:
            self._connection = _connect(self._address(), str(self._token.get("ca_file") or ""))
        connection = self._connection
        headers = self._signed(connection, method, path, data)
        connection.request(method, path, data, headers)
        answer = connection.getresponse()
        raw = answer.read()
        if answer.will_close:
            self._drop()
        return answer.status, raw

    def _address(self) -> str:
        """Where to try next: where the server says to be now, then the others in turn."""
        found = [url for url in (_written(self._token), self._token.get("url")) if url]
        found += [url for url in self._token.get("peers") or () if url not in found]
        if not found:
            raise ConnectionError("the file of the job's key names no server")
        return str(found[self._turn % len(found)])

    def _signed(
        self, connection: http.client.HTTPConnection, method: str, path: str, data: bytes
    ) -> dict[str, str]:
        headers = {
            "host": f"{connection.host}:{connection.port}",
            "content-type": "application/json",
            "x-bce-content-sha256": hashlib.sha256(data).hexdigest(),
            "x-bce-nonce": secrets.token_hex(16),
        }
        ak, sk = str(self._token["ak"]), str(self._token["sk"])
        headers["authorization"] = sign(ak, sk, method, path, headers, int(time.time()))
        return headers

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None


def sign(ak: str, sk: str, method: str, path: str, headers: dict[str, str], now: int) -> str:
    """The Authorization value by bce-auth-v1 for a request without a query."""
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now))
    prefix = f"bce-auth-v1/{ak}/{stamp}/{_EXPIRE}"
    names = sorted(headers)
    lines = "\n".join(sorted(f"{_quoted(name)}:{_quoted(headers[name])}" for name in names))
    key = hmac.new(sk.encode(), prefix.encode(), hashlib.sha256).hexdigest()
    text = f"{method}\n{path}\n\n{lines}"
    signature = hmac.new(key.encode(), text.encode(), hashlib.sha256).hexdigest()
    return f"{prefix}/{';'.join(names)}/{signature}"


def from_environment(closed: threading.Event | None = None) -> Caller | None:
    """The caller of the job that this process is part of; None outside of a job."""
    path = told_by_job(VARIABLE)
    if not path:
        return None
    return Caller(json.loads(Path(path).read_bytes()), closed)


def _written(token: dict[str, Any]) -> str:
    with suppress(OSError, ValueError, TypeError, KeyError):
        return str(json.loads(Path(str(token["endpoint_file"])).read_bytes())["url"])
    return ""


def _connect(url: str, ca_file: str) -> http.client.HTTPConnection:
    place = urlsplit(url)
    host = place.hostname or ""
    if place.scheme == "https":
        trust = ssl.create_default_context(cafile=ca_file or None)
        return http.client.HTTPSConnection(host, place.port or 443, timeout=TIMEOUT, context=trust)
    return http.client.HTTPConnection(host, place.port or 80, timeout=TIMEOUT)


def _refusal(status: int, raw: bytes) -> Exception:
    """What the server says no with; an answer that is not our server's is as none at all."""
    try:
        error = json.loads(raw)["error"]
        code, message = str(error["code"]), str(error["message"])
    except (ValueError, TypeError, KeyError):
        return ConnectionError(f"status {status} without a reason: this is not our server")
    if status == 429 or status >= 500:
        return ConnectionError(message)
    kind = WorkerIsOver if code in _OVER else ServerRefused
    return kind(status, code, message)


def _quoted(text: str) -> str:
    return quote(text, safe="-._~")


_OVER = ("task_worker_over", "auth_unknown_key", "job_unknown")
