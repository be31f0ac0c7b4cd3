"""What the values of the settings have to obey beyond their types, alone and together.

Files are not opened here: whether a certificate is good or a database answers is asked at the start
of the server and by `server check`.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Callable, Iterator
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import parse_qs, urlsplit
from zoneinfo import ZoneInfoNotFoundError

from paddlecloud.model.errors import ConfigError
from paddlecloud.model.quantities import is_digits, parse_size
from paddlecloud.server.settings.values import Http, Mail, PoolSettings, Settings, Tokens

PRIORITIES = ("low", "normal", "high", "urgent")
MIN_KEY = 32
STORES = ("directory", "s3")
_DATABASES = ("postgresql", "postgres")

Problem = tuple[str, object, str]
"""The key, its value as it may be shown, and what is wanted."""


def check(settings: Settings, path: Path) -> None:
    """Raise the first rule that does not hold."""
    for rule in _RULES:
        for key, value, want in rule(settings):
            raise wrong(key, value, want, path)


def wrong(key: str, value: object, want: str, path: Path) -> ConfigError:
    return ConfigError("settings_value", path=str(path), key=key, value=str(value), want=want)


def is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_harmless(key: str, value: str) -> bool:
    """A database that is reached without a password has an address that anybody may read."""
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
        yield "http.host", http.host, "an address to listen on, such as 127.0.0.1, 0.0.0.0 or ::"
    if bool(http.tls_cert) != bool(http.tls_key):
        missing = "http.tls_key" if http.tls_cert else "http.tls_cert"
        yield missing, "(not set)", "the other half of the pair: tls_cert and tls_key go together"
    if not (is_loopback(http.host) or http.tls_cert or http.insecure):
        yield "http.host", http.host, _BEYOND
    if http.port > 65535:
        yield "http.port", http.port, "a port, 0 to 65535"
    if not http.max_connections:
        yield "http.max_connections", 0, "a whole number above 0"


_BEYOND = (
    "an address of this machine alone, which it has to be without TLS: set http.tls_cert and "
    "http.tls_key, or http.insecure = true on a network that you trust"
)


def _addresses(settings: Settings) -> Iterator[Problem]:
    http: Http = settings.http
    if http.public_url and not _is_url(http.public_url):
        yield "http.public_url", http.public_url, "an address such as https://cloud.example:8443"
    for host in http.allowed_hosts:
        if not _is_host(host):
            yield "http.allowed_hosts", host, "a host name without a port"


def _zone(settings: Settings) -> Iterator[Problem]:
    try:
        settings.zone  # noqa: B018 - reading it checks it
    except (ZoneInfoNotFoundError, ValueError, OSError):
        yield "time_zone", settings.time_zone, "a zone name such as Asia/Shanghai"


def _keys(settings: Settings) -> Iterator[Problem]:
    want = f"a secret of {MIN_KEY} characters or more, such as `openssl rand -hex 32` gives"
    if settings.key and len(settings.key) < MIN_KEY:
        yield "key", "(hidden)", want
    for index, key in enumerate(settings.old_keys):
        if len(key) < MIN_KEY:
            yield f"old_keys[{index}]", "(hidden)", want


def _database(settings: Settings) -> Iterator[Problem]:
    url = settings.database.url
    if url and not _is_database(url):
        yield "database.url", "(hidden)", "an address such as postgresql://user:password@host/name"
    if not settings.database.connections:
        yield "database.connections", 0, "a whole number above 0"
    if settings.replica.node and not _is_name(settings.replica.node):
        yield "replica.node", settings.replica.node, "a name of letters, digits, dots and dashes"


def _store(settings: Settings) -> Iterator[Problem]:
    store = settings.store
    if store.kind not in STORES:
        yield "store.kind", store.kind, f"one of {', '.join(STORES)}"
    if store.kind != "s3":
        return
    if not _is_url(store.endpoint):
        yield (
            "store.endpoint",
            store.endpoint or "(not set)",
            "an address such as https://s3.bj.bcebos.com",
        )
    for name in ("bucket", "access_key", "secret_key"):
        if not getattr(store, name):
            yield f"store.{name}", "(not set)", 'a value: store.kind = "s3" needs it'
    names = store.prefix.strip("/").split("/")
    if store.prefix and any(name in ("", ".", "..") for name in names):
        yield "store.prefix", store.prefix, "a directory such as paddlecloud/prod"


def _private_store(settings: Settings) -> Iterator[Problem]:
    door = settings.private_store.door
    if not _is_url(door.replace("{region}", "bj")):
        yield "private_store.door", door, "an address such as https://s3.{region}.bcebos.com"


def _mail(settings: Settings) -> Iterator[Problem]:
    mail: Mail = settings.mail
    if mail.security not in ("starttls", "tls", "none"):
        yield "mail.security", mail.security, "starttls, tls or none"
    if not 0 < mail.port <= 65535:
        yield "mail.port", mail.port, "a port, 1 to 65535"
    if mail.host and not _is_address(mail.sender or mail.user):
        yield "mail.sender", mail.sender, "a mail address, which a mail has to come from"
    if not 0 < settings.notifications.quota_percent <= 100:
        yield "notifications.quota_percent", settings.notifications.quota_percent, "1 to 100"


def _tokens(settings: Settings) -> Iterator[Problem]:
    tokens: Tokens = settings.tokens
    if tokens.again not in ("replace", "add"):
        yield "tokens.again", tokens.again, "replace or add"
    if tokens.lang not in ("zh", "en"):
        yield "tokens.lang", tokens.lang, "zh or en"
    for domain in tokens.domains:
        if "@" in domain or not _is_host(domain):
            yield "tokens.domains", domain, "a mail domain such as example.com"


def _plans(settings: Settings) -> Iterator[Problem]:
    names = ", ".join(settings.plans)
    if settings.default_plan not in settings.plans:
        yield "default_plan", settings.default_plan, f"one of the plans: {names}"
    for name, plan in settings.plans.items():
        if not _is_name(name):
            yield f"plans.{name}", name, "a name of letters, digits, dots and dashes"
        if plan.max_priority not in PRIORITIES:
            yield f"plans.{name}.max_priority", plan.max_priority, f"one of {', '.join(PRIORITIES)}"


def _pools(settings: Settings) -> Iterator[Problem]:
    counts = Counter(pool.name for pool in settings.pools)
    for index, pool in enumerate(settings.pools):
        key = f"pools[{index}]"
        if not _is_name(pool.name):
            yield f"{key}.name", pool.name, "a name of letters, digits, dots and dashes"
        if counts[pool.name] > 1:
            yield f"{key}.name", pool.name, "a name that only one pool has"
        if not _is_backend(pool.backend):
            yield f"{key}.backend", pool.backend, "a backend such as local"
        if not pool.job_types or not set(pool.job_types) <= {"cpu", "gpu"}:
            yield f"{key}.job_types", list(pool.job_types), 'a list of "cpu" and "gpu"'
        yield from _local_room(key, pool)
    local = [pool.name for pool in settings.pools if pool.backend == "local"]
    if len(local) > 1:
        shown = ", ".join(local)
        yield "pools", shown, "one pool of backend local: a machine gives its room only once"


def _local_room(key: str, pool: PoolSettings) -> Iterator[Problem]:
    """What a local pool says about its room, which its backend would only fail on."""
    known: dict[str, Callable[[str], object]] = {
        "cpu": _is_number,
        "memory": parse_size,
        "gpu": is_digits,
        "uid_base": is_digits,
    }
    for name, value in pool.settings.items() if pool.backend == "local" else ():
        if name not in known:
            yield f"{key}.settings", name, f"one of {', '.join(known)}"
        elif not known[name](value):
            yield f"{key}.settings.{name}", value, "a number above 0"


def _is_number(text: str) -> bool:
    whole, _, rest = text.partition(".")
    return is_digits(whole + rest)


def _is_backend(kind: str) -> bool:
    if not kind.isidentifier() or kind == "base":
        return False
    installed = entry_points(group="paddlecloud.backends", name=kind)
    return bool(installed) or find_spec(f"paddlecloud.backends.{kind}") is not None


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
    return (
        bool(text)
        and text.isascii()
        and text.replace("-", "").replace(".", "").replace("_", "").isalnum()
    )


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
