"""Reads server.toml: every key typed and checked, secrets fetched from where they are kept.

The dataclasses of `values` define the keys and the kind of each; nothing here knows
a key by name but the two tables of tables, [plans.NAME] and [pools.NAME]. The keys of a pool depend
on its kind: they are those of the backend's settings. The value of a secret never gets into an
error.
"""

from __future__ import annotations

import difflib
import math
import stat
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from paddlecloud.backends.base import backend_type
from paddlecloud.model.errors import ConfigError
from paddlecloud.model.jobs.job import Reason
from paddlecloud.model.policy.quota import FREE, Plan
from paddlecloud.model.units import is_digits, parse_size
from paddlecloud.net.proxy import from_environment
from paddlecloud.server.settings import validate
from paddlecloud.server.settings.values import NOT_IN_THE_FILE, PoolSettings, Settings

Origins = dict[str, str]
"""Where each key that is not a default came from: the file's path, `env NAME`, `file PATH`."""


def read_settings(
    home: Path, path: Path | None = None, environ: Mapping[str, str] | None = None
) -> Settings:
    """The settings of `path`, or of `server.toml` in `home` if there is one.

    `environ` is where `{ env = "NAME" }` is looked up.
    """
    return read_with_origins(home, path, environ)[0]


def read_with_origins(
    home: Path,
    path: Path | None = None,
    environ: Mapping[str, str] | None = None,
    *,
    source: Path | None = None,
) -> tuple[Settings, Origins]:
    """The same, and where each key came from that is not a default. `source` has the text of a file
    that is yet to be written to `path`."""
    chosen = path or home / "server.toml"
    proxies, lang = from_environment(environ or {}), machine_language(environ or {})
    if path is None and not chosen.exists():
        return Settings(home=home, proxies=proxies, machine_lang=lang), {}
    reader = _Reader(path=chosen.absolute(), environ=environ or {})
    settings = reader.settings(home, _load(source or chosen))
    settings = replace(settings, proxies=proxies, machine_lang=lang)
    validate.check(settings, chosen)
    return settings, reader.origins


def machine_language(environ: Mapping[str, str]) -> str:
    """The language of who started the server, or of the machine: zh or en."""
    for name in ("PADDLECLOUD_LANG", "LC_ALL", "LC_MESSAGES", "LANG"):
        if environ.get(name):
            return "zh" if environ[name].strip().lower().startswith("zh") else "en"
    return "en"


def read_pool(name: str, options: Mapping[str, object]) -> PoolSettings:
    """A pool of the database: `options` are the keys that [pools.NAME] would have."""
    pool = _Reader(path=Path("database"), environ={}, stored=True).pool(
        f"pools.{name}", name, options
    )
    validate.check_pool(pool, Path("database"))
    return pool


def _load(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError("settings_unreadable", path=str(path), reason=reason) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError("settings_unreadable", path=str(path), reason=str(error)) from error


@dataclass(frozen=True, kw_only=True)
class _Reader:
    """One file being read."""

    path: Path
    environ: Mapping[str, str]
    stored: bool = False
    """Its values come from the database, secrets too."""
    origins: Origins = field(default_factory=dict)

    def settings(self, home: Path, raw: Mapping[str, object]) -> Settings:
        known = _kinds(Settings, leave_out=NOT_IN_THE_FILE)
        defaults = Settings(home=home)
        changes: dict[str, Any] = {}
        for key, value in raw.items():
            if key not in known:
                raise self.unknown(key, known)
            current = getattr(defaults, key)
            if key == "plans":
                changes[key] = self._plans(current, value)
            elif key == "pools":
                changes[key] = self._pools(value)
            elif is_dataclass(current):
                changes[key] = self._section(key, current, self._table(key, value))
            else:
                changes[key] = self._value(key, known[key], value)
        return Settings(home=home, **changes)

    def _table(self, key: str, value: object) -> Mapping[str, object]:
        if not isinstance(value, Mapping):
            raise self.wrong(key, value, validate.wanted("want_section", key=key))
        return value

    def _section(self, name: str, current: Any, raw: Mapping[str, object]) -> Any:
        known = _kinds(type(current))
        changes: dict[str, Any] = {}
        for key, value in raw.items():
            if key not in known:
                raise self.unknown(f"{name}.{key}", [f"{name}.{item}" for item in known])
            changes[key] = self._value(f"{name}.{key}", known[key], value)
        return replace(current, **changes)

    def _plans(self, plans: Mapping[str, Plan], value: object) -> Mapping[str, Plan]:
        """[plans.free] changes that plan; a new one begins with the limit of waiting jobs alone."""
        read = dict(plans)
        for name, raw in self._table("plans", value).items():
            key = f"plans.{name}"
            begin = plans.get(name, Plan(waiting_jobs=FREE.waiting_jobs))
            read[name] = self._section(key, begin, self._table(key, raw))
        return read

    def _pools(self, value: object) -> tuple[PoolSettings, ...]:
        """[pools.NAME] with the keys of its kind, or the earlier form: [[pools]] with name, backend
        and settings."""
        if not isinstance(value, list):
            tables = self._table("pools", value).items()
            return tuple(
                self.pool(f"pools.{name}", name, self._table(f"pools.{name}", raw))
                for name, raw in tables
            )
        return tuple(
            self._legacy_pool(f"pools[{index}]", self._table(f"pools[{index}]", raw))
            for index, raw in enumerate(value)
        )

    def pool(self, key: str, name: str, raw: Mapping[str, object]) -> PoolSettings:
        kind = self._value(f"{key}.kind", "str", raw.get("kind", PoolSettings.kind))
        backend = self._backend(f"{key}.kind", kind)
        common = _kinds(PoolSettings, leave_out=("name", "settings"))
        own = _kinds(backend.settings)
        values: dict[str, Any] = {}
        for item, value in raw.items():
            if item not in common and item not in own:
                known = [f"{key}.{each}" for each in (*common, *own)]
                raise self.unknown(f"{key}.{item}", known)
            values[item] = self._value(f"{key}.{item}", (common | own)[item], value)
        settings = backend.settings(**{item: values.pop(item) for item in own if item in values})
        return PoolSettings(name=name, settings=settings, **values)

    def _legacy_pool(self, key: str, raw: Mapping[str, object]) -> PoolSettings:
        left = dict(raw)
        name = str(self._value(f"{key}.name", "str", left.pop("name", "")))
        kind = str(self._value(f"{key}.backend", "str", left.pop("backend", PoolSettings.kind)))
        backend = self._backend(f"{key}.backend", kind)
        given = left.pop("settings", {})
        if not isinstance(given, Mapping):
            raise self.wrong(f"{key}.settings", given, validate.wanted("want_table"))
        section = self._section(
            f"{key}.settings",
            backend.settings(),
            {item: _unquoted(value) for item, value in given.items()},
        )
        pool: PoolSettings = self._section(key, PoolSettings(), left)
        for item in (*left, *given):
            self.origins[f"pools.{name}.{item}"] = str(self.path)
        return replace(pool, name=name, kind=kind, settings=section)

    def _backend(self, key: str, kind: object) -> Any:
        try:
            return backend_type(str(kind))
        except ConfigError as error:
            if error.code != "backend_unknown":
                raise
            raise self.wrong(key, kind, validate.wanted("want_backend")) from error

    def _value(self, key: str, kind: str, value: object) -> object:
        """`value` as this kind of field."""
        self.origins[key] = str(self.path)
        kind = kind.removesuffix(" | None")
        if kind == "Secret":
            return self._secret(key, value)
        if kind == "tuple[Secret, ...]" and isinstance(value, list):
            return tuple(self._secret(f"{key}[{i}]", item) for i, item in enumerate(value))
        if kind == "FilePath" and isinstance(value, str):
            return str(self.path.parent / value) if value else ""
        if key.startswith("plans.") and value == "unlimited":
            return None
        convert, want = _CONVERTERS[kind]
        converted = convert(value)
        if converted is None:
            raise self.wrong(key, value, validate.wanted(want))
        return converted

    def _secret(self, key: str, value: object) -> str:
        if isinstance(value, str):
            self._check_private(key, value)
            return value
        if isinstance(value, Mapping) and len(value) == 1:
            source, name = next(iter(value.items()))
            if source == "env" and isinstance(name, str):
                return self._from_environment(key, name)
            if source == "file" and isinstance(name, str):
                return self._from_file(key, self.path.parent / name)
        raise self.wrong(key, validate.HIDDEN, validate.wanted("want_secret"))

    def _check_private(self, key: str, value: str) -> None:
        """A secret in a file that others may read is one no more."""
        if self.stored:
            return
        mode = stat.S_IMODE(self.path.stat().st_mode)
        if value and mode & 0o077 and not validate.is_harmless(key, value):
            shown = f"{mode:04o}"
            raise ConfigError("settings_exposed", path=str(self.path), key=key, mode=shown)

    def _from_environment(self, key: str, name: str) -> str:
        self.origins[key] = f"env {name}"
        value = self.environ.get(name, "").strip()
        if not value:
            raise ConfigError("settings_no_variable", path=str(self.path), key=key, name=name)
        return value

    def _from_file(self, key: str, file: Path) -> str:
        self.origins[key] = f"file {file}"
        values = {"path": str(self.path), "key": key, "file": str(file)}
        try:
            value = file.read_text("utf-8").strip()
        except OSError as error:
            reason = error.strerror or str(error)
            raise ConfigError("settings_no_secret_file", **values, reason=reason) from error
        except UnicodeDecodeError as error:
            raise ConfigError("settings_file_no_text", **values) from error
        if not value:
            raise ConfigError("settings_file_empty", **values)
        return value

    def wrong(self, key: str, value: object, want: Reason) -> ConfigError:
        return validate.wrong(key, value, want, self.path)

    def unknown(self, key: str, known: Mapping[str, str] | list[str]) -> ConfigError:
        names = list(known)
        near = difflib.get_close_matches(key, names, n=1)
        return ConfigError(
            "settings_unknown",
            path=str(self.path),
            key=key,
            suggestion=near[0] if near else names[0],
        )


def _kinds(kind: type, leave_out: tuple[str, ...] = ()) -> dict[str, str]:
    """Field names and kinds of a section. Sizes of a plan are not marked as such in the model."""
    found = {
        item.name: item.type if isinstance(item.type, str) else item.type.__name__
        for item in fields(kind)
        if item.name not in leave_out
    }
    if kind is Plan:
        found |= {"memory": "Size | None", "storage": "Size | None"}
    return found


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _switch(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value < math.inf else None


def _whole(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 <= value <= _LARGEST else None


def _size(value: object) -> int | None:
    return _whole(parse_size(value) if isinstance(value, str) else value)


def _duration(value: object) -> timedelta | None:
    seconds = _number(_seconds(value) if isinstance(value, str) else value)
    return timedelta(seconds=seconds) if seconds and seconds <= _LONGEST else None


def _span(value: object) -> timedelta | None:
    nothing = _number(_seconds(value) if isinstance(value, str) else value) == 0
    return timedelta(0) if nothing else _duration(value)


def _seconds(text: str) -> int | None:
    number, unit = text.strip()[:-1], text.strip()[-1:]
    if not is_digits(number) or len(number) > 12 or unit not in _UNITS:
        return None
    return int(number) * _UNITS[unit]


def _texts(value: object) -> tuple[str, ...] | None:
    good = isinstance(value, list) and all(isinstance(item, str) and item for item in value)
    return tuple(value) if good and isinstance(value, list) else None


def _unquoted(value: object) -> object:
    """A number that was given as a text, which the earlier form of pools allowed."""
    if not isinstance(value, str) or not is_digits(value.replace(".", "", 1)):
        return value
    return float(value) if "." in value else int(value)


_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_LONGEST = 100 * 366 * 86400.0
_LARGEST = 2**53
_CONVERTERS: dict[str, tuple[Callable[[object], object], str]] = {
    "str": (_text, "want_text"),
    "FilePath": (_text, "want_path"),
    "bool": (_switch, "want_bool"),
    "timedelta": (_duration, "want_duration"),
    "Span": (_span, "want_span"),
    "float": (_number, "want_number"),
    "int": (_whole, "want_whole"),
    "Size": (_size, "want_size"),
    "tuple[str, ...]": (_texts, "want_texts"),
    "tuple[Secret, ...]": (_texts, "want_secrets"),
}
