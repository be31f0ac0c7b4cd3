"""AWS Signature Version 4, as every S3-compatible server checks it: in headers, or in a URL.

Pure: values in, texts out. The digest of a body is always part of the signature, so a server
refuses bytes that changed on the way, and no server meets a chunked form that it does not know
(Baidu's S3 door takes none). Only a URL that is signed for somebody else leaves it out.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache
from urllib.parse import quote

EMPTY = hashlib.sha256(b"").hexdigest()
UNSIGNED = "UNSIGNED-PAYLOAD"
LONGEST = timedelta(days=7)
"""A URL cannot be good for longer."""

Query = Iterable[tuple[str, str]]


@dataclass(frozen=True, kw_only=True)
class Keys:
    access_key: str
    secret_key: str = field(repr=False)
    session_token: str = field(default="", repr=False)
    """Of temporary keys."""


@dataclass(frozen=True, kw_only=True)
class Signer:
    keys: Keys
    region: str
    host: str
    """With its port, where that is not the usual one."""

    def headers(
        self, method: str, path: str, query: Query, digest: str, now: datetime, more: Headers
    ) -> dict[str, str]:
        """All headers of a request with a body of this sha256; `path` is quoted already."""
        stamp = f"{now:%Y%m%dT%H%M%SZ}"
        signed = {"host": self.host, "x-amz-content-sha256": digest, "x-amz-date": stamp, **more}
        if self.keys.session_token:
            signed["x-amz-security-token"] = self.keys.session_token
        names = ";".join(sorted(signed))
        scope = self._scope(stamp)
        request = canonical(method, path, query_text(query), signed, digest)
        credential = f"{self.keys.access_key}/{scope}"
        signed["authorization"] = (
            f"AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders={names}, "
            f"Signature={self._signature(request, stamp, scope)}"
        )
        return signed

    def query(
        self, method: str, path: str, query: Query, good_for: timedelta, now: datetime
    ) -> str:
        """The query of a URL that lets anybody do this one thing until `good_for` is over."""
        stamp = f"{now:%Y%m%dT%H%M%SZ}"
        scope = self._scope(stamp)
        said = [
            *query,
            ("X-Amz-Algorithm", "AWS4-HMAC-SHA256"),
            ("X-Amz-Credential", f"{self.keys.access_key}/{scope}"),
            ("X-Amz-Date", stamp),
            ("X-Amz-Expires", str(round(min(good_for, LONGEST).total_seconds()))),
            ("X-Amz-SignedHeaders", "host"),
        ]
        if self.keys.session_token:
            said.append(("X-Amz-Security-Token", self.keys.session_token))
        text = query_text(said)
        request = canonical(method, path, text, {"host": self.host}, UNSIGNED)
        return f"{text}&X-Amz-Signature={self._signature(request, stamp, scope)}"

    def _scope(self, stamp: str) -> str:
        return f"{stamp[:8]}/{self.region}/s3/aws4_request"

    def _signature(self, request: str, stamp: str, scope: str) -> str:
        digest = hashlib.sha256(request.encode()).hexdigest()
        text = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{digest}"
        key = _day_key(self.keys.secret_key, stamp[:8], self.region)
        return hmac.digest(key, text.encode(), "sha256").hex()


Headers = Mapping[str, str]


def canonical(method: str, path: str, query: str, headers: Headers, digest: str) -> str:
    """The text that both sides sign; `headers` have names in small letters."""
    lines = "".join(f"{name}:{headers[name].strip()}\n" for name in sorted(headers))
    return f"{method}\n{path}\n{query}\n{lines}\n{';'.join(sorted(headers))}\n{digest}"


def query_text(query: Query) -> str:
    """The query as it is signed and sent: sorted, everything quoted."""
    return "&".join(sorted(f"{quote(k, safe='-_.~')}={quote(v, safe='-_.~')}" for k, v in query))


@lru_cache(maxsize=64)
def _day_key(secret: str, day: str, region: str) -> bytes:
    key = f"AWS4{secret}".encode()
    for part in (day, region, "s3", "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    return key
