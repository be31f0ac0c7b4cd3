"""Presigned URLs and bytes of a job's input files, for its agents.

The bucket may be the server's own or that of the job's owner; the agent has no key to either, and
verifies what it fetches: by sha256, or by size and tag.
"""

from __future__ import annotations

from paddlecloud.model.errors import NotFound
from paddlecloud.model.jobs.job import Job
from paddlecloud.server.deps import Deps
from paddlecloud.server.schemas.transfer import ContentRow
from paddlecloud.server.services.files import snapshots
from paddlecloud.server.services.user_buckets import buckets
from paddlecloud.stores.base import CanPresign, Reader

AT_ONCE = 1000
"""Blobs of which presigned URLs are given out together."""


def manifest(deps: Deps, job: Job, snapshot_id: str) -> bytes:
    """The list of a job's files, as JSON."""
    if snapshot_id != job.spec.snapshot:
        raise NotFound("snapshot_unknown", snapshot=snapshot_id[:100])
    return b'{"entries":%b}' % snapshots.entries_json(deps, job.owner, snapshot_id)


def contents(deps: Deps, job: Job, sha256: str) -> list[ContentRow]:
    """Where a blob of the job is, and those behind it in its snapshot.

    One with a tag is known by that and not by its digest, which is its mark.
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
    """One blob of the job through the server, for an agent that cannot reach the bucket."""
    if not job.spec.public_bos:
        return buckets.content(deps, job, sha256, offset)
    return snapshots.content(deps, job.owner, job.spec.snapshot or "", sha256, offset)


def _in_bucket(deps: Deps, job: Job, wanted: list[str]) -> dict[str, tuple[str, str]]:
    """Presigned URL and tag of each of these blobs."""
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
