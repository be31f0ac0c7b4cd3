"""Jobs with storage of their own: the keys that go along with a submit, and files for the bucket.

The keys go to the server in the body of a request, never over plain HTTP to another machine, and
the bytes to the bucket by addresses that the server signs: this side knows neither where the bucket
is nor how to sign for it. Files that lie there unchanged, by size and MD5, are not sent again; a
large one goes in parts (`client.upload.user_bucket_multipart`).
"""

from __future__ import annotations

from paddlecloud.client import response_schemas
from paddlecloud.client.display import few
from paddlecloud.client.response_checks import refuse
from paddlecloud.client.transport import MAX_LISTING
from paddlecloud.client.upload import user_bucket_multipart
from paddlecloud.client.upload.blobs import batches
from paddlecloud.client.upload.presigned_put import check_unchanged, md5_of_piece, put_all
from paddlecloud.model.errors import Refused
from paddlecloud.model.files.etag import LEAST_PART, at_once, md5_of, part_size
from paddlecloud.net.retry import patiently

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any, TypeVar

    from paddlecloud.client.response_checks import Schema
    from paddlecloud.client.scan.notices import Row
    from paddlecloud.client.scan.walk import Scan
    from paddlecloud.client.sdk import Client
    from paddlecloud.client.transport import Transport
    from paddlecloud.client.upload.blobs import Progress
    from paddlecloud.client.upload.presigned_put import Sending

    Note = Callable[..., None]
    T = TypeVar("T")

#: Addresses that are asked for at a time, and for how many bytes: each is good for an hour, and
#: these need no more with 300 kbit/s.
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
    if not endpoint.tls and not _is_here(endpoint.host):
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
    progress: Progress | None,
    note: Note,
) -> None:
    """Put the files of a scan under bos_url, as far as they are not there.

    `request` is the submit to be: what it would be refused for is told before a byte is sent.
    Conflict("files_changed") names a file that is not any more what was scanned.
    """
    how: dict[str, Any] = {
        "schema": response_schemas.PRIVATE_FILES,
        "most": MAX_LISTING,
        "again": True,
    }
    there = patiently(lambda: transport.post("/private/files", request, **how))["files"]
    known = {path: (size, tag) for path, size, tag in there}
    _tell_losses(scan, note)
    wanted = [
        sending for sending in _sendings(scan) if not _is_there(sending, known.get(sending[0]))
    ]
    total = sum(size for _, _, size, _ in wanted)
    counter = _Counter(lambda size: progress and progress(size, total))
    _Bucket(transport, request, total, counter.add).put(wanted)


def _sendings(scan: Scan) -> Iterator[Sending]:
    for path, kind, size, *_ in scan.entries:
        if kind == "file":
            yield path, f"{scan.root}/{path}", size, scan.stamp_of(path)


def _tell_losses(scan: Scan, note: Note) -> None:
    """What a bucket has no notion of."""
    links = [row[0] for row in scan.entries if row[1] == "link"]
    if links:
        note("private_links_skipped", paths=few(links))
    bare = [f"{path}/" for path in _empty_directories(scan.entries)]
    bare += [row[0] for row in scan.entries if row[1] == "file" and row[4]]
    if bare:
        note("private_files_bare", paths=few(bare))


def _empty_directories(entries: list[Row]) -> list[str]:
    """The innermost of those with no file in them or below."""
    filled = {above for row in entries if row[1] == "file" for above in _above(row[0])}
    lost = [row[0] for row in entries if row[1] == "dir" and row[0] not in filled]
    outer = {above for path in lost for above in _above(path)}
    return [path for path in lost if path not in outer]


def _above(path: str) -> list[str]:
    names = path.split("/")
    return ["/".join(names[:depth]) for depth in range(1, len(names))]


def _is_here(host: str) -> bool:
    """Whether this is an address of the machine itself, and no name that only looks like one."""
    numbers = host.split(".")
    is_address = len(numbers) == 4 and all(map(str.isdigit, numbers))
    return host in ("localhost", "::1") or (is_address and numbers[0] == "127")


def _is_there(sending: Sending, known: tuple[int, str] | None) -> bool:
    if known is None or known[0] != sending[2] or not _has_tag(sending, known[1]):
        return False
    check_unchanged(sending)
    return True


def _has_tag(sending: Sending, tag: str) -> bool:
    """A tag that is neither an MD5 nor that of our parts tells nothing: then it is sent again."""
    _, source, size, _ = sending
    md5 = md5_of(tag)
    if md5 is None:
        return size > LEAST_PART and user_bucket_multipart.is_of_parts(source, size, tag)
    return md5_of_piece(source, 0, size).hex() == md5


class _Counter:
    """Tells of bytes once, however often they have to go."""

    def __init__(self, tell: Callable[[int], object]) -> None:
        self._tell = tell
        self._out = 0
        self._told = 0

    def add(self, size: int) -> None:
        """So many more are out; with a minus: so many have to go again."""
        self._out += size
        news = self._out - self._told
        if news > 0:
            self._told = self._out
            self._tell(news)


class _Bucket:
    """The directory of a job to be, as far as the server and its addresses lead there."""

    def __init__(
        self,
        transport: Transport,
        request: Mapping[str, object],
        total: int,
        add: Callable[[int], object],
    ) -> None:
        spec = request["spec"]
        assert isinstance(spec, dict)
        self._transport = transport
        self._bos_url = str(spec["bos_url"])
        self._asked = {name: value for name, value in request.items() if name.startswith("bos_")}
        self._asked["bos_url"] = self._bos_url
        self._total = total
        self._add = add

    def put(self, wanted: list[Sending]) -> None:
        most = part_size(self._total)
        small = [sending for sending in wanted if sending[2] <= most]
        for batch in batches(small, lambda sending: sending[2], BATCH_BYTES, BATCH):
            self._put_whole(batch)
        for sending in wanted:
            if sending[2] > most:
                user_bucket_multipart.send(
                    sending, self._ask, self._bos_url, self._total, self._add
                )

    def _put_whole(self, batch: list[Sending]) -> None:
        paths = [path for path, *_ in batch]
        given = self._ask("/addresses", response_schemas.ADDRESSES, paths=paths)["addresses"]
        if len(given) != len(batch):
            refuse("addresses", given, "response_row", count=len(batch))
        pieces = [
            (path, source, 0, size, address, seen)
            for (path, source, size, seen), address in zip(batch, given, strict=True)
        ]
        together = at_once(self._total, max(size for _, _, size, _ in batch))
        put_all(pieces, self._bos_url, lambda *_: None, self._add, at_once=together)

    def _ask(self, where: str, schema: Schema, **more: object) -> Any:
        asked = {**self._asked, **more}
        how: dict[str, Any] = {"schema": schema, "again": True}
        return patiently(lambda: self._transport.post(f"/private{where}", asked, **how))
