"""AWS Signature Version 4, in headers or in a presigned URL.

Pure functions of their arguments. The digest of the body is part of the signature, so a server
rejects bytes that changed in transit, and chunked signatures, which the S3 endpoint of BOS does not
accept, are not needed. Only a presigned URL has no digest.
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
"""Maximum validity of a presigned URL."""

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
    """With its port if that is not the default."""

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
        """The query of a presigned URL for this request, valid for `good_for`."""
        stamp = f"{now:%Y%m%dT%H%M%SZ}"
        scope = self._scope(stamp)
        signed = [
            *query,
            ("X-Amz-Algorithm", "AWS4-HMAC-SHA256"),
            ("X-Amz-Credential", f"{self.keys.access_key}/{scope}"),
            ("X-Amz-Date", stamp),
            ("X-Amz-Expires", str(round(min(good_for, LONGEST).total_seconds()))),
            ("X-Amz-SignedHeaders", "host"),
        ]
        if self.keys.session_token:
            signed.append(("X-Amz-Security-Token", self.keys.session_token))
        text = query_text(signed)
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
    """The canonical request; `headers` have names in lower case."""
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
