"""Chooses checksum headers for uploads without TLS.

The digest in the signature is not enough, because not every server verifies it. All verify
Content-MD5, but MD5 takes more CPU than everything else in an upload; `x-amz-checksum-sha256` is
the digest that the signature needs anyway, and a server that verifies it repeats it in its
response. So the first parts have both headers, and later parts only the second once the server has
repeated it. No byte is stored unverified. May be used by many threads.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Mapping

_CHECKSUM = "x-amz-checksum-sha256"
_STRICT = ".bcebos.com"
"""The S3 endpoint of BOS documents the headers that it accepts; checksums are not among them."""
_NOT_THIS_FORM = (400, 501)

Headers = Mapping[str, str]


class ChecksumHeaders:
    def __init__(self, host: str, *, tls: bool) -> None:
        self._tls = tls
        self._repeats: bool | None = False if host.endswith(_STRICT) else None
        """Whether the server repeats the checksum; None: not known yet."""

    def headers(self, body: bytes | bytearray, digest: str, *, part: bool) -> dict[str, str]:
        """The headers for a body with this sha256. Only a `part`, which is not visible before the
        upload is complete, uses the SHA-256 header; other bodies are small enough for MD5."""
        if not body or self._tls:
            return {}
        asks = part and self._repeats is not False
        headers = {_CHECKSUM: _base64(bytes.fromhex(digest))} if asks else {}
        if not (asks and self._repeats):
            headers["content-md5"] = _base64(hashlib.md5(body, usedforsecurity=False).digest())
        return headers

    def is_checked(self, sent: Headers, received: Headers) -> bool:
        """Whether the server has verified the bytes; if not, they have to be sent again."""
        if _CHECKSUM not in sent:
            return True
        repeats = received.get(_CHECKSUM) == sent[_CHECKSUM]
        self._repeats = repeats and self._repeats is not False
        return repeats or "content-md5" in sent

    def is_at_fault(self, sent: Headers, status: int) -> bool:
        """Whether an error may be caused by the headers; then the next request has others."""
        if _CHECKSUM not in sent or status not in _NOT_THIS_FORM:
            return False
        self._repeats = False
        return True


def _base64(data: bytes) -> str:
    return b64encode(data).decode("ascii")
