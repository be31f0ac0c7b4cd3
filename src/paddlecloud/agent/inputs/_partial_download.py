"""Downloads of blobs that can be resumed when the connection breaks.

The bytes are in a `.part` file and their digest so far in memory. The next request, to the bucket
or to any server, asks for the rest; it is repeated while each request brings something. A download
that fails is kept, and the next replica that needs the blob resumes it. The digests are lost with
the process, so the next agent starts from the beginning.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from paddlecloud.agent.inputs._blob_check import BlobCheck
from paddlecloud.model.errors import Unreachable

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from paddlecloud.agent.inputs._blob_check import WantedBlob

    Write = Callable[[bytes], object]
    Fetch = Callable[[int, Write], bool]
    """Passes the bytes from an offset on to the second argument; True when the last was among
    them."""

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
            found = [key for key, download in self._kept.items() if download.path == path]
        return (lambda: self._delete(found[0], path)) if found else None

    def _delete(self, key: tuple[str, str], path: Path) -> None:
        with self._lock:
            download = self._kept.get(key)
            if download is None or download.path != path:
                raise BlockingIOError(f"{path} was resumed")
            del self._kept[key]
        download.delete()


def part_path(path: Path) -> Path:
    """A new name beside `path`. Random, because in containers every agent has the same pid."""
    return path.with_name(f"{path.name}.{os.urandom(8).hex()}{PART}")
