"""Opens the blobs of a replica's files; downloads those that are not on this machine.

A blob is read from the server's store if that is on this machine, else from the cache. A missing
one is downloaded by its presigned URL if it has one, and else through the server. A download that
neither a digest nor an ETag proves is repeated through the server, and accepted if the same bytes
arrive: damage does not repeat itself.

An interrupted download resumes: its bytes are in a `.part` file and their digest so far in memory.
The next request, to the bucket or to any server, asks for the rest; it is repeated while each
request brings something. A download that fails is kept for the next replica that needs the blob.
The digests are lost with the process, so the next agent starts from the beginning.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from paddlecloud.agent.inputs._blob_check import BlobCheck, WantedBlob
from paddlecloud.agent.inputs._presigned import DirectDownloads, PresignedUrls
from paddlecloud.agent.sandbox.hardlinks import name_of
from paddlecloud.model.errors import Invalid, Retry, Unreachable

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from paddlecloud.agent.inputs._blob_check import WantedBlob

    Write = Callable[[bytes], object]
    Fetch = Callable[[int, Write], bool]
    """Passes the bytes from an offset on to the second argument; True when the last was among
    them."""
    from collections.abc import Callable, Sequence

    from paddlecloud.agent.server_link.channel import Channel
    from paddlecloud.net.proxy import Proxies

_READ = os.O_RDONLY | os.O_CLOEXEC
_ATTEMPTS = 3
_PARALLEL = 8
#: Seconds between two checks whether the replica is still wanted.
_POLL_SECONDS = 0.2


class BlobDownloads:
    """The downloads of all replicas. `directory` has the cached blobs; `on_growth` is called with
    the bytes that were added to it. Thread-safe."""

    def __init__(
        self, directory: Path, proxies: Proxies, on_growth: Callable[[int], object]
    ) -> None:
        self._directory = directory
        self._on_growth = on_growth
        self.partial = PartialDownloads()
        self.direct = DirectDownloads(proxies)
        self._lock = threading.Lock()
        self._unproven: dict[str, str] = {}
        """The digest of the last download that was not proven, by the sha256 of the blob."""

    def path(self, sha256: str) -> Path:
        """Where a blob is in the cache."""
        return self._directory / name_of(sha256)

    def fetch(
        self, wanted: WantedBlob, fetch: Fetch, check_wanted: Callable[[], None]
    ) -> str | None:
        """Download a blob into the cache. None when it is there, else the digest of what arrived
        instead. What arrived before the connection broke is kept."""
        target = self.path(wanted.sha256)
        self._directory.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        target.parent.mkdir(parents=True, exist_ok=True)
        download = self.partial.take(wanted, target)
        try:
            complete = download.receive(fetch, check_wanted)
        except OSError:
            download.delete()  # the disk may be full
            raise
        except BaseException:
            self.partial.keep(download)
            raise
        if not complete:
            self.partial.keep(download)
            return download.check.received
        try:
            if not self._is_accepted(download):
                return download.check.received
            self._on_growth(download.check.size)
            download.path.replace(target)
        finally:
            download.delete()
        return None

    def _is_accepted(self, download: PartialDownload) -> bool:
        """Whether it is the wanted blob: proven, or the same as the last download of it."""
        check, sha256 = download.check, download.wanted.sha256
        if not check.is_good():
            return False
        if check.is_proven():
            return True
        with self._lock:
            last = self._unproven.pop(sha256, None)
            if last != check.received:
                self._unproven[sha256] = check.received
            return last == check.received


class BlobSource:
    """The blobs of one replica. Belongs to one thread."""

    def __init__(
        self,
        downloads: BlobDownloads,
        replica: str,
        blobs_dir: str | None,
        channel: Channel,
        *,
        direct: bool,
        is_wanted: Callable[[], bool],
    ) -> None:
        self._downloads = downloads
        self._replica = replica
        self._blobs_dir = blobs_dir
        self._channel = channel
        self._urls = PresignedUrls(replica, channel) if direct else None
        self._is_wanted = is_wanted

    def open(self, sha256: str, size: int) -> int:
        """A descriptor of the blob. Raises Retry when it cannot be downloaded now, or as soon as
        the replica is not wanted any more."""
        self._check_wanted()
        if self._blobs_dir is not None:
            with suppress(FileNotFoundError):
                return os.open(f"{self._blobs_dir}/{name_of(sha256)}", _READ)
        path = self._downloads.path(sha256)
        with suppress(FileNotFoundError):
            return _open_cached(path, size)
        wanted = WantedBlob(sha256, size)
        if self._urls is not None:
            wanted, ahead = self._urls.of(sha256)
            self._fetch_ahead(ahead)
            self._check_wanted()
            with suppress(FileNotFoundError):
                return _open_cached(path, size)
        self._fetch_through_server(wanted)
        with suppress(FileNotFoundError):
            return os.open(path, _READ)
        self._fetch_through_server(wanted)  # it was pruned at that very moment
        return os.open(path, _READ)

    def _check_wanted(self) -> None:
        if not self._is_wanted():
            raise Retry("replica_not_started", replica=self._replica, reason="it is to stop")

    def _fetch_through_server(self, wanted: WantedBlob) -> None:
        path = f"/agent/blobs/{wanted.sha256}"

        def fetch(start: int, write: Write) -> bool:
            query = {"replica": self._replica, **({"offset": start} if start else {})}
            self._channel.call("GET", path, query=query, sink=write)
            return True

        for _ in range(_ATTEMPTS):
            received = self._downloads.fetch(wanted, fetch, self._check_wanted)
            if received is None:
                return
        raise Invalid("agent_blob_damaged", sha256=wanted.sha256, received=received)

    def _fetch_ahead(self, blobs: Sequence[WantedBlob]) -> None:
        """Download these by their presigned URLs, in parallel, as far as that works. When the
        replica is not wanted any more the threads are not waited for: a bucket may be silent."""
        left = iter(blobs)
        lock = threading.Lock()

        def run() -> None:
            try:
                while self._is_wanted():
                    with lock:
                        wanted = next(left, None)
                    if wanted is None:
                        return
                    self._fetch_directly(wanted)
            finally:
                self._downloads.direct.drop_idle()

        count = min(_PARALLEL, len(blobs))
        threads = [threading.Thread(target=run, name="fetch", daemon=True) for _ in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive() and self._is_wanted():
                thread.join(_POLL_SECONDS)

    def _fetch_directly(self, wanted: WantedBlob) -> None:
        def fetch(start: int, write: Write) -> bool:
            return self._downloads.direct.fetch(wanted.url, write, wanted.tag, start)

        if wanted.url and not self._downloads.path(wanted.sha256).exists():
            with suppress(OSError, Retry):
                self._downloads.fetch(wanted, fetch, self._check_wanted)


def _open_cached(path: Path, size: int) -> int:
    """The cached blob, marked as used now. One that a loss of power truncated is deleted, and
    FileNotFoundError raised."""
    fd = os.open(path, _READ)
    if os.fstat(fd).st_size != size:
        os.close(fd)
        path.unlink(missing_ok=True)
        raise FileNotFoundError(path)
    with suppress(OSError):
        os.utime(fd)
    return fd


PART = ".part"


class PartialDownload:
    """What was received of a blob. Belongs to one thread at a time."""

    def __init__(self, wanted: WantedBlob, path: Path) -> None:
        self.wanted = wanted
        self.path = path
        self.check = BlobCheck(wanted)

    def receive(self, fetch: Fetch, check_wanted: Callable[[], None]) -> bool:
        """Download the rest; whether it is complete. Raises what `fetch` raises when it brought
        nothing, and what `check_wanted` raises."""
        with self.path.open("ab") as out:

            def write(chunk: bytes) -> None:
                check_wanted()
                out.write(chunk)
                self.check.update(chunk)

            while not 0 < self.wanted.size <= self.check.size:
                before = self.check.size
                try:
                    if fetch(before, write):
                        break
                except Unreachable:
                    if self.check.size == before:
                        raise
                if self.check.size == before:
                    return False
        return True

    def is_intact(self) -> bool:
        """Whether its file has the size that it had."""
        with suppress(OSError):
            return self.path.stat().st_size == self.check.size
        return False

    def delete(self) -> None:
        self.path.unlink(missing_ok=True)


class PartialDownloads:
    """The downloads that were interrupted and no thread continues. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[tuple[str, str], PartialDownload] = {}

    def take(self, wanted: WantedBlob, target: Path) -> PartialDownload:
        """An interrupted download of this blob, or a new one beside `target`."""
        with self._lock:
            found = self._kept.pop((wanted.sha256, wanted.tag), None)
        if found is not None:
            if found.is_intact():
                return found
            found.delete()
        return PartialDownload(wanted, part_path(target))

    def keep(self, download: PartialDownload) -> None:
        """Keep it to be resumed; of two downloads of one blob the larger."""
        key = download.wanted.sha256, download.wanted.tag
        with self._lock:
            other = self._kept.pop(key, None)
            smaller, larger = sorted([download, other or download], key=lambda one: one.check.size)
            if larger.check.size:
                self._kept[key] = larger
        if smaller is not larger or not larger.check.size:
            smaller.delete()

    def deletion(self, path: Path) -> Callable[[], None] | None:
        """A function that deletes the kept download at `path`, if there is one. It raises
        BlockingIOError if a thread has resumed it since."""
        with self._lock:
            key = next((key for key, one in self._kept.items() if one.path == path), None)
        if key is None:
            return None

        def delete() -> None:
            with self._lock:
                download = self._kept.get(key)
                if download is None or download.path != path:
                    raise BlockingIOError(f"{path} was resumed")
                del self._kept[key]
            download.delete()

        return delete


def part_path(path: Path) -> Path:
    """A new name beside `path`. Random, because in containers every agent has the same pid."""
    return path.with_name(f"{path.name}.{os.urandom(8).hex()}{PART}")
