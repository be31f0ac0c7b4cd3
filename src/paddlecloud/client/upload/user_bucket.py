"""Uploads the files of a submit into the user's own bucket, and the keys that go with the submit.

The keys go to the server in the body of a request, never over plain HTTP to another machine, and
the bytes to the bucket by presigned URLs: the client knows neither where the bucket is nor how to
sign for it. Files that are there unchanged, by size and MD5, are not sent again. A large one goes
in parts and gets its name when all of them are there.
"""

from __future__ import annotations

import hashlib
from contextlib import contextmanager

from paddlecloud.client import response_schemas
from paddlecloud.client.file_names import few, shown
from paddlecloud.client.response_checks import refuse
from paddlecloud.client.scan.walk import BLOCK, unreadable
from paddlecloud.client.transport import DONE, MAX_LISTING
from paddlecloud.client.upload._scanned_file import ScannedFile
from paddlecloud.client.upload.blobs import batches
from paddlecloud.model.errors import Refused, Retry
from paddlecloud.model.files.etag import (
    AT_ONCE,
    LEAST_PART,
    at_once,
    count_in,
    cuts,
    joined_tag,
    md5_of,
    part_size,
)
from paddlecloud.transfer.parts import PartSender, Target, Upload
from paddlecloud.transfer.presigned import PresignedConnections, PutFailed
from paddlecloud.transfer.resume import Progress, restarted_if_stale, resume
from paddlecloud.transfer.workers import run_workers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from typing import Any, TypeVar

    from paddlecloud.client.response_checks import Schema
    from paddlecloud.client.scan.walk import Scan
    from paddlecloud.client.sdk import Client
    from paddlecloud.client.transport import Transport
    from paddlecloud.transfer.resume import Note, Report

    T = TypeVar("T")
    Ask = Callable[..., Any]
    """POSTs to a path below /private with further fields; the answer, checked by a schema."""
    Sending = tuple[str, str, int, str]
    """Path in the directory, the file's own path, and its size and stamp when it was scanned."""

#: Presigned URLs that are asked for at a time, and for how many bytes: each is valid for an hour,
#: and these need no more with 300 kbit/s.
BATCH, BATCH_BYTES = 500, 128 * 1024 * 1024


def keys_for(client: Client, bos_url: object) -> dict[str, str]:
    """The keys of [bos] as they go into a request; Refused when there are none, or when the way to
    the server is open to others."""
    values = client.config.values
    found = {
        "bos_access_key": values["bos.ak"].text,
        "bos_secret_key": values["bos.sk"].text,
        "bos_session_token": values["bos.session_token"].text,
    }
    if not found["bos_access_key"] or not found["bos_secret_key"]:
        raise Refused("private_store_no_keys", bos_url=str(bos_url), path=client.config.save_path)
    endpoint = client.transport.endpoint
    if not endpoint.is_confidential:
        raise Refused("private_keys_plain", url=endpoint.url)
    return found


def with_keys(client: Client, call: Callable[[], T]) -> T:
    """What the call gives; keys that the bucket refuses are named by where they came from."""
    try:
        return call()
    except Refused as error:
        if error.code != "private_store_denied":
            raise
        values = client.config.values
        origins = dict.fromkeys((values["bos.ak"].origin, values["bos.sk"].origin))
        raise Refused(error.code, **(error.params | {"keys": ", ".join(origins)})) from None


def bring(
    transport: Transport,
    scan: Scan,
    request: Mapping[str, object],
    progress: Report | None,
    note: Note,
) -> None:
    """Upload the files of a scan to bos_url, as far as they are not there; resumed when it is
    interrupted.

    `request` is the submit that follows: what it would be refused for is checked before a byte is
    sent. Conflict("files_changed") names a file that is not any more what was scanned.
    """
    counter = Progress(progress)
    resume(_Upload(transport, scan, request, counter, note).attempt, counter, note)


def _report_losses(scan: Scan, note: Note) -> None:
    """What a bucket has no notion of."""
    links = [row[0] for row in scan.entries if row[1] == "link"]
    if links:
        note("private_links_skipped", paths=few(links))
    filled = {above for row in scan.entries if row[1] == "file" for above in _above(row[0])}
    empty = [row[0] for row in scan.entries if row[1] == "dir" and row[0] not in filled]
    outer = {above for path in empty for above in _above(path)}
    bare = [f"{path}/" for path in empty if path not in outer]
    bare += [row[0] for row in scan.entries if row[1] == "file" and row[4]]
    if bare:
        note("private_files_bare", paths=few(bare))


def _above(path: str) -> list[str]:
    names = path.split("/")
    return ["/".join(names[:depth]) for depth in range(1, len(names))]


def _is_there(sending: Sending, known: tuple[int, str] | None) -> bool:
    path, source, size, scanned = sending
    if known is None or known[0] != size or not _has_tag(source, size, known[1]):
        return False
    with ScannedFile(source, size, scanned, path) as file:
        file.check()
    return True


def _has_tag(source: str, size: int, tag: str) -> bool:
    """Whether a bucket gives this tag to this file, as a whole or in our parts. With another
    kind of tag this is unknown, and the file is sent again."""
    md5 = md5_of(tag)
    if md5 is not None:
        return _md5(source, 0, size) == md5
    likely = [each for each in cuts(size) if count_in(tag) == -(-size // each)]
    return size > LEAST_PART and any(
        joined_tag(_md5(source, begin, each) for begin in range(0, size, each)) == tag
        for each in likely
    )


def _md5(source: str, begin: int, size: int) -> str:
    """Of so many bytes of a file, or of as many as there are."""
    digest = hashlib.md5(usedforsecurity=False)
    try:
        with open(source, "rb", buffering=0) as file:  # noqa: PTH123 - a Path costs start-up time
            file.seek(begin)
            while size > 0 and (block := file.read(min(BLOCK, size))):
                digest.update(block)
                size -= len(block)
    except OSError as error:
        raise unreadable(source, error) from None
    return digest.hexdigest()


class BucketTarget(Target):
    """A large file on its way into the bucket."""

    def __init__(self, path: str, size: int, ask: Ask) -> None:
        self._asked: dict[str, object] = {"path": path, "size": size}
        self._ask = ask
        self._upload = ""

    def begin(self) -> Upload:
        state = self._ask("/uploads", response_schemas.PRIVATE_UPLOAD, **self._asked)
        if not state["part_size"]:
            refuse("part_size", state["part_size"], "response_positive")
        self._upload = state["upload"]
        return Upload(state["part_size"], dict(state["parts"]), through=False, urls={})

    def presign(self, numbers: Sequence[int]) -> Mapping[int, str]:
        asked = {"path": self._asked["path"], "upload": self._upload, "numbers": numbers}
        urls = self._ask("/uploads/addresses", response_schemas.ADDRESSES, **asked)["addresses"]
        return dict(zip(numbers, _of_each(numbers, urls), strict=True))

    def complete(self, tags: Sequence[str], sha256: str) -> None:
        self._ask("/uploads/join", DONE, **self._asked, upload=self._upload, tags=tags)


class _Upload:
    """The directory of a job that is about to be submitted."""

    def __init__(
        self,
        transport: Transport,
        scan: Scan,
        request: Mapping[str, object],
        progress: Progress,
        note: Note,
    ) -> None:
        spec = request["spec"]
        assert isinstance(spec, dict)
        self._transport = transport
        self._scan = scan
        self._request = request
        self._progress = progress
        self._connections = PresignedConnections(transport.pool)
        self._note: Note | None = note
        self._bos_url = str(spec["bos_url"])
        self._keys = {name: value for name, value in request.items() if name.startswith("bos_")}
        self._total = 0

    def attempt(self) -> None:
        """Send all that is not there."""
        how: dict[str, Any] = {"schema": response_schemas.PRIVATE_FILES, "idempotent": True}
        there = self._transport.post("/private/files", self._request, most=MAX_LISTING, **how)
        known = {path: (size, tag) for path, size, tag in there["files"]}
        if self._note is not None:
            _report_losses(self._scan, self._note)
            self._note = None
        scan = self._scan
        files = [
            (path, f"{scan.root}/{path}", size, scan.read[path][1])
            for path, kind, size, *_ in scan.entries
            if kind == "file"
        ]
        wanted = [one for one in files if not _is_there(one, known.get(one[0]))]
        self._total = sum(size for _, _, size, _ in wanted)
        self._progress.begin(self._total)
        most = part_size(self._total)
        small = [sending for sending in wanted if sending[2] <= most]
        for batch in batches(small, lambda sending: sending[2], BATCH_BYTES, BATCH):
            self._put_whole(batch)
        for sending in wanted:
            if sending[2] > most:
                self._put_parts(sending)

    def _put_whole(self, batch: list[Sending]) -> None:
        paths = [path for path, *_ in batch]
        urls = self._ask("/addresses", response_schemas.ADDRESSES, paths=paths)["addresses"]
        items = zip(batch, _of_each(batch, urls), strict=True)
        threads = at_once(self._total, max(size for _, _, size, _ in batch))
        run_workers(threads, lambda: next(items, None), self._put_some)

    def _put_some(self, items: Iterable[tuple[Sending, str]]) -> None:
        """What one thread does."""
        for (path, source, size, scanned), url in items:
            data = memoryview(bytearray(size))
            with ScannedFile(source, size, scanned, path) as file:
                file.read(0, data)
            with self._explained(path):
                self._connections.put(url, data, self._progress.add)

    def _put_parts(self, sending: Sending) -> None:
        path, source, size, scanned = sending
        with (
            ScannedFile(source, size, scanned, path) as file,
            self._explained(path),
            restarted_if_stale(shown(path)),
        ):
            target = BucketTarget(path, size, self._ask)
            PartSender(
                file, target, self._connections, self._progress, threads=AT_ONCE, total=self._total
            ).send()

    @contextmanager
    def _explained(self, path: str) -> Iterator[None]:
        try:
            yield
        except PutFailed as error:
            where = {"path": shown(path), "bos_url": self._bos_url}
            raise Retry("private_put_failed", **where, reason=str(error)) from error

    def _ask(self, where: str, schema: Schema, **more: object) -> Any:
        asked = {**self._keys, "bos_url": self._bos_url, **more}
        return self._transport.post(f"/private{where}", asked, schema=schema, idempotent=True)


def _of_each(wanted: Sequence[object], urls: list[str]) -> list[str]:
    """The presigned URLs, one for each."""
    if len(urls) != len(wanted):
        refuse("addresses", urls, "response_row", count=len(wanted))
    return urls
