"""How an S3 server is told which bytes it should have got, where no TLS guards them on their way.

The digest in the signature is not enough, for not every server compares it. Content-MD5 is compared
by all, but MD5 takes more CPU than everything else that an upload does; `x-amz-checksum-sha256` is
the digest that the signature has anyway, and a server that compares it repeats it in its answer. So
the first parts carry both, and parts carry the second alone once the server has shown that it
knows it. No byte is stored unchecked meanwhile. One guard may be used by many threads.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Mapping

_CHECKSUM = "x-amz-checksum-sha256"
_STRICT = ".bcebos.com"
"""Baidu's S3 door names the forms that it takes, and checksums are not among them."""
_NOT_THIS_FORM = (400, 501)

Headers = Mapping[str, str]


class Guard:
    def __init__(self, host: str, *, tls: bool) -> None:
        self._tls = tls
        self._repeats: bool | None = False if host.endswith(_STRICT) else None
        """Whether the server repeats the checksum; None: it was not asked yet."""

    def headers(self, body: bytes | bytearray, digest: str, *, part: bool) -> dict[str, str]:
        """What a request with this body of this sha256 has to say; `part`: nobody sees the bytes
        before they are joined. For anything else MD5 costs too little to be asked about."""
        if not body or self._tls:
            return {}
        asks = part and self._repeats is not False
        said = {_CHECKSUM: _base64(bytes.fromhex(digest))} if asks else {}
        if asks and self._repeats:
            return said
        return {**said, "content-md5": _base64(hashlib.md5(body, usedforsecurity=False).digest())}

    def is_checked(self, said: Headers, answered: Headers) -> bool:
        """Whether bytes that were taken have been compared; if not, they have to be sent again."""
        if _CHECKSUM not in said:
            return True
        repeats = answered.get(_CHECKSUM) == said[_CHECKSUM]
        self._repeats = repeats and self._repeats is not False
        return repeats or "content-md5" in said

    def is_at_fault(self, said: Headers, status: int) -> bool:
        """Whether a refusal may be for the form of the request; then the next one has another."""
        if _CHECKSUM not in said or status not in _NOT_THIS_FORM:
            return False
        self._repeats = False
        return True


def _base64(data: bytes) -> str:
    return b64encode(data).decode("ascii")
