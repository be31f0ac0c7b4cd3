"""What the values of the settings have to obey beyond their types, alone and together.

Files are not opened here: whether a certificate is good or a database answers is asked at the start
of the server and by `server check`.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit
from zoneinfo import ZoneInfoNotFoundError, available_timezones

from paddlecloud.messages import LANGUAGES
from paddlecloud.model.diagnosis.reasons import caused
from paddlecloud.model.errors import ConfigError
from paddlecloud.model.jobs.job import Reason
from paddlecloud.server.settings.values import PoolSettings, Settings

PRIORITIES = ("low", "normal", "high", "urgent")
MIN_KEY = 32
STORES = ("directory", "s3")
SECURITY = ("starttls", "tls", "none")
_OF_BUCKETS = ("endpoint", "bucket", "access_key", "secret_key", "prefix")
"""Of the section [store]: what a directory has no use for."""
_DATABASES = ("postgresql", "postgres")

HIDDEN, MISSING = object(), object()
"""Stand for the value of a secret and for one that is not set."""

Problem = tuple[str, object, Reason]
"""The key, its value as it may be shown, and what is wanted."""


def check(settings: Settings, path: Path) -> None:
    """Raise the first rule that does not hold."""
    for rule in _RULES:
        for key, value, want in rule(settings):
            raise wrong(key, value, want, path)


def wrong(key: str, value: object, want: Reason, path: Path) -> ConfigError:
    values = {"path": str(path), "key": key}
    if value is HIDDEN:
        whole = caused("settings_value_hidden", want.code, want.params, **values)
    elif value is MISSING:
        whole = caused("settings_value_missing", want.code, want.params, **values)
    else:
        whole = caused("settings_value", want.code, want.params, **values, value=str(value))
    return ConfigError(whole.code, **whole.params)


def wanted(code: str, **params: str | int) -> Reason:
    """What a value has to be, in words of both languages (`messages/_settings.py`)."""
    return Reason(code=code, params=params)


def is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_harmless(key: str, value: str) -> bool:
    """A database that is reached without a password has an address that is no secret."""
    if key != "database.url":
        return False
    try:
        parts = urlsplit(value)
        return parts.password is None and "password" not in parse_qs(parts.query)
    except ValueError:
        return False


def _listening(settings: Settings) -> Iterator[Problem]:
    http = settings.http
    if not _is_host(http.host):
        yield "http.host", http.host, wanted("want_listening")
    if bool(http.tls_cert) != bool(http.tls_key):
        missing = "http.tls_key" if http.tls_cert else "http.tls_cert"
        yield missing, MISSING, wanted("want_pair")
    if not (is_loopback(http.host) or http.tls_cert or http.insecure):
        yield "http.host", http.host, wanted("want_loopback")
    if http.port > 65535:
        yield "http.port", http.port, wanted("want_port", least=0, most=65535)
    if not http.max_connections:
        yield "http.max_connections", 0, wanted("want_whole_positive")


def _addresses(settings: Settings) -> Iterator[Problem]:
    http = settings.http
    if http.public_url and not _is_url(http.public_url):
        yield "http.public_url", http.public_url, _address("https://cloud.example:8443")
    for host in http.allowed_hosts:
        if not _is_host(host):
            yield "http.allowed_hosts", host, wanted("want_host")


def _zone(settings: Settings) -> Iterator[Problem]:
    try:
        settings.zone  # noqa: B018 - reading it checks it
    except (ZoneInfoNotFoundError, ValueError, OSError):
        has_data = bool(available_timezones())
        code = "want_zone" if has_data else "want_zone_data"
        yield "time_zone", settings.time_zone, wanted(code)


def _keys(settings: Settings) -> Iterator[Problem]:
    want = wanted("want_key", length=MIN_KEY)
    if settings.key and len(settings.key) < MIN_KEY:
        yield "key", HIDDEN, want
    for index, key in enumerate(settings.old_keys):
        if len(key) < MIN_KEY:
            yield f"old_keys[{index}]", HIDDEN, want


def _database(settings: Settings) -> Iterator[Problem]:
    url = settings.database.url
    if url and not _is_database(url):
        yield "database.url", HIDDEN, _address("postgresql://user:password@host/name")
    if not settings.database.connections:
        yield "database.connections", 0, wanted("want_whole_positive")
    if settings.replica.node and not _is_name(settings.replica.node):
        yield "replica.node", settings.replica.node, wanted("want_name")


def _store(settings: Settings) -> Iterator[Problem]:
    store = settings.store
    if store.kind not in STORES:
        yield "store.kind", store.kind, _one_of(STORES)
    if store.kind != "s3":
        # A bucket is named by mistake or `kind` is missing: the files would be in another place.
        for name in _OF_BUCKETS:
            if getattr(store, name):
                yield "store.kind", store.kind, wanted("want_kind_s3", given=f"store.{name}")
        return
    if not _is_url(store.endpoint):
        yield "store.endpoint", store.endpoint or MISSING, _address("https://s3.bj.bcebos.com")
    for name in ("bucket", "access_key", "secret_key"):
        if not getattr(store, name):
            yield f"store.{name}", MISSING, wanted("want_bucket_part")
    names = store.prefix.strip("/").split("/")
    if store.prefix and any(name in ("", ".", "..") for name in names):
        yield "store.prefix", store.prefix, wanted("want_directory", example="paddlecloud/prod")


def _private_store(settings: Settings) -> Iterator[Problem]:
    endpoint = settings.private_store.door
    address = endpoint.replace("{region}", "bj")
    if not _is_url(address) or set(address) & set("{}"):
        yield "private_store.door", endpoint, _address("https://s3.{region}.bcebos.com")


def _mail(settings: Settings) -> Iterator[Problem]:
    mail = settings.mail
    if mail.security not in SECURITY:
        yield "mail.security", mail.security, _one_of(SECURITY)
    if not 0 < mail.port <= 65535:
        yield "mail.port", mail.port, wanted("want_port", least=1, most=65535)
    if mail.host and not _is_address(mail.sender or mail.user):
        yield "mail.sender", mail.sender, wanted("want_mail_address")
    if not 0 < settings.notifications.quota_percent <= 100:
        shown = settings.notifications.quota_percent
        yield "notifications.quota_percent", shown, wanted("want_range", least=1, most=100)


def _tokens(settings: Settings) -> Iterator[Problem]:
    tokens = settings.tokens
    if tokens.again not in ("replace", "add"):
        yield "tokens.again", tokens.again, _one_of(("replace", "add"))
    if tokens.lang and tokens.lang not in LANGUAGES:
        yield "tokens.lang", tokens.lang, _one_of(LANGUAGES)
    for domain in tokens.domains:
        if "@" in domain or not _is_host(domain):
            yield "tokens.domains", domain, wanted("want_mail_domain")


def _plans(settings: Settings) -> Iterator[Problem]:
    names = ", ".join(settings.plans)
    if settings.default_plan not in settings.plans:
        yield "default_plan", settings.default_plan, wanted("want_plan", known=names)
    for name, plan in settings.plans.items():
        if not _is_name(name):
            yield f"plans.{name}", name, wanted("want_name")
        if plan.max_priority not in PRIORITIES:
            yield f"plans.{name}.max_priority", plan.max_priority, _one_of(PRIORITIES)


def check_pool(pool: PoolSettings, path: Path) -> None:
    """Raise the first rule that does not hold for this pool alone."""
    for key, value, want in _pool(pool):
        raise wrong(key, value, want, path)


def _pools(settings: Settings) -> Iterator[Problem]:
    counts = Counter(pool.name for pool in settings.pools)
    for pool in settings.pools:
        if counts[pool.name] > 1:
            yield f"pools.{pool.name}", pool.name, wanted("want_name_once")
        yield from _pool(pool)
    local = [pool.name for pool in settings.pools if pool.kind == "local"]
    if len(local) > 1:
        yield "pools", ", ".join(local), wanted("want_local_once")


def _pool(pool: PoolSettings) -> Iterator[Problem]:
    key = f"pools.{pool.name}"
    if not _is_name(pool.name):
        yield key, pool.name, wanted("want_name")
    if not pool.job_types or not set(pool.job_types) <= {"cpu", "gpu"}:
        yield f"{key}.job_types", list(pool.job_types), wanted("want_job_types")
    for name in ("cpu", "memory"):
        if getattr(pool.settings, name, None) == 0:
            yield f"{key}.{name}", 0, wanted("want_positive")


def _one_of(known: Iterable[str]) -> Reason:
    return wanted("want_one_of", known=", ".join(known))


def _address(example: str) -> Reason:
    return wanted("want_address", example=example)


def _is_host(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return bool(text) and text.isprintable() and not set(text) & set(" /:@[]?#\\")
    return True


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        good = parts.scheme in ("http", "https") and parts.port != 0
    except ValueError:
        return False
    extra = parts.path.strip("/") or parts.query or parts.fragment or parts.username
    return good and bool(parts.hostname) and not extra


def _is_database(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in _DATABASES and parts.port != 0
    except ValueError:
        return False


def _is_address(text: str) -> bool:
    name, at, domain = text.rpartition("@")
    return bool(name and at and _is_host(domain)) and text.isprintable() and " " not in text


def _is_name(text: str) -> bool:
    plain = text.replace("-", "").replace(".", "").replace("_", "")
    return text.isascii() and plain.isalnum()


_RULES = (
    _listening,
    _addresses,
    _zone,
    _keys,
    _database,
    _store,
    _private_store,
    _mail,
    _tokens,
    _plans,
    _pools,
)
