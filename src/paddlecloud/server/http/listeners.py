"""Where the server listens: a loopback address in plain HTTP, and a public one if that is another.

The local agent and the admin at this machine use the loopback one, which `server.json` announces,
so they need neither a certificate nor a name. It has its port of last time if that is free, because
what runs meanwhile then finds the server again sooner.
"""

from __future__ import annotations

import contextlib
import logging
import socket
from dataclasses import dataclass
from pathlib import Path

from paddlecloud.model.errors import ConfigError
from paddlecloud.server.http.origin_check import is_any_address
from paddlecloud.server.services.accounts.first_start import write_private
from paddlecloud.server.settings import Settings
from paddlecloud.server.settings.validate import is_loopback

log = logging.getLogger("paddlecloud.server")

BACKLOG = 1024


@dataclass(frozen=True, kw_only=True)
class Listeners:
    local: socket.socket
    """Plain HTTP, on this machine alone."""
    public: socket.socket | None
    """What people elsewhere connect to; None: nobody does."""

    def local_url(self) -> str:
        return _url("http", self.local)

    def public_url(self, settings: Settings) -> str:
        """What to tell people, unless the settings say it."""
        if self.public is None:
            return settings.http.public_url
        return settings.http.public_url or _url("https" if settings.tls else "http", self.public)

    def url_for_agents(self, settings: Settings) -> str:
        """What to tell agents on other machines; empty where only a name would do and none is set.

        An agent on this machine may use the loopback address, and needs no other then.
        """
        if settings.http.public_url:
            return settings.http.public_url
        if is_any_address(settings.http.host):
            return ""
        return self.public_url(settings) or self.local_url()


def listen(settings: Settings) -> Listeners:
    """Bind and listen; ConfigError when an address that was asked for cannot be had."""
    http = settings.http
    remembered = settings.server_dir / "port"
    if is_loopback(http.host) and not settings.tls:
        if settings.team:
            return Listeners(local=_bound(http.host, settings.port), public=None)
        return Listeners(local=_first_free(http.host, http.port, remembered), public=None)
    public = _bound(http.host, settings.port)
    return Listeners(local=_first_free("127.0.0.1", 0, remembered), public=public)


def _first_free(host: str, wish: int, remembered: Path) -> socket.socket:
    """The port that is wished for, or that of last time, or any; it is remembered."""
    for port in filter(None, (wish, _remembered(remembered))):
        try:
            listener = _open(host, port)
            break
        except OSError as error:
            log.warning("port %d is taken (%s); another one will do", port, error)
    else:
        listener = _bound(host, 0)
    write_private(remembered, str(listener.getsockname()[1]))
    return listener


def _bound(host: str, port: int) -> socket.socket:
    try:
        return _open(host, port)
    except OSError as error:
        where = f"{host} port {port}" if port else host
        raise ConfigError(
            "listen_failed", host=where, reason=error.strerror or str(error)
        ) from error


def _open(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:  # `::` is every address, of the older kind too
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


def _remembered(path: Path) -> int:
    with contextlib.suppress(OSError, ValueError):
        return int(path.read_text("ascii"))
    return 0


def _url(scheme: str, listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    name = f"[{host}]" if ":" in host else host
    return f"{scheme}://{name}:{port}"
