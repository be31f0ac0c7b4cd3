"""Resolves the configuration of a client: flags, environment variables, one file, defaults.

The first file that exists is used whole; files are never merged. Each value has its origin: `config
show --origin` answers why a client talks to a server. Nothing is read at import, and nothing else
in the client reads the environment.
"""

from __future__ import annotations

import os

from paddlecloud.client.config.ini_file import parse, read_file
from paddlecloud.model.errors import ConfigError
from paddlecloud.net.proxy import DIRECT, from_environment

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

MASK = "********"


class Value:
    """One value; `origin` is a flag, the name of a variable, `file:line`, or "default"."""

    __slots__ = ("origin", "rank", "text")

    def __init__(self, text: str, origin: str, rank: int) -> None:
        self.text = text
        self.origin = origin
        #: Where it came from as an order: flag 3, environment 2, file 1, default 0.
        self.rank = rank


class Config:
    """The configuration of a client. `embedded`: no server is configured, so it starts its own."""

    def __init__(self, values: dict[str, Value], path: str | None) -> None:
        self.values = values
        #: The file that was used, if any.
        self.path = path
        #: Mistakes that are not fatal, to be shown.
        self.warnings: list[ConfigError] = []
        self.debug = values["main.debug"].text == "1"
        self.user_id = values["main.user_id"].text
        self.ak = values["main.ak"].text
        self.sk = values["main.sk"].text
        self.host = values["openapi.host"].text
        self.port = int(values["openapi.port"].text)
        self.scheme = values["openapi.scheme"].text
        #: Certificates of the issuers to trust for https; "": those that the system knows.
        self.ca_file = values["openapi.ca_file"].text
        self.lang = values["lang"].text
        self.home = values["home"].text
        self.embedded = not self.host
        self.proxies = DIRECT

    @property
    def save_path(self) -> str:
        """The file that new keys are written to: the one in use, else the one in the home."""
        return self.path or f"{self.home}/client.conf"

    def rows(self) -> list[tuple[str, str, str]]:
        """Name, value and origin of everything, secrets masked."""
        rows = [
            (name, MASK if name.endswith(_SECRET) and value.text else value.text, value.origin)
            for name, value in self.values.items()
        ]
        return rows + [(name, value, name.upper()) for name, value in self.proxies.rows()]


def resolve(flags: Mapping[str, str], environ: Mapping[str, str]) -> Config:
    """The configuration, checked. `flags` has names without dashes: config, host, port, ak …"""
    home = _home(flags, environ)
    path, entries, warnings = _load(flags, environ, home.text)
    values = {name: _pick(name, flags, environ, entries, path) for name in _SETTINGS}
    for name, value in values.items():
        if value.text:
            _check(name, value)
    values["openapi.ca_file"] = _at_file(values["openapi.ca_file"], path, environ)
    warnings += _join_address(values) if values["openapi.host"].text else []
    _default_address(values)
    warnings += _pair_warnings(values)
    values["lang"], unknown = _language(flags, environ)
    values["home"] = home
    config = Config(values, path)
    config.proxies = from_environment(environ)
    config.warnings = warnings + unknown
    return config


def language(flags: Mapping[str, str], environ: Mapping[str, str]) -> str:
    """The language for messages, "zh" or "en"; needed before, and even without, a configuration."""
    return _language(flags, environ)[0].text


#: Setting: its flag, its variable, its default.
_SETTINGS = {
    "main.debug": ("debug", "", "0"),
    "main.user_id": ("user_id", "", ""),
    "main.ak": ("ak", "PADDLECLOUD_AK", ""),
    "main.sk": ("sk", "PADDLECLOUD_SK", ""),
    "openapi.host": ("host", "PADDLECLOUD_HOST", ""),
    "openapi.port": ("port", "PADDLECLOUD_PORT", ""),
    "openapi.scheme": ("scheme", "", ""),
    "openapi.ca_file": ("ca_file", "PADDLECLOUD_CA_FILE", ""),
    "bcc.host": ("", "", "bcc.bj.baidubce.com"),
    "bcc.ak": ("", "", ""),
    "bcc.sk": ("", "", ""),
    "bos.host": ("", "", "bj.bcebos.com"),
    "bos.ak": ("", "PADDLECLOUD_BOS_AK", ""),
    "bos.sk": ("", "PADDLECLOUD_BOS_SK", ""),
    "bos.session_token": ("", "PADDLECLOUD_BOS_SESSION_TOKEN", ""),
}
_SECTIONS = {
    section: tuple(name.partition(".")[2] for name in _SETTINGS if name.startswith(f"{section}."))
    for section in ("main", "openapi", "bcc", "bos")
}
_SECRET = (".sk", ".session_token")


def _home(flags: Mapping[str, str], environ: Mapping[str, str]) -> Value:
    person = _person_home(environ)
    given = _given("home", flags, environ)
    if given is None:
        return Value(f"{person}/.paddlecloud", "default", 0)
    return Value(_absolute(_expanded(given.text, person)), given.origin, given.rank)


def _given(name: str, flags: Mapping[str, str], environ: Mapping[str, str]) -> Value | None:
    """The value of the flag of that name, else of the variable; empty ones do not count."""
    variable = f"PADDLECLOUD_{name.upper()}"
    if text := flags.get(name):
        return Value(text, f"--{name}", 3)
    if text := environ.get(variable):
        return Value(text, variable, 2)
    return None


def _person_home(environ: Mapping[str, str]) -> str:
    given = environ.get("HOME") or environ.get("USERPROFILE")
    if not given:
        return os.path.expanduser("~")  # noqa: PTH111 - importing pathlib costs 15 ms
    return given if given.startswith("/") else _absolute(given)


def _expanded(path: str, person: str) -> str:
    """A shell leaves the `~` of `--config=~/x` alone."""
    return person + path[1:] if path == "~" or path.startswith("~/") else path


def _absolute(path: str) -> str:
    # The embedded server runs in another directory, where a relative home would be another one.
    return os.path.abspath(path)  # noqa: PTH100 - importing pathlib costs 15 ms


def _load(
    flags: Mapping[str, str], environ: Mapping[str, str], home: str
) -> tuple[str | None, dict[str, tuple[str, int]], list[ConfigError]]:
    person = _person_home(environ)
    given = _given("config", flags, environ)
    if given is not None:
        candidates = [(_expanded(given.text, person), given.origin)]
    else:
        old = f"{person}/bin/paddlecloud"  # where the 2020 documents put it
        names = [f"{home}/client.conf", f"{old}/conf/client.conf", f"{old}/client.conf"]
        if unpacked := environ.get("PADDLECLOUD_INSTALLED"):  # set by a client that was unpacked
            names.append(f"{unpacked}/conf/client.conf")
        candidates = [(name, "") for name in names]
    for path, origin in candidates:
        opened = read_file(path)
        if opened is None:
            if origin:
                raise ConfigError("config_missing", path=path, origin=origin)
            continue
        data, mode = opened
        entries, warnings = parse(data, path, _SECTIONS)
        secret = any(name.endswith(_SECRET) and value for name, (value, _) in entries.items())
        if secret and os.name == "posix" and mode & 0o044:
            warnings.append(ConfigError("config_exposed", path=path, mode=f"{mode & 0o777:04o}"))
        return path, entries, warnings
    return None, {}, []


def _pick(
    name: str,
    flags: Mapping[str, str],
    environ: Mapping[str, str],
    entries: Mapping[str, tuple[str, int]],
    path: str | None,
) -> Value:
    """The value of highest rank; an empty one counts as not given."""
    flag, variable, default = _SETTINGS[name]
    if given := flags.get(flag, "").strip():
        return Value(given, f"--{flag}", 3)
    if given := environ.get(variable, "").strip():
        return Value(given, variable, 2)
    text, line = entries.get(name, ("", 0))
    return Value(text, f"{path}:{line}", 1) if text else Value(default, "default", 0)


def _at_file(value: Value, path: str | None, environ: Mapping[str, str]) -> Value:
    """A path; one in a file is relative to that file, not to the current directory."""
    text = _expanded(value.text, _person_home(environ))
    if text and value.rank == 1 and path:
        text = os.path.join(os.path.dirname(path), text)  # noqa: PTH118, PTH120 - pathlib: 15 ms
    return Value(text, value.origin, value.rank)


def _check(name: str, value: Value) -> None:
    key, text = name.rpartition(".")[2], value.text
    if key == "host":
        _split_host(value)
    elif key == "port":
        _check_port(value)
    elif key == "debug" and text not in ("0", "1"):
        raise ConfigError("config_debug", origin=value.origin, value=text)
    elif key == "scheme" and text not in ("http", "https"):
        raise ConfigError("config_scheme", origin=value.origin, value=text)
    is_valid = text.isprintable()
    if key in ("ak", "sk", "session_token"):
        is_valid = is_valid and text.isascii() and " " not in text
    if key == "ak" and "/" in text:  # it separates the parts of a signature
        is_valid = False
    if not is_valid:
        raise ConfigError("config_key", origin=value.origin, name=name)


def _check_port(value: Value) -> None:
    text = value.text
    if not (text.isascii() and text.isdigit() and len(text) < 6 and 0 < int(text) < 65536):
        raise ConfigError("config_port", origin=value.origin, value=text)


def _split_host(value: Value) -> tuple[str, str, str]:
    """Scheme, host and port of what may be a name, an address, `name:port` or a URL."""
    scheme, slashes, rest = value.text.rpartition("://")
    host, colon, port = _split_port(rest.removesuffix("/"))
    known = not slashes or scheme.lower() in ("http", "https")
    odd = any(letter in "/@?#[]\\" or letter.isspace() for letter in host)
    if not (known and host and host.isprintable()) or odd or (colon and not port):
        raise ConfigError("config_host", origin=value.origin, value=value.text)
    if port:
        _check_port(Value(port, value.origin, value.rank))
    return scheme.lower(), host, port


def _split_port(text: str) -> tuple[str, str, str]:
    """Host, colon and port; no host if the text cannot be read."""
    if text.startswith("["):
        host, closed, rest = text[1:].partition("]")
        sound = closed and not host.strip(_IPV6) and rest[:1] in ("", ":")
        return (host, rest[:1], rest[1:]) if sound else ("", "", "")
    if text.count(":") > 1:
        return (text if not text.strip(_IPV6) else "", "", "")
    return text.partition(":")


_IPV6 = "0123456789abcdefABCDEF:."


def _join_address(values: dict[str, Value]) -> list[ConfigError]:
    """Resolve host, port and scheme: the host may be a URL that has them all.

    A part of the host overrides a separate setting, unless that has a higher rank: a flag `--port`
    overrides a file, but a port in a file does not change the URL in a variable.
    """
    given = values["openapi.host"]
    scheme, host, port = _split_host(given)
    values["openapi.host"] = Value(host, given.origin, given.rank)
    warnings = []
    for name, text in (("openapi.scheme", scheme), ("openapi.port", port)):
        separate = values[name]
        if text and separate.rank <= given.rank:
            if separate.rank == given.rank and separate.text != text:
                warnings.append(
                    ConfigError("config_two_values", name=name, used=text, origin=separate.origin)
                )
            values[name] = Value(text, given.origin, given.rank)
    if scheme and not port and values["openapi.port"].rank < given.rank:
        values["openapi.port"] = Value("", "default", 0)
    return warnings


def _default_address(values: dict[str, Value]) -> None:
    scheme, port = values["openapi.scheme"].text, values["openapi.port"].text
    if not scheme:
        scheme = "https" if port == "443" else "http"
        values["openapi.scheme"] = Value(scheme, "default", 0)
    if not port:
        values["openapi.port"] = Value("443" if scheme == "https" else "80", "default", 0)


def _pair_warnings(values: Mapping[str, Value]) -> list[ConfigError]:
    """Warnings about an ak and a sk of different origins: they hardly ever belong together."""
    pairs = [(values[f"{section}.ak"], values[f"{section}.sk"]) for section in ("main", "bos")]
    return [
        ConfigError("config_mixed_pair", ak=ak.origin, sk=sk.origin)
        for ak, sk in pairs
        if ak.rank != sk.rank and ak.text and sk.text
    ]


def _language(
    flags: Mapping[str, str], environ: Mapping[str, str]
) -> tuple[Value, list[ConfigError]]:
    given = _given("lang", flags, environ)
    if given is not None:
        short = given.text.strip().lower()[:2]
        if short in ("zh", "en"):
            return Value(short, given.origin, given.rank), []
        mistake = ConfigError("config_lang", origin=given.origin, value=given.text)
        return Value("en", "default", 0), [mistake]
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        if environ.get(name):
            return Value("zh" if environ[name].lower().startswith("zh") else "en", name, 2), []
    return Value("en", "default", 0), []
