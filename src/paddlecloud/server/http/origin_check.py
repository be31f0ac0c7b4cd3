"""Rejects requests with a foreign Host or Origin header before authentication.

A web page can make its reader's browser send requests to this server (CSRF, DNS rebinding). It
cannot hide that: the browser sends the name that it connects to (Host) and the page that made the
request (Origin, Sec-Fetch-Site). Nothing here depends on users or routes.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from paddlecloud.model.errors import Unauthenticated
from paddlecloud.server.settings import Settings

_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_OWN_PAGES = ("same-origin", "none")


class OriginCheck:
    """Checks the headers of a request against the names of this server."""

    def __init__(self, settings: Settings) -> None:
        names = {*_LOOPBACK, settings.http.host, settings.public_host, *settings.http.allowed_hosts}
        self._names = {name.lower() for name in names if name and not is_any_address(name)}
        self._public = urlsplit(settings.http.public_url).netloc.lower()

    def check(self, headers: Mapping[str, str]) -> None:
        """Raise if the request is meant for another host, or was made by a page of another site."""
        host = headers.get("host", "")
        if host_name(host) not in self._names:
            raise Unauthenticated("auth_host", host=_shown(host))
        site = headers.get("sec-fetch-site")
        if site is not None and site not in _OWN_PAGES:
            raise Unauthenticated("auth_cross_site", origin=_shown(headers.get("origin", site)))
        origin = headers.get("origin")
        if origin is not None:
            scheme, _, place = origin.lower().partition("://")
            is_own = place != "" and place in (host.lower(), self._public)
            if not is_own or scheme not in ("http", "https"):
                raise Unauthenticated("auth_cross_site", origin=_shown(origin))


def is_any_address(host: str) -> bool:
    """Whether this is the wildcard IP address, which is not a host name."""
    return host in ("0.0.0.0", "::")


def host_name(host: str) -> str:
    """The name in a Host header, without port and brackets."""
    name = host if host.endswith("]") else host.rsplit(":", 1)[0]
    return name.strip("[]").lower()


def _shown(text: str) -> str:
    return text[:200].encode("ascii", "backslashreplace").decode()
