"""Output files that agents bring in parts: which upload is whose, whatever restarts.

The store keeps the parts and cannot tell of whom they are: an agent that was given up may hold
addresses of an upload of the same name. So each upload has a small record in the server's own
store, which names replica, fence, size and time of the file; any server goes on with that one and
with no other. There is one record for each file. It stays after the end, so that an end of which
nobody heard is known for one, and goes with the job.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime

import msgspec

from paddlecloud.model.errors import NotFound, PaddleCloudError
from paddlecloud.server.deps import Deps
from paddlecloud.server.services.agents import Assigned
from paddlecloud.server.services.files import user_root
from paddlecloud.server.shapes_addresses import OutputPartsRequest
from paddlecloud.stores.base import CanMultipart, Part, Stat

_SAME_TIME = 1e-5
"""Seconds: agents round to a millionth, and a bucket keeps decimals."""


class Sending(msgspec.Struct, frozen=True, kw_only=True):
    """An upload that was begun, and for what."""

    replica: str
    fence: int
    size: int
    mtime: float | None
    part_size: int
    upload: str
    sha256: str = ""
    """Of the whole, once that is known and its parts are about to be joined."""

    def is_by(self, assigned: Assigned) -> bool:
        """Whether this very attempt began it."""
        return (self.replica, self.fence) == (assigned.replica.id, assigned.attempt.fence)

    def is_for(self, assigned: Assigned, size: int, mtime: float | None) -> bool:
        """Whether it is of this very file, as this attempt wrote it."""
        return self.is_by(assigned) and (self.size, self.mtime) == (size, mtime)

    def became(self, stat: Stat | None) -> bool:
        """Whether this file is what was sent, as far as size and time tell."""
        if stat is None or self.mtime is None:
            return False
        apart = abs(stat.modified.timestamp() - self.mtime)
        return stat.size == self.size and apart < _SAME_TIME


def begin(
    store: CanMultipart, path: str, assigned: Assigned, asked: OutputPartsRequest, part_size: int
) -> Sending:
    """A new upload of this file; nobody knows of it before `note`."""
    modified = None if asked.mtime is None else datetime.fromtimestamp(asked.mtime, UTC)
    return Sending(
        replica=assigned.replica.id,
        fence=assigned.attempt.fence,
        size=asked.size,
        mtime=asked.mtime,
        part_size=part_size,
        upload=store.begin_parts(path, part_size=part_size, modified=modified),
    )


def note(deps: Deps, assigned: Assigned, name: str, sending: Sending) -> None:
    """Remember it. A file can be sent without that too, so nothing is raised."""
    with suppress(PaddleCloudError, OSError):
        deps.store.write(_record(assigned, name), [msgspec.json.encode(sending)])


def note_digest(deps: Deps, assigned: Assigned, name: str, upload: str, sha256: str) -> None:
    """Remember that it is this content whose parts are about to be joined."""
    known = find(deps, assigned, name)
    if known is not None and known.upload == upload:
        note(deps, assigned, name, msgspec.structs.replace(known, sha256=sha256))


def find(deps: Deps, assigned: Assigned, name: str) -> Sending | None:
    """What was last begun under this name, by whichever attempt. A store that is away is told: all
    that was sent would be sent again."""
    try:
        with deps.store.read(_record(assigned, name)) as reader:
            return msgspec.json.decode(b"".join(reader), type=Sending)
    except (NotFound, OSError, msgspec.DecodeError):
        return None


def parts_of(store: CanMultipart, path: str, upload: str) -> Sequence[Part] | None:
    """The parts that are there; None when there is no such upload any more."""
    try:
        return store.parts(path, upload)
    except NotFound:
        return None


def sending_root(owner: str, job_id: str) -> str:
    """Where the records of a job are kept."""
    return f"{user_root(owner)}/sending/{job_id}"


def _record(assigned: Assigned, name: str) -> str:
    job, worker = assigned.job, assigned.replica.worker
    digest = hashlib.sha256(f"{worker}\0{name}".encode("utf-8", "surrogateescape")).hexdigest()
    return f"{sending_root(job.owner, job.id)}/{digest}"
