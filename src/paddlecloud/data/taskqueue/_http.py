"""JSON requests to the server that runs this job, signed with the job's own key.

The key and the server's URL come from the file that PADDLECLOUD_TOKEN_FILE names. Only the standard
library is used, so that a training image needs nothing else of ours: one kept connection, one call
at a time. The caller waits for a server that is away; an embedded one comes back at another URL,
which it writes into the endpoint file.
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
from base64 import b64encode
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, quote, unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from paddlecloud.data.shard import job_variable

VARIABLE = "PADDLECLOUD_TOKEN_FILE"
TIMEOUT = 30.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 2.0
_EXPIRE = 1800
_LOGGED_AFTER = 5.0
log = logging.getLogger("paddlecloud.data")


class ServerRefused(Exception):
    """The server refused the call. `code` is stable, the text is for people."""

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
        self._link: _Link | None = None
        self._turn = 0

    def call(
        self, method: str, path: str, body: object = None, *, wait: bool = True
    ) -> dict[str, Any]:
        """The answer; with `wait` however long the server is away. Every call has to be idempotent:
        an answer can get lost."""
        data = b"" if body is None else json.dumps(body).encode()
        began, pause, is_logged = time.monotonic(), _FIRST_PAUSE, False
        while True:
            try:
                return self._once(method, path, data)
            except (OSError, http.client.HTTPException, ValueError) as error:
                if not wait or self._closed.wait(pause):
                    raise
                reason = error
            pause = min(2 * pause, _LONGEST_PAUSE)
            if not is_logged and time.monotonic() - began > _LOGGED_AFTER:
                is_logged = True
                log.warning("[paddlecloud] waiting for the server: %s", reason)

    def close(self) -> None:
        with self._lock:
            self._drop()

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
        if self._link is None:
            self._link = _Link(self._url(), str(self._token.get("ca_file") or ""))
        link = self._link
        headers = {
            "host": link.host,
            "content-type": "application/json",
            "x-bce-content-sha256": hashlib.sha256(data).hexdigest(),
            "x-bce-nonce": secrets.token_hex(16),
        }
        ak, sk = str(self._token["ak"]), str(self._token["sk"])
        headers["authorization"] = sign(ak, sk, method, path, headers, int(time.time()))
        link.connection.request(method, link.prefix + path, data, headers | link.headers)
        response = link.connection.getresponse()
        raw = response.read()
        if response.will_close:
            self._drop()
        return response.status, raw

    def _url(self) -> str:
        """The server to try next: the one that the endpoint file names, then the others in turn."""
        written = ""
        with suppress(OSError, ValueError, TypeError, KeyError):
            written = str(json.loads(Path(str(self._token["endpoint_file"])).read_bytes())["url"])
        found = [url for url in (written, self._token.get("url")) if url]
        found += [url for url in self._token.get("peers") or () if url not in found]
        if not found:
            raise ConnectionError("the file of the job's key names no server")
        return str(found[self._turn % len(found)])

    def _drop(self) -> None:
        if self._link is not None:
            self._link.connection.close()
        self._link = None


class _Link:
    """A connection to a server, through a proxy where the environment names one."""

    def __init__(self, url: str, ca_file: str) -> None:
        place = urlsplit(url)
        host, port = place.hostname or "", place.port or (443 if place.scheme == "https" else 80)
        self.host = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self.prefix = ""
        """Before the path of each request."""
        self.headers: dict[str, str] = {}
        proxy = _proxy_for(place.scheme, host)
        near = (host, port) if proxy is None else (proxy.hostname or "", proxy.port or 80)
        to_proxy = {}
        if proxy is not None and proxy.username is not None:
            pair = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
            to_proxy["proxy-authorization"] = f"Basic {b64encode(pair.encode()).decode()}"
        if place.scheme == "https":
            trust = ssl.create_default_context(cafile=ca_file or None)
            self.connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                *near, timeout=TIMEOUT, context=trust
            )
            if proxy is not None:
                self.connection.set_tunnel(host, port, to_proxy)
            return
        self.connection = http.client.HTTPConnection(*near, timeout=TIMEOUT)
        if proxy is not None:
            self.prefix, self.headers = f"http://{self.host}", to_proxy


def _proxy_for(scheme: str, host: str) -> SplitResult | None:
    """By HTTPS_PROXY, HTTP_PROXY and NO_PROXY; never for this machine itself."""
    is_near = host in ("localhost", "::1") or host.startswith("127.")
    url = getproxies().get(scheme)
    if not url or is_near or proxy_bypass(host):
        return None
    return urlsplit(url if "://" in url else f"http://{url}")


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
    path = job_variable(VARIABLE)
    if not path:
        return None
    return Caller(json.loads(Path(path).read_bytes()), closed)


def _refusal(status: int, raw: bytes) -> Exception:
    """The error in a response; a response that is not from our server counts as none."""
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
