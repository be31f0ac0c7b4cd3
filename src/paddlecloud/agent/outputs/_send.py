"""Sends outputs as single requests: a whole file, an appended part, or a bundle of small files."""

from __future__ import annotations

import hashlib
import json
from contextlib import nullcontext
from typing import IO, TYPE_CHECKING

from paddlecloud.agent.outputs import scan
from paddlecloud.agent.server_link.channel import FileBody
from paddlecloud.model.errors import Conflict, NotFound, PaddleCloudError
from paddlecloud.model.protocol.bce_auth import quote

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from paddlecloud.agent.outputs.scan import Found
    from paddlecloud.agent.registry import Tracked
    from paddlecloud.agent.server_link.channel import Channel
    from paddlecloud.transfer.slots import Slots

#: A larger file is worth a request of its own.
LARGEST = 64 * 1024
_MOST_FILES = 256
_MOST_BYTES = 1024 * 1024
_BUNDLE_TIMEOUT = 120.0
#: The timeout of a request grows with its size at this rate.
_BYTES_PER_SECOND = 1024 * 1024
_TIMEOUT = 60.0
_BLOCK = 1024 * 1024
#: What a file grew by is sent in requests of this size.
_GROWTH = 8 * 1024 * 1024


class Bundle:
    """Small files that are sent in one request."""

    def __init__(self) -> None:
        self._files: list[Found] = []
        self._bytes = 0

    def add(self, found: Found) -> bool:
        """Add a file; whether the bundle is worth a request now."""
        self._files.append(found)
        self._bytes += found.size
        return len(self._files) >= _MOST_FILES or self._bytes >= _MOST_BYTES

    def take(self) -> list[Found]:
        """All files; the bundle is empty afterwards."""
        files, self._files, self._bytes = self._files, [], 0
        return files


def send(
    tracked: Tracked, files: Sequence[Found], channel: Channel
) -> dict[str, tuple[Found, str]]:
    """By name what was sent, and its sha256; the others have to be sent by themselves."""
    taken = {found.name: read for found in files if (read := _read(found, tracked.root))}
    rows = [(found.name, len(data), found.mtime) for found, data in taken.values()]
    head = json.dumps({"files": rows}).encode()
    body = b"\n".join((head, b"".join(data for _, data in taken.values())))
    path = f"/agent/replicas/{quote(tracked.id)}/bundle"
    answer = channel.call("POST", path, body, {"fence": tracked.fence}, timeout=_BUNDLE_TIMEOUT)
    for name in channel.parsed(answer).get("missing", []):
        taken.pop(name, None)
    return {
        name: (found, hashlib.sha256(data).hexdigest()) for name, (found, data) in taken.items()
    }


def _read(found: Found, root: Path) -> tuple[Found, bytes] | None:
    """A small file as it is now; None when it changes, or cannot be read."""
    try:
        file = scan.open_inside(found, root)
        if file is None:
            return None
        with file:
            before = scan.refreshed(found, file)
            data = file.read(LARGEST + 1)
            unchanged = scan.refreshed(found, file).mark == before.mark
    except OSError:
        return None
    return (before, data) if unchanged and len(data) == before.size <= LARGEST else None


def same(sent: Found, file: IO[bytes], known: str) -> str | None:
    """The digest of the file if it is the `known` one, so that nothing has to be sent."""
    digest = _digest(file, sent.size)
    return known if digest is not None and digest.hexdigest() == known else None


def put_growth(
    tracked: Tracked,
    sent: Found,
    file: IO[bytes],
    shorter: tuple[int, str],
    channel: Channel,
    slots: Slots | None,
) -> str | None:
    """The digest of the whole file if it only grew, and the server could append the rest. What is
    sent is what is hashed."""
    offset, before = shorter
    digest = _digest(file, offset)
    if digest is None or digest.hexdigest() != before:
        return None
    while offset < sent.size:
        with nullcontext() if slots is None else slots.slot():
            data = file.read(min(_GROWTH, sent.size - offset))
            if not data or not _append(tracked, sent, data, offset, channel):
                return None
            digest.update(data)
            offset += len(data)
            del data
    return digest.hexdigest()


def put_whole(tracked: Tracked, sent: Found, file: IO[bytes], channel: Channel) -> str | None:
    """The digest of the file; None when it changed while it was sent.

    It is read twice, because the signature covers its digest: if the job rewrites it in between,
    the server refuses the body, and the next pass sends it.
    """
    file.seek(0)
    found = _digest(file, sent.size)
    if found is None:
        return None
    digest = found.hexdigest()
    file.seek(0)
    body = FileBody(file=file, size=sent.size, sha256=digest)
    query = {"fence": tracked.fence, "mtime": f"{sent.mtime:.6f}"}
    timeout = _TIMEOUT + sent.size / _BYTES_PER_SECOND
    try:
        channel.call("PUT", _path(tracked, sent), body, query, timeout=timeout)
    except PaddleCloudError as error:
        if error.code in ("auth_body_hash", "body_shrank"):
            return None
        raise
    return digest


def _path(tracked: Tracked, found: Found) -> str:
    return f"/agent/replicas/{quote(tracked.id)}/files/{quote(found.name, '/')}"


def _append(tracked: Tracked, sent: Found, data: bytes, offset: int, channel: Channel) -> bool:
    """Append to what the server has of the file; False when it has to be sent as a whole."""
    query = {"fence": tracked.fence, "mtime": f"{sent.mtime:.6f}", "offset": offset}
    try:
        channel.call("POST", _path(tracked, sent), data, query, timeout=_TIMEOUT)
    except (NotFound, Conflict) as error:
        if error.code not in ("output_gap", "route_unknown"):
            raise
        return False
    return True


def _digest(file: IO[bytes], size: int) -> hashlib._Hash | None:
    """Of the next `size` bytes; None when there are no longer so many."""
    digest = hashlib.sha256()
    left = size
    while left:
        block = file.read(min(left, _BLOCK))
        if not block:
            return None
        digest.update(block)
        left -= len(block)
    return digest
