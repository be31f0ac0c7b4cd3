"""File operations of a download. An error of the system becomes one that names the file."""

# ruff: noqa: PTH101, PTH116, PTH123 - paths are text: there is one for each file

from __future__ import annotations

import errno
import hashlib
import os
from contextlib import contextmanager, nullcontext, suppress
from shutil import rmtree
from stat import S_ISREG
from typing import TYPE_CHECKING

from paddlecloud.client.download.listing import NAME_TWICE
from paddlecloud.client.file_names import shown
from paddlecloud.model.errors import Conflict, Invalid

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from io import FileIO
    from threading import Lock

    from paddlecloud.client.download._journal import Known
    from paddlecloud.client.download._ranges import File

_BLOCK = 1024 * 1024
_BINARY: int = getattr(os, "O_BINARY", 0)  # Windows would change line ends
_NOFOLLOW: int = getattr(os, "O_NOFOLLOW", 0)


@contextmanager
def local_errors(path: str, *, creating: bool = False) -> Iterator[None]:
    """Raises an error of the system as one that names the file. Where one is created, something in
    its way is another file of the download: both names are one on this machine."""
    try:
        yield
    except OSError as error:
        if creating and isinstance(error, FileExistsError | IsADirectoryError):
            raise Invalid(NAME_TWICE, path=shown(path)) from None
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise Conflict("download_full", path=shown(path)) from None
        reason = error.strerror or str(error)
        raise Conflict("download_failed", path=shown(path), reason=reason) from None


class Writer:
    """Writes to a file from an offset on.

    `check` is called under `lock` before each write, and prevents it by raising.
    """

    def __init__(
        self, target: str, path: str, offset: int, check: Callable[[], None], lock: Lock
    ) -> None:
        check()
        self._path = path
        self._check = check
        self._lock = lock
        with local_errors(path, creating=True):
            self._fd = os.open(target, os.O_WRONLY | os.O_CREAT | _NOFOLLOW | _BINARY, 0o666)
            os.lseek(self._fd, offset, os.SEEK_SET)

    def write(self, block: bytes) -> None:
        with self._lock, local_errors(self._path):
            self._check()
            written = os.write(self._fd, block)
            while written < len(block):
                written += os.write(self._fd, memoryview(block)[written:])

    def truncate(self, size: int) -> None:
        with self._lock, local_errors(self._path):
            self._check()
            os.ftruncate(self._fd, size)

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # Some file systems report only now that the disk is full.
        with suppress(Conflict) if kind else nullcontext(), local_errors(self._path):
            os.close(self._fd)


def copy_local(target: str, file: File, report: Callable[[int], None]) -> bool:
    """Copy a file from the server's store on this machine; False if it is not as listed there."""
    from paddlecloud.client.upload import copy_file  # noqa: PLC0415 - only from an embedded server

    try:
        stored = open(file.location, "rb", buffering=0, opener=_open_safely)  # noqa: SIM115 - below
    except OSError:
        return False
    with stored, local_errors(file.path, creating=True):
        source = stored.fileno()
        status = os.fstat(source)
        is_ours = S_ISREG(status.st_mode) and status.st_uid == os.geteuid()
        if not is_ours or status.st_size != file.size:
            return False
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | _NOFOLLOW | _BINARY
        with (
            open(os.open(target, flags, 0o666), "r+b", buffering=0) as copy,
            suppress(copy_file.Shorter),
        ):
            if file.sha256:
                digest = copy_file.copy_and_hash(source, copy.fileno(), file.size, report=report)
                return digest == file.sha256
            copy_file.copy(source, copy.fileno(), file.size, report)
            return True
    return False


def _open_safely(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


def create_exclusively(target: str, path: str) -> None:
    with local_errors(path, creating=True):
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))


def sha256_of(target: str, path: str) -> str:
    with local_errors(path), open(target, "rb", buffering=0) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def intact_ranges(target: str, ranges: Mapping[int, Known]) -> dict[int, Known]:
    """The ranges of a file that have their digests; one without a digest is not among them."""
    intact: dict[int, Known] = {}
    with suppress(OSError), open(target, "rb", buffering=0) as file:
        for start, (length, sha256) in ranges.items():
            if sha256 and _range_digest(file, start, length) == sha256:
                intact[start] = length, sha256
    return intact


def _range_digest(file: FileIO, start: int, length: int) -> str:
    digest = hashlib.sha256()
    file.seek(start)
    while length and (block := file.read(min(length, _BLOCK))):
        digest.update(block)
        length -= len(block)
    return digest.hexdigest()


def remove(directory: str) -> None:
    rmtree(directory, ignore_errors=True)


def make_executable(target: str) -> None:
    """For everyone who may read it."""
    with suppress(OSError):
        mode = os.stat(target).st_mode
        os.chmod(target, mode | (mode & 0o444) >> 2)
