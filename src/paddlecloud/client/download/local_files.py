"""Files of this machine as a download writes, reads and compares them.

What the system says about one becomes an error with its path in it.
"""

# pathlib costs 8 ms:
# ruff: noqa: PTH101, PTH103, PTH116, PTH123

from __future__ import annotations

import errno
import hashlib
import os
from contextlib import nullcontext, suppress

from paddlecloud.client.display import shown
from paddlecloud.client.download.listing import NAME_TWICE
from paddlecloud.model.errors import Conflict, Invalid, PaddleCloudError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from io import FileIO

    from paddlecloud.client.download.journal import Piece
    from paddlecloud.client.download.ranges import File

_BLOCK = 1024 * 1024
_BINARY: int = getattr(os, "O_BINARY", 0)  # Windows would change the line ends


class Writer:
    """A place in a local file; what the system says about it becomes an error with the path in it.

    The network's errors come through the same loop and must stay apart from these. `check` is
    called before anything is written, and what it raises keeps that from being done.
    """

    def __init__(self, target: str, path: str, offset: int, check: Callable[[], None]) -> None:
        check()
        self._path = path
        self._check = check
        try:
            self._fd = os.open(target, os.O_WRONLY | os.O_CREAT | _BINARY, 0o666)
            os.lseek(self._fd, offset, os.SEEK_SET)
        except OSError as error:
            raise cannot_make(path, error) from None

    def write(self, chunk: bytes) -> None:
        self._check()
        try:
            written = os.write(self._fd, chunk)
            while written < len(chunk):
                written += os.write(self._fd, memoryview(chunk)[written:])
        except OSError as error:
            raise cannot_write(self._path, error) from None

    def cut(self, size: int) -> None:
        """Nothing is behind `size` bytes."""
        self._check()
        try:
            os.ftruncate(self._fd, size)
        except OSError as error:
            raise cannot_write(self._path, error) from None

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with suppress(Conflict) if kind else nullcontext():
            self.close()

    def close(self) -> None:
        """Some file systems tell only now that there is no space for what was written."""
        try:
            os.close(self._fd)
        except OSError as error:
            raise cannot_write(self._path, error) from None


def copy_of(source: int, target: str, file: File, tell: Callable[[int], None]) -> bool:
    """Copy an open file of this machine; whether it is as it was listed."""
    from paddlecloud.client.upload import copy_file  # noqa: PLC0415 - only from an embedded server

    try:
        fd = os.open(target, os.O_RDWR | os.O_CREAT | os.O_TRUNC | _BINARY, 0o666)
        try:
            if file.sha256:
                return copy_file.copy_and_hash(source, fd, file.size, tell=tell) == file.sha256
            copy_file.copy(source, fd, file.size, tell)
        finally:
            os.close(fd)
    except copy_file.Shorter:
        return False
    except OSError as error:
        raise cannot_make(file.path, error) from None
    return True


def make_directory(target: str, path: str) -> None:
    try:
        os.makedirs(target, exist_ok=True)
    except OSError as error:
        raise cannot_make(path, error) from None


def claim(target: str, path: str) -> None:
    try:
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
    except OSError as error:
        raise cannot_make(path, error) from None


def sha256_of(target: str, path: str) -> str:
    digest = hashlib.sha256()
    try:
        with open(target, "rb", buffering=0) as file:
            while block := file.read(_BLOCK):
                digest.update(block)
    except OSError as error:
        raise cannot_write(path, error) from None
    return digest.hexdigest()


def right_ones(target: str, pieces: Mapping[int, Piece]) -> dict[int, Piece]:
    """Those pieces of a file that are as their digests tell; what has none is not among them."""
    right: dict[int, Piece] = {}
    with suppress(OSError), open(target, "rb", buffering=0) as file:
        for start, (length, sha256) in pieces.items():
            if sha256 and _digest_at(file, start, length) == sha256:
                right[start] = length, sha256
    return right


def _digest_at(file: FileIO, start: int, length: int) -> str:
    digest = hashlib.sha256()
    file.seek(start)
    while length and (block := file.read(min(length, _BLOCK))):
        digest.update(block)
        length -= len(block)
    return digest.hexdigest()


def remove(part: str) -> None:
    from shutil import rmtree  # noqa: PLC0415 - not every download needs it

    rmtree(part, ignore_errors=True)


def make_executable(target: str) -> None:
    """For everybody who may read it; where that means nothing it is no harm."""
    with suppress(OSError):
        mode = os.stat(target).st_mode
        os.chmod(target, mode | (mode & 0o444) >> 2)


def cannot_make(path: str, error: OSError) -> PaddleCloudError:
    """What is in its way is another file of this download: two names that are one here."""
    if isinstance(error, FileExistsError | IsADirectoryError):
        return Invalid(NAME_TWICE, path=shown(path))
    return cannot_write(path, error)


def cannot_write(path: str, error: OSError) -> Conflict:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return Conflict("download_full", path=shown(path))
    return Conflict("download_failed", path=shown(path), reason=error.strerror or str(error))
