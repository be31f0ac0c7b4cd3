"""Addresses with which an agent reaches the bucket of its jobs itself, so that bytes go past us.

The bucket may be the server's own or that of the job's owner; the agent has no key to either. What
it fetches it checks: by sha256, or by size and tag. An output file goes in parts and gets its name
only here, after a look at the fence of its attempt: an address that a lost agent still holds can
never put anything in the place of what a later attempt wrote. Who comes again for a file, to
whichever server, is told which parts of it are there (`sending`).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from paddlecloud.model.errors import NotFound
from paddlecloud.model.files.etag import PART, part_size
from paddlecloud.model.jobs.job import Job
from paddlecloud.server.deps import Deps
from paddlecloud.server.schemas.transfer import (
    ContentRow,
    JoinRequest,
    OutputParts,
    OutputPartsRequest,
)
from paddlecloud.server.services.agents.orders import Assigned
from paddlecloud.server.services.files import snapshots
from paddlecloud.server.services.files.outputs import place_for
from paddlecloud.server.services.transfer import output_uploads, proxied_outputs
from paddlecloud.server.services.transfer.output_uploads import Sending, Standing
from paddlecloud.server.services.user_buckets import buckets
from paddlecloud.stores.base import CanMultipart, CanPresign, Reader

AT_ONCE = 1000
"""Contents of which the addresses are given out together."""
SLOWEST = 1024 * 1024
"""Bytes a second at which an output still comes to its end."""


def contents(deps: Deps, job: Job, sha256: str) -> list[ContentRow]:
    """Where a content of the job is, and those behind it in its snapshot.

    A content with a tag is known by that and not by its digest, which is its mark.
    """
    digests = snapshots.digests(deps, job.owner, job.spec.snapshot or "")
    if sha256 not in digests:
        raise NotFound("file_missing", path=sha256[:100])
    names = list(digests)
    first = names.index(sha256)
    wanted = names[first : first + AT_ONCE]
    found = _in_bucket(deps, job, wanted)
    return [(name, digests[name], *found[name]) for name in wanted]


def content(deps: Deps, job: Job, sha256: str, offset: int = 0) -> Reader:
    """One content of the job's files through us, for an agent that cannot reach the bucket."""
    if not job.spec.public_bos:
        return buckets.content(deps, job, sha256, offset)
    return snapshots.content(deps, job.owner, job.spec.snapshot or "", sha256, offset)


def begin(deps: Deps, assigned: Assigned, name: str, asked: OutputPartsRequest) -> OutputParts:
    """Where to PUT the parts of an output file; no addresses for a file that is there by now
    (`tag`), nor where the store has none: then a large one comes through us (`through`)."""
    store, path = place_for(deps, assigned, name)
    if not (isinstance(store, CanMultipart) and isinstance(store, CanPresign)):
        if proxied_outputs.is_checked(store) and asked.size >= proxied_outputs.LEAST:
            return proxied_outputs.begin(deps, assigned, name, asked)
        return OutputParts(upload="", part_size=PART, addresses=[], parts=[])
    what, size = (deps, assigned, name, asked), part_size(asked.size)
    if size >= asked.size:
        return _addresses(deps, store, path, Standing(sending=output_uploads.begin(*what, size)))
    standing = output_uploads.stand(*what, size)
    if standing.file is not None:
        return _answer(standing.sending, tag=standing.file.tag)
    return _addresses(deps, store, path, standing)


def good_for_parts(size: int) -> timedelta:
    """How long the parts of an output of so many bytes may take: others have their turn meanwhile.
    Such an address puts one part of one upload, which ends with the file or with its attempt."""
    return buckets.GOOD_FOR + timedelta(seconds=size / SLOWEST)


def finish(deps: Deps, assigned: Assigned, name: str, asked: JoinRequest) -> int:
    """Give the file its name, now that all parts are there; its size. Twice is once."""
    store, path = place_for(deps, assigned, name)
    try:
        size = output_uploads.parted(store).finish_parts(path, asked.upload, size=asked.size).size
    except NotFound:
        known = output_uploads.find(deps, assigned, name)
        if known is None or known.upload != asked.upload or not known.became(store.stat(path)):
            raise
        size = known.size
    deps.arriving.forget(proxied_outputs.target_of(assigned, path, asked.upload))
    return size


def _addresses(deps: Deps, store: CanPresign, path: str, standing: Standing) -> OutputParts:
    begun = standing.sending
    now, good_for = deps.clock(), good_for_parts(begun.size)
    addresses = [
        store.presign_part(path, begun.upload, number, good_for=good_for, now=now)
        for number in range(1, -(-begun.size // begun.part_size) + 1)
    ]
    return _answer(begun, addresses, [(part.number, part.tag) for part in standing.parts])


def _answer(
    begun: Sending,
    addresses: Sequence[str] = (),
    parts: Sequence[tuple[int, str]] = (),
    tag: str = "",
) -> OutputParts:
    return OutputParts(
        upload=begun.upload,
        part_size=begun.part_size,
        addresses=list(addresses),
        parts=list(parts),
        tag=tag,
        through=begun.size >= proxied_outputs.LEAST,
    )


def _in_bucket(deps: Deps, job: Job, wanted: list[str]) -> dict[str, tuple[str, str]]:
    """Address and tag of each of these contents."""
    now, good_for = deps.clock(), buckets.GOOD_FOR
    if not job.spec.public_bos:
        bucket, tags = buckets.bucket_of(deps, job), buckets.tags_of(deps, job)
        return {
            name: (bucket.presign_read(tags[name][0], good_for=good_for, now=now), tags[name][1])
            for name in wanted
        }
    store = deps.store
    if not isinstance(store, CanPresign):
        return dict.fromkeys(wanted, ("", ""))
    paths = {name: snapshots.blob_path(job.owner, name) for name in wanted}
    return {
        name: (store.presign_read(path, good_for=good_for, now=now), "")
        for name, path in paths.items()
    }
