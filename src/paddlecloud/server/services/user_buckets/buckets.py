"""Jobs whose files, outputs and logs are in their owner's bucket (`public_bos=0`).

At submit the keys are checked, the directory is listed once and stored as a snapshot, and the keys
are encrypted into the job's row, in one transaction. Afterwards only this module opens the bucket
with those keys (or, if they are refused, with those of another job of its owner): neither a machine
nor a response ever has them. Logs are copied by `logs`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, TypeVar

import msgspec

from paddlecloud.db.engine.base import Tx
from paddlecloud.db.tables import jobs, snapshots
from paddlecloud.db.tables import user_buckets as rows
from paddlecloud.model.diagnosis.reasons import caused
from paddlecloud.model.errors import (
    Conflict,
    Invalid,
    NotFound,
    PaddleCloudError,
    Refused,
    SnapshotMissing,
    Unreachable,
)
from paddlecloud.model.files.bos_url import split_bos_url
from paddlecloud.model.files.etag import mark
from paddlecloud.model.files.snapshot import Entry, Snapshot, snapshot_of
from paddlecloud.model.jobs.job import Job, JobSpec, Reason
from paddlecloud.model.units import format_size
from paddlecloud.server import encryption
from paddlecloud.server.deps import Deps
from paddlecloud.server.schemas.jobs import SubmitRequest
from paddlecloud.server.schemas.transfer import PrivateAddressesRequest, WithKeys

if TYPE_CHECKING:
    from paddlecloud.stores.base import Reader, Stat
    from paddlecloud.stores.s3.sigv4 import Keys
    from paddlecloud.stores.s3.store import S3Store
    from paddlecloud.stores.user_bucket import BosLocation

T = TypeVar("T")

MOST_FILES = 100_000
GOOD_FOR = timedelta(hours=1)
"""How long a presigned URL is valid."""
OTHER_JOBS = 200
"""Newest jobs of an owner that are searched for other keys if those of a job are refused."""
OTHER_PAIRS = 3
"""Pairs of keys that are tried, each with one request."""
_DENIED = "store_denied"


@dataclass(frozen=True, kw_only=True)
class Listed:
    """The files of a directory in a bucket when it was listed."""

    snapshot: Snapshot
    tags: rows.Tags


def listed(deps: Deps, owner: str, spec: JobSpec, request: SubmitRequest) -> Listed:
    """Check the keys of a job and list its files.

    If the job names a snapshot, its files must not have changed since: Conflict otherwise.
    """
    from paddlecloud.stores import user_bucket  # noqa: PLC0415 - 20 ms of http and xml

    place, keys = user_bucket.parse_bos_url(spec.bos_url), _keys(request)
    endpoint, proxies = deps.settings.private_store.door, deps.settings.proxies
    try:
        user_bucket.check_user_bucket(place, keys, endpoint=endpoint, proxies=proxies)
        stats = user_bucket.list_user_bucket(
            place, keys, most=MOST_FILES, endpoint=endpoint, proxies=proxies
        )
    except Unreachable as error:
        # Not retried: the user who submits gets the error at once.
        raise Refused(error.code, **error.params) from error
    found = _listed(place, stats)
    if spec.snapshot is None or spec.snapshot == found.snapshot.id:
        return found
    wanted = deps.db.read(lambda tx: _kept(tx, owner, spec.snapshot or ""))
    # A file with the same mark may have another path, if the directory is another one.
    changed = [kept[0] for name, kept in wanted.tags.items() if found.tags.get(name) != kept]
    if changed:
        raise Conflict(
            "private_files_changed", files=len(changed), bos_url=spec.bos_url, path=changed[0]
        )
    return wanted


def addresses(deps: Deps, asked: PrivateAddressesRequest) -> list[str]:
    """Presigned URLs to PUT these files of the directory."""
    with opened(deps, asked) as store:
        now = deps.clock()
        return [store.presign_write(path, good_for=GOOD_FOR, now=now) for path in asked.paths]


@contextmanager
def opened(deps: Deps, asked: WithKeys) -> Iterator[S3Store]:
    """The directory that a request has keys for; errors name the user's bucket."""
    from paddlecloud.stores import user_bucket  # noqa: PLC0415 - 20 ms of http and xml

    place = user_bucket.parse_bos_url(asked.bos_url)
    if not deps.settings.private_store.enabled:
        raise Refused("private_store_off", bos_url=asked.bos_url)
    endpoint = deps.settings.private_store.door
    store = user_bucket.open_user_bucket(
        place, _keys(asked), endpoint=endpoint, proxies=deps.settings.proxies
    )
    try:
        with user_bucket.user_bucket_errors(place, endpoint):
            yield store
    finally:
        store.close()


def bucket_of(deps: Deps, job: Job) -> S3Store:
    """The directory that `bos_url` of this job names, opened with the job's keys."""
    return deps.caches.open_buckets.load(job.id, lambda: _open(deps, job, _keys_of(deps, job)))


def ask_bucket(deps: Deps, job: Job, ask: Callable[[S3Store], T]) -> T:
    """The result of `ask` with the bucket of this job.

    Keys are replaced while results are kept: if those of the job are refused, those of the owner's
    other jobs in the same bucket are tried, newest first, and stay in use.
    """
    with bucket_errors(deps, job):
        try:
            return ask(bucket_of(deps, job))
        except Refused as error:
            if error.code != _DENIED:
                raise
            for keys in _other_keys(deps, job):
                store = _open(deps, job, keys)
                try:
                    found = ask(store)
                except Refused:
                    store.close()
                    continue
                except PaddleCloudError:  # these keys were not refused
                    deps.caches.open_buckets.put(job.id, store)
                    raise
                deps.caches.open_buckets.put(job.id, store)
                return found
            raise


@contextmanager
def bucket_errors(deps: Deps, job: Job) -> Iterator[None]:
    """Translates errors of the bucket of this job to messages that name it."""
    from paddlecloud.stores import user_bucket  # noqa: PLC0415 - 20 ms of http and xml

    place = user_bucket.parse_bos_url(job.spec.bos_url)
    try:
        with user_bucket.user_bucket_errors(place, deps.settings.private_store.door):
            yield
    except Refused as error:
        if error.code != "private_store_denied":
            raise
        # The keys of the job, not those that its owner has today, which may be fine.
        params = {"bos_url": job.spec.bos_url, "detail": error.params["detail"]}
        raise Refused("private_job_keys", **params) from error


def tags_of(deps: Deps, job: Job) -> rows.Tags:
    """Path and tag of each file of the job, by its mark."""
    snapshot = job.spec.snapshot or ""

    def find() -> rows.Tags:
        found = deps.db.read(lambda tx: rows.get_tags(tx, job.owner, snapshot))
        if found is None:
            raise NotFound("snapshot_unknown", snapshot=snapshot[:100])
        return found

    return deps.caches.bucket_tags.load((job.owner, snapshot), find)


def mark_of(deps: Deps, job: Job, path: str) -> str | None:
    """The mark of the job's file at this path; cached, because a download requests one file after
    the other."""

    def find() -> dict[str, str]:
        return {known: mark for mark, (known, _) in tags_of(deps, job).items()}

    return deps.caches.bucket_marks.load((job.owner, job.spec.snapshot or ""), find).get(path)


def content(deps: Deps, job: Job, name: str, offset: int = 0, length: int | None = None) -> Reader:
    """The file with this mark as it was at submit; Conflict if it has changed."""
    found = tags_of(deps, job).get(name)
    if found is None:
        raise NotFound("file_missing", path=name[:100])
    path, tag = found
    try:
        return ask_bucket(deps, job, lambda store: store.read(path, offset, length, tag=tag))
    except (Conflict, NotFound):
        raise Conflict("private_file_changed", path=path, bos_url=job.spec.bos_url) from None


def _listed(place: BosLocation, stats: list[Stat]) -> Listed:
    where, above = f"{place.bucket}.{place.region}", f"{place.prefix}/" if place.prefix else ""
    tags: dict[str, tuple[str, str]] = {}
    entries: list[Entry] = []
    for stat in stats:
        name = mark(where, above + stat.path, stat.size, stat.tag)
        tags[name] = (stat.path, stat.tag)
        entries.append(Entry(path=stat.path, size=stat.size, sha256=name))
    try:
        return Listed(snapshot=snapshot_of(entries), tags=tags)
    except Invalid as error:
        reason = caused("private_object_name", error.code, error.params, bos_url=place.bos_url)
        raise Invalid(reason.code, **reason.params) from error


def found_files(spec: JobSpec, files: Listed) -> Reason:
    """How many files the bucket has for this job, for its owner."""
    snapshot = files.snapshot
    size, bos_url = format_size(snapshot.size), spec.bos_url
    params: dict[str, str | int | float | None] = {
        "files": len(snapshot.entries),
        "size": size,
        "bos_url": bos_url,
    }
    by_count = {0: "private_files_none", 1: "private_files_found_one"}
    code = by_count.get(len(snapshot.entries), "private_files_found")
    return Reason(code=code, params=params)


def _kept(tx: Tx, owner: str, snapshot_id: str) -> Listed:
    snapshot = snapshots.get_snapshot(tx, owner, snapshot_id)
    if snapshot is None:
        raise SnapshotMissing("snapshot_missing", snapshot=snapshot_id)
    tags = rows.get_tags(tx, owner, snapshot_id)
    if tags is None:
        raise Conflict("snapshot_elsewhere", snapshot=snapshot_id)
    return Listed(snapshot=snapshot, tags=tags)


def _keys(request: SubmitRequest | WithKeys) -> Keys:
    from paddlecloud.stores.s3.sigv4 import Keys  # noqa: PLC0415 - as the store itself

    return Keys(
        access_key=request.bos_access_key,
        secret_key=request.bos_secret_key,
        session_token=request.bos_session_token,
    )


def sealed_keys(deps: Deps, owner: str, spec: JobSpec, request: SubmitRequest) -> str:
    """The bucket's keys of this request, encrypted for this owner and bucket."""
    kept = (request.bos_access_key, request.bos_secret_key, request.bos_session_token)
    return encryption.seal(
        deps.server_key, msgspec.json.encode(kept), _context(owner, spec.bos_url)
    )


def _context(owner: str, bos_url: str) -> bytes:
    """Binds encrypted keys to their user and bucket: they cannot be decrypted for another one."""
    return f"bos {owner} {bos_url}".encode()


def _open(deps: Deps, job: Job, keys: Keys) -> S3Store:
    from paddlecloud.stores import user_bucket  # noqa: PLC0415 - 20 ms of http and xml

    place = user_bucket.parse_bos_url(job.spec.bos_url)
    endpoint, proxies = deps.settings.private_store.door, deps.settings.proxies
    return user_bucket.open_user_bucket(place, keys, endpoint=endpoint, proxies=proxies)


def _keys_of(deps: Deps, job: Job) -> Keys:
    """The keys of a job."""
    from paddlecloud.stores.s3.sigv4 import Keys  # noqa: PLC0415 - as the store itself

    sealed = deps.db.read(lambda tx: rows.sealed_keys(tx, job.id))
    if sealed is None:
        raise Refused("private_store_keys", bos_url=job.spec.bos_url)
    context = _context(job.owner, job.spec.bos_url)
    opened = encryption.unseal((deps.server_key, *deps.old_keys), sealed, context)
    access_key, secret_key, token = msgspec.json.decode(opened, type=tuple[str, str, str])
    return Keys(access_key=access_key, secret_key=secret_key, session_token=token)


def _other_keys(deps: Deps, job: Job) -> Iterator[Keys]:
    """The newest other keys of its owner for this bucket."""
    here, known = split_bos_url(job.spec.bos_url), [_keys_of(deps, job)]
    for other in deps.db.read(lambda tx: _with_keys(tx, job.owner)):
        there = split_bos_url(other.spec.bos_url)
        if here is None or there is None or here[:2] != there[:2] or len(known) > OTHER_PAIRS:
            continue
        keys = _keys_of(deps, other)
        if keys not in known:
            known.append(keys)
            yield keys


def _with_keys(tx: Tx, owner: str) -> list[Job]:
    found = (jobs.get_job(tx, job_id) for job_id in rows.jobs_with_keys(tx, owner, OTHER_JOBS))
    return [job for job in found if job is not None]
