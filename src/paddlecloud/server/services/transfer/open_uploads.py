"""Records of multipart uploads in the server's own store, by which any server resumes them.

There is one record for each upload, written before its first part:

- `users/OWNER/uploads/SHA256` for a blob: deleted when the blob is verified. Until then the upload
  holds its size of the owner's quota, and in a bucket the blob counts as missing;
- `users/OWNER/sending/JOB/HASH` for an output: kept after the end, so that a repeated completion is
  recognized, and deleted with the job;
- `begun/HASH/OWNER` for a file in a user's own bucket: deleted at the end.
"""

from __future__ import annotations

from collections.abc import Container
from datetime import timedelta

import msgspec

from paddlecloud.model.errors import NotFound
from paddlecloud.server.deps import Deps
from paddlecloud.server.services.accounts import quota
from paddlecloud.stores.base import CanReadParts, Stat

TOUCH = timedelta(hours=1)
"""A younger record counts as touched."""
_SAME_TIME = 1e-5
"""Seconds: agents round to microseconds, and a bucket keeps decimals."""


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """An upload: its id in the store that takes its parts, and what is sent."""

    upload: str
    size: int = 0
    part_size: int = 0
    sha256: str = ""
    """Of an output, once it is verified and its parts are about to be joined."""
    replica: str = ""
    """Of an output: who sends it, in the attempt of this fence."""
    fence: int = 0
    mtime: float | None = None
    bos_url: str = ""
    """Of a file in a user's bucket: its directory, and its path there."""
    path: str = ""

    @property
    def count(self) -> int:
        """Of its parts."""
        return -(-self.size // self.part_size)

    def size_of(self, number: int) -> int:
        """Bytes of this part; 0 when there is no such part."""
        if not 1 <= number <= self.count:
            return 0
        return min(self.part_size, self.size - (number - 1) * self.part_size)

    def became(self, stat: Stat | None) -> bool:
        """Whether this file is what the parts were joined to, by size and time. A blob
        has the path of its digest, so its time does not matter."""
        if stat is None or stat.size != self.size:
            return False
        if not self.replica:
            return True
        return self.mtime is not None and abs(stat.modified.timestamp() - self.mtime) < _SAME_TIME


def read(deps: Deps, path: str) -> Record | None:
    """The record at this path; None when there is none, or one that cannot be read."""
    try:
        with deps.store.read(path) as reader:
            return msgspec.json.decode(b"".join(reader), type=Record)
    except (NotFound, OSError, msgspec.DecodeError):
        return None


def write(deps: Deps, path: str, record: Record) -> None:
    deps.store.write(path, [msgspec.json.encode(record)])


def is_due(deps: Deps, path: str) -> bool:
    """Whether the record at this path is old enough to be touched."""
    stat = deps.store.stat(path)
    return stat is not None and deps.clock() - stat.modified > TOUCH


def touch(deps: Deps, path: str, record: Record) -> bool:
    """Keep an upload that continues from counting as abandoned; False: the record at this path is
    of another upload by now, or gone."""
    if read(deps, path) != record:
        return False
    if is_due(deps, path):
        write(deps, path, record)
    return True


def uploads_root(owner: str) -> str:
    """Where the records of an owner's blobs lie."""
    return f"users/{owner}/uploads"


def unchecked(deps: Deps, owner: str) -> set[str]:
    """Blobs that may have their name before they are verified."""
    return set() if isinstance(deps.store, CanReadParts) else set(_records(deps, owner))


def held_bytes(deps: Deps, owner: str, besides: Container[str] = ()) -> int:
    """Bytes of the owner's quota that open uploads of other blobs than these hold."""
    paths = [path for sha256, path in _records(deps, owner).items() if sha256 not in besides]
    return sum(record.size for path in paths if (record := read(deps, path)) is not None)


def check_storage(deps: Deps, owner: str, size: int, besides: Container[str]) -> None:
    """Refuse these blobs, `size` together, before they are uploaded, if they do not fit into the
    quota beside what is stored and what other uploads hold."""
    left = quota.storage_left(deps, owner)
    if left is not None:
        quota.check_fits(left[0], size, left[1])  # then it would not help to finish the others
        quota.check_fits(left[0], size, left[1], held_bytes(deps, owner, besides))


def _records(deps: Deps, owner: str) -> dict[str, str]:
    """Paths by sha256."""
    found = deps.store.list(f"{uploads_root(owner)}/")
    return {stat.path.rpartition("/")[2]: stat.path for stat in found}
