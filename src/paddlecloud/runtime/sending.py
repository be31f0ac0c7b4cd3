"""One output file to the server: whole in one request, or what it grew by since it was sent.

Nothing here knows of other files, of turns or of another try: an error leaves as it comes
(`runtime.shipping`). What goes in parts, or past the server, is in `runtime.parts`.
"""

from __future__ import annotations

import hashlib
from contextlib import nullcontext
from typing import IO, TYPE_CHECKING

from paddlecloud.model.errors import Conflict, NotFound, PaddleCloudError
from paddlecloud.model.signing import quote
from paddlecloud.runtime.link import FileBody

if TYPE_CHECKING:
    from paddlecloud.runtime.book import Tracked
    from paddlecloud.runtime.link import Channel
    from paddlecloud.runtime.outputs import Found
    from paddlecloud.runtime.parts import Room

#: A file larger than this may take longer to store than a small request.
_BYTES_PER_SECOND = 1024 * 1024
_TIMEOUT = 60.0
_BLOCK = 1024 * 1024
#: What a file grew by is sent in pieces of this size.
_PIECE = 8 * 1024 * 1024


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
    room: Room | None,
) -> str | None:
    """The digest of the whole file if it only grew, and the server could put the rest behind
    what it has. Digested is what is sent, so that nothing comes in between."""
    offset, before = shorter
    digest = _digest(file, offset)
    if digest is None or digest.hexdigest() != before:
        return None
    while offset < sent.size:
        with nullcontext() if room is None else room.place():
            piece = file.read(min(_PIECE, sent.size - offset))
            if not piece or not _add(tracked, sent, piece, offset, channel):
                return None
            digest.update(piece)
            offset += len(piece)
            del piece
    return digest.hexdigest()


def put_whole(tracked: Tracked, sent: Found, file: IO[bytes], channel: Channel) -> str | None:
    """The digest of the file; None when it changed meanwhile.

    It is read twice, because the signature covers its digest: a job that rewrites it in
    between makes the server refuse the body, and then the next pass sends it.
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


def _add(tracked: Tracked, sent: Found, piece: bytes, offset: int, channel: Channel) -> bool:
    """Put a piece behind what the server has of the file; False when it has to be sent whole."""
    query = {"fence": tracked.fence, "mtime": f"{sent.mtime:.6f}", "offset": offset}
    try:
        channel.call("POST", _path(tracked, sent), piece, query, timeout=_TIMEOUT)
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
        piece = file.read(min(left, _BLOCK))
        if not piece:
            return None
        digest.update(piece)
        left -= len(piece)
    return digest
