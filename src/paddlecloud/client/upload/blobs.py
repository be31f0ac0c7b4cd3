"""Uploads the blobs of a scan that the server does not have yet.

Small files go many in one request, `[32 bytes sha256][8 bytes length][bytes]` each (POST /blobs);
those that arrived before a request broke stay. Big ones go in parts (`client.upload.multipart`), or
are copied where the server is on this machine (`client.upload.local_handoff`).
"""

from __future__ import annotations

import hashlib
import os

from paddlecloud.client import response_schemas
from paddlecloud.client.file_names import shown
from paddlecloud.client.response_checks import refuse
from paddlecloud.client.scan.walk import BIG, BLOCK, stamp, unreadable
from paddlecloud.client.transport import MAX_LISTING
from paddlecloud.model.errors import Conflict, PaddleCloudError, Retry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import Any, TypeVar

    from paddlecloud.client.scan.walk import Scan, Source
    from paddlecloud.client.transport import Transport
    from paddlecloud.client.upload.local_handoff import LocalHandoff
    from paddlecloud.transfer.presigned import PresignedConnections
    from paddlecloud.transfer.resume import Progress as Counter

    Progress = Callable[[int, int], None]
    """Gets uploaded bytes: how many more, and how many there will be in all."""
    Note = Callable[..., None]
    T = TypeVar("T")

#: One request of small files, at most: it is held in memory so that each file is read once.
BATCH = 8 * BLOCK
#: A request is no more than a twentieth of all that is sent, for it is lost when the connection
#: breaks; but so much is worth one.
LEAST_BATCH = BLOCK // 4
#: A manifest from this length on is compressed.
LONG = 64 * 1024
#: What a pack is refused with whose bytes are not those that were sent.
_PACK_REFUSALS = frozenset(("auth_body_hash", "blob_digest", "pack_malformed"))


def ignore_note(code: str, **params: object) -> None:
    """A `Note` that reports nothing."""


def upload(
    transport: Transport,
    scan: Scan,
    progress: Progress | None = None,
    handoff: LocalHandoff | None = None,
    skipped: Progress | None = None,
    note: Note = ignore_note,
) -> None:
    """Upload what the server lacks, until it has the whole snapshot; resumes after interruptions.

    `skipped` gets the bytes that arrived before; `progress`, if it is None. `note(code)` is called
    when the upload is resumed, or given up.
    """
    from paddlecloud.transfer.resume import Progress, resume  # noqa: PLC0415 - not every submit

    counter = Progress(progress, skipped)
    resume(_Upload(transport, scan, handoff, counter).attempt, counter, note)


def missing_blobs(transport: Transport, scan: Scan) -> list[str]:
    """The digests that an upload would send. The server stores nothing for it."""
    from paddlecloud.transfer.resume import Progress  # noqa: PLC0415 - as above

    return _Upload(transport, scan, None, Progress(None, None), dry_run=True).missing()


def pack(sources: Mapping[str, Source], wanted: Iterable[str]) -> bytes:
    """Some blobs as one body: `[32 bytes sha256][8 bytes length][bytes]` for each.

    Conflict("files_changed") names a file that changed.
    """
    return b"".join(_packed(sources, wanted))


def batches(
    wanted: Iterable[T], size_of: Callable[[T], int], limit: int, most: int | None = None
) -> Iterator[list[T]]:
    """Groups of at most `limit` bytes, or of one item that is larger; and of at most `most`."""
    group: list[T] = []
    size = 0
    for each in wanted:
        if group and (size + size_of(each) > limit or len(group) == most):
            yield group
            group, size = [], 0
        group.append(each)
        size += size_of(each)
    if group:
        yield group


class _Upload:
    def __init__(
        self,
        transport: Transport,
        scan: Scan,
        handoff: LocalHandoff | None,
        progress: Counter,
        *,
        dry_run: bool = False,
    ) -> None:
        self._transport = transport
        self._sources = scan.sources
        self._handing = handoff
        self._progress = progress
        self._connections: PresignedConnections | None = None
        head = b'{"dry_run":1,"entries":' if dry_run else b'{"entries":'
        self._manifest = head + scan.canonical.encode() + b"}"
        self._how: dict[str, Any] = {"schema": response_schemas.MISSING, "most": MAX_LISTING}
        if len(self._manifest) >= LONG:
            from zlib import compress  # noqa: PLC0415 - only many files need it

            self._manifest = compress(self._manifest, 1)
            self._how["encoding"] = "deflate"

    def attempt(self) -> None:
        """Send all that is missing. A server may have lost some again when it is asked the second
        time (a clean-up, a damaged store): Retry."""
        missing = self.missing()
        if not missing:
            return
        self._send(missing)
        missing = self.missing()
        if missing:
            path = shown(self._sources[missing[0]][0])
            raise Retry("upload_unfinished", files=len(missing), path=path)

    def missing(self) -> list[str]:
        post = self._transport.post
        missing: list[str] = post("/snapshots", self._manifest, idempotent=True, **self._how)[
            "missing"
        ]
        for at, sha256 in enumerate(missing):
            if sha256 not in self._sources:
                refuse(f"missing[{at}]", sha256, "response_ours")
        return missing

    def _send(self, missing: list[str]) -> None:
        """Small ones together, then each of the big ones."""
        by_size = sorted(missing, key=self._size)
        total = sum(map(self._size, by_size))
        self._progress.begin(total)
        small = [sha256 for sha256 in by_size if self._size(sha256) < BIG]
        limit = min(BATCH, max(LEAST_BATCH, total // 20))
        for group in batches(small, lambda sha256: 40 + self._size(sha256), limit):
            self._send_pack(group)
        for sha256 in by_size[len(small) :]:
            self._send_big(sha256, total)

    def _size(self, sha256: str) -> int:
        return self._sources[sha256][1]

    def _send_pack(self, group: list[str]) -> None:
        """A request that breaks is not repeated as it is: the next attempt asks what arrived."""
        body = pack(self._sources, group)
        self._progress.add(0)  # it begins: what is sent now was found unchanged
        try:
            self._transport.send("/blobs", body, hashlib.sha256(body).hexdigest())
        except PaddleCloudError as error:
            if error.code not in _PACK_REFUSALS:
                raise
            raise Retry("upload_damaged", reason=str(error)) from error
        self._progress.add(sum(map(self._size, group)))

    def _send_big(self, sha256: str, total: int) -> None:
        source = self._sources[sha256]
        if self._handing is not None and self._handing.give(sha256, source):
            self._progress.add(source[1])
            return
        from paddlecloud.client.upload import _multipart  # noqa: PLC0415 - only big files need it
        from paddlecloud.transfer.presigned import PresignedConnections  # noqa: PLC0415 - as above

        if self._connections is None:
            self._connections = PresignedConnections(self._transport.pool)
        self._progress.add(0)
        _multipart.send(self._transport, sha256, source, total, self._progress, self._connections)


def _packed(sources: Mapping[str, Source], wanted: Iterable[str]) -> Iterator[bytes]:
    for sha256 in wanted:
        yield bytes.fromhex(sha256) + sources[sha256][1].to_bytes(8, "big")
        yield from _content(sha256, sources[sha256])


def _content(sha256: str, source: Source) -> Iterator[bytes]:
    """The bytes of one source, exactly as many as announced, and those of its digest."""
    path, size, read_at = source
    try:
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - pathlib costs start-up time
            status = os.fstat(file.fileno())
            before = stamp(status)
            # The digest was taken at this stamp; only a newer one makes hashing again worth it.
            digest = None if before == read_at else hashlib.sha256()
            left = size if status.st_size == size else -1
            while left > 0 and (block := file.read(min(BLOCK, left))):
                left -= len(block)
                if digest is not None:
                    digest.update(block)
                yield block
            changed = left != 0 or stamp(os.fstat(file.fileno())) != before
    except OSError as error:
        raise unreadable(path, error) from None
    if changed or (digest is not None and digest.hexdigest() != sha256):
        raise Conflict("files_changed", path=shown(path))
