"""Finds the output files of a replica. Only reads.

The job owns these directories and may change anything in them at any moment. A file is sent only
if, once it is open, it really lies inside its area: symbolic links that lead out, pipes and devices
are skipped, and so is an area that is a symbolic link itself. A name that is not UTF-8 is sent
under an escaped one. What is skipped is listed in `Skipped`, so that the job's log can name it;
empty directories are not listed.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import stat
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING

from paddlecloud.agent.sandbox.workspace import LOG, OUTPUT
from paddlecloud.model.errors import Invalid, PaddleCloudError, Refused
from paddlecloud.model.files.snapshot import MAX_DEPTH

if TYPE_CHECKING:
    from collections.abc import Iterator

AREAS = (OUTPUT, LOG)
"""Directories of a replica whose files are sent."""

#: A file that changed more recently may be half written; it is left for the next pass, once.
SETTLE_SECONDS = 1.0
#: A larger file that keeps changing is sent only when it rests: half a checkpoint is of no use.
_LARGE = 64 * 1024 * 1024
#: As deep as a submitted directory may be, so that a copy of it can be sent.
_DEEPEST = MAX_DEPTH - 1
_MAX_SKIPPED = 1000
#: A larger file that is mostly holes is not sent: on the wire a hole is zeros.
_SPARSE_LIMIT = 64 * 1024**3
_SPARSE_RATIO = 2
#: A file with fewer blocks than this part of its size is sparse also where holes cannot be listed.
_EMPTY_RATIO = 64
_MAX_HOLES = 100_000
#: The last second of the year 9999, after which no date can be written.
_LATEST = 253_402_300_799.0
#: Bytes of a file name, with one left for the `~` of a name that is taken.
_LONGEST_NAME = 254
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY

Mark = tuple[int, int, int]
"""Size, modification time (ns) and inode of a file."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """An output file: its path below the area, and where it really is."""

    area: str
    path: str
    where: Path
    mark: Mark

    @property
    def name(self) -> str:
        return f"{self.area}/{self.path}"

    @property
    def size(self) -> int:
        return self.mark[0]

    @property
    def mtime(self) -> float:
        return wire_time(self.mark[1])


class Skipped:
    """Names of what is not sent, or not under its own name."""

    def __init__(self) -> None:
        self.outside: list[str] = []
        """Symbolic links that lead out of their area; an area that is a symbolic link."""
        self.special: list[str] = []
        """Broken and circular symbolic links, pipes, sockets, devices."""
        self.renamed: list[str] = []
        """The escaped names of files whose own names are not UTF-8."""
        self.unreadable: dict[str, OSError | PaddleCloudError] = {}
        """Directories that could not be listed."""


def scan(root: Path, skipped: Skipped | None = None) -> Iterator[Found]:
    """Every file of both areas, in order of name."""
    skipped = Skipped() if skipped is None else skipped
    for area in AREAS:
        walk = _Walk(area, _top(root, area), skipped)
        if walk.top.is_symlink():
            skipped.outside.append(area)
            continue
        for found in walk.files("", 0, linked=False):
            is_utf8 = found.path.isascii() or not any(map(_is_raw_byte, found.path))
            yield found if is_utf8 else walk.renamed(found)


def has_any(root: Path) -> bool:
    """Whether the job, which is over, put anything into its output directories. Removes them if
    not: one call both asks and tidies up, and every job ends with it."""
    found = False
    for area in AREAS:
        try:
            os.rmdir(f"{root}/{area}")  # noqa: PTH106 - see above
        except FileNotFoundError:
            pass
        except OSError:
            found = True
    return found


def is_settled(found: Found, *, now: float, was_changing: bool) -> bool:
    """Whether a file of a running job may be sent now (`now` is the time of day).

    A file that was changing in the last pass as well (`was_changing`) is sent as it is: otherwise a
    log that grows all the time would be sent only at the end.
    """
    if now - found.mtime >= SETTLE_SECONDS:
        return True
    return was_changing and (found.area == LOG or found.size < _LARGE)


def open_inside(found: Found, root: Path) -> IO[bytes] | None:
    """The file, open for reading; None when it is not a regular file inside its area (any more).

    It is opened by O_PATH first, because opening a device for reading already uses it.
    """
    o_path = getattr(os, "O_PATH", 0)
    try:
        fd = os.open(found.where, o_path | os.O_CLOEXEC if o_path else _READ)
    except FileNotFoundError:
        return None
    try:
        regular = stat.S_ISREG(os.fstat(fd).st_mode)
        if not regular or not _is_inside(fd, str(_top(root, found.area))):
            return None
        again = os.open(f"/proc/self/fd/{fd}", _READ) if o_path else os.dup(fd)
    finally:
        os.close(fd)
    return os.fdopen(again, "rb", buffering=0)


def refreshed(found: Found, file: IO[bytes]) -> Found:
    """`found` as the open file is now."""
    return replace(found, mark=_mark(os.fstat(file.fileno())))


def refuse_sparse(found: Found, file: IO[bytes]) -> None:
    """Raises Refused for a huge file that is mostly holes. A compressing file system has few blocks
    of a dense file too, so its holes are counted."""
    status = os.fstat(file.fileno())
    size, allocated = status.st_size, status.st_blocks * 512
    if size <= _SPARSE_LIMIT or allocated * _SPARSE_RATIO >= size:
        return
    is_empty = allocated * _EMPTY_RATIO < size
    if is_empty or _data_bytes(file.fileno(), size) * _SPARSE_RATIO < size:
        limit = _SPARSE_LIMIT
        raise Refused("output_hollow", path=found.name, size=size, there=allocated, limit=limit)


def unreadable(name: str, error: OSError | PaddleCloudError) -> PaddleCloudError:
    """Why an output could not be read, as a sentence for its owner."""
    if isinstance(error, PaddleCloudError):
        return error
    return Refused("output_unreadable", path=name, reason=error.strerror or str(error))


def wire_time(mtime_ns: int) -> float:
    """Seconds since 1970 to the microsecond, moved into the range that a date can have: archives
    and jobs set any time."""
    return min(max(0.0, round(mtime_ns / 1e9, 6)), _LATEST)


def _top(root: Path, area: str) -> Path:
    """The area itself; a symbolic link in its place is not followed."""
    return root.resolve() / area


def _mark(status: os.stat_result) -> Mark:
    return (status.st_size, status.st_mtime_ns, status.st_ino)


def _data_bytes(fd: int, size: int) -> int:
    """Bytes that are not in holes; all where the system does not report them, or holes are too
    many."""
    data = start = end = 0
    try:
        for _ in range(_MAX_HOLES):
            start = os.lseek(fd, end, os.SEEK_DATA)
            end = os.lseek(fd, start, os.SEEK_HOLE)
            data += end - start
    except OSError as error:
        return data if error.errno == errno.ENXIO else size
    finally:
        os.lseek(fd, 0, os.SEEK_SET)
    return data + size - end


def _is_raw_byte(letter: str) -> bool:
    """Whether it stands for a byte on the disk that is not UTF-8 (surrogateescape)."""
    return "\udc80" <= letter <= "\udcff"


def _escaped(name: str) -> str:
    """`%B0` for each byte that is not UTF-8, `%25` for a percent sign; a digest in the place of the
    end where that is too long for a file name."""
    letters = (f"%{ord(each) & 0xFF:02X}" if _is_raw_byte(each) else each for each in name)
    escaped = "".join("%25" if each == "%" else each for each in letters).encode()
    if len(escaped) <= _LONGEST_NAME:
        return escaped.decode()
    digest = hashlib.sha256(os.fsencode(name)).hexdigest()[:16]
    return f"{escaped[: _LONGEST_NAME - 18].decode(errors='ignore')}~{digest}"


def _is_inside(fd: int, top: str) -> bool:
    """Whether the open file or directory is `top`, a path without links, or lies below it."""
    if hasattr(os, "O_PATH"):
        real = os.readlink(f"/proc/self/fd/{fd}")  # noqa: PTH115 - once a directory
    elif hasattr(fcntl, "F_GETPATH"):
        name: bytes = fcntl.fcntl(fd, fcntl.F_GETPATH, b"\0" * 1024)
        real = os.fsdecode(name.rstrip(b"\0"))
    else:
        return False
    return real == top or real.startswith(f"{top}/")


class _Walk:
    """The walk through one area."""

    def __init__(self, area: str, top: Path, skipped: Skipped) -> None:
        self.top = top
        self._area = area
        self._skipped = skipped

    def renamed(self, found: Found) -> Found:
        """With an escaped path that no other file has."""
        path = "/".join(map(_escaped, found.path.split("/")))
        while os.path.lexists(self.top / path):
            path += "~"
        self._skip(self._skipped.renamed, path)
        return replace(found, path=path)

    def files(self, below: str, depth: int, *, linked: bool) -> Iterator[Found]:
        for name, status in self._entries(below):
            path = f"{below}/{name}" if below else name
            with suppress(OSError):
                if stat.S_ISLNK(status.st_mode):
                    yield from self._follow(path, depth, linked=linked)
                elif stat.S_ISDIR(status.st_mode):
                    if depth < _DEEPEST:
                        yield from self.files(path, depth + 1, linked=linked)
                    else:
                        deep = {"depth": MAX_DEPTH + 1, "limit": MAX_DEPTH}
                        self._skip_folder(path, Invalid("path_deep", path=path, **deep))
                elif stat.S_ISREG(status.st_mode):
                    yield self._found(path, self.top / path, status)
                else:
                    self._skip(self._skipped.special, path)

    def _entries(self, below: str) -> list[tuple[str, os.stat_result]]:
        """The entries of a directory; none if, once open, it does not lie below the top."""
        found: list[tuple[str, os.stat_result]] = []
        try:
            fd = os.open(self.top / below if below else self.top, _FOLDER)
            try:
                if not _is_inside(fd, str(self.top)):
                    return []
                with os.scandir(fd) as entries:
                    for entry in entries:
                        with suppress(FileNotFoundError):
                            found.append((entry.name, entry.stat(follow_symlinks=False)))
            finally:
                os.close(fd)
        except FileNotFoundError:
            pass
        except OSError as error:
            self._skip_folder(below, error)
        return sorted(found, key=lambda each: each[0])

    def _follow(self, path: str, depth: int, *, linked: bool) -> Iterator[Found]:
        """The target of a symbolic link inside the area. Below a directory that was reached by a
        link (`linked`) no further link to a directory is followed, so that circles end."""
        link = self.top / path
        try:
            target = Path(os.path.realpath(link, strict=True))
        except OSError:  # broken or circular
            outside = not Path(os.path.realpath(link)).is_relative_to(self.top)
            self._skip(self._skipped.outside if outside else self._skipped.special, path)
            return
        if not target.is_relative_to(self.top):
            self._skip(self._skipped.outside, path)
        elif target.is_file():
            yield self._found(path, target, target.stat())
        elif not target.is_dir() or link.is_relative_to(target):
            self._skip(self._skipped.special, path)
        elif not linked:
            inside = str(target.relative_to(self.top))
            for found in self.files(inside, depth, linked=True):
                yield replace(found, path=path + found.path.removeprefix(inside))

    def _found(self, path: str, where: Path, status: os.stat_result) -> Found:
        return Found(area=self._area, path=path, where=where, mark=_mark(status))

    def _skip_folder(self, path: str, error: OSError | PaddleCloudError) -> None:
        if len(self._skipped.unreadable) < _MAX_SKIPPED:
            self._skipped.unreadable[self._name(path)] = error

    def _skip(self, names: list[str], path: str) -> None:
        if len(names) < _MAX_SKIPPED:
            names.append(self._name(path))

    def _name(self, path: str) -> str:
        name = f"{self._area}/{path}" if path else self._area
        return name.encode("utf-8", "backslashreplace").decode()
