"""Maps error responses of a bucket to our errors, and detects servers that are no object store."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple
from xml.etree import ElementTree

from paddlecloud.model.errors import (
    Conflict,
    NotFound,
    PaddleCloudError,
    Refused,
    Retry,
    StorageFull,
    Unreachable,
)
from paddlecloud.stores.directory.safe_open import shown
from paddlecloud.stores.s3._keys import path_of

TRIES = 5
"""Attempts at a request."""

OUTAGE_TRIES = 12
"""Attempts at a part of a large file, over half a minute, in which a server may restart."""

CLOCK = ("RequestTimeTooSkewed", "RequestExpired")

_AGAIN = (408, 425, 429, 500, 502, 503, 504)

_INTERNAL_ERROR = 500
"""Retried less than the others: a full server responds with it, a restarting one does not."""

_BUSY = ("RequestTimeout", "SlowDown", "Throttling", "ThrottlingException", "RequestThrottled")
"""Codes that some servers send with status 400 although they are no refusal."""

_DAMAGED = ("BadDigest", "XAmzContentSHA256Mismatch", "IncompleteBody", "InvalidDigest")

_KEYS = ("InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", "ExpiredToken")

_FULL = ("QuotaExceeded", "InsufficientStorage", "XMinioStorageFull", "InsufficientCapacity")

_OF_NO_FILE = (
    "",
    "InvalidRequest",
    "AuthorizationHeaderMalformed",
    "AuthorizationQueryParametersError",
    "InvalidBucketName",
    "TokenRefreshRequired",
    "InvalidPart",
)
"""Codes with status 400 that concern the region, the name or the settings of the bucket, or
replaced parts, and not the file; an empty code may be anything."""

_TOO_LARGE = 413

_REFUSED = range(400, 500)


class Failure(NamedTuple):
    error: PaddleCloudError
    worth: int = 1
    """Attempts in all; one: it is final."""


def failure_of(status: int, code: str, detail: str, key: str, place: str) -> Failure:
    """The error for a response about `key`, or about the bucket if that is empty."""
    summary = f"{status} {code} {detail}".strip()[:300]
    if status == 507 or code in _FULL:
        return Failure(StorageFull("store_full", path=key))
    if code == "NoSuchBucket":
        return Failure(Refused("store_bucket_missing", place=place))
    if code in CLOCK:
        return Failure(Refused("store_clock", place=place, detail=summary))
    if code in _KEYS or status in (401, 403):
        return Failure(Refused("store_denied", place=place, detail=summary))
    if status == 404:
        return Failure(NotFound("file_missing", path=key))
    if status in (409, 412):
        return Failure(Conflict("store_changed", path=key), OUTAGE_TRIES if status == 409 else 1)
    if code in _DAMAGED:
        return Failure(Retry("store_damaged", path=key, place=place), OUTAGE_TRIES)
    failed = Retry("store_failed", place=place, detail=summary)
    if status in _AGAIN or code in _BUSY:
        return Failure(failed, TRIES if status == _INTERNAL_ERROR else OUTAGE_TRIES)
    if key and (status == _TOO_LARGE or (status in _REFUSED and code not in _OF_NO_FILE)):
        path = shown(path_of(key))
        return Failure(Refused("store_refused", place=place, path=path, detail=summary))
    return Failure(failed)


def error_in(data: bytes) -> tuple[str, str]:
    """Code and message of an error document; both empty when there is none."""
    top = parsed(data)
    found = {} if top is None else {each.tag: (each.text or "").strip() for each in top.iter()}
    return found.get("Code", ""), found.get("Message", "")


Headers = Mapping[str, str]

_WHOLE = (200, 206)

_OURS = ("x-amz-", "x-bce-")

_ELSEWHERE = range(300, 400)

_REFUSALS = (400, 401, 403, 404, 405, 501)

_UNWRITABLE = re.compile(
    rb"[\0-\x08\x0b\x0c\x0e-\x1f]|\xef\xbf[\xbe\xbf]"
    rb"|&#(?:x0*(?:[0-8bcef]|1[0-9a-f]|fff[ef])|0*(?:[0-8]|1[124-9]|2[0-9]|3[01]));",
    re.IGNORECASE,
)
"""Characters that XML 1.0 does not have, as they are or by their number."""

_INSTEAD = "\ufffd".encode()


def lacks_etag(method: str, key: str, query: object, status: int, headers: Headers) -> bool:
    """Whether a successful response lacks the ETag that every stored object has."""
    about_object = key and (method in ("PUT", "HEAD") or (method == "GET" and not query))
    return bool(about_object) and status in _WHOLE and not headers.get("etag")


def is_foreign(method: str, status: int, code: str, headers: Headers) -> bool:
    """Whether no object store refuses like this; `code` is that of its error document, if any."""
    if code or any(name.startswith(_OURS) for name in headers):
        return False
    if status in _REFUSALS and headers.get("content-type", "").startswith("text/html"):
        return True
    # A response to HEAD has no body, and one to a DELETE of nothing does not matter.
    has_body = status == 404 and method not in ("HEAD", "DELETE")
    return has_body or status in _ELSEWHERE


def document(data: bytes, name: str) -> ElementTree.Element | None:
    """The document of this name, its names without their namespace; None when it is another, or has
    a number or a time that is none."""
    top = parsed(data)
    return top if top is not None and top.tag == name and _is_sound(top) else None


def _is_sound(top: ElementTree.Element) -> bool:
    """Whether callers may read the sizes, part numbers and times in a document."""
    try:
        for each in top.iter():
            text = each.text or ""
            if each.tag in ("PartNumber", "Size") and not 0 <= int(text or 0) < 1 << 63:
                return False
            if each.tag in _TIMES.values() and datetime.fromisoformat(text).tzinfo is None:
                return False
            if each.tag in _TIMES and each.find(_TIMES[each.tag]) is None:
                return False
    except ValueError:
        return False
    return True


_TIMES = {"Contents": "LastModified", "Upload": "Initiated"}
"""Elements, and the time that each of them has."""


def parsed(data: bytes) -> ElementTree.Element | None:
    """A document of any name; None when it is no XML. Characters that XML does not allow, but some
    servers write in file names, are replaced."""
    try:
        top = ElementTree.fromstring(data.strip())
    except ElementTree.ParseError:
        try:
            top = ElementTree.fromstring(_UNWRITABLE.sub(_INSTEAD, data.strip()))
        except ElementTree.ParseError:
            return None
    for element in top.iter():
        element.tag = element.tag.rpartition("}")[2]
    return top


def unexpected(place: str, status: int, headers: Headers, data: bytes = b"") -> Unreachable:
    """The error for a response that is not from an object store, with the beginning of it."""
    kind, where = headers.get("content-type", ""), headers.get("location", "")
    begin = data[:60].decode("utf-8", "replace") if kind.startswith("text/") or not kind else ""
    words = [str(status), kind, where and f"-> {where}", begin]
    came = "".join(letter if letter.isprintable() else " " for letter in " ".join(words))
    return Unreachable("store_stranger", place=place, came=" ".join(came.split())[:200])
