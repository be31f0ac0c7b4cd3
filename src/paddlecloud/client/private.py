"""Jobs with storage of their own: the keys that go along with a submit, and files for the bucket.

The keys go to the server in the body of a request, never over plain HTTP to another machine, and
the bytes to the bucket by addresses that the server signs: this side knows neither where the bucket
is nor how to sign for it. Files that lie there unchanged, by size and MD5, are not sent again.
"""

from __future__ import annotations

import hashlib
import os
from base64 import b64encode
from threading import Lock, Thread

from paddlecloud.client.http import Connection
from paddlecloud.client.naming import shown
from paddlecloud.client.retries import patiently
from paddlecloud.client.scanning import BLOCK, unreadable
from paddlecloud.client.transport import split_url
from paddlecloud.model.errors import Conflict, Invalid, Refused, Retry
from paddlecloud.model.private import md5_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from paddlecloud.client.scanning import Row, Scan
    from paddlecloud.client.sdk import Client
    from paddlecloud.client.transport import Transport
    from paddlecloud.client.uploading import Progress

    Note = Callable[..., None]
    Sending = tuple[str, str, int]
    """Path in the directory, the file's own path, size."""

#: What one PUT may bring; S3 and BOS allow no more.
MAX_PUT = 5 * 1024**3
AT_ONCE = 4
#: Addresses that are asked for at a time.
BATCH = 500
TRIES = 4
_LOOPBACK = ("localhost", "::1")


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


def bring(
    transport: Transport,
    scan: Scan,
    request: Mapping[str, object],
    progress: Progress | None,
    note: Note,
) -> None:
    """Put the files of a scan under bos_url, as far as they are not there.

    `request` is the submit to be: what it would be refused for is told before a byte is sent.
    """
    there = patiently(lambda: transport.post("/private/files", request, again=True))["files"]
    known = {path: (size, tag) for path, size, tag in there}
    links = sum(row[1] == "link" for row in scan.entries)
    if links:
        note("private_links_skipped_one" if links == 1 else "private_links_skipped", count=links)
    wanted = [
        (row[0], os.path.join(scan.root, row[0]), row[2])  # noqa: PTH118 - pathlib costs 8 ms
        for row in scan.entries
        if row[1] == "file" and not _is_there(scan.root, row, known.get(row[0]))
    ]
    total = sum(size for _, _, size in wanted)
    for first in range(0, len(wanted), BATCH):
        _put_all(transport, request, wanted[first : first + BATCH], total, progress)


def _is_here(host: str) -> bool:
    return host in _LOOPBACK or host.startswith("127.")


def _is_there(root: str, row: Row, known: tuple[int, str] | None) -> bool:
    """A tag that is no MD5 tells nothing: then it is sent again."""
    if known is None or known[0] != row[2]:
        return False
    md5 = md5_of(known[1])
    return md5 is not None and _md5(f"{root}/{row[0]}").hex() == md5


def _put_all(
    transport: Transport,
    request: Mapping[str, object],
    batch: list[Sending],
    total: int,
    progress: Progress | None,
) -> None:
    spec = request["spec"]
    assert isinstance(spec, dict)
    keys = {name: value for name, value in request.items() if name.startswith("bos_")}
    for path, _, size in batch:
        if size > MAX_PUT:
            raise Invalid("private_file_large", path=shown(path), size=size, limit=MAX_PUT)
    asked = {**keys, "bos_url": spec["bos_url"], "paths": [path for path, _, _ in batch]}
    given = patiently(lambda: transport.post("/private/addresses", asked, again=True))["addresses"]
    work = iter(list(zip(batch, given, strict=True)))
    crew = _Crew(work, str(spec["bos_url"]), lambda size: progress and progress(size, total))
    crew.run()


class _Crew:
    """A few threads that put files; the first failure ends them all, and is raised."""

    def __init__(
        self,
        work: Iterable[tuple[Sending, str]],
        bos_url: str,
        add: Callable[[int], object],
    ) -> None:
        self._work = iter(work)
        self._bos_url = bos_url
        self._add = add
        self._lock = Lock()
        self._failure: BaseException | None = None

    def run(self) -> None:
        threads = [Thread(target=self._put_some, daemon=True) for _ in range(AT_ONCE)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self._failure is not None:
            raise self._failure

    def _put_some(self) -> None:
        connections: dict[str, Connection] = {}
        try:
            while (item := self._next()) is not None:
                self._put(*item, connections)
        except BaseException as error:  # noqa: BLE001 - raised again by `run`
            self._failure = error
        finally:
            for connection in connections.values():
                connection.close()

    def _next(self) -> tuple[Sending, str] | None:
        with self._lock:
            return None if self._failure is not None else next(self._work, None)

    def _put(self, sending: Sending, address: str, connections: dict[str, Connection]) -> None:
        path, source, size = sending
        reason = ""
        for _ in range(TRIES):
            try:
                reason = _put_once(sending, address, connections)
            except Retry as error:
                reason = str(error)
            except OSError as error:
                raise unreadable(source, error) from None
            if not reason:
                with self._lock:
                    self._add(size)
                return
        raise Retry("private_put_failed", path=shown(path), bos_url=self._bos_url, reason=reason)


def _put_once(sending: Sending, address: str, connections: dict[str, Connection]) -> str:
    """Empty when the bucket has it; else what it said."""
    path, source, size = sending
    headers = {
        "content-length": str(size),
        "content-md5": b64encode(_md5(source)).decode("ascii"),
    }
    scheme, _, rest = address.partition("://")
    name, _, target = rest.partition("/")
    if name not in connections:
        _, host, port = split_url(f"{scheme}://{name}")
        connections[name] = Connection(host, port, scheme == "https")
    with open(source, "rb") as file:  # noqa: PTH123 - a Path costs start-up time
        if os.fstat(file.fileno()).st_size != size:
            raise Conflict("files_changed", path=shown(path))
        answer = connections[name].request("PUT", f"/{target}", headers, file)
        said = answer.read()
    return "" if answer.status < 300 else f"{answer.status} {said[:200].decode(errors='replace')}"


def _md5(path: str) -> bytes:
    digest = hashlib.md5(usedforsecurity=False)
    try:
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - a Path costs start-up time
            while block := file.read(BLOCK):
                digest.update(block)
    except OSError as error:
        raise unreadable(path, error) from None
    return digest.digest()
