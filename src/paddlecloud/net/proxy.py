"""HTTP proxies: which requests go through one, by HTTPS_PROXY, HTTP_PROXY and NO_PROXY.

The variables have the meaning that curl gives them, in upper and lower case. Loopback addresses
never use a proxy. Credentials come from the proxy's URL and are shown in no message. This module
takes an environment as an argument and does not read the process's own.
"""

from __future__ import annotations

from paddlecloud.model.errors import ConfigError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


class Proxy:
    """One HTTP proxy."""

    __slots__ = ("authorization", "host", "port")

    def __init__(self, host: str, port: int, authorization: str = "") -> None:
        self.host = host
        self.port = port
        #: The value of Proxy-Authorization; empty: none is sent.
        self.authorization = authorization

    @property
    def address(self) -> str:
        """How messages name it."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Proxies:
    """The proxies of a process; a URL is parsed when it is first needed."""

    __slots__ = ("_excluded", "_urls", "no_proxy")

    def __init__(self, http: str = "", https: str = "", no_proxy: str = "") -> None:
        self._urls = {"http": http.strip(), "https": https.strip()}
        self.no_proxy = no_proxy
        self._excluded = [
            _with_port(word) for word in no_proxy.lower().replace(",", " ").split() if word != "."
        ]

    def proxy_for(self, scheme: str, host: str, port: int) -> Proxy | None:
        """The proxy for requests to this host and port, if they use one."""
        url = self._urls.get(scheme)
        if not url or self._is_excluded(host.lower().rstrip("."), port):
            return None
        return parse_proxy(url, f"{scheme.upper()}_PROXY")

    def rows(self) -> list[tuple[str, str]]:
        """The variables that are set, without credentials."""
        named = [(f"{scheme}_proxy", _shown(url)) for scheme, url in self._urls.items()]
        return [row for row in (*named, ("no_proxy", self.no_proxy)) if row[1]]

    def _is_excluded(self, host: str, port: int) -> bool:
        return is_loopback(host) or any(
            only in ("", str(port)) and _matches(word, host) for word, only in self._excluded
        )


DIRECT = Proxies()


def from_environment(environ: Mapping[str, str]) -> Proxies:
    """The proxies that an environment names; a lower-case variable wins."""

    def named(name: str) -> str:
        return environ.get(name.lower()) or environ.get(name) or ""

    # In a CGI program HTTP_PROXY is a header of the request that it answers.
    http = environ.get("http_proxy", "") if "REQUEST_METHOD" in environ else named("HTTP_PROXY")
    https = named("HTTPS_PROXY")
    return Proxies(http, https, named("NO_PROXY")) if http or https else DIRECT


def without_credentials(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables of proxies that other users of the machine may know."""
    names = ("HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY")
    found = ((name, environ.get(name)) for each in names for name in (each, each.lower()))
    return {name: value for name, value in found if value and "@" not in value}


def parse_proxy(url: str, variable: str) -> Proxy:
    """The proxy of `http://name:password@host:port`; ConfigError names the variable only."""
    scheme, slashes, rest = url.partition("://")
    if not slashes:
        scheme, rest = "http", url
    if scheme.lower() != "http":
        raise ConfigError("proxy_scheme", variable=variable, scheme=scheme[:20])
    credentials, _, place = rest.partition("/")[0].rpartition("@")
    host, colon, port = place.rpartition(":")
    if not colon or place.endswith("]"):
        host, port = place, "80"
    host = host.strip("[]")
    if not (host and port.isascii() and port.isdigit() and 0 < int(port) < 1 << 16):
        raise ConfigError("proxy_url", variable=variable)
    return Proxy(host, int(port), _basic(credentials) if credentials else "")


def _shown(url: str) -> str:
    scheme, slashes, rest = url.rpartition("://")
    credentials, at, place = rest.rpartition("@")
    return f"{scheme}{slashes}{'********' if credentials else ''}{at}{place}"


def _basic(credentials: str) -> str:
    from base64 import b64encode  # noqa: PLC0415 - few proxies ask for a password
    from urllib.parse import unquote_to_bytes  # noqa: PLC0415 - as above

    name, _, password = credentials.partition(":")
    pair = unquote_to_bytes(name) + b":" + unquote_to_bytes(password)
    return f"Basic {b64encode(pair).decode()}"


def is_loopback(host: str) -> bool:
    """Whether this is this machine itself, and no name that only resembles it."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    numbers = host.removeprefix("::ffff:").split(".")
    is_address = len(numbers) == 4 and all(map(str.isdigit, numbers))
    return host == "::1" or (is_address and numbers[0] == "127")


def _with_port(word: str) -> tuple[str, str]:
    """An entry of NO_PROXY and its port; empty: any. An IPv6 address has a port after brackets."""
    host, colon, port = word.rpartition(":")
    bare = ":" not in host or host.endswith("]")
    if colon and bare and port.isascii() and port.isdigit():
        return host.strip("[]"), port
    return word.strip("[]"), ""


def _matches(word: str, host: str) -> bool:
    """Whether an entry of NO_PROXY means this host: a name, a domain, an address or a network."""
    if word == "*":
        return True
    if not _may_be_address(host):
        name = word.strip(".")
        return host == name or host.endswith(f".{name}")
    if not _may_be_address(word.partition("/")[0]):
        return False
    from ipaddress import ip_address, ip_network  # noqa: PLC0415 - only addresses need it

    try:
        return ip_address(host.partition("%")[0]) in ip_network(word, strict=False)
    except ValueError:
        return False


def _may_be_address(text: str) -> bool:
    return ":" in text or not text.strip("0123456789.")
