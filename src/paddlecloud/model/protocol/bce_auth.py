"""Signs and verifies requests by bce-auth-v1, so that the secret key is never sent.

The same rules apply to our own server and to Baidu's clouds. Input is what is on the wire: the raw
path, the raw query string, the header bytes. A verifier of decoded values would accept two
different requests under one signature. Nonces, the hash of the body and the keys are the server's
business. Every command loads this module, so it imports neither dataclasses nor typing nor urllib.
"""

from __future__ import annotations

import hmac
from time import gmtime

from paddlecloud.model.errors import Unauthenticated

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

VERSION = "bce-auth-v1"
CONTENT_SHA256 = "x-bce-content-sha256"
CONTENT_CRC32 = "x-bce-content-crc32"
#: Replaces the digest of a body that is verified by the signed checksum of the part and the digest
#: of the whole file.
UNSIGNED = "UNSIGNED-PAYLOAD"
NONCE = "x-bce-nonce"
NONCE_DIGITS = 32
DEFAULT_EXPIRE = 1800
#: A nonce is kept as long as its signature is valid; presigned links need a week, and the limit
#: bounds the number of nonces.
MAX_EXPIRE = 7 * 24 * 3600
#: How far ahead a client's clock may be, in seconds.
MAX_AHEAD = 15 * 60


class Authorization:
    """The parts of one Authorization value; the signing key is made of `prefix`."""

    __slots__ = ("ak", "expire", "prefix", "signature", "signed_headers", "timestamp")

    def __init__(self, prefix: str, signed_headers: tuple[str, ...], signature: str) -> None:
        _, ak, timestamp, expire = prefix.split("/")
        self.prefix = prefix
        self.ak = ak
        self.timestamp = _epoch(timestamp)
        self.expire = int(expire)
        self.signed_headers = signed_headers
        self.signature = signature

    @property
    def expires_at(self) -> int:
        """The nonce of this request has to be kept until then (epoch seconds)."""
        return self.timestamp + self.expire


def sign(
    ak: str,
    sk: str,
    method: str,
    raw_path: str,
    query_string: str,
    headers: Mapping[str, str],
    timestamp: int,
    expire: int = DEFAULT_EXPIRE,
) -> str:
    """The Authorization value for a request whose headers are exactly `headers`.

    The signed headers are named, never left to a default: host, content-type, content-md5 and every
    x-bce-*. Content-Length is not signed: the hash of the body is stronger, and a proxy that
    forwards the body in chunks would break the signature.
    """
    prefix = f"{VERSION}/{ak}/{format_time(timestamp)}/{expire}"
    lower = {name.lower(): value for name, value in headers.items()}
    signed = (name for name in lower if name in _OURS or name.startswith("x-bce-"))
    names = sorted(name for name in signed if lower[name].strip(_BLANKS))
    head = _canonical_head(method, raw_path, query_string)
    signature = _signature(sk, prefix, head, _canonical_headers(names, lower))
    return f"{prefix}/{';'.join(names)}/{signature}"


def parse(authorization: str | None) -> Authorization:
    """The parts of an Authorization value; only its format is checked."""
    if not authorization:
        raise Unauthenticated("auth_missing")
    parts = authorization.split("/")
    if len(parts) != 6 or parts[0] != VERSION or len(authorization) > 4096:
        raise Unauthenticated("auth_malformed")
    _, ak, _, expire, listed, signature = parts
    if not (ak and authorization.isascii() and expire.isdigit() and len(expire) < 8):
        raise Unauthenticated("auth_malformed")
    if not 0 < int(expire) <= MAX_EXPIRE or len(signature) != 64 or signature.strip(_HEX_LOWER):
        raise Unauthenticated("auth_malformed")
    names = tuple(listed.lower().split(";")) if listed else ()
    return Authorization("/".join(parts[:4]), names, signature)


def verify(
    auth: Authorization,
    sk: str | None,
    method: str,
    raw_path: str,
    query_string: str,
    headers: Mapping[str, str],
    now: float,
    required_headers: Iterable[str] = (),
) -> None:
    """Raise unless the holder of `sk` signed this very request, and not too long ago.

    `headers` has lower-case names, each at most once (`header_map`). `sk` is None for an unknown
    key. Each of `required_headers` has to be present and covered by the signature.
    """
    if sk is None:
        raise Unauthenticated("auth_unknown_key", ak=auth.ak)
    if now > auth.expires_at:
        raise Unauthenticated("auth_expired", expire=auth.expire, **_two_clocks(auth, now))
    if auth.timestamp - now > MAX_AHEAD:
        raise Unauthenticated("auth_future", **_two_clocks(auth, now))
    covered = _matching_headers(auth, sk, _canonical_head(method, raw_path, query_string), headers)
    for name in required_headers:
        if name not in covered or not headers.get(name, "").strip(_BLANKS):
            raise Unauthenticated("auth_header_unsigned", header=name)


def check_body(headers: Mapping[str, str], sha256: str) -> None:
    """Raise unless the body that arrived, with this hex digest, is the one that was signed."""
    signed = headers.get(CONTENT_SHA256, "")
    if not hmac.compare_digest(signed.encode("utf-8", "surrogateescape"), sha256.encode()):
        raise Unauthenticated("auth_body_hash")


def check_nonce(nonce: str) -> None:
    """Raise unless this is a nonce in its only form: 32 lower-case hexadecimal digits."""
    if len(nonce) != NONCE_DIGITS or nonce.strip("0123456789abcdef"):
        shown = nonce[:64].encode("ascii", "backslashreplace").decode()
        raise Unauthenticated("auth_nonce", nonce=shown, digits=NONCE_DIGITS)


def header_map(pairs: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Header values by lower-case name, without the blanks around them, every other byte kept.

    Signatures ignore those blanks, so nothing behind the signature check may see them: the value
    that is used has to be the value that was signed. A signed header that comes twice is refused:
    signature and application might each read another.
    """
    found: dict[str, str] = {}
    for raw_name, raw_value in pairs:
        name = raw_name.decode("latin-1").lower()
        value = raw_value.decode("utf-8", "surrogateescape").strip(_BLANKS)
        if name not in found:
            found[name] = value
        elif name in _DEFAULT or name == "authorization" or name.startswith("x-bce-"):
            raise Unauthenticated("auth_malformed")
        else:
            found[name] += ", " + value
    return found


def quote(text: str, safe: str = "") -> str:
    """Percent-encode every UTF-8 byte but letters, digits, `-._~` and the text `safe`."""
    if safe:
        return safe.join(quote(part) for part in text.split(safe))
    if text.isascii() and text.replace("-", "").isalnum():
        return text
    return "".join(map(_QUOTED.__getitem__, text.encode("utf-8", "surrogateescape")))


def format_time(timestamp: int) -> str:
    """Epoch seconds as `YYYY-MM-DDThh:mm:ssZ`."""
    return "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z".format(*gmtime(timestamp))


_DEFAULT = frozenset(("host", "content-length", "content-type", "content-md5"))
_OURS = _DEFAULT - {"content-length"}
_SAFE = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~"
_QUOTED = [chr(byte) if byte in _SAFE else f"%{byte:02X}" for byte in range(256)]
_HEX_LOWER = "0123456789abcdef"
_HEX = frozenset(b"0123456789abcdefABCDEF")
#: What both ends trim from a header value; str.strip() would take Unicode blanks as well.
_BLANKS = " \t\r\n\x0b\x0c"


_KNOWN_TIMES: dict[str, int] = {}
"""A busy server reads the same second again and again."""


def _epoch(text: str) -> int:
    """The reverse of `format_time`; anything that it would not write is refused."""
    known = _KNOWN_TIMES.get(text)
    if known is not None:
        return known
    fields = (text[0:4], text[5:7], text[8:10], text[11:13], text[14:16], text[17:19])
    digits = "".join(fields)
    if len(text) != 20 or not (digits.isdigit() and digits.isascii()):
        raise Unauthenticated("auth_malformed")
    year, month, day, hour, minute, second = map(int, fields)
    # Days since 1970-01-01, counting years from March so that the leap day comes last.
    years = year - (month < 3)
    days = years * 365 + years // 4 - years // 100 + years // 400 - 719469
    days += (153 * ((month + 9) % 12) + 2) // 5 + day
    timestamp = ((days * 24 + hour) * 60 + minute) * 60 + second
    if format_time(timestamp) != text:
        raise Unauthenticated("auth_malformed")
    if len(_KNOWN_TIMES) >= 64:
        _KNOWN_TIMES.clear()
    _KNOWN_TIMES[text] = timestamp
    return timestamp


def _two_clocks(auth: Authorization, now: float) -> dict[str, object]:
    """What a person compares to see which clock is wrong."""
    seconds = round(abs(now - auth.timestamp))
    return {
        "timestamp": format_time(auth.timestamp),
        "now": format_time(int(now)),
        "seconds": seconds,
    }


def _matching_headers(
    auth: Authorization, sk: str, head: str, headers: Mapping[str, str]
) -> frozenset[str]:
    """The names that the signature covers, under the first reading in which it is right."""
    for names in _readings(auth.signed_headers, headers):
        want = _signature(sk, auth.prefix, head, _canonical_headers(names, headers))
        if hmac.compare_digest(want, auth.signature):
            return names
    raise Unauthenticated("auth_signature", ak=auth.ak)


def _readings(listed: tuple[str, ...], headers: Mapping[str, str]) -> Iterable[frozenset[str]]:
    """What the list of signed headers may mean: itself, or for the vendor's SDK x-bce-* as well.

    Both are safe, because each covers exactly the lines that went into the matching signature.
    """
    vendor = [name for name in headers if name.startswith("x-bce-")]
    if not listed:
        return (_DEFAULT.union(vendor),)
    strict = frozenset(listed)
    wide = strict.union(vendor)
    return (strict,) if wide == strict else (strict, wide)


def _signature(sk: str, prefix: str, head: str, header_lines: str) -> str:
    key = hmac.digest(sk.encode(), prefix.encode(), "sha256").hex()
    text = f"{head}\n{header_lines}"
    return hmac.digest(key.encode(), text.encode("utf-8", "surrogateescape"), "sha256").hex()


def _canonical_head(method: str, raw_path: str, query_string: str) -> str:
    query = _canonical_query(query_string) if query_string else ""
    return f"{method.upper()}\n{raw_path}\n{query}"


def _canonical_query(query_string: str) -> str:
    """Every pair, re-encoded and sorted; `+` is a space, as in the server's parser."""
    pairs = []
    for pair in query_string.split("&"):
        key, _, value = pair.partition("=")
        if pair and key != "authorization":
            pairs.append(f"{_requote(key)}={_requote(value)}")
    return "&".join(sorted(pairs))


def _canonical_headers(names: Iterable[str], headers: Mapping[str, str]) -> str:
    lines = []
    for name in names:
        value = headers.get(name, "").strip(_BLANKS)
        if value:
            lines.append(f"{quote(name)}:{quote(value)}")
    return "\n".join(sorted(lines))


def _requote(text: str) -> str:
    if "%" not in text and "+" not in text:
        return quote(text)
    return "".join(map(_QUOTED.__getitem__, _unquote(text)))


def _unquote(text: str) -> bytes:
    """The decoded bytes of a part of a query string; a stray `%` stands for itself."""
    first, *rest = text.encode("utf-8", "surrogateescape").replace(b"+", b" ").split(b"%")
    out = [first]
    for part in rest:
        pair = part[:2]
        if len(pair) == 2 and _HEX.issuperset(pair):
            out += (bytes.fromhex(pair.decode()), part[2:])
        else:
            out += (b"%", part)
    return b"".join(out)
