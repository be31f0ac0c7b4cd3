"""`server check`: every setting in effect and where it came from, and whether what it names works.

It starts nothing and changes nothing: the database is asked, not migrated, and a directory that is
missing is not made. Only a bucket cannot be asked whether it takes files: it is given an empty one,
which is deleted again. Secrets are shown as set or not set.
"""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import partial
from pathlib import Path

from paddlecloud.db.engine.sqlite import is_missing
from paddlecloud.messages import render
from paddlecloud.model import cgroup_limits
from paddlecloud.model.errors import ConfigError, PaddleCloudError, Refused, Retry
from paddlecloud.server.http import tls
from paddlecloud.server.http.origin_check import is_any_address
from paddlecloud.server.lost_database import DATABASE, has_traces
from paddlecloud.server.open_store import open_bucket
from paddlecloud.server.services.notifications import mail
from paddlecloud.server.settings import Origins, Settings, read_with_origins
from paddlecloud.server.settings.values import NOT_IN_THE_FILE
from paddlecloud.stores.deadline import prompt_if

CONNECT_SECONDS = 5
SET, NOT_SET, DEFAULT, FILE = "set", "not set", "default", "file"


class Level(StrEnum):
    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """The result of one check; its message is stored by code."""

    subject: str
    level: Level
    code: str
    params: Mapping[str, object]


@dataclass(frozen=True, kw_only=True)
class Row:
    key: str
    value: str
    origin: str
    secret: bool


def main(
    home: Path, path: Path | None, environ: Mapping[str, str], *, as_json: bool, lang: str
) -> int:
    """Print what was found; 0 if the server could start with it."""
    rows: list[Row] = []
    try:
        settings, origins = read_with_origins(home, path, environ)
    except ConfigError as error:
        findings = [_failed("settings", error)]
    else:
        rows = list(setting_rows(settings, origins))
        findings = list(check(settings, origins, datetime.now(UTC)))
    ok = all(finding.level is not Level.FAILED for finding in findings)
    text = _as_json(ok, rows, findings, lang) if as_json else _as_lines(rows, findings, lang)
    sys.stdout.write(text)
    return 0 if ok else 1


def setting_rows(settings: Settings, origins: Origins) -> Iterator[Row]:
    """Every setting in effect, by its key in the file."""
    for key, kind, value in _leaves("", settings):
        secret = "Secret" in kind
        shown = (SET if value else NOT_SET) if secret else _shown(value)
        yield Row(key=key, value=shown, origin=_origin(key, origins), secret=secret)


def check(settings: Settings, origins: Origins, now: datetime) -> Iterator[Finding]:
    """Check everything that the settings name."""
    source = next((origin for origin in origins.values() if not _is_elsewhere(origin)), "")
    code = "check_file" if source else "check_no_file"
    yield _ok("settings", code, path=source or str(settings.home / "server.toml"))
    yield from _listening(settings, now)
    yield from _names(settings)
    yield from _time_zone(settings, now)
    yield from _key(settings)
    yield from _exposed(settings, origins)
    yield from _database(settings)
    yield from _store(settings)
    yield from _private_store(settings)
    yield from _mail(settings)
    # A team's jobs could take all memory of the machine where nothing limits them.
    if settings.team and settings.replica.agent and not can_limit_memory():
        yield _warning("memory", "check_no_memory_limit")


def can_limit_memory(proc: Path = Path("/proc/self")) -> bool:
    """Whether an agent that is started from here could limit the memory of jobs."""
    try:
        mounts = cgroup_limits.parse_mounts((proc / "mountinfo").read_text())
        own = cgroup_limits.parse_membership((proc / "cgroup").read_text())
    except OSError:
        return False
    places = {
        name: Path(cgroup_limits.place(mounts[name], own[name])) for name in mounts if name in own
    }
    if "memory" in places:
        return os.access(places["memory"], os.W_OK)
    with suppress(KeyError, OSError):
        known = (places[""] / "cgroup.controllers").read_text().split()
        return "memory" in known and os.access(places[""], os.W_OK)
    return False


def _listening(settings: Settings, now: datetime) -> Iterator[Finding]:
    http, port = settings.http, settings.port or "*"
    if not settings.tls:
        say, code = (_warning, "check_insecure") if http.insecure else (_ok, "check_plain")
        yield say("http", code, host=http.host, port=port)
        return
    try:
        _, certificate = tls.load_tls(http, now)
    except PaddleCloudError as error:
        yield _failed("http", error)
        return
    say = _warning if certificate.ends_soon(now) else _ok
    yield say(
        "http",
        "check_certificate",
        path=http.tls_cert,
        names=", ".join(certificate.names) or "-",
        ends=f"{certificate.ends:%Y-%m-%d}",
        days=(certificate.ends - now).days,
    )


def _names(settings: Settings) -> Iterator[Finding]:
    """A server without a configured name rejects requests that use one."""
    http = settings.http
    if is_any_address(http.host) and not (http.public_url or http.allowed_hosts):
        yield _warning("names", "check_no_name")
    if settings.tls and http.public_url.startswith("http://"):
        yield _warning("names", "check_plain_url", url=http.public_url)


def _time_zone(settings: Settings, now: datetime) -> Iterator[Finding]:
    """The zone in which times are shown and days end, which machines may see differently."""
    zone = settings.zone_name(now)
    if settings.time_zone:
        yield _ok("time zone", "check_zone", zone=zone)
    elif settings.database.url:
        yield _warning("time zone", "check_zone_shared", zone=zone)
    elif settings.team:
        yield _ok("time zone", "check_zone_machine", zone=zone)


def _key(settings: Settings) -> Iterator[Finding]:
    path = settings.server_dir / "server.key"
    if settings.key:
        yield _ok("key", "check_key_set")
    elif settings.database.url:
        yield _warning("key", "check_key_own", path=str(path))
    else:
        yield _ok("key", "check_key_file", path=str(path))


def _exposed(settings: Settings, origins: Origins) -> Iterator[Finding]:
    """Files of secrets that others may read; in a container that can be right, so it only warns."""
    named = {"http.tls_key": settings.http.tls_key}
    named |= {key: o.removeprefix("file ") for key, o in origins.items() if o.startswith("file ")}
    for key, path in named.items():
        mode = stat.S_IMODE(Path(path).stat().st_mode) if path and Path(path).exists() else 0
        if mode & 0o077:
            yield _warning(key, "check_exposed", path=path, key=key, mode=f"{mode:04o}")


def _database(settings: Settings) -> Iterator[Finding]:
    url = settings.database.url
    traces = has_traces(settings)
    if not url:
        place = settings.server_dir / DATABASE
        if traces and is_missing(place):
            yield _failed("database", ConfigError("database_lost", database=str(place)))
        else:
            yield _directory("database", settings.server_dir)
        return
    ask = partial(_ask_postgres, url, must_exist=traces)
    yield _tried("database", "check_database_failed", settings, ask)


def _ask_postgres(url: str, *, must_exist: bool) -> Finding:
    try:
        import psycopg  # noqa: PLC0415 - only a server on PostgreSQL needs it
    except ImportError as error:
        raise ConfigError("database_driver_missing", detail=str(error)) from error
    try:
        with psycopg.connect(url, connect_timeout=CONNECT_SECONDS) as connection:
            version = str(connection.info.server_version // 10_000)
            ledger = connection.execute("select to_regclass('public.schema_migrations')").fetchone()
    except psycopg.Error as error:
        raise OSError(str(error)) from error
    if must_exist and ledger == (None,):
        raise ConfigError("database_lost", database="database.url")
    return _ok("database", "check_postgres", version=version)


def _store(settings: Settings) -> Iterator[Finding]:
    yield _directory("store", settings.store_dir)
    if settings.store.kind != "directory":
        yield _tried("store", "check_store_failed", settings, lambda: _ask_bucket(settings))


def _ask_bucket(settings: Settings) -> Finding:
    store = open_bucket(settings)
    try:
        store.try_keys()
    finally:
        store.close()
    return _ok("store", "check_bucket", place=store.place)


def _private_store(settings: Settings) -> Iterator[Finding]:
    """The endpoint of users' buckets, if it does not depend on the region. Without their keys the
    only check is whether an object store responds there; a failure is a warning, because all other
    jobs run without it."""
    endpoint = settings.private_store.door
    if not settings.private_store.enabled or "{region}" in endpoint:
        return
    from paddlecloud.stores import user_bucket  # noqa: PLC0415 - 20 ms of http and xml
    from paddlecloud.stores.s3.sigv4 import Keys  # noqa: PLC0415 - as above

    place = user_bucket.parse_bos_url("paddlecloud-check.bj.bcebos.com")
    keys = Keys(access_key="none", secret_key="none")
    store = user_bucket.open_user_bucket(place, keys, endpoint=endpoint, proxies=settings.proxies)
    try:
        # An object store rejects this bucket and these keys, which do not exist.
        with prompt_if(True), suppress(Refused):
            store.probe()
    except Retry as error:
        yield _warning("private_store", error.code, **error.params)
    else:
        yield _ok("private_store", "check_door", door=endpoint)
    finally:
        store.close()


def _directory(subject: str, path: Path) -> Finding:
    """Whether files can be made there, without making any."""
    existing = next(parent for parent in (path, *path.parents) if parent.exists())
    if existing.is_dir() and os.access(existing, os.W_OK | os.X_OK):
        return _ok(subject, "check_directory", path=str(path))
    return _failed(subject, ConfigError("check_not_writable", path=str(existing)))


def _mail(settings: Settings) -> Iterator[Finding]:
    if not settings.mail.host:
        if settings.team:
            yield _warning("mail", "check_no_mail")
        return
    limit = timedelta(seconds=CONNECT_SECONDS)
    bounded = replace(settings.mail, timeout=min(settings.mail.timeout, limit))
    try:
        mail.probe(bounded)
    except PaddleCloudError as error:
        yield _failed("mail", error)
    else:
        yield _ok("mail", "check_mail", host=bounded.host, port=bounded.port)


def _tried(subject: str, code: str, settings: Settings, ask: Callable[[], Finding]) -> Finding:
    """The finding of `ask`; the text of a failure is shown without our secrets."""
    try:
        return ask()
    except PaddleCloudError as error:
        return _failed(subject, error)
    except OSError as error:
        reason = " ".join(str(error).split())[:300]
        for key, kind, value in _leaves("", settings):
            if "Secret" in kind and isinstance(value, str) and value:
                reason = reason.replace(value, f"({key})")
        return Finding(subject=subject, level=Level.FAILED, code=code, params={"reason": reason})


def _leaves(prefix: str, value: object) -> Iterator[tuple[str, str, object]]:
    """Key, kind and value of everything that can be written into the file."""
    for item in fields(value) if is_dataclass(value) else ():
        key, inner = f"{prefix}{item.name}", getattr(value, item.name)
        if key in NOT_IN_THE_FILE:
            continue
        if key == "plans":
            for name, plan in inner.items():
                yield from _leaves(f"plans.{name}.", plan)
        elif key == "pools":
            for pool in inner:
                start = f"pools.{pool.name}."
                common = _leaves(start, replace(pool, settings=None))
                hidden = (f"{start}name", f"{start}settings")
                yield from (row for row in common if row[0] not in hidden)
                yield from _leaves(start, pool.settings)
        elif is_dataclass(inner):
            yield from _leaves(f"{key}.", inner)
        else:
            yield key, str(item.type), inner


def _shown(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, timedelta):
        return f"{value.total_seconds():.15g} s"
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "-"
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={item}" for name, item in value.items()) or "-"
    return str(value) if value != "" else "-"


def _origin(key: str, origins: Origins) -> str:
    found = origins.get(key, "")
    if not found:
        return DEFAULT
    return found if _is_elsewhere(found) else FILE


def _is_elsewhere(origin: str) -> bool:
    return origin.startswith(("env ", "file "))


def _ok(subject: str, code: str, **params: object) -> Finding:
    return Finding(subject=subject, level=Level.OK, code=code, params=params)


def _warning(subject: str, code: str, **params: object) -> Finding:
    return Finding(subject=subject, level=Level.WARNING, code=code, params=params)


def _failed(subject: str, error: PaddleCloudError) -> Finding:
    return Finding(subject=subject, level=Level.FAILED, code=error.code, params=error.params)


def _as_lines(rows: list[Row], findings: list[Finding], lang: str) -> str:
    lines = []
    for row in rows:
        value = _word(row.value, lang) if row.secret else row.value
        lines.append(f"{row.key} = {value}  ({_word(row.origin, lang)})")
    lines += [
        f"{_word(finding.level, lang):8}{finding.subject}: "
        f"{render(finding.code, finding.params, lang)}"
        for finding in findings
    ]
    return "".join(f"{line}\n" for line in lines)


def _word(word: str, lang: str) -> str:
    """For a person; a program gets the words as they are."""
    code = _WORDS.get(word)
    return render(code, {}, lang) if code else word


_WORDS = {
    SET: "word_set",
    NOT_SET: "word_not_set",
    DEFAULT: "word_default",
    FILE: "word_file",
    Level.OK: "word_ok",
    Level.WARNING: "word_warning",
    Level.FAILED: "word_failed",
}


def _as_json(ok: bool, rows: list[Row], findings: list[Finding], lang: str) -> str:
    found = {
        "ok": ok,
        "settings": [{"key": row.key, "value": row.value, "origin": row.origin} for row in rows],
        "checks": [
            {
                "subject": finding.subject,
                "level": finding.level.value,
                "code": finding.code,
                "message": render(finding.code, finding.params, lang),
            }
            for finding in findings
        ],
    }
    return json.dumps(found, ensure_ascii=False) + "\n"
