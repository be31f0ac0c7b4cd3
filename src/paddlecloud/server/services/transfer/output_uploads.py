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
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec

from paddlecloud.model.errors import NotFound, PaddleCloudError, Refused, StorageFull
from paddlecloud.server.deps import Deps
from paddlecloud.server.schemas.transfer import OutputPartsRequest
from paddlecloud.server.services.agents.orders import Assigned
from paddlecloud.server.services.files.job_files import user_root
from paddlecloud.server.services.files.outputs import place_for
from paddlecloud.stores.base import CanMultipart, CanReadParts, CanTellRoom, Part, Stat, Store
from paddlecloud.stores.directory.safe_open import shown

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


@dataclass(frozen=True, kw_only=True)
class Standing:
    """How an output file stands that comes in parts."""

    sending: Sending
    parts: Sequence[Part] = ()
    """Those that are there."""
    file: Stat | None = None
    """What has the name already, because an end was not heard of: nothing has to be sent."""


def stand(
    deps: Deps, assigned: Assigned, name: str, asked: OutputPartsRequest, part_size: int
) -> Standing:
    """Go on with the upload of this very file, or begin one."""
    known = find(deps, assigned, name)
    if known is not None:
        store, path = place_for(deps, assigned, name)
        if not known.is_for(assigned, asked.size, asked.mtime):
            _drop(parted(store), path, known)
        elif (there := _parts_of(parted(store), path, known)) is not None:
            return Standing(sending=known, parts=there)
        elif _is_as_sent(store, known, stat := store.stat(path)):
            return Standing(sending=known, file=stat)
    begun = begin(deps, assigned, name, asked, part_size)
    note(deps, assigned, name, begun)
    return Standing(sending=begun)


def begin(
    deps: Deps, assigned: Assigned, name: str, asked: OutputPartsRequest, part_size: int
) -> Sending:
    """A new upload of this file; nobody knows of it before `note`."""
    store, path = place_for(deps, assigned, name)
    needed = asked.size if asked.allocated is None else min(asked.size, asked.allocated)
    if isinstance(store, CanTellRoom) and store.room() < needed:
        raise StorageFull("store_full", path=shown(path))
    modified = None if asked.mtime is None else datetime.fromtimestamp(asked.mtime, UTC)
    return Sending(
        replica=assigned.replica.id,
        fence=assigned.attempt.fence,
        size=asked.size,
        mtime=asked.mtime,
        part_size=part_size,
        upload=parted(store).begin_parts(path, part_size=part_size, modified=modified),
    )


def note(deps: Deps, assigned: Assigned, name: str, sending: Sending) -> None:
    """Remember it. A file can be sent without that too, so nothing is raised."""
    with suppress(PaddleCloudError, OSError):
        deps.store.write(_record(assigned, name), [msgspec.json.encode(sending)])


def find(deps: Deps, assigned: Assigned, name: str) -> Sending | None:
    """What was last begun under this name, by whichever attempt. A store that is away is told: all
    that was sent would be sent again."""
    try:
        with deps.store.read(_record(assigned, name)) as reader:
            return msgspec.json.decode(b"".join(reader), type=Sending)
    except (NotFound, OSError, msgspec.DecodeError):
        return None


def parted(store: Store) -> CanMultipart:
    """A store as one that takes parts; NotFound where no upload can have been begun."""
    if not isinstance(store, CanMultipart):
        raise NotFound("upload_missing", upload="")
    return store


def sending_root(owner: str, job_id: str) -> str:
    """Where the records of a job are kept."""
    return f"{user_root(owner)}/sending/{job_id}"


def _drop(store: CanMultipart, path: str, known: Sending) -> None:
    """Of a state of the file that nobody sends any more: its parts take room, and a user pays for
    those in a bucket. Keys that may not do this are good all the same."""
    with suppress(Refused):
        store.drop_parts(path, known.upload)


def _parts_of(store: CanMultipart, path: str, known: Sending) -> Sequence[Part] | None:
    """The parts that are there; None when there is no such upload any more."""
    try:
        return store.parts(path, known.upload)
    except NotFound:
        return None


def _is_as_sent(store: Store, known: Sending, stat: Stat | None) -> bool:
    """Whether the file is the one of this upload, of which the agent is told what to compare: the
    digest that decided, or else the tag that a bucket has for it."""
    return known.became(stat) and bool(known.sha256 or not isinstance(store, CanReadParts))


def _record(assigned: Assigned, name: str) -> str:
    job, worker = assigned.job, assigned.replica.worker
    digest = hashlib.sha256(f"{worker}\0{name}".encode("utf-8", "surrogateescape")).hexdigest()
    return f"{sending_root(job.owner, job.id)}/{digest}"
