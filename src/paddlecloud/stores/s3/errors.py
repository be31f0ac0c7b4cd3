"""Maps error responses of a bucket to our errors, and detects servers that are no object store."""

from __future__ import annotations

import re
from collections.abc import Mapping
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
from paddlecloud.stores.s3.keys import path_of

TRIES = 5

PATIENT = 12
"""Tries for a part of a large file: half a minute, in which a server may have started again. By
then much has been sent that a failure would throw away."""

CLOCK = ("RequestTimeTooSkewed", "RequestExpired")

_AGAIN = (408, 425, 429, 500, 502, 503, 504)

_MISTAKE = 500
"""A server that starts again says something else, so this is not waited out: a full one says it."""

_BUSY = ("RequestTimeout", "SlowDown", "Throttling", "ThrottlingException", "RequestThrottled")
"""What some servers say with a status of 400 that is no refusal."""

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
"""Said with a status of 400 of a wrong region, a wrong name of a bucket, its settings, or parts
that somebody replaced: nothing of that is the fault of a file. Without a reason nobody knows."""

_TOO_LARGE = 413

_REFUSED = range(400, 500)


class Failure(NamedTuple):
    error: PaddleCloudError
    worth: int = 1
    """So many tries in all; one: it is final."""


def meaning(status: int, code: str, detail: str, key: str, place: str) -> Failure:
    """Of an answer about `key`, or about the bucket if that is empty."""
    said = f"{status} {code} {detail}".strip()[:300]
    if status == 507 or code in _FULL:
        return Failure(StorageFull("store_full", path=key))
    if code == "NoSuchBucket":
        return Failure(Refused("store_bucket_missing", place=place))
    if code in CLOCK:
        return Failure(Refused("store_clock", place=place, detail=said))
    if code in _KEYS or status in (401, 403):
        return Failure(Refused("store_denied", place=place, detail=said))
    if status == 404:
        return Failure(NotFound("file_missing", path=key))
    if status in (409, 412):
        return Failure(Conflict("store_changed", path=key), PATIENT if status == 409 else 1)
    if code in _DAMAGED:
        return Failure(Retry("store_damaged", path=key, place=place), PATIENT)
    failed = Retry("store_failed", place=place, detail=said)
    if status in _AGAIN or code in _BUSY:
        return Failure(failed, TRIES if status == _MISTAKE else PATIENT)
    if key and (status == _TOO_LARGE or (status in _REFUSED and code not in _OF_NO_FILE)):
        path = shown(path_of(key))
        return Failure(Refused("store_refused", place=place, path=path, detail=said))
    return Failure(failed)


def said_in(data: bytes) -> tuple[str, str]:
    """Code and words of an error; both empty when the server gave none."""
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


def lacks_tag(method: str, key: str, query: object, status: int, headers: Headers) -> bool:
    """Whether an answer of success is without what an object that is kept always has."""
    about_object = key and (method in ("PUT", "HEAD") or (method == "GET" and not query))
    return bool(about_object) and status in _WHOLE and not headers.get("etag")


def is_no_refusal(method: str, status: int, code: str, headers: Headers) -> bool:
    """Whether no object store would refuse like this; `code` is the one of its error, if any."""
    if code or any(name.startswith(_OURS) for name in headers):
        return False
    if status in _REFUSALS and headers.get("content-type", "").startswith("text/html"):
        return True
    # An answer to HEAD has no body, and nobody minds what is said to a DELETE of nothing.
    spoken = status == 404 and method not in ("HEAD", "DELETE")
    return spoken or status in _ELSEWHERE


def document(data: bytes, name: str) -> ElementTree.Element | None:
    """The document of this name, its names without their space; None when it is another."""
    top = parsed(data)
    return top if top is not None and top.tag == name else None


def parsed(data: bytes) -> ElementTree.Element | None:
    """A document of any name; None when it is no XML. The name of a file may hold what XML cannot:
    a server that writes it all the same is understood but for that."""
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


def stranger(place: str, status: int, headers: Headers, data: bytes = b"") -> Unreachable:
    """What to raise, with enough of the answer to know who gave it."""
    kind, where = headers.get("content-type", ""), headers.get("location", "")
    begin = data[:60].decode("utf-8", "replace") if kind.startswith("text/") or not kind else ""
    words = [str(status), kind, where and f"-> {where}", begin]
    came = "".join(letter if letter.isprintable() else " " for letter in " ".join(words))
    return Unreachable("store_stranger", place=place, came=" ".join(came.split())[:200])
