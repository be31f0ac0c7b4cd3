"""Posts a signed notification to a URL that a user chose, and never into the server's own network.

Only public addresses are called, over https. The name is resolved once and the very address that
was checked is connected to, also through a proxy, because a name can resolve to another one the
next moment. Redirects are not followed, and nothing of the response but its status is read. The
whole exchange has ten seconds. How often it is tried is the work of the outbox.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import socket
import ssl
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import urlsplit

import msgspec

from paddlecloud import __version__
from paddlecloud.db.tables.outbox import Outgoing
from paddlecloud.model.errors import Invalid, NotFound, Refused, Retry, Unreachable
from paddlecloud.net.http1 import Connection
from paddlecloud.net.proxy import DIRECT, Proxies

SECONDS = 10.0
LONGEST = 2000
GONE = 410
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True, kw_only=True)
class Target:
    """An address of a webhook, taken apart."""

    host: str
    """As in the URL; an IPv6 address without its brackets."""
    port: int
    path: str
    secure: bool

    @property
    def host_header(self) -> str:
        name = f"[{self.host}]" if ":" in self.host else self.host
        return name if self.port == (443 if self.secure else 80) else f"{name}:{self.port}"


def parse(url: str, *, private: bool) -> Target:
    """The target if a webhook may have this form of address; `private`: plain http is allowed."""
    try:
        parts = urlsplit(url)
        port = parts.port
        host = (parts.hostname or "").encode("idna").decode()
    except ValueError as error:
        raise Invalid("webhook_url", url=_shown(url), problem=str(error)) from None
    problem = _problem(url, parts.scheme, host)
    if parts.username is not None or parts.password is not None:
        problem = "a name or password in it"
    if problem:
        raise Invalid("webhook_url", url=_shown(url), problem=problem)
    secure = parts.scheme == "https"
    if not secure and not private:
        raise Refused("webhook_plain", url=_shown(url))
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    if port is None:
        port = 443 if secure else 80
    return Target(host=host, port=port, path=path, secure=secure)


def resolve(target: Target, *, private: bool) -> list[str]:
    """The addresses to connect to: public ones, unless `private` ones are allowed."""
    try:
        found = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or "the name cannot be resolved"
        raise Retry("webhook_unreachable", host=target.host, reason=reason) from None
    addresses = [str(where[4][0]) for where in found]
    allowed = [
        address
        for address in addresses
        if private or is_public(ipaddress.ip_address(address.partition("%")[0]))
    ]
    if not allowed:
        raise Refused("webhook_private", host=target.host, address=addresses[0])
    return allowed


def is_public(address: Address) -> bool:
    """Whether it is an address of the public internet, whatever it is wrapped in."""
    if isinstance(address, ipaddress.IPv6Address):
        inner = _wrapped(address)
        if inner is not None:
            return is_public(inner)
        if address in _SITE_LOCAL:
            return False
    return address.is_global and not address.is_multicast and not address.is_reserved


def body_of(row: Outgoing) -> bytes:
    """The JSON that is sent: the event and what is known of it."""
    return msgspec.json.encode({"delivery": row.id, "owner": row.owner, **row.params})


def signature(secret: str, timestamp: int, body: bytes) -> str:
    """v1=HMAC-SHA256 over the timestamp, a dot and the body."""
    signed = f"{timestamp}.".encode() + body
    return "v1=" + hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()


def deliver(
    url: str,
    secret: str,
    row: Outgoing,
    now: datetime,
    *,
    private: bool,
    proxies: Proxies = DIRECT,
) -> None:
    """Post one row. Retry may work later; NotFound means that the receiver is gone for good."""
    target = parse(url, private=private)
    ips = resolve(target, private=private)
    body = body_of(row)
    at = int(now.timestamp())
    status = post(
        target,
        ips,
        body,
        {
            "Host": target.host_header,
            "Content-Type": "application/json",
            "User-Agent": f"PaddleCloud/{__version__}",
            "X-PaddleCloud-Event": str(row.params.get("event", "")),
            "X-PaddleCloud-Delivery": row.id,
            "X-PaddleCloud-Timestamp": str(at),
            "X-PaddleCloud-Signature": signature(secret, at, body),
        },
        proxies=proxies,
    )
    if status == GONE:
        raise NotFound("webhook_gone", host=target.host)
    if not 200 <= status < 300:
        raise Retry("webhook_status", host=target.host, status=status)


def post(
    target: Target,
    ips: Sequence[str],
    body: bytes,
    headers: Mapping[str, str],
    seconds: float = SECONDS,
    proxies: Proxies = DIRECT,
) -> int:
    """The status that the server at one of `ips` responds with, all within `seconds`."""
    deadline = time.monotonic() + seconds
    try:
        scheme = "https" if target.secure else "http"
        proxy = proxies.proxy_for(scheme, target.host, target.port)
        tls = ssl.create_default_context() if target.secure else False
        with Connection(target.host, target.port, tls, seconds, proxy=proxy, ips=ips) as connection:
            connection.open()
            left = max(0.0, deadline - time.monotonic())
            return connection.request("POST", target.path, headers, body, timeout=left).status
    except Unreachable as error:
        reason = _why(error, seconds)
        raise Retry("webhook_unreachable", host=target.host, reason=reason) from None


def _problem(url: str, scheme: str, host: str) -> str:
    if len(url) > LONGEST:
        return f"longer than {LONGEST} letters"
    if scheme not in ("https", "http"):
        return "not https"
    if not host:
        return "no host"
    if not url.isascii() or not url.isprintable() or " " in url:
        return "letters that are not allowed in a URL"
    return "a part after #" if "#" in url else ""


def _shown(url: str) -> str:
    """The URL without what may be secret in it: a password, a path, a query."""
    scheme, slashes, rest = url[:200].partition("://")
    return f"{scheme}{slashes}{rest.partition('/')[0].rpartition('@')[2]}"


def _wrapped(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """The IPv4 address that an IPv6 address stands for, if it does."""
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address.teredo is not None:
        return address.teredo[1]
    if address in _NAT64 or address in _COMPATIBLE:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return None


def _why(error: Unreachable, seconds: float) -> str:
    if error.code == "server_timeout":
        return f"no answer within {seconds:g} s"
    if error.code.startswith("server_cert_"):
        return f"its certificate does not hold: {error.params.get('reason') or 'out of date'}"
    if error.code == "server_malformed":
        return f"its answer is not HTTP ({error.params['detail']})"
    return str(error.params.get("reason") or error)


_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_COMPATIBLE = ipaddress.ip_network("::/96")
_SITE_LOCAL = ipaddress.ip_network("fec0::/10")
