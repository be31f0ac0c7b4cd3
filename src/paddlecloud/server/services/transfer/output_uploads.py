"""Large output files that agents send in parts: through the server, or by presigned URL.

The record of an upload names replica, fence, size and time of the file: an agent that comes again,
to whichever server, resumes that upload and no other. An agent that was given up may still hold
presigned URLs of an upload of the same name, so nothing is resumed across attempts, and the parts
are joined only while the attempt is the current one. Where parts can be read before they are
joined the digest, which the agent sends at the end, is verified first. Where they cannot, in a
bucket, each part is verified when it comes, by the digest that its request is signed with or by its
Content-MD5.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import msgspec

from paddlecloud.model.errors import Invalid, NotFound, PaddleCloudError, Refused, StorageFull
from paddlecloud.model.files.etag import PART, part_size
from paddlecloud.model.files.snapshot import is_digest
from paddlecloud.server.deps import Deps
from paddlecloud.server.schemas.transfer import JoinRequest, OutputParts, OutputPartsRequest
from paddlecloud.server.services.agents.assignment import Assigned
from paddlecloud.server.services.files.job_files import place_of, user_root
from paddlecloud.server.services.files.outputs import place_for
from paddlecloud.server.services.transfer import open_uploads
from paddlecloud.server.services.transfer.blobs import part_size_of
from paddlecloud.server.services.transfer.open_uploads import Record
from paddlecloud.server.services.transfer.uploads import State, Upload
from paddlecloud.server.services.user_buckets import buckets
from paddlecloud.stores.base import CanMultipart, CanPresign, CanReadParts, CanReportFreeSpace
from paddlecloud.stores.directory.safe_open import shown

LEAST = 64 * 1024 * 1024
"""A smaller file for a directory is one request."""
SLOWEST = 1024 * 1024
"""Bytes a second at which the parts of an output arrive before their presigned URLs expire."""


def begin(deps: Deps, assigned: Assigned, name: str, asked: OutputPartsRequest) -> OutputParts:
    """The upload of an output file, resumed or started; an empty id where the file has to be sent
    as one request."""
    store = place_of(deps, assigned.job).store
    if not isinstance(store, CanMultipart):
        each = 0
    elif isinstance(store, CanReadParts):
        each = part_size_of(asked.size, local=True) if asked.size >= LEAST else 0
    else:
        each = part_size(asked.size) if isinstance(store, CanPresign) else 0
    if not each:
        return OutputParts(upload="", part_size=PART, addresses=[], parts=[])
    upload = OutputUpload(deps, assigned, name)
    state = upload.begin(asked, each)
    record = state.record
    found = OutputParts(
        upload=record.upload,
        part_size=record.part_size,
        addresses=[],
        parts=[(part.number, "" if upload.is_verified else part.tag) for part in state.parts],
        through=upload.is_verified or record.count > 1,
    )
    if state.file is not None:
        known = {"sha256": record.sha256} if upload.is_verified else {"tag": state.file.tag}
        return msgspec.structs.replace(found, **known)
    urls = upload.presign(record.upload, range(1, record.count + 1), good_for(asked.size))
    return msgspec.structs.replace(found, addresses=urls)


def finish(
    deps: Deps,
    assigned: Assigned,
    name: str,
    asked: JoinRequest,
    still_assigned: Callable[[], object],
) -> bool:
    """Give the file its name; False: its digest is still being compared, call again. Idempotent.
    `still_assigned` raises when that took so long that the attempt is over."""
    upload = OutputUpload(deps, assigned, name)
    upload.still_assigned = still_assigned
    if not upload.is_verified:
        upload.join(asked)
        return True
    if not is_digest(asked.sha256):
        raise Invalid("body_invalid", detail="the sha256 of the file is missing")
    upload.sha256 = asked.sha256
    try:
        state = upload.find()
        if state is None or state.file or not upload.is_own(state.record, asked.upload):
            raise upload.missing(asked.upload)
        return upload.complete(state, asked.sha256)
    except (NotFound, Invalid):
        # A call before this one, or one for the same file at the same moment, completed it.
        if not upload.is_complete(asked):
            raise
        return True


def good_for(size: int) -> timedelta:
    """How long the presigned URLs for an output of so many bytes are valid. Each puts one part of
    one upload, which ends with the file or with its attempt."""
    return buckets.GOOD_FOR + timedelta(seconds=size / SLOWEST)


def sending_root(owner: str, job_id: str) -> str:
    """Where the records of a job's outputs lie."""
    return f"{user_root(owner)}/sending/{job_id}"


class OutputUpload(Upload):
    still_assigned: Callable[[], object] = staticmethod(lambda: None)
    sha256 = ""

    def __init__(self, deps: Deps, assigned: Assigned, name: str) -> None:
        store, path = place_for(deps, assigned, name)
        if not isinstance(store, CanMultipart):
            raise self.missing("")
        job, worker = assigned.job, assigned.replica.worker
        key = hashlib.sha256(f"{worker}\0{name}".encode("utf-8", "surrogateescape")).hexdigest()
        super().__init__(
            deps,
            owner=job.owner,
            store=store,
            path=path,
            record_path=f"{sending_root(job.owner, job.id)}/{key}",
        )
        self._assigned = assigned
        self.is_verified = isinstance(store, CanReadParts)
        """The digest of the whole is compared before the parts are joined."""

    def begin(self, asked: OutputPartsRequest, each: int) -> State:
        """Resume the upload of this very file, or start one. A file of one part has no record."""
        wanted = Record(
            upload="",
            size=asked.size,
            part_size=each,
            replica=self._assigned.replica.id,
            fence=self._assigned.attempt.fence,
            mtime=asked.mtime,
        )
        state = self.find() if wanted.count > 1 else None
        if state is not None:
            known = msgspec.structs.replace(state.record, upload="", part_size=each, sha256="")
            is_comparable = state.file is None or state.record.sha256 or not self.is_verified
            if known == wanted and is_comparable:
                return state
            if state.file is None:
                with suppress(Refused):  # keys that may not drop parts are good for sending
                    self.store.drop_parts(self.path, state.record.upload)
        needed = asked.size if asked.allocated is None else min(asked.size, asked.allocated)
        if isinstance(self.store, CanReportFreeSpace) and self.store.free_bytes() < needed:
            raise StorageFull("store_full", path=shown(self.path))
        modified = None if asked.mtime is None else datetime.fromtimestamp(asked.mtime, UTC)
        record = msgspec.structs.replace(wanted, upload=self.start(each, modified))
        if record.count > 1:
            self._write(record)
        return State(record=record)

    def open(self, upload: str = "") -> Record:
        record = super().open(upload)
        if not self.is_own(record, upload):
            raise self.missing(upload)
        return record

    def before_join(self, record: Record) -> bool:
        self._write(msgspec.structs.replace(self.open(record.upload), sha256=self.sha256))
        self.still_assigned()
        return False

    def join(self, asked: JoinRequest) -> None:
        """Join the parts in a bucket, where the whole is not verified."""
        try:
            self.store.finish_parts(self.path, asked.upload, size=asked.size)
        except NotFound:
            if not self.is_complete(asked):
                raise

    def is_own(self, record: Record, upload: str) -> bool:
        """Whether this very attempt started this upload."""
        own = self._assigned.replica.id, self._assigned.attempt.fence, upload
        return (record.replica, record.fence, record.upload) == own

    def is_complete(self, asked: JoinRequest) -> bool:
        """Whether the file that has the name is the one of this upload."""
        state = self.find()
        if state is None or state.file is None or state.record.upload != asked.upload:
            return False
        return not self.is_verified or state.record.sha256 == asked.sha256

    def _write(self, record: Record) -> None:
        """A file can be sent without a record, but not resumed: nothing is raised."""
        with suppress(PaddleCloudError, OSError):
            open_uploads.write(self.deps, self.record_path, record)
