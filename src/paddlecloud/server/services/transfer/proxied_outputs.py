"""Parts of large output files that come through us, because the store gives no addresses for them,
or because they lead nowhere from where the agent is.

Who began what, and which parts are there, is known as for those that go past us (`sending`), so an
agent that comes again sends the others. Where parts can be read before they are joined, the digest
of the whole is taken while they come and decides before the file gets its name: bytes of two files
that looked the same, or a part that a loss of power took, never make one. So it is with submitted
files (`uploads`), only that here the digest is told in the end.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from paddlecloud.model.errors import Invalid, NotFound
from paddlecloud.model.files.snapshot import is_digest
from paddlecloud.server.deps import Deps
from paddlecloud.server.schemas.transfer import JoinRequest, OutputParts, OutputPartsRequest
from paddlecloud.server.services.agents.orders import Assigned
from paddlecloud.server.services.files.job_files import place_of
from paddlecloud.server.services.files.outputs import place_for
from paddlecloud.server.services.transfer import output_uploads
from paddlecloud.server.services.transfer.output_uploads import Sending, parted
from paddlecloud.server.services.transfer.upload_session import Record, Target, Upload
from paddlecloud.server.services.transfer.uploads import part_size_of
from paddlecloud.stores.base import CanMultipart, CanReadParts, Store

LEAST = 64 * 1024 * 1024
"""A smaller file is soon sent once more."""


def begin(deps: Deps, assigned: Assigned, name: str, asked: OutputPartsRequest) -> OutputParts:
    """How an output file stands of which all parts come through us; begun if it was not."""
    size = part_size_of(asked.size, local=True)
    standing = output_uploads.stand(deps, assigned, name, asked, size)
    known = standing.sending
    return OutputParts(
        upload=known.upload,
        part_size=known.part_size,
        addresses=[],
        parts=[(part.number, "") for part in standing.parts],
        sha256=known.sha256 if standing.file else "",
        through=True,
    )


def opened(deps: Deps, assigned: Assigned, name: str, upload: str) -> Upload:
    """The upload of this name, as this server has it in its mind, or as the store tells it."""
    store, path = place_for(deps, assigned, name)
    target = target_of(assigned, path, upload)
    found = deps.arriving.get(target)
    if found is None:
        known = _known(deps, assigned, name, upload)
        record = Record(upload=upload, size=known.size, part_size=known.part_size)
        found = Upload(target, record)
        found.note(parted(store).parts(path, upload))
        found = deps.arriving.put(found)
    return found


def put(
    deps: Deps, assigned: Assigned, upload: Upload, number: int, data: bytes | bytearray
) -> None:
    """Keep one part, whole and checked for damage."""
    store = place_of(deps, assigned.job).store
    deps.arriving.put_part(upload, parted(store), number, data)


def finish(
    deps: Deps,
    assigned: Assigned,
    name: str,
    asked: JoinRequest,
    still_ours: Callable[[], object],
) -> bool:
    """Compare the digest of the whole and give the file its name; False: it takes longer, ask
    again. Twice is once. `still_ours` raises when the check took so long that it no longer is."""
    if not is_digest(asked.sha256):
        raise Invalid("body_invalid", detail="the sha256 of the file is missing")
    store = place_of(deps, assigned.job).store
    try:
        upload = opened(deps, assigned, name, asked.upload)
        upload.note(parted(store).parts(upload.target.path, asked.upload))
    except NotFound:
        if not _has_its_name(deps, assigned, name, asked):
            raise
        return True
    try:
        with upload.closed() as closed:
            if not closed or not _is_right(deps, store, upload, asked.sha256):
                return False
            known = _known(deps, assigned, name, asked.upload)
            output_uploads.note(
                deps, assigned, name, msgspec.structs.replace(known, sha256=asked.sha256)
            )
            still_ours()
            parted(store).finish_parts(upload.target.path, asked.upload, size=asked.size)
    except (NotFound, Invalid):
        # Another call for the same file may have been a moment earlier, and takes its parts away.
        if not _has_its_name(deps, assigned, name, asked):
            raise
    deps.arriving.forget(upload.target)
    return True


def is_checked(store: Store) -> bool:
    """Whether the digest of the whole can be taken before the parts are joined."""
    return isinstance(store, CanMultipart) and isinstance(store, CanReadParts)


def target_of(assigned: Assigned, path: str, upload: str) -> Target:
    """By which this server knows an upload of which parts came through it."""
    return Target(owner=assigned.job.owner, sha256="", path=path, record=upload)


def _has_its_name(deps: Deps, assigned: Assigned, name: str, asked: JoinRequest) -> bool:
    """Whether this very upload was ended before."""
    known = output_uploads.find(deps, assigned, name)
    if known is None or (known.upload, known.sha256) != (asked.upload, asked.sha256):
        return False
    store, path = place_for(deps, assigned, name)
    return known.became(store.stat(path))


def _is_right(deps: Deps, store: Store, upload: Upload, sha256: str) -> bool:
    """Whether the check is over; what is not as it should be is dropped and told."""
    upload.check_whole()
    try:
        return upload.checked(store, sha256)
    except Invalid:
        parted(store).drop_parts(upload.target.path, upload.record.upload)
        deps.arriving.forget(upload.target)
        raise


def _known(deps: Deps, assigned: Assigned, name: str, upload: str) -> Sending:
    """The record of this upload, if it still is the one of this file."""
    known = output_uploads.find(deps, assigned, name)
    if known is None or known.upload != upload or not known.is_by(assigned):
        raise NotFound("upload_missing", upload=upload[:100])
    return known
