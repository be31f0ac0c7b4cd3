"""TLS certificate of the server: loads, checks and reloads it.

A certificate that does not match its key or has expired is refused at startup, with the reason,
instead of failing for every client.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from paddlecloud.model.errors import ConfigError
from paddlecloud.server.settings import Http

SOON = timedelta(days=14)
"""A certificate that expires within this time causes a warning."""


@dataclass(frozen=True, kw_only=True)
class Certificate:
    names: tuple[str, ...]
    begins: datetime
    ends: datetime

    def ends_soon(self, now: datetime) -> bool:
        return self.ends - now < SOON


def load_tls(http: Http, now: datetime) -> tuple[ssl.SSLContext, Certificate]:
    """A server context with this certificate, or ConfigError with the reason."""
    certificate = read_certificate(http.tls_cert)
    _check_time(http.tls_cert, certificate, now)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _load_chain(context, http)
    return context, certificate


def reload_tls(context: ssl.SSLContext, http: Http, now: datetime) -> Certificate:
    """Load the files again; if they are not usable, the previous certificate stays in use."""
    _, certificate = load_tls(http, now)
    _load_chain(context, http)
    return certificate


def read_certificate(path: str) -> Certificate:
    try:
        facts: dict[str, Any] = ssl._ssl._test_decode_cert(path)  # type: ignore[attr-defined]
    except (OSError, ValueError) as error:
        raise _unusable(path, error) from error
    names = [value for _, value in facts.get("subjectAltName", ())]
    return Certificate(
        names=tuple(names), begins=_time(facts["notBefore"]), ends=_time(facts["notAfter"])
    )


def _check_time(path: str, certificate: Certificate, now: datetime) -> None:
    if now < certificate.begins:
        raise ConfigError("tls_not_yet", path=path, begins=_shown(certificate.begins))
    if now >= certificate.ends:
        raise ConfigError("tls_expired", path=path, ends=_shown(certificate.ends))


def _load_chain(context: ssl.SSLContext, http: Http) -> None:
    def no_passphrase() -> str:
        raise ConfigError("tls_passphrase", path=http.tls_key)

    try:
        context.load_cert_chain(http.tls_cert, http.tls_key, no_passphrase)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise ConfigError("tls_mismatch", cert=http.tls_cert, key=http.tls_key) from error
        raise _unusable(http.tls_key, error) from error
    except OSError as error:
        raise _unusable(http.tls_key, error) from error


def _unusable(path: str, error: Exception) -> ConfigError:
    return ConfigError("tls_unusable", path=path, reason=_reason(path, error))


def _reason(path: str, error: Exception) -> str:
    """The reason in plainer terms than OpenSSL's."""
    if not Path(path).exists():
        return "there is no such file"
    if isinstance(error, ssl.SSLError):
        return "what it holds is not in PEM form, or of another kind"
    return getattr(error, "strerror", None) or str(error)


def _time(text: str) -> datetime:
    return datetime.fromtimestamp(ssl.cert_time_to_seconds(text), UTC)


def _shown(at: datetime) -> str:
    return at.strftime("%Y-%m-%d %H:%M UTC")
