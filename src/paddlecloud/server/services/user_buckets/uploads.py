"""Large files of a submit on their way into a bucket of its owner, in parts.

The bytes go from the client to the bucket; here uploads are begun, their parts get addresses, and
they are joined. The bucket alone remembers the parts of an upload: a client that was killed finds
it again by the file's name, and if none comes it is dropped (`private_leftovers`). Two clients may
send the same file at once, so a join names what it joins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from paddlecloud.model.errors import Invalid, NotFound, PaddleCloudError, Retry, Unreachable
from paddlecloud.model.files.etag import cuts, joined_tag
from paddlecloud.server.deps import Deps
from paddlecloud.server.schemas.transfer import (
    PrivateJoinRequest,
    PrivatePartsRequest,
    PrivateUpload,
    PrivateUploadRequest,
)
from paddlecloud.server.services.user_buckets import buckets, leftovers
from paddlecloud.server.services.user_buckets.leftovers import Begun
from paddlecloud.stores.base import Part, Stat, check_whole

if TYPE_CHECKING:
    from paddlecloud.stores.s3.store import S3Store

ABANDONED = timedelta(days=1)
"""An upload of the same file that began so long ago and is of no use any more is dropped."""
LOOKED_AT = 3
"""Of the open uploads of a file; more than one means that several clients were killed."""


def begin(deps: Deps, owner: str, asked: PrivateUploadRequest) -> PrivateUpload:
    """The upload of this file that somebody left open, else a new one."""
    with buckets.opened(deps, asked) as store:
        upload, parts, each = _left_open(deps, store, asked)
        upload = upload or store.begin_parts(asked.path, part_size=each)
        leftovers.note(deps, owner, _begun(asked, upload))
        there = store.stat(asked.path)
        tag = there.tag if there is not None and there.size == asked.size else ""
    rows = [(part.number, part.tag) for part in parts]
    return PrivateUpload(upload=upload, parts=rows, tag=tag, part_size=each)


def addresses(deps: Deps, owner: str, asked: PrivatePartsRequest) -> list[str]:
    """Where to PUT each of these parts."""
    leftovers.touch(deps, owner, _begun(asked, asked.upload))
    with buckets.opened(deps, asked) as store:
        sign = partial(store.presign_part, asked.path, asked.upload)
        now = deps.clock()
        return [sign(number, good_for=buckets.GOOD_FOR, now=now) for number in asked.numbers]


def join(deps: Deps, owner: str, asked: PrivateJoinRequest) -> int:
    """Give the file its name, if its parts are the very ones that are named; its size. Twice is
    once."""
    with buckets.opened(deps, asked) as store:
        size = _join(store, asked)
    leftovers.forget(deps, owner, _begun(asked, asked.upload))
    return size


def _join(store: S3Store, asked: PrivateJoinRequest) -> int:
    try:
        parts = store.parts(asked.path, asked.upload)
    except NotFound:
        there = store.stat(asked.path)
        if there is None or (there.size, there.tag) != (asked.size, joined_tag(asked.tags)):
            raise
        return there.size
    # A client that cuts in another way than the one before it leaves parts over behind its own.
    parts = parts[: len(asked.tags)]
    check_whole(parts, asked.size)
    return _joined(store, asked, parts).size


def _begun(
    asked: PrivateUploadRequest | PrivatePartsRequest | PrivateJoinRequest, upload: str
) -> Begun:
    return Begun(bos_url=asked.bos_url, path=asked.path, upload=upload)


def _left_open(
    deps: Deps, store: S3Store, asked: PrivateUploadRequest
) -> tuple[str, Sequence[Part], int]:
    """The newest open upload that is cut in a way of ours, its parts, and the size of each; an
    empty name when there is none."""
    ways = cuts(asked.size)
    try:
        begun = sorted(store.begun(asked.path), key=lambda found: found[1], reverse=True)
    except Unreachable:
        raise
    except PaddleCloudError:
        # Keys may be good for everything but this; then the whole file is sent.
        return "", (), ways[0]
    for upload, began in begun[:LOOKED_AT]:
        try:
            parts = store.parts(asked.path, upload)
        except NotFound:
            continue
        for each in ways:
            if all(part.size == _size_of(part.number, asked.size, each) for part in parts):
                return upload, parts, each
        if began < deps.clock() - ABANDONED:
            store.drop_parts(asked.path, upload)
    return "", (), ways[0]


def _size_of(number: int, size: int, each: int) -> int:
    """Of this part of a file of this size."""
    return min(each, size - (number - 1) * each)


def _joined(store: S3Store, asked: PrivateJoinRequest, parts: Sequence[Part]) -> Stat:
    """By the tags that were asked for, which the bucket compares: only it knows of a part that was
    sent twice which is the later one."""
    told = {"got": 0, "want": asked.size, "missing": len(asked.tags) + 1}
    if len(asked.tags) != len(parts):
        raise Invalid("upload_incomplete", **told)
    named = [replace(part, tag=tag) for part, tag in zip(parts, asked.tags, strict=True)]
    try:
        return store.finished(asked.path, asked.upload, named)
    except Retry as error:
        if "InvalidPart" not in str(error.params.get("detail", "")):
            raise
        raise Invalid("upload_incomplete", **(told | {"missing": 1})) from error
