"""Finds the files of a replica that have to be sent, and remembers what was sent. Only reads.

The job owns these directories and may change anything in them at any moment. A file counts only if,
once it is open, it really lies inside: links that lead out, pipes and devices are skipped, and so
is an area that became a link itself. A name that is no UTF-8 is sent under a readable one. Files
that are skipped or cannot be read are named in the job's notices; empty directories are not.

A file counts as sent while its mark (size, time, number) is the one that it was sent with. A write
through a memory map changes the time only when it meets a page that is not dirty yet, so a mark is
relied on only if the kernel grants a lease: then no process has the file open for writing, by a
descriptor or by a map. On file systems without leases (tmpfs, overlay, NFS) files are read once
more when the job is over (`agent.outputs.shipper`).
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import hashlib
import os
import signal
import stat
from contextlib import suppress
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import IO, TYPE_CHECKING

from paddlecloud.agent.replica import records
from paddlecloud.agent.sandbox.workspace import LOG, OUTPUT
from paddlecloud.model.errors import Invalid, PaddleCloudError, Refused
from paddlecloud.model.files.snapshot import MAX_DEPTH

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

#: ext2 to ext4, XFS, Btrfs: the first write to a page by a mapping changes the time, and a mapping
#: counts as open for writing until it ends.
_RELIABLE = (0xEF53, 0x58465342, 0x9123683E)

#: More than any kernel's struct statfs, whose first field is the kind, a word.
_STATFS_BYTES = 512

_libc = ctypes.CDLL(None, use_errno=True)


def is_reliable(fd: int) -> bool:
    """Whether the mark that this file had just before, open here for reading, is another one as
    soon as its content is."""
    return _are_noted(fd) and not _is_open_for_writing(fd)


def are_noted_in(folder: Path) -> bool:
    """The same for files in this directory that no process has open. Raises OSError."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return _are_noted(fd)
    finally:
        os.close(fd)


def _are_noted(fd: int) -> bool:
    """Whether this file system notes the time of changes in every case."""
    if not hasattr(fcntl, "F_SETLEASE"):
        return False
    found = ctypes.create_string_buffer(_STATFS_BYTES)
    if _libc.fstatfs(fd, found) != 0:
        return False
    return ctypes.c_ulong.from_buffer(found).value in _RELIABLE


def _is_open_for_writing(fd: int) -> bool:
    """Whether it is, or that cannot be known.

    While the lease is held, for microseconds, who opens it for writing waits. The kernel tells us
    of that with a signal: with the usual one we would end, this one is ignored unless wanted.
    """
    try:
        fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    except OSError:
        return True
    fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    return False


AREAS = (OUTPUT, LOG)

SHIPPED = "shipped.json"

#: A file younger than this may be half written; it is left for the next time, once.
SETTLE_SECONDS = 1.0

#: A larger file that keeps changing is sent only when it rests: half a checkpoint is of no use.
_LARGE = 64 * 1024 * 1024

#: The whole of a smaller file is sent again as fast as it is looked at whether it only grew.
_LEAST_KEPT = 64 * 1024

#: For so many seconds one is tried that cannot be read: a file server may be restarted meanwhile.
_UNREAD = 120.0

#: As deep as what is submitted may be, so that it can be copied here.
_DEEPEST = MAX_DEPTH - 1

_TOO_DEEP = {"depth": MAX_DEPTH + 1, "limit": MAX_DEPTH}

_MOST_PASSED = 1000

#: A larger file that is mostly hole is not sent: on the wire a hole is zeros. Up to here they take
#: some minutes, and no room on the server's disk.
_HOLLOW = 64 * 1024**3

_HOLLOW_TIMES = 2

#: So little of a file is no compression, even where the system does not tell its holes.
_EMPTY_TIMES = 64

_MOST_HOLES = 100_000

#: Seconds since 1970 that can be told as a date: those of the year 9999 are the last.
_LATEST = 253_402_300_799.0

#: Bytes of a name, and one for the `~` of a name that another has.
_LONGEST_NAME = 254

_LACKS = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY

Mark = tuple[int, int, int]
"""Size, time of change and number of a file: another mark, another content."""

_Row = tuple[int, int, int, str, bool]
"""The mark with which a file was sent, its sha256, and whether that mark is reliable."""

Unread = dict[str, OSError | PaddleCloudError]
"""Directories whose files are not known, and why not."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """A file to send: its place below the area, and where it really is."""

    area: str
    path: str
    where: Path
    mark: Mark
    is_reliable: bool = False
    """It has another mark as soon as it has another content."""

    @property
    def name(self) -> str:
        return f"{self.area}/{self.path}"

    @property
    def size(self) -> int:
        return self.mark[0]

    @property
    def mtime(self) -> float:
        return _told_time(self.mark[1])


class Passed:
    """What is not sent, or not as it is, by name, so that its owner can be told."""

    def __init__(self) -> None:
        self.outside: list[str] = []
        """Links that lead out of their area, or the name of one that is a link itself."""
        self.odd: list[str] = []
        """Links that lead nowhere or in circles, pipes, sockets, devices."""
        self.renamed: list[str] = []
        """Files whose names on the disk are no text; these stand for them."""
        self.unread: Unread = {}


class Shipped:
    """What the server has, kept beside the files so that a new agent need not send it again."""

    def __init__(self, root: Path) -> None:
        self._path = root / SHIPPED
        known = records.read(self._path)
        rows = known.items() if isinstance(known, dict) else ()
        self._marks: dict[str, _Row] = {name: _row(*noted) for name, noted in rows}
        self._changed = False

    def has(self, found: Found) -> bool:
        known = self._marks.get(found.name)
        return known is not None and known[:3] == found.mark

    def relies_on(self, found: Found) -> bool:
        """Whether that it is as it was sent (`has`) is certain by its mark alone."""
        return self.has(found) and self._marks[found.name][4]

    def add(self, found: Found, sha256: str = "") -> None:
        """`sha256`: of what was sent, where that is known."""
        self._marks[found.name] = (*found.mark, sha256, found.is_reliable)
        self._changed = True

    def forget(self, name: str) -> None:
        """The server does not have it after all."""
        self._changed = self._marks.pop(name, None) is not None or self._changed

    def digest(self, found: Found) -> str:
        """Of what was sent with this very mark, where that is known."""
        return self._marks[found.name][3] if self.has(found) else ""

    def shorter(self, found: Found) -> tuple[int, str] | None:
        """Size and digest of what the server has of this file, if it is less than there is now."""
        known = self._marks.get(found.name)
        if known is None or not known[3] or known[2] != found.mark[2]:
            return None
        return (known[0], known[3]) if _LEAST_KEPT <= known[0] < found.size else None

    def rows(self) -> list[tuple[str, int, float, str]]:
        """All that the server has: name, size, time of change, sha256."""
        return [(name, m[0], _told_time(m[1]), m[3]) for name, m in self._marks.items()]

    def save(self) -> None:
        """Raises OSError on a full disk; nothing is lost then but the work of sending again."""
        if self._changed:
            records.write(self._path, self._marks)
            self._changed = False


def _row(
    size: int, changed_at: int, number: int, sha256: str = "", is_reliable: bool = False
) -> _Row:
    """As it was noted; earlier agents noted less."""
    return size, changed_at, number, sha256, is_reliable


def _told_time(changed_at: int) -> float:
    """Nanoseconds as seconds, to the microsecond; the nearest that can be told of what an archive
    or a job dated earlier or later than that."""
    return min(max(0.0, round(changed_at / 1e9, 6)), _LATEST)


def anything(root: Path) -> bool:
    """Whether the job, which is over, put anything at all into its output directories.

    An empty one is taken away here: that one call is the question and the answer.
    """
    return any([_has_something(f"{root}/{area}") for area in AREAS])


def scan(root: Path, passed: Passed | None = None) -> Iterator[Found]:
    """Every file of both areas, in order of name; what else there is goes to `passed`."""
    passed = Passed() if passed is None else passed
    for area in AREAS:
        walk = _Walk(area, _top(root, area), passed)
        if walk.top.is_symlink():
            passed.outside.append(area)
            continue
        for found in walk.files("", 0, linked=False):
            yield found if _is_text(found.path) else walk.renamed(found)


def rests(found: Found, *, now: float, seen_before: bool) -> bool:
    """Whether a file of a running job may be sent now (`now` is the time of day).

    One that was changing at the last look as well is sent as it is: a log that grows all the time
    would otherwise be seen at the end only.
    """
    if now - found.mtime >= SETTLE_SECONDS:
        return True
    return seen_before and (found.area == LOG or found.size < _LARGE)


def open_inside(found: Found, root: Path) -> IO[bytes] | None:
    """The file, open for reading; None when it is no plain file inside its area (any more).

    It is held first and opened only when it is known what it is: to open a device is to use it.
    """
    hold = getattr(os, "O_PATH", 0)
    try:
        fd = os.open(found.where, hold | os.O_CLOEXEC if hold else _READ)
    except FileNotFoundError:
        return None
    try:
        plain = stat.S_ISREG(os.fstat(fd).st_mode)
        if not plain or not _is_inside(fd, str(_top(root, found.area))):
            return None
        again = os.open(f"/proc/self/fd/{fd}", _READ) if hold else os.dup(fd)
    finally:
        os.close(fd)
    return os.fdopen(again, "rb", buffering=0)


def refuse_hollow(found: Found, file: IO[bytes]) -> None:
    """Raises Refused for a huge file that is mostly hole. A file system that compresses has few
    blocks of a file as well: there its holes are counted."""
    status = os.fstat(file.fileno())
    size, there = status.st_size, status.st_blocks * 512
    if size <= _HOLLOW or there * _HOLLOW_TIMES >= size:
        return
    if there * _EMPTY_TIMES < size or _bytes_there(file.fileno(), size) * _HOLLOW_TIMES < size:
        raise Refused("output_hollow", path=found.name, size=size, there=there, limit=_HOLLOW)


def unreadable(name: str, error: OSError | PaddleCloudError) -> PaddleCloudError:
    """Why an output could not be read, as a sentence for its owner."""
    if isinstance(error, PaddleCloudError):
        return error
    return Refused("output_unreadable", path=name, reason=error.strerror or str(error))


def is_for_good(error: OSError | PaddleCloudError) -> bool:
    """Whether to read it once more is pointless."""
    return not isinstance(error, OSError) or error.errno in (errno.EACCES, errno.EPERM)


def is_lack(error: OSError | PaddleCloudError) -> bool:
    """Whether this process, or its machine, has too little of something. That says nothing of the
    file."""
    return isinstance(error, OSError) and error.errno in _LACKS


def may_be_read(
    error: OSError | PaddleCloudError, *, lasted: float, patience: float | None
) -> bool:
    """Whether to try once more what could not be read for so many seconds, now that its job is
    over. What only the agent lacks is waited for as the store is (`patience`, None: for ever); who
    kills the job waits for neither."""
    longest = inf if patience is None else patience
    longest = longest if is_lack(error) else min(_UNREAD, longest)
    return not is_for_good(error) and lasted < longest


def found_again(found: Found, file: IO[bytes]) -> Found:
    """`found` with the mark that the open file has now."""
    return replace(found, mark=_mark(os.fstat(file.fileno())))


def to_send(found: Found, file: IO[bytes], *, now: float) -> Found:
    """The same before it is read (`now` is the time of day), with whether that mark is reliable.
    Within a moment after a change it is not: the next change may leave the same time."""
    marked = found_again(found, file)
    rests_now = rests(marked, now=now, seen_before=False)
    return replace(marked, is_reliable=rests_now and is_reliable(file.fileno()))


def _top(root: Path, area: str) -> Path:
    """Where an area is, if it is no link: whatever one leads to was not put there."""
    return root.resolve() / area


def _bytes_there(fd: int, size: int) -> int:
    """How much of a file is not hole; all of it where the system does not tell, and the rest of it
    where the holes are too many to count."""
    there = begin = end = 0
    try:
        for _ in range(_MOST_HOLES):
            begin = os.lseek(fd, end, os.SEEK_DATA)
            end = os.lseek(fd, begin, os.SEEK_HOLE)
            there += end - begin
    except OSError as error:
        return there if error.errno == errno.ENXIO else size
    finally:
        os.lseek(fd, 0, os.SEEK_SET)
    return there + size - end


def _is_text(path: str) -> bool:
    """Whether it is UTF-8 on the disk: Python makes other bytes letters that cannot be encoded."""
    return path.isascii() or not any(_is_byte(letter) for letter in path)


def _readable(path: str, top: Path) -> str:
    """With `%B0` in its path for such a byte, and `%25` for a percent sign: no two of these paths
    become the same, and none that of a file beside it."""
    path = "/".join(_spelled(name) for name in path.split("/"))
    while os.path.lexists(top / path):
        path += "~"
    return path


def _spelled(name: str) -> str:
    """One too long for any disk that way has a digest in the place of its end."""
    letters = (f"%{ord(each) & 0xFF:02X}" if _is_byte(each) else each for each in name)
    spelled = "".join("%25" if each == "%" else each for each in letters).encode()
    if len(spelled) <= _LONGEST_NAME:
        return spelled.decode()
    digest = hashlib.sha256(os.fsencode(name)).hexdigest()[:16]
    return f"{spelled[: _LONGEST_NAME - 18].decode(errors='ignore')}~{digest}"


def _is_byte(letter: str) -> bool:
    return "\udc80" <= letter <= "\udcff"


def _has_something(directory: str) -> bool:
    try:
        os.rmdir(directory)  # noqa: PTH106 - every job ends with this
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False


class _Walk:
    """The way through one area."""

    def __init__(self, area: str, top: Path, passed: Passed) -> None:
        self.top = top
        self._area = area
        self._passed = passed

    def renamed(self, found: Found) -> Found:
        """With a path that is text; that is noted."""
        path = _readable(found.path, self.top)
        self._note(self._passed.renamed, path)
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
                        self._pass_over(path, Invalid("path_deep", path=path, **_TOO_DEEP))
                elif stat.S_ISREG(status.st_mode):
                    yield self._found(path, self.top / path, status)
                else:
                    self._note(self._passed.odd, path)

    def _entries(self, below: str) -> list[tuple[str, os.stat_result]]:
        """What lies in a directory; nothing if, once open, it does not lie below the top."""
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
            self._pass_over(below, error)
        return sorted(found, key=lambda each: each[0])

    def _follow(self, path: str, depth: int, *, linked: bool) -> Iterator[Found]:
        """What a link inside the area leads to; links to directories met on that way are not
        followed again, so that a circle of links ends."""
        place = self.top / path
        try:
            target = Path(os.path.realpath(place, strict=True))
        except OSError:  # it leads nowhere, or in a circle
            if self._is_inside(path, Path(os.path.realpath(place))):
                self._note(self._passed.odd, path)
            return
        if not self._is_inside(path, target):
            return
        if target.is_file():
            yield self._found(path, target, target.stat())
        elif not target.is_dir() or place.is_relative_to(target):
            self._note(self._passed.odd, path)
        elif not linked:
            inside = str(target.relative_to(self.top))
            for found in self.files(inside, depth, linked=True):
                yield replace(found, path=path + found.path.removeprefix(inside))

    def _is_inside(self, path: str, target: Path) -> bool:
        """Whether a link leads to a place in this area; if not, it is noted."""
        inside = target.is_relative_to(self.top)
        if not inside:
            self._note(self._passed.outside, path)
        return inside

    def _found(self, path: str, where: Path, status: os.stat_result) -> Found:
        return Found(area=self._area, path=path, where=where, mark=_mark(status))

    def _pass_over(self, path: str, error: OSError | PaddleCloudError) -> None:
        if len(self._passed.unread) < _MOST_PASSED:
            self._passed.unread[self._name(path)] = error

    def _note(self, names: list[str], path: str) -> None:
        if len(names) < _MOST_PASSED:
            names.append(self._name(path))

    def _name(self, path: str) -> str:
        name = f"{self._area}/{path}" if path else self._area
        return name.encode("utf-8", "backslashreplace").decode()


def _mark(status: os.stat_result) -> Mark:
    return (status.st_size, status.st_mtime_ns, status.st_ino)


def _is_inside(fd: int, top: str) -> bool:
    """Whether what is open here lies at `top`, a path without links, or below it."""
    if hasattr(os, "O_PATH"):
        real = os.readlink(f"/proc/self/fd/{fd}")  # noqa: PTH115 - no path, and once a directory
    elif hasattr(fcntl, "F_GETPATH"):
        name: bytes = fcntl.fcntl(fd, fcntl.F_GETPATH, b"\0" * 1024)
        real = os.fsdecode(name.rstrip(b"\0"))
    else:
        return False
    return real == top or real.startswith(f"{top}/")
