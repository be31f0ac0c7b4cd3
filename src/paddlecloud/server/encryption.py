"""Seals the secrets that have to be kept: what lies in the database opens nothing by itself.

Each secret is encrypted by AES-256-GCM under a key of its own, derived (HKDF) from the server's key
and a random salt, so that no nonce can ever come twice under one key. The context (whose, what for)
is bound to it: a sealed text copied to another row does not open there. Secrets that can be derived
are not kept at all (`auth.secret_of`). `cryptography` takes 30 ms and 10 MB when it is imported, so
only a server that seals something pays for it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Sequence

from paddlecloud.model.errors import Internal

_FORM = "v1"
_SALT = 16
_MARK = 8
_NONCE = b"\0" * 12
"""Every key seals one text, so the nonce may be fixed."""


def seal(key: bytes, plain: bytes, context: bytes) -> str:
    """`plain` as a text that only this key and this context open; another one each time."""
    from cryptography.hazmat.primitives.ciphers.aead import (  # noqa: PLC0415 - see the docstring
        AESGCM,
    )

    salt = secrets.token_bytes(_SALT)
    box = AESGCM(_derived(key, salt)).encrypt(_NONCE, plain, context)
    return ".".join((_FORM, _mark(key), base64.urlsafe_b64encode(salt + box).decode()))


def unseal(keys: Sequence[bytes], sealed: str, context: bytes) -> bytes:
    """What was sealed with one of `keys` (the server's, then earlier ones) in this context."""
    from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - see the docstring
    from cryptography.hazmat.primitives.ciphers.aead import (  # noqa: PLC0415 - see the docstring
        AESGCM,
    )

    form, _, rest = sealed.partition(".")
    mark, _, text = rest.partition(".")
    key = next((key for key in keys if _mark(key) == mark), None)
    if form != _FORM or key is None:
        raise Internal("vault_key_unknown")
    try:
        data = base64.urlsafe_b64decode(text)
        if base64.urlsafe_b64encode(data).decode() != text:
            raise ValueError("another spelling of the same bytes")
        return AESGCM(_derived(key, data[:_SALT])).decrypt(_NONCE, data[_SALT:], context)
    except (InvalidTag, binascii.Error, ValueError) as error:
        raise Internal("vault_damaged") from error


def _derived(key: bytes, salt: bytes) -> bytes:
    """HKDF-SHA256 (RFC 5869), one block."""
    extracted = hmac.new(salt, key, hashlib.sha256).digest()
    return hmac.new(extracted, b"paddlecloud vault\x01", hashlib.sha256).digest()


def _mark(key: bytes) -> str:
    """Identifies a key without revealing it."""
    return hmac.new(key, b"paddlecloud vault mark", hashlib.sha256).hexdigest()[:_MARK]
