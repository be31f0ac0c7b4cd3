"""Output files of workers as they come in: what grew of one, many small ones, the list of all.

A file that only grows is sent once, piece by piece: each is put behind what is here already. Where
the store cannot do that (an object store) the agent is told so and sends the whole file. When a
worker is over its agent names all files with size and sha256; what is not here as named is asked
for again, and the list is kept beside the outputs: with it a download is verified to the bytes that
the job wrote.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from concurrent.futures import Future
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from paddlecloud.model.errors import Conflict, NotFound, PaddleCloudError, Retry
from paddlecloud.model.files.layout import log_directory, output_directory
from paddlecloud.model.files.snapshot import check_path
from paddlecloud.model.jobs.job import Job
from paddlecloud.server.deps import Deps
from paddlecloud.server.services.agents.orders import Assigned
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
    """Put `data` behind the first `offset` bytes of an output file; its size afterwards.

    `name` begins with its area. What is here of `data` already, since an answer was lost, is not
    written again. Conflict("output_gap") if anything else is here, or too little: then the agent
    has to send the whole file. Before this returns it is on the disk, for nobody else will see to
    that.
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
    """Where one output file goes whose bytes come through us."""
    store, path = place_for(deps, assigned, name)
    return store.open_write(path, modified=modified)


def take_bundle(
    deps: Deps, assigned: Assigned, rows: Iterable[tuple[str, int, float]], data: memoryview
) -> list[str]:
    """Keep many small files whose bytes stand one behind the other; the names of those that were
    not taken. The agent sends them by themselves, and then hears why.

    After one for which the store has no time or no room, none of the rest is tried.
    """
    refused: list[str] = []
    later: list[tuple[str, Future[Stat]]] = []
    left = iter(rows)
    for name, size, mtime in left:
        piece, data = data[:size], data[size:]
        try:
            sink = open_output(deps, assigned, name, datetime.fromtimestamp(mtime, UTC))
            later += [(name, future) for future in _put(sink, piece)]
        except PaddleCloudError as error:
            refused.append(name)
            if isinstance(error, Retry):
                break
    refused += [name for name, future in later if not _is_put(future)]
    return refused + [row[0] for row in left]


def take_listing(deps: Deps, assigned: Assigned, rows: list[Listing]) -> list[str]:
    """Keep the final list of a worker's files; the names of those that are not here as it says."""
    place = place_of(deps, assigned.job)
    paths = {path_of(assigned, row[0]): row for row in rows}
    there = _there(place.store, [place.root + path for path in paths])
    absent = (None, "")
    missing = [
        row[0] for path, row in paths.items() if there.get(place.root + path, absent)[0] != row[1]
    ]
    if not missing:
        known = [Listed(path, *row[1:], there[place.root + path][1]) for path, row in paths.items()]
        deps.store.write(_listing(assigned), [msgspec.json.encode(known)])
    return missing


def place_for(deps: Deps, assigned: Assigned, name: str) -> tuple[Store, str]:
    """The store where a file of a replica is kept, and its path there."""
    place = place_of(deps, assigned.job)
    return place.store, place.root + path_of(assigned, name)


def path_of(assigned: Assigned, name: str) -> str:
    """The path that a file of a replica has to its owner; `name` begins with its area."""
    area, _, path = name.partition("/")
    place = _PLACES.get(area)
    if place is None:
        raise NotFound("area_unknown", area=area[:50])
    check_path(path, below=True)
    below = f"{place(assigned.job.id, assigned.replica.role, assigned.replica.rank)}/{path}"
    check_path(below)
    return below


def _put(sink: Sink, data: memoryview) -> list[Future[Stat]]:
    """Give a file its bytes and its name; what is still to be waited for."""
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
    """Size and tag of those of these files that exist."""
    if isinstance(store, CanTag):
        return {path: (stat.size, tag_of(stat)) for path, stat in store.stats(paths).items()}
    return {path: (size, "") for path, size in store.sizes(paths).items()}


def _listing(assigned: Assigned) -> str:
    job: Job = assigned.job
    return f"{listings_root(job.owner, job.id)}/{assigned.replica.worker}.json"


def _write(fd: int, data: bytes, offset: int) -> None:
    """All of it or nothing: half a piece would only have to be sent again with all the rest."""
    view = memoryview(data)
    done = 0
    try:
        while done < len(view):
            done += os.pwrite(fd, view[done:], offset + done)
    except OSError:
        with suppress(OSError):
            os.ftruncate(fd, offset)
        raise
