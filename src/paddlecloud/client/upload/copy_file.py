"""Copies a file on this machine and hashes the copy.

A file system that can share blocks does; else the kernel copies, and a second thread reads the copy
behind it and hashes that, so both cores work and the digest is that of the copy, whatever happens
to the source. Holes stay holes. Names and permissions are the caller's business.
"""

from __future__ import annotations

import hashlib
import os
from errno import EINVAL, EIO, ENOSYS, EOPNOTSUPP, EPERM, EXDEV

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from queue import SimpleQueue

    Report = Callable[[int], None]

#: Bytes that are copied between two reports to the thread that hashes.
STEP = 4 * 1024 * 1024
#: Bytes that are hashed at a time: they fit into the processor's cache.
BLOCK = 256 * 1024
#: From this size on the flush is started before the server asks for it.
WORTH_FLUSHING = 64 * 1024 * 1024
_CLONE = 0x40049409  # FICLONE
#: The kernel cannot copy between these two files; nothing is wrong with them.
_CANNOT = frozenset((EINVAL, ENOSYS, EOPNOTSUPP, EPERM, EXDEV))

_ZEROS = bytes(BLOCK)
_flushing: list[int] = []
"""Not empty while a copy is being flushed: one at a time, the others are flushed by the server."""


class Shorter(OSError):
    """A file has fewer bytes than expected."""


def copy_and_hash(
    source: int, target: int, size: int, *, flush: bool = False, report: Report | None = None
) -> str:
    """Copy `size` bytes between two open files; the sha256 (hex) of the copy, read back from it.

    `target` is new and readable. Shorter when the source has fewer bytes. With `flush` the copy is
    on its way to the disk when this returns. `report` is called with the bytes that were copied.
    """
    report = report or _ignore
    os.ftruncate(target, size)
    if size <= BLOCK:
        copy(source, target, size, report)
        return hashlib.sha256(os.pread(target, size, 0)).hexdigest()
    if _clone(source, target, size):
        return _hash(target, size, None, report)
    return _copy_beside_hash(source, target, size, flush, report)


def copy(source: int, target: int, size: int, report: Report | None = None) -> None:
    """Copy `size` bytes between two open files, and no holes."""
    report = report or _ignore
    os.ftruncate(target, size)
    at = 0
    if size <= BLOCK or not _clone(source, target, size):
        for upto in _copied(source, target, size):
            report(upto - at)
            at = upto
    report(size - at)


def _ignore(count: int) -> None:
    pass


def _copy_beside_hash(source: int, target: int, size: int, flush: bool, report: Report) -> str:
    from queue import SimpleQueue  # noqa: PLC0415 - only large files need it
    from threading import Thread  # noqa: PLC0415 - as above

    steps: SimpleQueue[int | BaseException] = SimpleQueue()
    # Descriptors of its own: the caller may close its own before the thread notices an error.
    files = os.dup(source), os.dup(target)
    given_up: list[bool] = []
    worth = flush and size >= WORTH_FLUSHING
    copier = Thread(
        target=_copy_ahead, args=(*files, size, steps, given_up, worth), daemon=True, name="copy"
    )
    copier.start()
    try:
        return _hash(target, size, steps, report)
    except BaseException:
        given_up.append(True)
        raise


def _copy_ahead(
    source: int,
    target: int,
    size: int,
    steps: SimpleQueue[int | BaseException],
    given_up: list[bool],
    flush: bool,
) -> None:
    """In a thread: copy, and report after each step how far it is."""
    try:
        for upto in _copied(source, target, size):
            if given_up:
                return
            steps.put(upto)
        steps.put(size)
        if flush and not _flushing:
            _flushing.append(target)
            try:
                getattr(os, "fdatasync", os.fsync)(target)
            finally:
                _flushing.clear()
    except BaseException as error:  # noqa: BLE001 - raised by the thread that hashes
        steps.put(error)
    finally:
        os.close(source)
        os.close(target)


def _hash(
    file: int, size: int, steps: SimpleQueue[int | BaseException] | None, report: Report
) -> str:
    digest = hashlib.sha256()
    buffer = memoryview(bytearray(BLOCK))
    at, upto = 0, size if steps is None else 0
    while at < size:
        if at >= upto:
            assert steps is not None
            step = steps.get()
            if isinstance(step, BaseException):
                raise step
            upto = step
            continue
        count = os.preadv(file, [buffer[: upto - at]], at)
        if not count:
            raise Shorter(EIO, "the copy became shorter")
        digest.update(buffer[:count])
        report(count)
        at += count
    return digest.hexdigest()


def _clone(source: int, target: int, size: int) -> bool:
    """Share the blocks of the source, where the file system can. It shares those of the whole file,
    whatever its length is now, and makes no file shorter."""
    try:
        from fcntl import ioctl  # noqa: PLC0415 - there is none on Windows

        os.ftruncate(target, 0)
        ioctl(target, _CLONE, source)
    except (ImportError, OSError):
        os.ftruncate(target, size)
        return False
    if os.fstat(target).st_size < size:
        raise Shorter(EIO, "the file became shorter")
    os.ftruncate(target, size)
    return True


def _copied(source: int, target: int, size: int) -> Iterator[int]:
    """Copy everything but blocks of zeros of a sparse file; how far it is, again and again."""
    at, kernel = 0, os.fstat(source).st_blocks * 512 >= size
    while at < size:
        count = _by_kernel(source, target, at, min(STEP, size - at)) if kernel else 0
        if not count:
            # Some file systems answer so to the kernel's own copy although there is more.
            kernel = False
            count = _by_hand(source, target, at, min(BLOCK, size - at))
        if not count:
            raise Shorter(EIO, "the file became shorter")
        at += count
        yield at


def _by_kernel(source: int, target: int, at: int, count: int) -> int:
    """How many bytes the kernel copied; 0 when it cannot."""
    try:
        return os.copy_file_range(source, target, count, at, at)
    except AttributeError:  # not Linux
        return 0
    except OSError as error:
        if error.errno not in _CANNOT:
            raise
        return 0


def _by_hand(source: int, target: int, at: int, count: int) -> int:
    """Holes are found by their zeros: what file systems report of holes was wrong before."""
    data = os.pread(source, count, at)
    if data == _ZEROS[: len(data)]:  # as the target is, which is new
        return len(data)
    written = 0
    while written < len(data):
        written += os.pwrite(target, memoryview(data)[written:], at + written)
    return len(data)
