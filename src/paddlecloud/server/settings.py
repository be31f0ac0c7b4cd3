"""Settings of the server: one dataclass per concern, read once in `main` and passed on.

`server.toml` is optional: the embedded server runs without it. Every key is checked, an unknown one
is refused with a suggestion, because a misspelt setting that is ignored is worse than none.
"""

from __future__ import annotations

import difflib
import ipaddress
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from datetime import timedelta
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from paddlecloud.model.errors import ConfigError

MIB = 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class Http:
    """Where the server listens and what it takes in."""

    host: str = "127.0.0.1"
    """Address to listen on; one of this machine alone, because there is no TLS here yet."""
    port: int = 0
    """0: the port of last time if it is free, else any free one."""
    max_json: int = 32 * MIB
    """Bytes of a JSON body; the manifest of 100,000 files has about 15 MB."""


@dataclass(frozen=True, kw_only=True)
class Scheduling:
    schedule_timeout: timedelta = timedelta(hours=24)
    """A job that found no place for this long ends as `schedule timeout`."""
    reserve_after: timedelta = timedelta(minutes=10)
    """A job that waited this long gets the next room: smaller ones may no longer pass it."""
    window: int = 256
    """How many waiting jobs of one user a plan looks at."""


@dataclass(frozen=True, kw_only=True)
class Running:
    grace: timedelta = timedelta(seconds=40)
    """Between SIGTERM and SIGKILL; Paddle's launcher needs 32 s to end its workers."""
    ship_interval: timedelta = timedelta(seconds=10)
    """How often changed output files are brought back while a job runs."""
    lost_after: timedelta = timedelta(seconds=90)
    """An agent not heard of for this long is lost, and its replicas with it."""
    pids_limit: int = 4096
    """Processes and threads of one replica, where the machine can enforce it."""
    log_limit: int = 1024 * MIB
    """Bytes of one replica's log; of a longer one the head and the tail are kept. 0: no limit."""


@dataclass(frozen=True, kw_only=True)
class Retention:
    finished_jobs: timedelta = timedelta(days=90)
    """Finished jobs, their logs and outputs are kept this long."""
    unused_files: timedelta = timedelta(days=7)
    """Submitted files that no job refers to are kept this long."""


@dataclass(frozen=True, kw_only=True)
class LocalPool:
    """The pool of local processes that the embedded server has."""

    cpu: float | None = None
    """None: as many as this machine has."""
    memory: int | None = None
    """Bytes that may be asked for; None: as many as this machine has."""
    gpu: int = 0
    """Cards that may be asked for; jobs are counted, but each still sees every card."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    home: Path
    name: str = "local"
    """Shown in bos_url; a team gives its server's host name."""
    time_zone: str = ""
    """Empty: this machine's zone. Times in query_job are in it."""
    http: Http = field(default_factory=Http)
    scheduling: Scheduling = field(default_factory=Scheduling)
    running: Running = field(default_factory=Running)
    retention: Retention = field(default_factory=Retention)
    local_pool: LocalPool = field(default_factory=LocalPool)

    @property
    def server_dir(self) -> Path:
        return self.home / "server"

    @property
    def agent_dir(self) -> Path:
        return self.home / "agent"

    @property
    def store_dir(self) -> Path:
        return self.home / "store"

    @property
    def zone(self) -> ZoneInfo | None:
        return ZoneInfo(self.time_zone) if self.time_zone else None


def read_settings(home: Path, path: Path | None = None) -> Settings:
    """The settings of `path`, or of `server.toml` in `home` if there is one."""
    chosen = path or home / "server.toml"
    if path is None and not chosen.exists():
        return Settings(home=home)
    try:
        raw = tomllib.loads(chosen.read_text("utf-8"))
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError("settings_unreadable", path=str(chosen), reason=reason) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError("settings_unreadable", path=str(chosen), reason=str(error)) from error
    return _merge(Settings(home=home), raw, chosen)


def _merge(settings: Settings, raw: Mapping[str, object], path: Path) -> Settings:
    changes: dict[str, object] = {}
    for key, value in raw.items():
        if key not in _TOP_KEYS:
            raise _unknown(key, list(_TOP_KEYS), path)
        current = getattr(settings, key)
        if not is_dataclass(current):
            changes[key] = _typed(key, _TOP_KEYS[key], value, path)
        elif isinstance(value, Mapping):
            changes[key] = _section(key, current, value, path)
        else:
            raise _wrong(key, value, f"a section: write [{key}] above its keys", path)
    merged = replace(settings, **changes)  # type: ignore[arg-type]
    _check(merged, path)
    return merged


def _check(settings: Settings, path: Path) -> None:
    """The rules about values that a type does not say."""
    if not _is_loopback(settings.http.host):
        want = "an address of this machine alone, such as 127.0.0.1 (there is no TLS here yet)"
        raise _wrong("http.host", settings.http.host, want, path)
    if settings.http.port > 65535:
        raise _wrong("http.port", settings.http.port, "a port, 0 to 65535", path)
    try:
        settings.zone  # noqa: B018 - reading it checks it
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        want = "a zone name such as Asia/Shanghai"
        raise _wrong("time_zone", settings.time_zone, want, path) from error


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.IPv4Address(host).is_loopback
    except ValueError:
        return False


def _section(name: str, current: object, raw: Mapping[str, object], path: Path) -> object:
    known = {item.name: str(item.type) for item in fields(current)}  # type: ignore[arg-type]
    changes: dict[str, object] = {}
    for key, value in raw.items():
        if key not in known:
            raise _unknown(f"{name}.{key}", [f"{name}.{item}" for item in known], path)
        changes[key] = _typed(f"{name}.{key}", known[key], value, path)
    return replace(current, **changes)  # type: ignore[type-var]


def _typed(key: str, kind: str, value: object, path: Path) -> object:
    """`value` as this kind of field: durations are given in seconds, sizes in bytes."""
    number = float(value) if isinstance(value, int | float) and value is not True else -1.0
    kind = kind.removesuffix(" | None")
    if kind == "str" and isinstance(value, str):
        return value
    if kind == "timedelta" and 0 < number <= _LONGEST:
        return timedelta(seconds=number)
    if kind == "float" and 0 <= number < math.inf:
        return number
    if kind == "int" and type(value) is int and 0 <= number <= _LARGEST:
        return value
    raise _wrong(key, value, _WANTED[kind], path)


_LONGEST = 100 * 366 * 86400.0
_LARGEST = 2**53
_WANTED = {
    "str": "a text in quotes",
    "timedelta": "a number of seconds above 0 and below 100 years",
    "float": "a number, 0 or more",
    "int": "a whole number, 0 or more",
}


def _wrong(key: str, value: object, want: str, path: Path) -> ConfigError:
    return ConfigError("settings_value", path=str(path), key=key, value=str(value), want=want)


def _unknown(key: str, known: list[str], path: Path) -> ConfigError:
    near = difflib.get_close_matches(key, known, n=1)
    return ConfigError(
        "settings_unknown", path=str(path), key=key, suggestion=near[0] if near else known[0]
    )


_TOP_KEYS = {item.name: str(item.type) for item in fields(Settings) if item.name != "home"}
