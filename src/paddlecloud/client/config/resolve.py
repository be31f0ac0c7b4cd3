"""The one resolver of the client's configuration: flags, environment, one file, defaults.

The first file that exists is used whole; files are never merged, so what a person reads in it is
what counts. Each value carries where it came from, because "why does it talk to that server?" is
the question this module answers. Nothing is read at import, nothing else in the client reads the
environment. The 2020 documents show a loose INI dialect that configparser does not read (and its
import costs 12 ms), hence the reader below.
"""

from __future__ import annotations

import io
import os

from paddlecloud.model.errors import ConfigError
from paddlecloud.net.proxy import DIRECT, from_environment

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

MAX_FILE = 1024 * 1024
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
    """What the client works with. `embedded` means: no server is configured, use our own."""

    def __init__(self, values: dict[str, Value], path: str | None) -> None:
        self.values = values
        #: The file that was used, if any.
        self.path = path
        #: Mistakes that stop nobody, ready to be shown.
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
        """The file that new keys are written to: the one in use, else the one of our home."""
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
            _CHECKS[name.rpartition(".")[2]](name, value)
    values["openapi.ca_file"] = _at_file(values["openapi.ca_file"], path, environ)
    warnings += _join_address(values)
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


def write_main(path: str, user_id: str, ak: str, sk: str) -> None:
    """Set the keys of [main] in a file, or make one; every other byte of it stays.

    The file is replaced in one step and readable by its owner only.
    """
    wanted = {"user_id": user_id, "ak": ak, "sk": sk}
    for name, value in wanted.items():
        if not _is_writable(value):
            raise ConfigError("config_value", path=path, name=f"main.{name}")
    opened = _open(path)
    data = opened[0] if opened else b""
    mark = _BOM if data.startswith(_BOM) else b""
    text = _with_main(_decode(data, path), wanted, path)
    _replace(path, mark + text.encode())


def parse(data: bytes, path: str) -> tuple[dict[str, tuple[str, int]], list[ConfigError]]:
    """Values with their line numbers by `section.key`, and warnings about names nobody knows."""
    found: dict[str, tuple[str, int]] = {}
    warnings: list[ConfigError] = []
    for number, section, item in _items(_decode(data, path), path):
        told = {"origin": f"{path}:{number}", "section": section}
        if section not in _SECTIONS:
            if not item.key:
                near = _closest(section, tuple(_SECTIONS))
                warnings.append(ConfigError("config_unknown_section", suggestion=near, **told))
        elif item.key and item.key not in _SECTIONS[section]:
            told |= {"key": item.key, "suggestion": _closest(item.key, _SECTIONS[section])}
            warnings.append(ConfigError("config_unknown_key", **told))
        elif item.key:
            found[f"{section}.{item.key}"] = (item.value, number)
    return found, warnings


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
_ALIASES = {"userid": "user_id"}
_MARKS = ("//", "#", ";")
_BOM = b"\xef\xbb\xbf"


def _home(flags: Mapping[str, str], environ: Mapping[str, str]) -> Value:
    person = _person_home(environ)
    given = _given("home", flags, environ)
    if given is None:
        return Value(f"{person}/.paddlecloud", "default", 0)
    return Value(_absolute(_expanded(given.text, person)), given.origin, given.rank)


def _given(name: str, flags: Mapping[str, str], environ: Mapping[str, str]) -> Value | None:
    """What the flag of that name says, else the variable; an empty one says nothing."""
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
    # The embedded server works in another directory: a relative home would mean another place.
    return os.path.abspath(path)  # noqa: PTH100 - importing pathlib costs 15 ms


def _load(
    flags: Mapping[str, str], environ: Mapping[str, str], home: str
) -> tuple[str | None, dict[str, tuple[str, int]], list[ConfigError]]:
    for path, asked_by in _candidates(flags, environ, home):
        opened = _open(path)
        if opened is None:
            if asked_by:
                raise ConfigError("config_missing", path=path, origin=asked_by)
            continue
        data, mode = opened
        entries, warnings = parse(data, path)
        secret = any(name.endswith(_SECRET) and value for name, (value, _) in entries.items())
        if secret and os.name == "posix" and mode & 0o044:
            warnings.append(ConfigError("config_exposed", path=path, mode=f"{mode & 0o777:04o}"))
        return path, entries, warnings
    return None, {}, []


def _candidates(
    flags: Mapping[str, str], environ: Mapping[str, str], home: str
) -> Iterator[tuple[str, str]]:
    """Where the file may be, and who insists on it; an explicit wish is the only candidate."""
    person = _person_home(environ)
    given = _given("config", flags, environ)
    if given is not None:
        yield _expanded(given.text, person), given.origin
        return
    yield f"{home}/client.conf", ""
    yield f"{person}/bin/paddlecloud/conf/client.conf", ""
    yield f"{person}/bin/paddlecloud/client.conf", ""


def _open(path: str) -> tuple[bytes, int] | None:
    """Content and mode of a file, or None if there is none."""
    try:
        # A pipe without a writer would otherwise hold the command for ever.
        fd = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        try:
            mode = os.fstat(fd).st_mode
            data = b""
            while (block := os.read(fd, MAX_FILE)) and len(data) <= MAX_FILE:
                data += block
        finally:
            os.close(fd)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError("config_unreadable", path=path, reason=reason) from error
    if len(data) > MAX_FILE:
        raise ConfigError("config_too_large", path=path, limit=MAX_FILE)
    return data, mode


def _decode(data: bytes, path: str) -> str:
    content = data.removeprefix(_BOM)
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        offset = error.start + len(data) - len(content)
        raise ConfigError("config_encoding", path=path, offset=offset) from error


class _Item:
    """A line with meaning: a section (no key), or a key with the place of its value in it."""

    __slots__ = ("end", "key", "start", "value")

    def __init__(self, key: str = "", value: str = "", start: int = 0) -> None:
        self.key = key
        self.value = value
        self.start = start
        self.end = start + len(value)


def _items(text: str, path: str) -> Iterator[tuple[int, str, _Item]]:
    """Line number, section and item of every line that says something."""
    section = ""
    for number, line in enumerate(_lines(text), 1):
        bare = line.strip()
        if not bare or bare.startswith(_MARKS):
            continue
        name = _section(bare)
        item = _Item() if name else _entry(line)
        if item is None:
            raise ConfigError("config_line", origin=f"{path}:{number}", line=_harmless(bare))
        section = name or section
        if not section:
            raise ConfigError("config_no_section", origin=f"{path}:{number}", key=item.key[:40])
        yield number, section, item


def _lines(text: str) -> list[str]:
    """Lines with their ends; unlike splitlines() only line feed and carriage return end one."""
    return list(io.StringIO(text, newline=""))


def _section(bare: str) -> str:
    """The name in `[name]`; `[name]:` is what one of the documents prints."""
    name, closed, rest = bare[1:].partition("]")
    plain = bare.startswith("[") and closed and _uncomment(rest).strip() in ("", ":")
    return name.strip().lower() if plain else ""


def _entry(line: str) -> _Item | None:
    places = [place for place in (line.find("="), line.find(":")) if place >= 0]
    if not places or line.lstrip().startswith("["):
        return None
    at = min(places)
    key = line[:at].strip().lower()
    if not key:
        return None
    content = _uncomment(line[at + 1 :].rstrip("\r\n"))
    value = content.strip()
    blanks = len(content) - len(content.lstrip()) if value else min(1, len(content))
    return _Item(_ALIASES.get(key, key), value, at + 1 + blanks)


def _uncomment(text: str) -> str:
    """Cut a comment off; a mark counts only after a blank, so that URLs and keys stay whole."""
    for at in range(1, len(text)):
        if text[at - 1].isspace() and text.startswith(_MARKS, at):
            return text[:at]
    return text


def _harmless(line: str) -> str:
    """A line fit to be shown: a key that lost its `=` must not end up in a terminal or a log."""
    words = [word if len(word) < 16 else f"{word[:4]}***" for word in line[:200].split()]
    return " ".join(words)[:80]


def _closest(word: str, known: tuple[str, ...]) -> str:
    from difflib import get_close_matches  # noqa: PLC0415 - 8 ms that only a typing mistake costs

    return ", ".join(get_close_matches(word, known, 1) or known)


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
    """A path; one that stands in a file begins at that file, not where the command is run."""
    text = _expanded(value.text, _person_home(environ))
    if text and value.rank == 1 and path:
        text = os.path.join(os.path.dirname(path), text)  # noqa: PTH118, PTH120 - pathlib: 15 ms
    return Value(text, value.origin, value.rank)


def _check_debug(_name: str, value: Value) -> None:
    if value.text not in ("0", "1"):
        raise ConfigError("config_debug", origin=value.origin, value=value.text)


def _check_port(_name: str, value: Value) -> None:
    text = value.text
    if not (text.isascii() and text.isdigit() and len(text) < 6 and 0 < int(text) < 65536):
        raise ConfigError("config_port", origin=value.origin, value=text)


def _check_scheme(_name: str, value: Value) -> None:
    if value.text not in ("http", "https"):
        raise ConfigError("config_scheme", origin=value.origin, value=value.text)


def _check_host(_name: str, value: Value) -> None:
    _split_host(value)


def _check_printable(name: str, value: Value) -> None:
    if not value.text.isprintable():
        raise ConfigError("config_key", origin=value.origin, name=name)


def _check_ak(name: str, value: Value) -> None:
    _check_sk(name, value)
    if "/" in value.text:  # it separates the parts of a signature
        raise ConfigError("config_key", origin=value.origin, name=name)


def _check_sk(name: str, value: Value) -> None:
    text = value.text
    if not (text.isascii() and text.isprintable() and " " not in text):
        raise ConfigError("config_key", origin=value.origin, name=name)


_CHECKS = {
    "ca_file": _check_printable,
    "debug": _check_debug,
    "user_id": _check_printable,
    "ak": _check_ak,
    "sk": _check_sk,
    "session_token": _check_sk,
    "host": _check_host,
    "port": _check_port,
    "scheme": _check_scheme,
}


def _split_host(value: Value) -> tuple[str, str, str]:
    """Scheme, host and port of what may be a name, an address, `name:port` or a URL."""
    scheme, slashes, rest = value.text.rpartition("://")
    host, colon, port = _split_port(rest.removesuffix("/"))
    known = not slashes or scheme.lower() in ("http", "https")
    odd = any(letter in "/@?#[]\\" or letter.isspace() for letter in host)
    if not (known and host and host.isprintable()) or odd or (colon and not port):
        raise ConfigError("config_host", origin=value.origin, value=value.text)
    if port:
        _check_port("", Value(port, value.origin, value.rank))
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
    """Settle host, port and scheme, which the host alone may say too.

    What stands in the host wins over a separate setting, unless that one is of higher rank: a flag
    `--port` beats a file, but a port left over in a file does not bend the URL in a variable.
    """
    given = values["openapi.host"]
    if not given.text:
        _default_address(values)
        return []
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
    _default_address(values)
    return warnings


def _default_address(values: dict[str, Value]) -> None:
    scheme, port = values["openapi.scheme"].text, values["openapi.port"].text
    if not scheme:
        scheme = "https" if port == "443" else "http"
        values["openapi.scheme"] = Value(scheme, "default", 0)
    if not port:
        values["openapi.port"] = Value("443" if scheme == "https" else "80", "default", 0)


def _pair_warnings(values: Mapping[str, Value]) -> list[ConfigError]:
    """An ak of one place with the sk of another hardly ever fits."""
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


def _is_writable(value: str) -> bool:
    """Whether a value would be read back as it is."""
    bare = value.strip() == value and value.isprintable() and value != ""
    return bare and _uncomment(f" {value}") == f" {value}"


def _with_main(text: str, wanted: Mapping[str, str], path: str) -> str:
    lines = _lines(text)
    end = "\r\n" if lines and lines[0].endswith("\r\n") else "\n"
    places: dict[str, tuple[int, _Item]] = {}
    last = -1
    for number, section, item in _items(text, path):
        if section == "main":
            last = number - 1
            places[item.key] = (last, item)
    missing = [f"{key} = {wanted[key]}{end}" for key in wanted if key not in places]
    for key in wanted:
        if key in places:
            at, item = places[key]
            lines[at] = _with_value(lines[at], item, wanted[key])
    if missing and lines and not lines[last].endswith(("\r", "\n")):
        lines[last] += end
    if last < 0:
        return "".join([*lines, end if lines else "", f"[main]{end}", *missing])
    return "".join([*lines[: last + 1], *missing, *lines[last + 1 :]])


def _with_value(line: str, item: _Item, value: str) -> str:
    before, after = line[: item.start], line[item.end :]
    gap = "" if before[-1:].isspace() or item.value else " "
    return f"{before}{gap}{value}{'' if not after or after[0].isspace() else ' '}{after}"


def _replace(path: str, data: bytes) -> None:
    from pathlib import Path  # noqa: PLC0415 - 15 ms that only writing costs
    from tempfile import mkstemp  # noqa: PLC0415 - 15 ms that only writing costs

    try:
        target = Path(path).resolve()  # a link to a file kept elsewhere stays a link
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd, name = mkstemp(prefix=".client.conf.", dir=target.parent)
        fresh = Path(name)
        try:
            with os.fdopen(fd, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(fd)
            fresh.replace(target)
        except BaseException:
            fresh.unlink()
            raise
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError("config_unwritable", path=path, reason=reason) from error
