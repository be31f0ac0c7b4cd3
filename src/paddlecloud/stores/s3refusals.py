"""What it means that an S3 server did not do what it was asked: in words of ours, and whether the
same request may do better the next time. Judges answers, asks for none.

What is said of a bucket, its keys or the moment is true of every file in it. Any other refusal is
one of this file: the next one may be taken.
"""

from __future__ import annotations

from typing import NamedTuple

from paddlecloud.model.errors import (
    Conflict,
    NotFound,
    PaddleCloudError,
    Refused,
    Retry,
    StorageFull,
)
from paddlecloud.stores.s3keys import path_of
from paddlecloud.stores.s3strangers import parsed
from paddlecloud.stores.tree import shown

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
