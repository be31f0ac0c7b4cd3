"""Receives output files of workers: appended bytes, bundles of small files, the final listing.

A file that only grows is sent once: new bytes are appended. Where the store cannot append (an
object store) the request is refused and the agent sends the whole file. When a worker has ended,
its agent lists all files with size and sha256. Files that differ are requested again, and the list
is stored next to the outputs: downloads are verified against it.
"""

from __future__ import annotations

import os
from concurrent.futures import Future
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from paddlecloud.model.errors import Conflict, Invalid, NotFound, PaddleCloudError, Retry
from paddlecloud.model.files.layout import log_directory, output_directory
from paddlecloud.model.files.snapshot import check_path
from paddlecloud.server.deps import Deps
from paddlecloud.server.http.request_body import decode_body
from paddlecloud.server.schemas.agent import BundleHead, ListingAnswer
from paddlecloud.server.services.agents.assignment import Assigned
from paddlecloud.server.services.files.job_files import (
    Listed,
    Listing,
    listings_root,
    place_of,
    tag_of,
    user_root,
)
from paddlecloud.stores.base import CanLocalPath, CanTag, CommitsLater, Sink, Stat, Store
from paddlecloud.stores.directory.safe_open import check_free_space, explained

_PLACES = {"output": output_directory, "log": log_directory}


def append(
    deps: Deps, assigned: Assigned, name: str, offset: int, data: bytes, mtime: float | None
) -> int:
    """Append `data` after the first `offset` bytes of an output file; its size afterwards.

    `name` starts with its area. Bytes that are stored already, because a response was lost, are not
    written again. Conflict("output_gap") if other bytes are there, or too few: then the agent
    has to send the whole file. The bytes are on the disk when this returns.
    """
    target = None
    if assigned.job.spec.public_bos:
        target = _local_file(deps, f"{user_root(assigned.job.owner)}/{path_of(assigned, name)}")
    if target is None:
        raise Conflict("output_gap", path=name[:200], offset=offset, size=0)
    with explained(name):
        fd = os.open(target, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            size = os.fstat(fd).st_size
            here = os.pread(fd, len(data), offset)
            if size < offset or not data.startswith(here):
                raise Conflict("output_gap", path=name[:200], offset=offset, size=size)
            rest = data[len(here) :]
            check_free_space(fd, len(rest))
            _write(fd, rest, offset + len(here))
            if mtime is not None:
                os.utime(fd, (mtime, mtime))
            os.fsync(fd)
        finally:
            os.close(fd)
    return offset + len(data)


def open_output(deps: Deps, assigned: Assigned, name: str, modified: datetime | None) -> Sink:
    """A sink for one output file whose bytes come through the server."""
    store, path = place_for(deps, assigned, name)
    return store.open_write(path, modified=modified)


def take_bundle(deps: Deps, assigned: Assigned, raw: bytes) -> ListingAnswer:
    """Store many small files: a line of JSON about them, then their bytes; the names of those that
    were refused. The agent sends these one by one and then gets the reason.

    After one that the store cannot take now, the rest is not tried.
    """
    end = raw.find(b"\n")
    rows = decode_body(raw[: max(end, 0)], BundleHead).files
    data = memoryview(raw)[end + 1 :]
    want = sum(size for _, size, _ in rows)
    if want != len(data):
        raise Invalid("bundle_length", size=len(data), want=want)
    refused: list[str] = []
    later: list[tuple[str, Future[Stat]]] = []
    left = iter(rows)
    for name, size, mtime in left:
        content, data = data[:size], data[size:]
        try:
            sink = open_output(deps, assigned, name, datetime.fromtimestamp(mtime, UTC))
            later += [(name, future) for future in _put(sink, content)]
        except PaddleCloudError as error:
            refused.append(name)
            if isinstance(error, Retry):
                break
    refused += [name for name, future in later if not _is_put(future)]
    return ListingAnswer(missing=refused + [row[0] for row in left])


def take_listing(deps: Deps, assigned: Assigned, rows: list[Listing]) -> ListingAnswer:
    """Store the final list of a worker's files; the names of those that are missing or differ."""
    place = place_of(deps, assigned.job)
    paths = {path_of(assigned, row[0]): row for row in rows}
    there = _there(place.store, [place.root + path for path in paths])
    absent = (None, "")
    missing = [
        row[0] for path, row in paths.items() if there.get(place.root + path, absent)[0] != row[1]
    ]
    if not missing:
        known = [Listed(path, *row[1:], there[place.root + path][1]) for path, row in paths.items()]
        job, worker = assigned.job, assigned.replica.worker
        listing = f"{listings_root(job.owner, job.id)}/{worker}.json"
        deps.store.write(listing, [msgspec.json.encode(known)])
    return ListingAnswer(missing=missing)


def place_for(deps: Deps, assigned: Assigned, name: str) -> tuple[Store, str]:
    """The store where a file of a replica is kept, and its path there."""
    place = place_of(deps, assigned.job)
    return place.store, place.root + path_of(assigned, name)


def path_of(assigned: Assigned, name: str) -> str:
    """The path of a replica's file as its owner knows it; `name` starts with its area."""
    area, _, path = name.partition("/")
    place = _PLACES.get(area)
    if place is None:
        raise NotFound("area_unknown", area=area[:50])
    check_path(path, below=True)
    below = f"{place(assigned.job.id, assigned.replica.role, assigned.replica.rank)}/{path}"
    check_path(below)
    return below


def _put(sink: Sink, data: memoryview) -> list[Future[Stat]]:
    """Write and commit a file; commits that are still to be waited for."""
    try:
        sink.write(data)
        if isinstance(sink, CommitsLater):
            return [sink.commit_later()]
        sink.commit()
    except PaddleCloudError:
        sink.abort()
        raise
    return []


def _is_put(future: Future[Stat]) -> bool:
    try:
        future.result()
    except PaddleCloudError:
        return False
    return True


def _local_file(deps: Deps, full: str) -> Path | None:
    if not isinstance(deps.store, CanLocalPath) or deps.store.stat(full) is None:
        return None
    return deps.store.local_path(full)


def _there(store: Store, paths: list[str]) -> dict[str, tuple[int, str]]:
    """Size and tag of the files that exist."""
    if isinstance(store, CanTag):
        return {path: (stat.size, tag_of(stat)) for path, stat in store.stats(paths).items()}
    return {path: (size, "") for path, size in store.sizes(paths).items()}


def _write(fd: int, data: bytes, offset: int) -> None:
    """Write all bytes or none: the agent would have to send the whole file otherwise."""
    view = memoryview(data)
    done = 0
    try:
        while done < len(view):
            done += os.pwrite(fd, view[done:], offset + done)
    except OSError:
        with suppress(OSError):
            os.ftruncate(fd, offset)
        raise
