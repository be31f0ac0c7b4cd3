"""The URL of a PaddleCloud server with the keys for it, and the signature of requests to it."""

from __future__ import annotations

import hashlib
import os
from time import time

from paddlecloud.model.protocol.bce_auth import (
    NONCE,
    format_time,
    quote,
    sign,
)
from paddlecloud.net._sockets import authority

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

PREFIX = "/api/v1"

EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()


class Endpoint:
    """A server, the keys for it, and (embedded) which start of it is meant."""

    __slots__ = ("ak", "boot", "host", "port", "sk", "tls")

    def __init__(self, url: str, ak: str, sk: str, boot: str = "", ca_file: str = "") -> None:
        scheme, host, port = split_url(url)
        #: For https: True, or the file with the issuers to trust.
        self.tls: bool | str = (ca_file or True) if scheme == "https" else False
        self.host = host
        self.port = port
        self.ak = ak
        self.sk = sk
        #: "" when any server at that URL is the right one.
        self.boot = boot

    @property
    def url(self) -> str:
        return f"{'https' if self.tls else 'http'}://{authority(self.host, self.port)}"

    @property
    def authority(self) -> str:
        """The value of the Host header."""
        return authority(self.host, self.port, default=443 if self.tls else 80)

    @property
    def is_confidential(self) -> bool:
        """Whether no one in between can read what is sent: TLS, or an address of this machine, not
        a name that resembles one."""
        numbers = self.host.split(".")
        is_address = len(numbers) == 4 and all(map(str.isdigit, numbers))
        is_here = self.host in ("localhost", "::1") or (is_address and numbers[0] == "127")
        return bool(self.tls) or is_here


def split_url(url: str) -> tuple[str, str, int]:
    """Scheme, host and port of `http://127.0.0.1:8000`; IPv6 addresses stand in brackets."""
    scheme, _, rest = url.partition("://")
    name = rest.partition("/")[0]
    host, colon, port = name.rpartition(":")
    if not colon or name.endswith("]"):
        host, port = name, "443" if scheme == "https" else "80"
    return scheme, host.strip("[]"), int(port)


def target_in(url: str) -> str:
    """The path and query of a URL, as in a request line."""
    return "/" + url.partition("://")[2].partition("/")[2]


def sign_request(
    endpoint: Endpoint, authority: str, method: str, target: str, headers: dict[str, str]
) -> None:
    """Add the signature to `headers`, with the time and a nonce that make it valid once."""
    headers["host"] = authority
    if not endpoint.ak:  # a route without authentication
        return
    now = int(time())
    headers[NONCE] = os.urandom(16).hex()
    headers["x-bce-date"] = format_time(now)
    raw_path, _, query = target.partition("?")
    headers["authorization"] = sign(endpoint.ak, endpoint.sk, method, raw_path, query, headers, now)


def target_of(path: str, query: Mapping[str, object] | None = None) -> str:
    """The target of a request line for a path below the prefix of the interface."""
    given = [(key, value) for key, value in (query or {}).items() if value is not None]
    text = "&".join(f"{key}={quote(str(value))}" for key, value in given)
    return PREFIX + path + ("?" + text if text else "")
