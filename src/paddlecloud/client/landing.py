"""Where a download lands: local names, the hidden directory beside the final one, its journal.

What is here so far lies in that directory, which gets its name when everything is whole; nothing
partial is ever seen under a final name. A line in the journal says that a piece of a file is here
and is right. Nothing here talks to a server.
"""

# pathlib costs 8 ms:
# ruff: noqa: PTH100, PTH103, PTH104, PTH105, PTH112, PTH118, PTH120, PTH123

from __future__ import annotations

import errno
import hashlib
import os
from json import dumps, loads
from threading import Lock

from paddlecloud.client.naming import bad_path, shown
from paddlecloud.model.errors import Conflict, Invalid, PaddleCloudError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from typing import Any

    Row = Mapping[str, Any]

#: A piece: so much is asked for again at most, for each thread, when a download is taken up.
PIECE = 8 * 1024 * 1024
_BLOCK = 1024 * 1024
_JOURNAL, _FILES = "journal", "files"
_BINARY: int = getattr(os, "O_BINARY", 0)  # Windows would change the line ends
_WINDOWS_DEVICES = frozenset(
    ("CON", "PRN", "AUX", "NUL", *(f"{kind}{n}" for kind in ("COM", "LPT") for n in range(1, 10)))
)


def check_download_dir(download_dir: str, path: str = "", records: str = "") -> None:
    """Refuse a download directory that exists: it is never mixed with what was there.

    Except one that `records` knows to hold an earlier download from `path`.
    """
    if os.path.lexists(download_dir) and not _is_ours(os.path.abspath(download_dir), path, records):
        foreign = bool(records)
        raise Invalid(
            "download_dir_foreign" if foreign else "download_dir_exists", path=download_dir
        )


def records_in(home: str) -> str:
    """Where finished downloads are remembered, below PADDLECLOUD_HOME."""
    return os.path.join(home, "cache", "downloads")


def part_of(final: str) -> str:
    """Where the files of an unfinished download into `final` lie."""
    above, name = os.path.split(os.path.abspath(final))
    return os.path.join(above, f".{name}.paddlecloud-part")


def local_name(path: str, *, windows: bool = os.name == "nt") -> str:
    """Where a file of a job goes below the download directory; Invalid if it would lead out."""
    names = path.rstrip("/").split("/")
    reason = bad_path(path.rstrip("/"), names)
    if reason:
        raise Invalid("files_name", path=shown(path), reason=reason)
    if names[0] == "output" and len(names) > 1 and names[1].startswith("job-"):
        del names[0]
    if windows:
        names = [_windows_name(name) for name in names]
    return "/".join(names)


class File:
    """One row of the listing, and how far we are with it."""

    __slots__ = (
        *("done", "lock", "name", "path", "sha256", "size", "time", "version", "versions"),
        *("way", "written"),
    )

    def __init__(self, row: Row, name: str, way: str = "") -> None:
        self.path = str(row["path"])
        self.name = name
        self.size = int(row["size"])
        self.time = str(row["time"])
        self.sha256 = str(row.get("sha256") or "")
        self.written = str(row.get("written_sha256") or "")
        """What the job wrote there, if the stored file may be another one by now."""
        self.way = way
        """Where it can be had past the server: a path of this machine or an address, if any."""
        self.version = ""
        """Which state of the file its pieces are of; empty until the server has said."""
        self.versions = 0
        self.done: set[int] = set()
        """Where the pieces begin that are here."""
        self.lock = Lock()

    @property
    def is_directory(self) -> bool:
        return self.path.endswith("/")

    def pieces(self) -> list[int]:
        return list(range(0, max(self.size, 1), PIECE))


class Place:
    """The hidden directory: files as far as they are here, and the journal of what is right."""

    def __init__(self, final: str, what: str, records: str, *, resume: bool) -> None:
        self.final = final
        self.part = part_of(final)
        self.files = os.path.join(self.part, _FILES)
        self.resumed = resume
        self._record = _record_of(final, records)
        check_download_dir(final, what, records if resume else "")
        self._lock = Lock()
        self._known: dict[str, list[Any]] = {}
        if resume:
            self._learn(_read(self._record, what))
        if not resume or not self._learn(_read(os.path.join(self.part, _JOURNAL), what)):
            remove(self.part)
        try:
            os.makedirs(self.files, exist_ok=True)
            journal = os.path.join(self.part, _JOURNAL)
            self._journal = open(journal, "a", encoding="utf-8")  # noqa: SIM115 - see `close`
        except OSError as error:
            raise _cannot_write(self.part, error) from None
        self.note(what)

    def note(self, fact: object) -> None:
        """Keep a fact for whoever takes the download up; a full disk keeps none and harms none."""
        with self._lock:
            try:
                self._journal.write(dumps(fact) + "\n")
                self._journal.flush()
            except OSError:
                return

    def knows(self, file: File) -> None:
        """Fill in what is here of a file, if it is of the state that is wanted."""
        found = self._known.get(file.path)
        if found is None or found[:2] != [file.size, file.time]:
            return
        size = max(_size(f"{self.files}/{file.name}"), _size(f"{self.final}/{file.name}"))
        file.version = found[2]
        file.done = {start for start in found[3] if min(start + PIECE, file.size) <= size}

    def where(self, file: File) -> str:
        """The file as it is here, among what is new or among what an earlier download brought."""
        target = os.path.join(self.files, file.name)
        return target if os.path.lexists(target) else os.path.join(self.final, file.name)

    def finish(self) -> None:
        """Give everything its final name, and remember that it is ours."""
        try:
            if os.path.lexists(self.final):
                _merge(self.files, self.final)
            else:
                os.rename(self.files, self.final)
            self._remember()
        except OSError as error:
            raise _cannot_write(self.final, error) from None
        remove(self.part)

    def close(self) -> None:
        with self._lock:
            self._journal.close()

    def _learn(self, facts: Sequence[Any]) -> bool:
        """Whether there is anything."""
        for fact in facts:
            if isinstance(fact, list):
                path, size, time, version, start = fact
                found = self._known.get(path)
                if found is None or found[:3] != [size, time, version]:
                    self._known[path] = found = [size, time, version, []]
                found[3].append(start)
        return bool(facts)

    def _remember(self) -> None:
        """One that cannot be kept is missed only by whoever adds to this directory later."""
        if not self._record:
            return
        lines = [dumps([path, *known[:3], start]) for path, known in self._known.items()
                 for start in known[3]]  # fmt: skip
        try:
            with open(os.path.join(self.part, _JOURNAL), encoding="utf-8") as file:
                what, *fresh = file.read().splitlines()
            os.makedirs(os.path.dirname(self._record), mode=0o700, exist_ok=True)
            aside = f"{self._record}.{os.urandom(8).hex()}"
            with open(aside, "w", encoding="utf-8") as file:
                file.write("\n".join([what, dumps(_identity(self.final)), *lines, *fresh, ""]))
            os.replace(aside, self._record)
        except (OSError, ValueError):
            return


class Writer:
    """A place in a local file; what the system says about it becomes an error with the path in it.

    The network's errors come through the same loop and must stay apart from these.
    """

    def __init__(self, target: str, path: str, offset: int) -> None:
        self._path = path
        try:
            self._fd = os.open(target, os.O_WRONLY | os.O_CREAT | _BINARY, 0o666)
            os.lseek(self._fd, offset, os.SEEK_SET)
        except IsADirectoryError:
            raise Invalid("download_name_twice", path=shown(path)) from None
        except OSError as error:
            raise _cannot_write(path, error) from None

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
    except IsADirectoryError:
        raise Invalid("download_name_twice", path=shown(file.path)) from None
    except copying.Shorter:
        return False
    except OSError as error:
        raise _cannot_write(file.path, error) from None
    return True


def make_directory(target: str, path: str) -> None:
    try:
        os.makedirs(target, exist_ok=True)
    except FileExistsError:
        raise Invalid("download_name_twice", path=shown(path)) from None
    except OSError as error:
        raise _cannot_write(path, error) from None


def claim(target: str, path: str) -> None:
    try:
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
    except FileExistsError:
        raise Invalid("download_name_twice", path=shown(path)) from None
    except OSError as error:
        raise _cannot_write(path, error) from None


def _cannot_write(path: str, error: OSError) -> PaddleCloudError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return Conflict("download_full", path=shown(path))
    return Invalid("download_failed", path=shown(path), reason=error.strerror or str(error))


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


def _read(journal: str, what: str) -> list[Any]:
    """The facts of a journal about `what`; none when it is that of something else."""
    try:
        with open(journal, encoding="utf-8") as file:
            facts = [*_facts(file)]
    except (OSError, ValueError):
        return []
    return facts if facts and facts[0] == what else []


def _facts(lines: Iterable[str]) -> Iterator[Any]:
    for line in lines:
        # The last one may be cut.
        if line.endswith("\n"):
            yield loads(line)


def _is_ours(final: str, what: str, records: str) -> bool:
    facts = _read(_record_of(final, records), what) if records else []
    return len(facts) > 1 and bool(facts[1] == _identity(final))


def _record_of(final: str, records: str) -> str:
    name = hashlib.sha256(os.fsencode(final)).hexdigest()[:32]
    return os.path.join(records, name) if records else ""


def _identity(final: str) -> dict[str, int]:
    """A directory of the same name that somebody else made is another one."""
    found = os.stat(final)  # noqa: PTH116 - see the top
    return {"device": found.st_dev, "inode": found.st_ino}


def _merge(source: str, target: str) -> None:
    for name in sorted(os.listdir(source)):  # noqa: PTH208 - see the top
        below, place = os.path.join(source, name), os.path.join(target, name)
        if os.path.isdir(below) and os.path.isdir(place):
            _merge(below, place)
        else:
            os.replace(below, place)


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size  # noqa: PTH116 - see the top
    except OSError:
        return -1


def _windows_name(name: str) -> str:
    """A name that Windows takes: what it refuses is written as %XX, as in a URL."""
    safe = "".join(f"%{ord(c):02X}" if c in '<>:"|?*%' or ord(c) < 32 else c for c in name)
    if safe[-1] in ". ":
        safe = f"{safe[:-1]}%{ord(safe[-1]):02X}"
    if safe.partition(".")[0].upper() in _WINDOWS_DEVICES:
        safe = f"%{ord(safe[0]):02X}{safe[1:]}"
    return safe
