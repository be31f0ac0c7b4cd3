"""Large files of a submit on their way into a bucket of its owner, in parts.

The bytes go from the client to the bucket; here uploads are started and resumed by their record,
their parts get presigned URLs, and they are joined. Abandoned ones are dropped by `leftovers`. Two
clients may send the same file at once, so a join names the tags of the parts that it joins.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from paddlecloud.model.errors import Invalid, NotFound, PaddleCloudError, Refused, Retry
from paddlecloud.model.files.bos_url import plain_bos_url
from paddlecloud.model.files.etag import joined_tag, part_size
from paddlecloud.server.deps import Deps
from paddlecloud.server.schemas.transfer import (
    PrivateJoinRequest,
    PrivatePartsRequest,
    PrivateUpload,
    PrivateUploadRequest,
)
from paddlecloud.server.services.transfer import open_uploads
from paddlecloud.server.services.transfer.open_uploads import Record
from paddlecloud.server.services.transfer.uploads import State, Upload
from paddlecloud.server.services.user_buckets import buckets
from paddlecloud.stores.base import Part, check_whole

if TYPE_CHECKING:
    from paddlecloud.stores.s3.store import S3Store

    Asked = PrivateUploadRequest | PrivatePartsRequest | PrivateJoinRequest

ROOT = "begun"
"""Of the records. Not below `users`: a user who left nothing but this behind can be deleted."""


def begin(deps: Deps, owner: str, asked: PrivateUploadRequest) -> PrivateUpload:
    """The open upload of this file, or a new one."""
    with _opened(deps, owner, asked) as upload:
        state = upload.begin(asked)
        there = upload.store.stat(asked.path)
    tag = there.tag if there is not None and there.size == asked.size else ""
    rows = [(part.number, part.tag) for part in state.parts]
    record = state.record
    return PrivateUpload(upload=record.upload, parts=rows, tag=tag, part_size=record.part_size)


def addresses(deps: Deps, owner: str, asked: PrivatePartsRequest) -> list[str]:
    """Where to PUT each of these parts."""
    with _opened(deps, owner, asked) as upload:
        with suppress(PaddleCloudError, OSError):
            record = open_uploads.read(deps, upload.record_path)
            if record is not None and record.upload == asked.upload:
                open_uploads.touch(deps, upload.record_path, record)
        return upload.presign(asked.upload, asked.numbers, buckets.GOOD_FOR)


def join(deps: Deps, owner: str, asked: PrivateJoinRequest) -> int:
    """Give the file its name, if its parts are the named ones; its size. Idempotent."""
    with _opened(deps, owner, asked) as upload:
        upload.join(asked)
        with suppress(PaddleCloudError, OSError):
            record = open_uploads.read(deps, upload.record_path)
            if record is not None and record.upload == asked.upload:
                deps.store.delete(upload.record_path)
    return asked.size


class BucketUpload(Upload):
    def __init__(self, deps: Deps, owner: str, asked: Asked, bucket: S3Store) -> None:
        name = f"{plain_bos_url(asked.bos_url) or asked.bos_url}\0{asked.path}"
        super().__init__(
            deps,
            owner=owner,
            store=bucket,
            path=asked.path,
            record_path=f"{ROOT}/{hashlib.sha256(name.encode()).hexdigest()}/{owner}",
        )
        self._bucket = bucket

    def begin(self, asked: PrivateUploadRequest) -> State:
        """Resume or start it. An upload can do without a record, but is not resumed then, nor
        dropped when it is abandoned."""
        state = self.find()
        if state is not None and state.file is None:
            if state.record.size == asked.size:
                open_uploads.touch(self.deps, self.record_path, state.record)
                return state
            with suppress(Refused):  # keys that may not drop parts are good for sending
                self.store.drop_parts(self.path, state.record.upload)
        each = part_size(asked.size)
        record = Record(
            upload=self.start(each),
            size=asked.size,
            part_size=each,
            bos_url=asked.bos_url,
            path=asked.path,
        )
        with suppress(PaddleCloudError, OSError):
            open_uploads.write(self.deps, self.record_path, record)
        return State(record=record)

    def join(self, asked: PrivateJoinRequest) -> None:
        try:
            parts = self.store.parts(self.path, asked.upload)
        except NotFound:
            there = self.store.stat(self.path)
            if there is None or (there.size, there.tag) != (asked.size, joined_tag(asked.tags)):
                raise
            return
        check_whole(parts, asked.size)
        self._join(asked, parts)

    def _join(self, asked: PrivateJoinRequest, parts: Sequence[Part]) -> None:
        """By the tags that were asked for, which the bucket compares: of a part that was sent twice
        only it knows which is the later one."""
        values = {"got": 0, "want": asked.size, "missing": len(asked.tags) + 1}
        if len(asked.tags) != len(parts):
            raise Invalid("upload_incomplete", **values)
        named = [replace(part, tag=tag) for part, tag in zip(parts, asked.tags, strict=True)]
        try:
            self._bucket.finished(self.path, asked.upload, named)
        except Retry as error:
            if "InvalidPart" not in str(error.params.get("detail", "")):
                raise
            raise Invalid("upload_incomplete", **(values | {"missing": 1})) from error


@contextmanager
def _opened(deps: Deps, owner: str, asked: Asked) -> Iterator[BucketUpload]:
    with buckets.opened(deps, asked) as bucket:
        yield BucketUpload(deps, owner, asked, bucket)
