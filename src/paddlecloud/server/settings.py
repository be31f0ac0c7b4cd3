"""Settings of the server: one dataclass per concern, read once in `main` and passed on.

`server.toml` is optional: the embedded server runs without it. Every key is checked, an unknown one
is refused with a suggestion, because a misspelt setting that is ignored is worse than none.
"""

from __future__ import annotations

import difflib
import ipaddress
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from paddlecloud.model.errors import ConfigError

MIB = 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class Http:
    """Where the server listens and what it takes in."""

    host: str = "127.0.0.1"
    port: int = 0
    """0: the port of last time if it is free, else any free one."""
    max_json: int = 32 * MIB
    """Bytes of a JSON body; the manifest of 100,000 files has about 15 MB."""
    signature_window: timedelta = timedelta(minutes=15)
    """How far a client's clock may be off; also how long a nonce must be remembered."""


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
    gpu: int = 0


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
        current = getattr(settings, key, None) if key in _TOP_KEYS else None
        if current is None:
            raise _unknown(key, _TOP_KEYS, path)
        if isinstance(value, Mapping):
            changes[key] = _section(key, current, value, path)
        else:
            changes[key] = _typed(key, current, value, path)
    merged = replace(settings, **changes)  # type: ignore[arg-type]
    if not _is_loopback(merged.http.host):
        raise ConfigError(
            "settings_value",
            path=str(path),
            key="http.host",
            value=merged.http.host,
            want="an address of this machine alone, such as 127.0.0.1 (there is no TLS here yet)",
        )
    try:
        merged.zone  # noqa: B018 - reading it checks it
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ConfigError(
            "settings_value",
            path=str(path),
            key="time_zone",
            value=merged.time_zone,
            want="a zone name such as Asia/Shanghai",
        ) from error
    return merged


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.IPv4Address(host).is_loopback
    except ValueError:
        return False


def _section(name: str, current: object, raw: Mapping[str, object], path: Path) -> object:
    known = [item.name for item in fields(current)]  # type: ignore[arg-type]
    changes: dict[str, object] = {}
    for key, value in raw.items():
        if key not in known:
            raise _unknown(f"{name}.{key}", [f"{name}.{item}" for item in known], path)
        changes[key] = _typed(f"{name}.{key}", getattr(current, key), value, path)
    return replace(current, **changes)  # type: ignore[type-var]


def _typed(key: str, current: object, value: object, path: Path) -> object:
    """`value` as the type of the default: durations are given in seconds, sizes in bytes."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if isinstance(current, timedelta) and number and value > 0:  # type: ignore[operator]
        return timedelta(seconds=value)  # type: ignore[arg-type]
    if isinstance(current, str) and isinstance(value, str):
        return value
    if isinstance(current, int | float | None) and number and value >= 0:  # type: ignore[operator]
        return value
    want = {
        timedelta: "a number of seconds above 0",
        str: "a text in quotes",
    }.get(type(current), "a number, 0 or more")
    raise ConfigError("settings_value", path=str(path), key=key, value=str(value), want=want)


def _unknown(key: str, known: list[str], path: Path) -> ConfigError:
    near = difflib.get_close_matches(key, known, n=1)
    return ConfigError(
        "settings_unknown", path=str(path), key=key, suggestion=near[0] if near else known[0]
    )


_TOP_KEYS = [item.name for item in fields(Settings) if item.name != "home"]
