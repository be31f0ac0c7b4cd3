"""Brings the contents of a scan to the server: only what it lacks, and nothing twice.

Small files go many in one request, `[32 bytes sha256][8 bytes length][bytes]` each (POST /blobs);
those that arrived before a request broke stay. Big ones go in parts (`client.upload.multipart`), or
are handed over where the server is on this machine (`client.upload.local_handoff`).
"""

from __future__ import annotations

import hashlib
import os
from time import sleep

from paddlecloud.client import response_schemas
from paddlecloud.client.display import shown
from paddlecloud.client.response_checks import refuse
from paddlecloud.client.scan.walk import BIG, BLOCK, stamp, unreadable
from paddlecloud.client.transport import MAX_LISTING
from paddlecloud.model.errors import Conflict, PaddleCloudError, Retry
from paddlecloud.net.retry import PAUSES, Patience, may_pass, patiently

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import Any, TypeVar

    from paddlecloud.client.scan.walk import Scan, Source
    from paddlecloud.client.transport import Transport
    from paddlecloud.client.upload.local_handoff import Handing

    Progress = Callable[[int, int], None]
    """Hears of uploaded bytes: how many now, how many there will be in all."""
    Note = Callable[..., None]
    T = TypeVar("T")

#: One upload request of small files, at most: it is held in memory so that each file is read once.
BATCH = 8 * BLOCK
#: A request is no more than a twentieth of all that is sent, for it is lost when the line breaks;
#: but so much is worth one.
LEAST_BATCH = BLOCK // 4
#: How often contents are brought: a server may have lost some again when it is asked what it lacks
#: (a clean-up, a damaged store), but not for ever.
ROUNDS = 3
#: A list of files from this length on is compressed.
LONG = 64 * 1024
#: What a pack is refused with whose bytes are not those that were sent.
_PACK_REFUSALS = frozenset(("auth_body_hash", "blob_digest", "pack_malformed"))
#: Why an upload is begun again of which a person is told that bytes were damaged, and not that
#: nobody answers.
_TOLD_AS_DAMAGE = ("store_damaged", "upload_damaged")


def upload(
    transport: Transport,
    scan: Scan,
    progress: Progress | None = None,
    handing: Handing | None = None,
    skipped: Progress | None = None,
) -> None:
    """Bring the contents that the server lacks, until it has the whole snapshot. `skipped` hears of
    bytes that had arrived before; if nobody does, `progress`."""
    body, how = _manifest(scan)

    def lacking() -> list[str]:
        asked = {"schema": response_schemas.MISSING, "most": MAX_LISTING, **how}
        missing: list[str] = transport.post("/snapshots", body, **asked)["missing"]
        for at, sha256 in enumerate(missing):
            if sha256 not in scan.sources:
                refuse(f"missing[{at}]", sha256, "response_ours")
        return missing

    bringing = _Bringing(transport, scan.sources, lacking, handing)
    for rounds_left in range(ROUNDS, -1, -1):
        missing = patiently(lacking)
        if not missing:
            return
        if rounds_left:
            bringing.bring(missing, progress, skipped or progress)
    path = shown(scan.sources[missing[0]][0])
    raise Retry("upload_unfinished", files=len(missing), path=path)


def persistently(
    work: Callable[[Counted], None],
    progress: Progress | None,
    note: Note,
    skipped: Progress | None = None,
) -> None:
    """Do the work of an upload, again if the line is cut for longer than a moment; what arrived
    before stays, so that only the rest is sent. `work` gets what it tells its progress to."""
    counted = Counted(progress, skipped)
    # A store that failed each of the server's own tries got the bytes as often: once more.
    patience = Patience(PAUSES, once=("store_failed",))
    while True:
        try:
            return work(counted)
        except Retry as error:
            if (
                not may_pass(error)
                or error.code == "upload_unfinished"
                or counted.is_unbegun(error)
            ):
                raise
            if counted.has_grown():
                patience.progressed()
            is_first = patience.is_fresh
            pause = patience.next_pause(error)
            if pause is None:
                note("upload_kept")
                raise
            if is_first:
                note("upload_again_damaged" if error.code in _TOLD_AS_DAMAGE else "upload_again")
        except KeyboardInterrupt:
            if counted.has_begun:
                note("upload_kept")
            raise
        sleep(pause)
        counted.is_new = True


class Past:
    """The way past the server into its store, which all files of an upload share: whoever finds
    that nobody answers there spares the others the wait."""

    __slots__ = ("is_open",)

    def __init__(self) -> None:
        self.is_open = True


class Counted:
    """The progress of an upload that may be begun again, and is then asked for less."""

    def __init__(self, progress: Progress | None, skipped: Progress | None = None) -> None:
        from threading import Lock  # noqa: PLC0415 - only with something to send

        self._lock = Lock()
        self._progress = progress
        self._skipped = skipped or progress
        self._sent = 0
        self._whole = 0
        self._most = 0
        self.is_new = True

    @property
    def has_begun(self) -> bool:
        return self._whole > 0

    def has_grown(self) -> bool:
        """Whether more of it went than at any time before this was last asked."""
        before, self._most = self._most, max(self._most, self._sent)
        return self._most > before

    def is_unbegun(self, error: Retry) -> bool:
        """Whether a bucket did not even say what it has: then its address may be a wrong one."""
        return error.code == "private_store_unreachable" and not self._whole

    def __call__(self, count: int, total: int) -> None:
        """So much more was sent, of so much."""
        self._add(count, total, self._progress)

    def skip(self, count: int, total: int) -> None:
        """So much more is there, and was before."""
        self._add(count, total, self._skipped)

    def _add(self, count: int, total: int, tell: Progress | None) -> None:
        with self._lock:
            if self.is_new:
                self.is_new = False
                self._whole = self._whole or total
                count += self._whole - total - self._sent
            self._sent += count
            if tell is not None:
                tell(count, self._whole)


def pack(sources: Mapping[str, Source], wanted: Iterable[str]) -> bytes:
    """Some contents as one body: `[32 bytes sha256][8 bytes length][bytes]` for each.

    Conflict("files_changed") names a file that changed.
    """
    return b"".join(_packed(sources, wanted))


def batches(
    wanted: Iterable[T], size_of: Callable[[T], int], limit: int, most: int | None = None
) -> Iterator[list[T]]:
    """What is to be sent in groups of at most `limit` bytes, or of one that is larger; and of at
    most so many."""
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


def _manifest(scan: Scan) -> tuple[bytes, dict[str, Any]]:
    """The rows as the body of a request, and how it is sent: a long one is worth compressing."""
    body = b'{"entries":' + scan.canonical.encode() + b"}"
    if len(body) < LONG:
        return body, {"again": True}
    from zlib import compress  # noqa: PLC0415 - only many files need it

    return compress(body, 1), {"again": True, "encoding": "deflate"}


class _Bringing:
    """Brings contents; `lacking` asks the server what it has not got."""

    def __init__(
        self,
        transport: Transport,
        sources: Mapping[str, Source],
        lacking: Callable[[], list[str]],
        handing: Handing | None,
    ) -> None:
        self._transport = transport
        self._sources = sources
        self._lacking = lacking
        self._handing = handing
        self._past = Past()

    def bring(
        self, missing: Iterable[str], progress: Progress | None, skipped: Progress | None
    ) -> None:
        """Small ones together, then each of the big ones."""
        by_size = sorted(missing, key=self._size)
        total = sum(map(self._size, by_size))

        def add(count: int) -> None:
            if progress is not None:
                progress(count, total)

        def skip(count: int) -> None:
            if skipped is not None:
                skipped(count, total)

        small = [sha256 for sha256 in by_size if self._size(sha256) < BIG]
        limit = min(BATCH, max(LEAST_BATCH, total // 20))
        for group in batches(small, lambda sha256: 40 + self._size(sha256), limit):
            self._send_pack(group, add)
        for sha256 in by_size[len(small) :]:
            self._send_big(sha256, total, add, skip)

    def _size(self, sha256: str) -> int:
        return self._sources[sha256][1]

    def _send_pack(self, group: list[str], add: Callable[[int], None]) -> None:
        """Have these arrive. A request that breaks is not repeated: what came before is there."""
        wanted = [group]

        def send() -> None:
            left = wanted.pop() if wanted else self._left_of(group)
            if left:
                self._send_once(left, add)

        patiently(send)
        add(sum(map(self._size, group)))

    def _left_of(self, group: list[str]) -> list[str]:
        lacking = frozenset(self._lacking())
        return [each for each in group if each in lacking]

    def _send_once(self, group: list[str], add: Callable[[int], None]) -> None:
        body = pack(self._sources, group)
        add(0)  # it begins: what is sent now was found unchanged
        try:
            self._transport.send("/blobs", body, hashlib.sha256(body).hexdigest())
        except PaddleCloudError as error:
            if error.code not in _PACK_REFUSALS:
                raise
            raise Retry("upload_damaged", reason=str(error)) from error

    def _send_big(
        self, sha256: str, total: int, add: Callable[[int], None], skip: Callable[[int], None]
    ) -> None:
        source = self._sources[sha256]
        if self._handing is not None and self._handing.give(sha256, source):
            add(source[1])
            return
        from paddlecloud.client.upload import multipart  # noqa: PLC0415 - only big files need it

        add(0)
        multipart.send(self._transport, sha256, source, total, add, skip, self._past)


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
