"""A store in memory, for our tests and those of users. It is lost with the process."""

from __future__ import annotations

import hashlib
import io
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime

from paddlecloud.model.errors import Conflict, NotFound
from paddlecloud.stores.base import Part, Reader, Stat, check_whole, pour
from paddlecloud.stores.directory.safe_open import shown, split

Clock = Callable[[], datetime]


def create(settings: Mapping[str, object]) -> MemoryStore:
    return MemoryStore()


def _utc_now() -> datetime:
    return datetime.now(UTC)


class MemoryStore:
    def __init__(self, *, clock: Clock = _utc_now) -> None:
        self._clock = clock
        self._files: dict[str, tuple[Stat, bytes]] = {}
        self._uploads: dict[tuple[str, str], _Upload] = {}
        self._lock = threading.Lock()

    def list(self, prefix: str = "") -> Iterator[Stat]:
        above = prefix.rpartition("/")[0]
        if above:
            split(above)
        with self._lock:
            return iter([self._files[p][0] for p in sorted(self._files) if p.startswith(prefix)])

    def stat(self, path: str) -> Stat | None:
        split(path)
        found = self._files.get(path)
        return found[0] if found else None

    def sizes(self, paths: Iterable[str]) -> dict[str, int]:
        return {path: found.size for path in paths if (found := self.stat(path)) is not None}

    def read(self, path: str, offset: int = 0, length: int | None = None) -> Reader:
        split(path)
        found = self._files.get(path)
        if found is None:
            raise NotFound("file_missing", path=shown(path))
        stat, data = found
        part = io.BytesIO(data[offset:] if length is None else data[offset : offset + length])
        return Reader(stat, len(part.getbuffer()), part.read, part.close)

    def write(
        self, path: str, chunks: Iterable[bytes], *, modified: datetime | None = None
    ) -> Stat:
        return pour(self.open_write(path, modified=modified), chunks)

    def open_write(self, path: str, *, modified: datetime | None = None) -> _MemorySink:
        split(path)
        return _MemorySink(self, path, modified)

    def delete(self, path: str) -> None:
        split(path)
        with self._lock:
            self._files.pop(path, None)

    def delete_tree(self, path: str) -> int:
        split(path)
        with self._lock:
            gone = [p for p in self._files if p == path or p.startswith(f"{path}/")]
            return sum(self._files.pop(p)[0].size for p in gone)

    def begin_parts(self, path: str, *, part_size: int, modified: datetime | None = None) -> str:
        split(path)
        upload = os.urandom(12).hex()
        self._uploads[(path, upload)] = _Upload(modified)
        return upload

    def put_part(self, path: str, upload: str, number: int, data: bytes | bytearray) -> Part:
        with self._lock:
            self._upload(path, upload).parts[number] = bytes(data)
        return Part(number=number, size=len(data), tag=hashlib.sha256(data).hexdigest())

    def parts(self, path: str, upload: str) -> Sequence[Part]:
        with self._lock:
            found = sorted(self._upload(path, upload).parts.items())
        return [Part(number=n, size=len(d), tag=hashlib.sha256(d).hexdigest()) for n, d in found]

    def finish_parts(self, path: str, upload: str, *, size: int) -> Stat:
        found = self._upload(path, upload)
        check_whole(self.parts(path, upload), size)
        data = b"".join(found.parts[number] for number in sorted(found.parts))
        stat = self._keep(path, data, found.modified)
        self.drop_parts(path, upload)
        return stat

    def drop_parts(self, path: str, upload: str) -> None:
        self._uploads.pop((path, upload), None)

    def flush(self) -> None:
        """Does nothing."""

    def _upload(self, path: str, upload: str) -> _Upload:
        found = self._uploads.get((path, upload))
        if found is None:
            raise NotFound("upload_missing", upload=upload[:100])
        return found

    def _keep(self, path: str, data: bytes, modified: datetime | None) -> Stat:
        stat = Stat(path=path, size=len(data), modified=modified or self._clock())
        names, below = path.split("/"), f"{path}/"
        above = ["/".join(names[:depth]) for depth in range(1, len(names))]
        with self._lock:
            files = self._files
            if any(p in files for p in above) or any(p.startswith(below) for p in files):
                raise Conflict("store_path_taken", path=shown(path))
            files[path] = (stat, data)
        return stat


class _Upload:
    def __init__(self, modified: datetime | None) -> None:
        self.modified = modified
        self.parts: dict[int, bytes] = {}


class _MemorySink:
    def __init__(self, store: MemoryStore, path: str, modified: datetime | None) -> None:
        self._store = store
        self._path = path
        self._modified = modified
        self._data: bytearray | None = bytearray()

    def write(self, data: bytes | bytearray | memoryview, /) -> None:
        if self._data is None:
            raise ValueError("the file was committed or aborted")
        self._data += data

    def commit(self) -> Stat:
        data, self._data = bytes(self._data or b""), None
        return self._store._keep(self._path, data, self._modified)

    def abort(self) -> None:
        self._data = None
