"""Binds the sockets of the server: plain HTTP on loopback, and a public one if configured.

The local agent and the admin on this machine use the loopback socket, which `server.json`
announces, so they need neither a certificate nor a host name. It gets the port of the last run if
that is free, so that running agents find the server again sooner.
"""

from __future__ import annotations

import contextlib
import logging
import socket
from dataclasses import dataclass
from pathlib import Path

from paddlecloud.model.errors import ConfigError
from paddlecloud.server.http.origin_check import is_any_address
from paddlecloud.server.services.accounts.embedded_accounts import write_private
from paddlecloud.server.settings import Settings
from paddlecloud.server.settings.validate import is_loopback

log = logging.getLogger("paddlecloud.server")

BACKLOG = 1024


@dataclass(frozen=True, kw_only=True)
class Listeners:
    local: socket.socket
    """Plain HTTP, on loopback."""
    public: socket.socket | None
    """For other machines; None: not configured."""

    def local_url(self) -> str:
        return _url("http", self.local)

    def public_url(self, settings: Settings) -> str:
        """The URL for users: from the settings, or from the public socket."""
        if self.public is None:
            return settings.http.public_url
        return settings.http.public_url or _url("https" if settings.tls else "http", self.public)

    def url_for_agents(self, settings: Settings) -> str:
        """The URL for agents on other machines; empty if the server listens on all interfaces and
        no `public_url` is set. An agent on this machine can use the loopback address."""
        if settings.http.public_url:
            return settings.http.public_url
        if is_any_address(settings.http.host):
            return ""
        return self.public_url(settings) or self.local_url()


def listen(settings: Settings) -> Listeners:
    """Bind and listen; ConfigError if a configured host or port is not available."""
    http = settings.http
    port_file = settings.server_dir / "port"
    if is_loopback(http.host) and not settings.tls:
        if settings.team:
            return Listeners(local=_bound(http.host, settings.port), public=None)
        return Listeners(local=_first_free(http.host, http.port, port_file), public=None)
    public = _bound(http.host, settings.port)
    return Listeners(local=_first_free("127.0.0.1", 0, port_file), public=public)


def _first_free(host: str, wish: int, port_file: Path) -> socket.socket:
    """A socket with the configured port, or that of the last run, or any; it is stored."""
    for port in filter(None, (wish, _last_port(port_file))):
        try:
            listener = _open(host, port)
            break
        except OSError as error:
            log.warning("port %d is not available (%s); using another one", port, error)
    else:
        listener = _bound(host, 0)
    write_private(port_file, str(listener.getsockname()[1]))
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
        if family == socket.AF_INET6:  # `::` means IPv4 too
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


def _last_port(path: Path) -> int:
    with contextlib.suppress(OSError, ValueError):
        return int(path.read_text("ascii"))
    return 0


def _url(scheme: str, listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    name = f"[{host}]" if ":" in host else host
    return f"{scheme}://{name}:{port}"
