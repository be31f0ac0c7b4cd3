"""Uploads in parts that are not finished: their records, what they hold and what they put in doubt.

A record lies in the store from before the first part until the whole is checked (`uploads`). It is
written under the lock of its owner.
"""

from __future__ import annotations

from collections.abc import Container

import msgspec

from paddlecloud.model.errors import NotFound
from paddlecloud.server.deps import Deps
from paddlecloud.server.services.accounts import quota
from paddlecloud.server.services.transfer.upload_session import Record
from paddlecloud.stores.base import CanReadParts


def uploads_root(owner: str) -> str:
    """Where the records lie."""
    return f"users/{owner}/uploads"


def record_at(deps: Deps, path: str) -> Record | None:
    try:
        with deps.store.read(path) as reader:
            return msgspec.json.decode(b"".join(reader), type=Record)
    except (NotFound, msgspec.DecodeError):
        return None


def unchecked(deps: Deps, owner: str) -> set[str]:
    """Contents that may have their name before they are checked."""
    return set() if isinstance(deps.store, CanReadParts) else set(_records(deps, owner))


def held_bytes(deps: Deps, owner: str, besides: Container[str] = ()) -> int:
    """What the uploads of other contents than these may still come to."""
    paths = [path for sha256, path in _records(deps, owner).items() if sha256 not in besides]
    return sum(record.size for path in paths if (record := record_at(deps, path)) is not None)


def check_storage(deps: Deps, owner: str, size: int, besides: Container[str]) -> None:
    """Refuse these contents, `size` together, before they are uploaded, if they do not fit beside
    what is stored and what others are on their way."""
    left = quota.storage_left(deps, owner)
    if left is not None:
        quota.check_fits(left[0], size, left[1])  # then it would not help to finish the others
        quota.check_fits(left[0], size, left[1], held_bytes(deps, owner, besides))


def _records(deps: Deps, owner: str) -> dict[str, str]:
    """Paths by sha256."""
    found = deps.store.list(f"{uploads_root(owner)}/")
    return {stat.path.rpartition("/")[2]: stat.path for stat in found}
