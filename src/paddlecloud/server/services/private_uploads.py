"""Large files of a submit on their way into a bucket of its owner, in parts.

The bytes go from the client to the bucket; here uploads are begun, their parts get addresses, and
they are joined. The bucket alone remembers an upload: a client that was killed finds it again by
the file's name. Two clients may send the same file at once, so a join names what it joins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from paddlecloud.model.errors import Invalid, NotFound, PaddleCloudError, Retry, Unreachable
from paddlecloud.model.private import joined_tag, part_size
from paddlecloud.server.deps import Deps
from paddlecloud.server.services import private
from paddlecloud.server.shapes_addresses import (
    PrivateJoinRequest,
    PrivatePartsRequest,
    PrivateUpload,
    PrivateUploadRequest,
)
from paddlecloud.stores.base import Part, Stat, check_whole

if TYPE_CHECKING:
    from paddlecloud.stores.s3 import S3Store

ABANDONED = timedelta(days=1)
"""An upload of the same file that began so long ago and is of no use any more is dropped."""
LOOKED_AT = 3
"""Of the open uploads of a file; more than one means that several clients were killed."""


def begin(deps: Deps, asked: PrivateUploadRequest) -> PrivateUpload:
    """The upload of this file that somebody left open, else a new one."""
    with private.opened(deps, asked, hurry=True) as store:
        upload, parts = _left_open(deps, store, asked)
        if not upload:
            upload = store.begin_parts(asked.path, part_size=part_size(asked.size))
        there = store.stat(asked.path)
        tag = there.tag if there is not None and there.size == asked.size else ""
    return PrivateUpload(upload=upload, parts=[(part.number, part.tag) for part in parts], tag=tag)


def addresses(deps: Deps, asked: PrivatePartsRequest) -> list[str]:
    """Where to PUT each of these parts."""
    with private.opened(deps, asked) as store:
        sign = partial(store.presign_part, asked.path, asked.upload)
        now = deps.clock()
        return [sign(number, good_for=private.GOOD_FOR, now=now) for number in asked.numbers]


def join(deps: Deps, asked: PrivateJoinRequest) -> int:
    """Give the file its name, if its parts are the very ones that are named; its size. Twice is
    once."""
    with private.opened(deps, asked) as store:
        try:
            parts = store.parts(asked.path, asked.upload)
        except NotFound:
            there = store.stat(asked.path)
            if there is None or (there.size, there.tag) != (asked.size, joined_tag(asked.tags)):
                raise
            return there.size
        check_whole(parts, asked.size)
        return _joined(store, asked, parts).size


def _left_open(
    deps: Deps, store: S3Store, asked: PrivateUploadRequest
) -> tuple[str, Sequence[Part]]:
    """The newest open upload whose parts are cut as ours are; empty when there is none."""
    try:
        begun = sorted(store.begun(asked.path), key=lambda found: found[1], reverse=True)
    except Unreachable:
        raise
    except PaddleCloudError:
        # Keys may be good for everything but this; then the whole file is sent.
        return "", ()
    for upload, began in begun[:LOOKED_AT]:
        try:
            parts = store.parts(asked.path, upload)
        except NotFound:
            continue
        if all(part.size == _size_of(part.number, asked.size) for part in parts):
            return upload, parts
        if began < deps.clock() - ABANDONED:
            store.drop_parts(asked.path, upload)
    return "", ()


def _size_of(number: int, size: int) -> int:
    """Of this part of a file of this size."""
    each = part_size(size)
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
