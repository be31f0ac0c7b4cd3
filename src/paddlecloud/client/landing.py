"""Where a download lands: local names, the hidden directory beside the final one, its journal.

What is here so far lies in that directory, which gets its name when everything is whole; nothing
partial is ever seen under a final name. A line in the journal says that a piece of a file is here
and is right. Whoever writes there holds the directory: two at once would write over each other. Of
a finished download a record tells which files are still as they came: all others are a person's
own, and stay. Nothing is written through a link, whoever made it, because it may lead anywhere.
Nothing here talks to a server.
"""

# pathlib costs 8 ms:
# ruff: noqa: PTH100, PTH101, PTH103, PTH104, PTH105, PTH106, PTH108, PTH112
# ruff: noqa: PTH116, PTH118, PTH120, PTH123

from __future__ import annotations

import errno
import hashlib
import os
from contextlib import suppress
from stat import S_ISDIR, S_ISLNK
from threading import Lock

from paddlecloud.client.journal import Journal, Known, learned, read
from paddlecloud.client.linking import is_barred, make_links
from paddlecloud.client.naming import check_name, shown
from paddlecloud.client.records import Record, stamp_of
from paddlecloud.model.errors import Conflict, Invalid, PaddleCloudError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any

    Row = Mapping[str, Any]

#: A piece: so much is asked for again at most, for each thread, when a download is taken up.
PIECE = 8 * 1024 * 1024
_BLOCK = 1024 * 1024
#: How the version of a file begins whose bytes stay what they are while it grows.
APPEND = "append"
#: What a finished download has in the place of a file: nothing, the file that is wanted, an older
#: state of it as it came, or something that a person put there.
NOTHING, OURS, OLDER, THEIRS = "nothing", "ours", "older", "theirs"
NAME_TWICE = "download_name_twice"
#: Downloads that end between two looks of somebody who wants the same directory.
_MOST_ENDINGS = 20
_JOURNAL, _FILES = "journal", "files"
_BINARY: int = getattr(os, "O_BINARY", 0)  # Windows would change the line ends
_WINDOWS_DEVICES = frozenset(
    ("CON", "PRN", "AUX", "NUL", *(f"{kind}{n}" for kind in ("COM", "LPT") for n in range(1, 10)))
)


def check_download_dir(download_dir: str, path: str = "", records: str = "") -> None:
    """Refuse a download directory that exists: it is never mixed with what was there.

    Except one that `records` knows to hold an earlier download from `path`.
    """
    record = Record(os.path.abspath(download_dir), path, records)
    if os.path.lexists(download_dir) and not record.is_of_this():
        foreign = bool(records)
        raise Invalid(
            "download_dir_foreign" if foreign else "download_dir_exists", path=download_dir
        )


def part_of(final: str) -> str:
    """Where the files of an unfinished download into `final` lie."""
    above, name = os.path.split(os.path.abspath(final))
    return os.path.join(above, f".{name}.paddlecloud-part")


def is_begun(final: str) -> bool:
    """Whether a download into `final` left something that another can go on with."""
    return os.path.isdir(part_of(final))


def local_name(path: str, *, windows: bool = os.name == "nt") -> str:
    """Where a file of a job goes below the download directory; Invalid if it would lead out."""
    check_name(path.rstrip("/"))
    names = path.rstrip("/").split("/")
    if names[0] == "output" and len(names) > 1 and names[1].startswith("job-"):
        del names[0]
    if windows:
        names = [_windows_name(name) for name in names]
    return "/".join(names)


class File:
    """One row of the listing, and how far we are with it."""

    __slots__ = (
        *("aside", "done", "executable", "link", "lock", "name", "noted", "path", "sha256"),
        *("size", "time", "version", "versions", "way", "written"),
    )

    def __init__(self, row: Row, name: str, settled: str) -> None:
        """`settled`: what was changed before that time is another file with every later time."""
        self.path = str(row["path"])
        self.name = name
        self.size = int(row["size"])
        self.time = str(row["time"])
        self.sha256 = str(row.get("sha256") or "")
        self.written = str(row.get("written_sha256") or "")
        """What the job wrote there, if the stored file may be another one by now."""
        is_told = self.sha256 or self.written or self.size > PIECE or self.time < settled
        self.noted = self.time if is_told else ""
        """The time that is written down: none if it may not tell this file from the next one, and
        nothing else does. Versions of pieces do, which are exact to the microsecond."""
        self.executable = bool(row.get("executable"))
        self.link = str(row.get("link") or "")
        """Where it points, if it is a link."""
        self.way = str(row.get("way") or "")
        """Where it can be had past the server: a path of this machine or an address, if any."""
        self.version = ""
        """Which state of the file its pieces are of; empty until the server has said."""
        self.versions = 0
        self.done: set[int] = set()
        """Where the pieces begin that are here."""
        self.aside = ""
        """Where it is written while others still hold the file that it was before."""
        self.lock = Lock()

    @property
    def is_directory(self) -> bool:
        return self.path.endswith("/")

    def pieces(self) -> list[int]:
        return list(range(0, max(self.size, 1), PIECE))

    def length(self, start: int) -> int:
        """Of the piece that begins there."""
        return min(PIECE, self.size - start)


class Place:
    """The hidden directory: files as far as they are here, and the journal of what is right."""

    def __init__(self, final: str, what: str, records: str, *, resume: bool) -> None:
        self.final = final
        self.part = part_of(final)
        self.files = os.path.join(self.part, _FILES)
        self.resumed = resume
        self._what = what
        self._record = Record(final, what, records)
        records = records if resume else ""
        check_download_dir(final, what, records)
        self._held = _hold(self.part, final)
        try:
            # Whoever held it until now may have finished.
            check_download_dir(final, what, records)
            self._open()
        except BaseException:
            with suppress(OSError):
                os.rmdir(self.part)
            _release(self._held)
            raise

    def _open(self) -> None:
        journal = os.path.join(self.part, _JOURNAL)
        begun = read(journal, self._what) if self.resumed else []
        self._begun = learned(begun)
        self.goes_on = bool(begun)
        """Whether an unfinished download left something here that may be of use."""
        self._adds = os.path.lexists(self.final)
        """Whether there is a finished download to add to."""
        self._seen: dict[str, list[int]] = {}
        self._kept: set[str] = set()
        if self._adds:
            self._record.recall()
        try:
            if begun:
                # Of one that ended just before its links got their final names.
                _sweep(self.files, lambda status: not S_ISLNK(status.st_mode))
            else:
                _empty(self.part)
            os.makedirs(self.files, exist_ok=True)
            self.journal = Journal(journal)
        except OSError as error:
            raise _cannot_write(self.part, error) from None
        self.journal.note(self._what)

    def finished(self, file: File) -> str:
        """What a finished download has in the place of a file: NOTHING, OURS, OLDER or THEIRS."""
        have = self._have(file) if self._adds else NOTHING
        if self._adds and have in (NOTHING, OLDER) and is_barred(self.final, file.name):
            return THEIRS
        return have

    def _have(self, file: File) -> str:
        now = stamp_of(self.place(file))
        if now is None:
            return NOTHING
        self._seen[file.path] = now
        had = self._record.found(file.path, now)
        if had is None:
            return THEIRS
        return OURS if (had.size, had.time) == (file.size, file.time) else OLDER

    def keep(self, file: File) -> None:
        """A file of a finished download is right as `finished` saw it; it may change any time."""
        self._kept.add(file.path)
        if file.path in self._seen:
            self._record.confirm(file.path, self._seen[file.path])

    def knows(self, file: File) -> None:
        """Fill in what is here of an unfinished file, if it is of the state that is wanted; bytes
        of another state go, or they would be its end."""
        found = self._begun.get(file.path)
        if found is not None and _is_wanted(found, file):
            stamp = stamp_of(self.target(file)) or [-1]
            end = min(stamp[0], found.size)
            file.version = found.version
            file.done = {start for start in found.starts if start + file.length(start) <= end}
        if self.goes_on and not file.done:
            self.clear(file)

    def target(self, file: File) -> str:
        """Where what comes of a file is written."""
        return file.aside or os.path.join(self.files, file.name)

    def came(self, file: File, start: int) -> None:
        """A piece is here; whoever takes the download up looks for it under the file's own name."""
        if not file.aside:
            self.journal.note([file.path, file.size, file.noted, file.version, start])

    def clear(self, file: File) -> None:
        """Have a file begin with nothing; whoever still writes to it does so without a name, or,
        where no open file can lose its name (Windows), under a name that it gives up."""
        try:
            os.unlink(self.target(file))
        except FileNotFoundError:
            return
        except PermissionError:
            file.aside = os.path.join(self.part, os.urandom(8).hex())

    def settle(self, file: File) -> None:
        """Nobody writes to a file any more: it has its own name."""
        aside, file.aside = file.aside, ""
        if aside:
            try:
                os.replace(aside, self.target(file))
            except OSError as error:
                raise _cannot_make(file.path, error) from None

    def forget(self, file: File) -> None:
        """Nothing that came of a file is of use: the next try must begin it anew."""
        self.journal.note([file.path, -1, "", "", 0])
        file.aside = ""
        self.clear(file)

    def drop(self) -> None:
        """Nothing that is here is of use to anybody."""
        self.journal.close()  # or it could not be deleted on Windows
        remove(self.part)

    def place(self, file: File) -> str:
        """Where a file is in the end."""
        return os.path.join(self.final, file.name)

    def finish(self, whole: Iterable[File], links: Iterable[File]) -> tuple[list[File], list[str]]:
        """Give whole files and links their final names, and remember that they are ours.

        The files that stay out, because a person put something in their place meanwhile, and the
        names of links that cannot be made or would lead out.
        """
        came = [file for file in whole if file.path not in self._kept]
        missing = [link for link in links if not os.path.lexists(self.place(link))]
        try:
            result = (self._add if self._adds else self._appear)(came, missing)
        except OSError as error:
            raise _cannot_write(self.final, error) from None
        self.drop()
        return result

    def _appear(self, came: Sequence[File], links: Sequence[File]) -> tuple[list[File], list[str]]:
        """All at once; a part of something else that was begun here is not among it."""
        if self.goes_on:
            wanted = {_inode(os.lstat(self.target(file))) for file in came}
            _sweep(self.files, lambda status: _inode(status) in wanted)
        unlinked = make_links(self.files, {link.name: link.link for link in links})
        for file in came:
            self._is_ours_now(file, self._stamp(file))
        if os.path.lexists(self.final):  # since it was begun
            raise Conflict("download_dir_exists", path=shown(self.final))
        # The record first: whoever is killed in between leaves a directory that is known.
        self._record.write(self.files)
        os.rename(self.files, self.final)
        return [], unlinked

    def _add(self, came: Sequence[File], links: Sequence[File]) -> tuple[list[File], list[str]]:
        """One after the other; the record tells of each before, and of all in the end."""
        news = [file for file in came if not file.is_directory]
        self._record.expect({f.path: [f.size, f.noted, self._stamp(f)] for f in news})
        try:
            edited = [file for file in came if not self._put(file)]
            return edited, make_links(self.final, {link.name: link.link for link in links})
        finally:
            self._record.write()

    def _stamp(self, file: File) -> list[int]:
        """Of what came. It cannot be gone, unless a file system gave it another inode meanwhile."""
        stamp = stamp_of(self.target(file))
        if stamp is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        return stamp

    def _put(self, file: File) -> bool:
        """Give a file its name; False: a person has put something there."""
        place, target = self.place(file), self.target(file)
        barred = is_barred(self.final, file.name)
        if file.is_directory:
            if not barred and not os.path.lexists(place):
                os.makedirs(place)
            return True
        if barred or self.finished(file) == THEIRS:
            return False
        os.makedirs(os.path.dirname(place), exist_ok=True)
        stamp = self._stamp(file)
        os.replace(target, place)
        self._is_ours_now(file, stamp)
        return True

    def _is_ours_now(self, file: File, stamp: list[int]) -> None:
        if not file.is_directory:
            self._record.add(file.path, Known(file.size, file.noted, file.version), stamp)

    def close(self) -> None:
        """Nothing is written there any more: somebody else may."""
        self.journal.close()
        _release(self._held)
        self._held = -1


class Writer:
    """A place in a local file; what the system says about it becomes an error with the path in it.

    The network's errors come through the same loop and must stay apart from these.
    """

    def __init__(self, target: str, path: str, offset: int) -> None:
        self._path = path
        try:
            self._fd = os.open(target, os.O_WRONLY | os.O_CREAT | _BINARY, 0o666)
            os.lseek(self._fd, offset, os.SEEK_SET)
        except OSError as error:
            raise _cannot_make(path, error) from None

    def write(self, chunk: bytes) -> None:
        try:
            written = os.write(self._fd, chunk)
            while written < len(chunk):
                written += os.write(self._fd, memoryview(chunk)[written:])
        except OSError as error:
            raise _cannot_write(self._path, error) from None

    def cut(self, size: int) -> None:
        """Nothing is behind `size` bytes."""
        os.ftruncate(self._fd, size)

    def close(self) -> None:
        os.close(self._fd)


def copy_of(source: int, target: str, file: File, tell: Callable[[int], None]) -> bool:
    """Copy an open file of this machine; whether it is as it was listed."""
    from paddlecloud.client import copying  # noqa: PLC0415 - only from a private server

    try:
        fd = os.open(target, os.O_RDWR | os.O_CREAT | os.O_TRUNC | _BINARY, 0o666)
        try:
            if file.sha256:
                return copying.copy_and_hash(source, fd, file.size, tell=tell) == file.sha256
            copying.copy(source, fd, file.size, tell)
        finally:
            os.close(fd)
    except copying.Shorter:
        return False
    except OSError as error:
        raise _cannot_make(file.path, error) from None
    return True


def make_directory(target: str, path: str) -> None:
    try:
        os.makedirs(target, exist_ok=True)
    except OSError as error:
        raise _cannot_make(path, error) from None


def claim(target: str, path: str) -> None:
    try:
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
    except OSError as error:
        raise _cannot_make(path, error) from None


def _cannot_make(path: str, error: OSError) -> PaddleCloudError:
    """What is in its way is another file of this download: two names that are one here."""
    if isinstance(error, FileExistsError | IsADirectoryError):
        return Invalid(NAME_TWICE, path=shown(path))
    return _cannot_write(path, error)


def _cannot_write(path: str, error: OSError) -> Conflict:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return Conflict("download_full", path=shown(path))
    return Conflict("download_failed", path=shown(path), reason=error.strerror or str(error))


def sha256_of(target: str, path: str) -> str:
    digest = hashlib.sha256()
    try:
        with open(target, "rb", buffering=0) as file:
            while block := file.read(_BLOCK):
                digest.update(block)
    except OSError as error:
        raise _cannot_write(path, error) from None
    return digest.hexdigest()


def remove(part: str) -> None:
    from shutil import rmtree  # noqa: PLC0415 - not every download needs it

    rmtree(part, ignore_errors=True)


def make_executable(target: str) -> None:
    """For everybody who may read it; where that means nothing it is no harm."""
    with suppress(OSError):
        mode = os.stat(target).st_mode
        os.chmod(target, mode | (mode & 0o444) >> 2)


def _sweep(root: str, is_wanted: Callable[[os.stat_result], bool]) -> None:
    """Take away what is not wanted; a directory stays while something is in it."""
    for above, directories, names in os.walk(root, topdown=False):
        for name in (*names, *directories):
            path = os.path.join(above, name)
            status = os.lstat(path)
            if is_wanted(status):
                continue
            if S_ISDIR(status.st_mode):
                with suppress(OSError):
                    os.rmdir(path)
            else:
                os.unlink(path)


def _inode(status: os.stat_result) -> tuple[int, int]:
    """Rather than its name, which some systems spell in another way."""
    return status.st_dev, status.st_ino


def _hold(part: str, final: str) -> int:
    """Keep everybody else away from a directory, which is made, until it is released."""
    try:
        from fcntl import LOCK_EX, LOCK_NB, flock  # noqa: PLC0415 - there is none on Windows
    except ImportError:
        return -1
    for _ in range(_MOST_ENDINGS):
        held = _opened(part)
        try:
            flock(held, LOCK_EX | LOCK_NB)
        except BlockingIOError:
            os.close(held)
            break
        except OSError:  # a file system without locks
            return held
        if _is_same(held, part):
            return held
        os.close(held)
    raise Invalid("download_dir_busy", path=shown(final))


def _opened(part: str) -> int:
    """The directory, made if need be; somebody who is done may take it away meanwhile."""
    reason: OSError = FileNotFoundError()
    for _ in range(_MOST_ENDINGS):
        try:
            os.makedirs(part, exist_ok=True)
            return os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except (FileNotFoundError, FileExistsError) as error:
            reason = error
        except OSError as error:
            raise _cannot_write(part, error) from None
    raise _cannot_write(part, reason)


def _is_same(held: int, part: str) -> bool:
    """Whether what is held still has its name."""
    with suppress(OSError):
        return os.path.samestat(os.fstat(held), os.stat(part))
    return False


def _release(held: int) -> None:
    if held >= 0:
        os.close(held)


def _is_wanted(found: Known, file: File) -> bool:
    """Whether pieces of that state are pieces of this file, as those of a log that grew are; the
    server is asked for more of that one, and tells if it is another log by now."""
    if found.version.startswith(APPEND) and found.size < file.size:
        return True
    is_sure = not found.unsure or bool(file.sha256) or file.size <= PIECE
    return is_sure and found.is_of(file.size, file.time, "")


def _empty(part: str) -> None:
    """Without what an earlier download left there."""
    remove(os.path.join(part, _FILES))
    with suppress(FileNotFoundError):
        os.unlink(os.path.join(part, _JOURNAL))


def _windows_name(name: str) -> str:
    """A name that Windows takes: what it refuses is written as %XX, as in a URL."""
    safe = "".join(f"%{ord(c):02X}" if c in '<>:"|?*%' or ord(c) < 32 else c for c in name)
    if safe[-1] in ". ":
        safe = f"{safe[:-1]}%{ord(safe[-1]):02X}"
    if safe.partition(".")[0].upper() in _WINDOWS_DEVICES:
        safe = f"%{ord(safe[0]):02X}{safe[1:]}"
    return safe
