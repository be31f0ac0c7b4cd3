"""Multipart uploads of a directory store: a scratch file, filled at offsets, and part markers.

An upload is a directory of its own among the scratch files. A part is written before its marker, so
a marker means that the bytes are there; a part that was cut off is sent again.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime

from paddlecloud.model.errors import Invalid, NotFound
from paddlecloud.stores.base import Part
from paddlecloud.stores.directory.safe_open import (
    DIRECTORY,
    check_free_space,
    explained,
    open_regular,
    sync_data,
)

_NAME = re.compile(r"[0-9a-f]{24}-[0-9a-f]{16}-([1-9][0-9]{0,15})-([0-9]{1,20}|now)")
_NOTE = re.compile(r"part-([1-9][0-9]{0,8})-([0-9]{1,16})")
_DATA = "data"
_AT_ONCE = 1024 * 1024
"""Bytes of one write: longer ones allocate fresh pages, which triples the time on a virtual
machine."""
_ZEROS = memoryview(bytes(256 * 1024))


class Parts:
    def __init__(self, scratch: int) -> None:
        """`scratch` is the open directory of unfinished files."""
        self._scratch = scratch

    def begin(self, path: str, part_size: int, modified: datetime | None) -> str:
        when = "now" if modified is None else str(round(modified.timestamp() * 1e9))
        upload = f"{os.urandom(12).hex()}-{_mark(path)}-{part_size}-{when}"
        with explained(path):
            os.mkdir(upload, 0o700, dir_fd=self._scratch)
            with self._opened(path, upload) as (directory, _, _):
                os.close(os.open(_DATA, os.O_WRONLY | os.O_CREAT, 0o600, dir_fd=directory))
        return upload

    def put(self, path: str, upload: str, number: int, data: bytes | bytearray) -> Part:
        with self._opened(path, upload) as (directory, part_size, _), explained(path):
            if number < 1 or len(data) > part_size:
                raise Invalid("upload_part", number=number, size=len(data), limit=part_size)
            for part in _notes(directory):
                if part.number == number:
                    with suppress(FileNotFoundError):  # another request sends it, too
                        os.unlink(part.tag, dir_fd=directory)
            fd = open_regular(_DATA, os.O_WRONLY, directory)
            try:
                _write_at(fd, data, (number - 1) * part_size)
            finally:
                os.close(fd)
            note = f"part-{number}-{len(data)}"
            os.close(os.open(note, os.O_WRONLY | os.O_CREAT, 0o600, dir_fd=directory))
        return Part(number=number, size=len(data), tag=note)

    def read(self, path: str, upload: str, offset: int, length: int) -> bytes:
        with self._opened(path, upload) as (directory, _, _):
            fd = open_regular(_DATA, os.O_RDONLY, directory)
            try:
                found = os.pread(fd, length, offset)
            finally:
                os.close(fd)
        # Zeros are not written, so the file may be shorter.
        return found + bytes(length - len(found))

    def listed(self, path: str, upload: str) -> Sequence[Part]:
        with self._opened(path, upload) as (directory, _, _):
            return sorted(_notes(directory), key=lambda part: part.number)

    def data(self, path: str, upload: str, size: int) -> str:
        """The name of the complete file below the scratch directory, flushed and truncated to its
        size: a longer part may have been sent before.
        """
        with self._opened(path, upload) as (directory, _, when):
            fd = open_regular(_DATA, os.O_WRONLY, directory)
            try:
                os.ftruncate(fd, size)
                if when is not None:
                    os.utime(fd, ns=(when, when))
                # The disk writes parts in any order: a power cut could leave the full size with a
                # hole. A later `flush` finds these bytes done, so this costs no time twice.
                sync_data(fd)
            finally:
                os.close(fd)
        return f"{upload}/{_DATA}"

    def drop(self, path: str, upload: str) -> None:
        with suppress(NotFound), self._opened(path, upload):
            shutil.rmtree(upload, dir_fd=self._scratch)

    @contextmanager
    def _opened(self, path: str, upload: str) -> Iterator[tuple[int, int, int | None]]:
        """The open directory of an upload, the size of its parts, and its time if it has one.

        A file that is missing in it means that another call finished or dropped it just now.
        """
        found = _NAME.fullmatch(upload)
        if found is None or upload.split("-")[1] != _mark(path):
            raise NotFound("upload_missing", upload=upload[:100])
        try:
            directory = os.open(upload, DIRECTORY, dir_fd=self._scratch)
        except OSError:
            raise NotFound("upload_missing", upload=upload[:100]) from None
        try:
            yield directory, int(found[1]), None if found[2] == "now" else int(found[2])
        except FileNotFoundError:
            raise NotFound("upload_missing", upload=upload[:100]) from None
        finally:
            os.close(directory)


def _mark(path: str) -> str:
    return hashlib.sha256(path.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _notes(directory: int) -> list[Part]:
    found = [match for name in os.listdir(directory) if (match := _NOTE.fullmatch(name))]
    return [Part(number=int(m[1]), size=int(m[2]), tag=m[0]) for m in found]


def _write_at(fd: int, data: bytes | bytearray, offset: int) -> None:
    """A part of zeros stays a hole: a sparse file takes no space here either."""
    view = memoryview(data)
    if _is_zero(view) and offset >= os.fstat(fd).st_size:
        return
    check_free_space(fd, len(view))
    while view:
        written = os.pwrite(fd, view[:_AT_ONCE], offset)
        offset += written
        view = view[written:]


def _is_zero(view: memoryview) -> bool:
    size = len(_ZEROS)
    blocks = (view[at : at + size] for at in range(0, len(view), size))
    return all(block == _ZEROS[: len(block)] for block in blocks)
