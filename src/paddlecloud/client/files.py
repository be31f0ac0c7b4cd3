"""The client's work on files: what a directory holds, the upload stream, and the download.

A directory becomes rows of a snapshot (`model.snapshot` says what those mean; the same directory
has the same id there and here). Hashing is skipped for files that a small cache knows to be
unchanged. A download appears under its final name whole or not at all. Talking to the server is
left to the caller. Nothing here imports dataclasses, typing or pathlib, and of the model only its
errors: every submit pays for what this module loads.
"""

# pathlib costs 8 ms at every submit:
# ruff: noqa: PTH100, PTH102, PTH103, PTH104, PTH105, PTH108, PTH112, PTH115, PTH117, PTH118, PTH119
# ruff: noqa: PTH120, PTH123

from __future__ import annotations

import errno
import hashlib
import os
import stat
from json import dumps

from paddlecloud.model.errors import Conflict, Invalid, PaddleCloudError, Retry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    Row = tuple[str, str, int, str, int, str]
    """path, kind, size, sha256, executable, target: one entry of a snapshot on the wire."""
    Source = tuple[str, int, str]
    """The file that holds some content: absolute path, size, and its stamp when it was read."""

BLOCK = 1024 * 1024
SKIPPED_NAMES = frozenset((".git", "__pycache__"))
MAX_PATH_BYTES = 4096

_RACY_SECONDS = 2
"""A file changed so shortly before may change again without a new time stamp: do not cache it."""
_WORTH_FILES, _WORTH_BYTES = 200, 8 * BLOCK
"""Below both, hashing everything again is as fast as reading a cache."""
_CACHE_HEADER = "paddlecloud-files\t1"


class Scan:
    """What a directory holds."""

    __slots__ = ("bytes", "canonical", "directory", "entries", "id", "notes", "sources")

    def __init__(
        self,
        directory: str,
        entries: list[Row],
        sources: dict[str, Source],
        notes: list[tuple[str, dict[str, object]]],
    ) -> None:
        self.directory = directory
        """Its own name, without what is above it."""
        self.entries = entries
        self.canonical = dumps(entries, ensure_ascii=True, separators=(",", ":"))
        """The rows as JSON, as they go to the server."""
        self.id = "sha256:" + hashlib.sha256(self.canonical.encode()).hexdigest()
        self.bytes = sum(row[2] for row in entries)
        self.sources = sources
        """By sha256, a file with that content."""
        self.notes = notes
        """What a person should be told: codes of `model.texts` with their values."""


def scan(directory: str, *, now: float, home: str | None = None) -> Scan:
    """The rows, the id and the contents of a directory.

    `home` is PADDLECLOUD_HOME: it keeps the cache of digests, and is itself never submitted. `now`
    (epoch seconds) tells which files are too fresh for that cache. Links to places outside, names
    that not every system can hold and unreadable files are refused by name.
    """
    root = os.path.abspath(directory)
    _check_directory(directory, root)
    cache = _Cache(root, home)
    settled = int((now - _RACY_SECONDS) * 1e9)
    walk = _Walk(root, cache.known, settled, os.path.abspath(home) if home else "")
    walk.run()
    walk.rows.sort()
    found = Scan(os.path.basename(root) or "root", walk.rows, walk.sources, walk.notes())
    if len(walk.cacheable) >= _WORTH_FILES or found.bytes > _WORTH_BYTES:
        cache.save(walk.cacheable)
    return found


def pack(sources: Mapping[str, Source], missing: Collection[str]) -> tuple[Pack, int]:
    """The upload stream for these contents, and its length.

    The stream can be read more than once: a signed request needs its digest before it is sent.
    """
    stream = Pack({sha256: sources[sha256] for sha256 in missing})
    return stream, stream.length


class Pack:
    """`[32 bytes sha256][8 bytes length][bytes]` for each file; see POST /blobs."""

    __slots__ = ("_sources", "length")

    def __init__(self, sources: Mapping[str, Source]) -> None:
        self._sources = sources
        self.length = sum(40 + size for _, size, _ in sources.values())

    def __iter__(self) -> Iterator[bytes]:
        """Chunks of a mebibyte at most. Conflict("files_changed") names a file that changed."""
        held = bytearray()
        for sha256, source in self._sources.items():
            held += bytes.fromhex(sha256) + source[1].to_bytes(8, "big")
            for block in _content(sha256, source):
                if len(held) + len(block) > BLOCK:
                    yield bytes(held)
                    held.clear()
                if len(block) == BLOCK:
                    yield block
                else:
                    held += block
        if held:
            yield bytes(held)

    def sha256(self) -> str:
        """The digest of the whole stream, in hex."""
        digest = hashlib.sha256()
        for chunk in self:
            digest.update(chunk)
        return digest.hexdigest()


def batches(
    sources: Mapping[str, Source], missing: Iterable[str], limit: int = 32 * BLOCK
) -> Iterator[list[str]]:
    """The missing contents in groups of at most `limit` bytes, or of one larger file.

    A request of that size can be repeated after a broken connection without much loss.
    """
    group: list[str] = []
    size = 0
    for sha256 in missing:
        length = 40 + sources[sha256][1]
        if group and size + length > limit:
            yield group
            group, size = [], 0
        group.append(sha256)
        size += length
    if group:
        yield group


class Fetched:
    """The answer to one request for a file: the length and digest it announced, and its bytes."""

    __slots__ = ("chunks", "length", "sha256")

    def __init__(
        self, chunks: Iterable[bytes], length: int | None = None, sha256: str | None = None
    ) -> None:
        self.chunks = chunks
        self.length = length
        self.sha256 = sha256


def download(
    fetch: Callable[[str], Fetched],
    paths: Sequence[str],
    download_dir: str = "output",
    *,
    progress: Callable[[str, int], None] | None = None,
) -> int:
    """Get these files of a job into a new directory; how many bytes came.

    The leading `output/` of a job's own results is left out of the local names, so that the default
    directory does not double the word. A path that ends with a slash is an empty directory. Bytes
    are collected in a directory beside the final one, which gets its name when all are there.
    `progress` hears of each piece: the path and its number of bytes.
    """
    final = os.path.abspath(download_dir)
    check_download_dir(download_dir)
    targets = [(path, local_name(path)) for path in paths]
    part = _beside(final)
    try:
        total = sum(_get(fetch, path, part, name, progress) for path, name in targets)
        _rename(part, final)
    except BaseException:
        _remove(part)
        raise
    return total


def check_download_dir(download_dir: str) -> None:
    """Refuse a download directory that exists: it is never mixed with what was there."""
    if os.path.lexists(download_dir):
        raise Invalid("download_dir_exists", path=download_dir)


def local_name(path: str, *, windows: bool = os.name == "nt") -> str:
    """Where a file of a job goes below the download directory; Invalid if it would lead out."""
    names = path.rstrip("/").split("/")
    reason = _bad_path(path.rstrip("/"), names)
    if reason:
        raise Invalid("files_name", path=_shown(path), reason=reason)
    if names[0] == "output" and len(names) > 1 and names[1].startswith("job-"):
        del names[0]
    if windows:
        names = [_windows_name(name) for name in names]
    return "/".join(names)


# -- scanning ----------------------------------------------------------------------------------


def _check_directory(given: str, root: str) -> None:
    if os.path.isdir(root):
        return
    code = "files_not_directory" if os.path.lexists(root) else "files_missing"
    raise Invalid(code, path=_shown(given))


class _Walk:
    """One pass over a directory."""

    def __init__(self, root: str, known: Mapping[str, str], settled: int, home: str) -> None:
        self.root = root
        self.rows: list[Row] = []
        self.sources: dict[str, Source] = {}
        self.cacheable: dict[str, str] = {}
        """By path the digest and the stamp, for the next time."""
        self._known = known
        self._settled = settled
        """Files changed after this (nanoseconds of the epoch) may still be changing."""
        self._home = home
        self._skipped: list[str] = []

    def run(self) -> None:
        waiting = [""]
        while waiting:
            above = waiting.pop()
            for entry in self._entries(above):
                path = above + entry.name
                if not _is_plain(path):
                    _check_name(path)
                if entry.is_symlink():
                    self._link(path)
                elif entry.is_dir(follow_symlinks=False):
                    if self._directory(path, entry.name):
                        waiting.append(f"{path}/")
                elif entry.is_file(follow_symlinks=False):
                    self._file(path, entry)
                else:
                    self._skipped.append(path)

    def notes(self) -> list[tuple[str, dict[str, object]]]:
        if not self._skipped:
            return []
        names = sorted(self._skipped)
        more = f" (+{len(names) - 5})" if len(names) > 5 else ""
        return [("files_skipped", {"paths": ", ".join(names[:5]) + more})]

    def _entries(self, above: str) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(self._absolute(above)) as entries:
                return list(entries)
        except OSError as error:
            raise _unreadable(above or ".", error) from None

    def _directory(self, path: str, name: str) -> bool:
        """Keep a directory; whether to go on below it."""
        absolute = self._absolute(path)
        if (
            name in SKIPPED_NAMES
            or absolute == self._home
            or os.path.lexists(f"{absolute}/pyvenv.cfg")
        ):
            self._skipped.append(f"{path}/")
            return False
        self.rows.append((path, "dir", 0, "", 0, ""))
        return True

    def _file(self, path: str, entry: os.DirEntry[str]) -> None:
        try:
            status = entry.stat(follow_symlinks=False)
            known = self._known.get(path, "")
            if known[65:] != _stamp(status):
                status, known = _digest(entry.path, path)
        except OSError as error:
            raise _unreadable(path, error) from None
        sha256, size = known[:64], status.st_size
        executable = 1 if status.st_mode & stat.S_IXUSR else 0
        self.rows.append((path, "file", size, sha256, executable, ""))
        self.sources.setdefault(sha256, (entry.path, size, known[65:]))
        if status.st_mtime_ns < self._settled and status.st_ctime_ns < self._settled:
            self.cacheable[path] = known

    def _link(self, path: str) -> None:
        absolute = self._absolute(path)
        target = os.readlink(absolute)
        relative = _relative_target(self.root, path, target)
        meant = _lexical(path, relative)
        if not meant or not _is_below(os.path.realpath(absolute), self.root):
            raise Invalid("files_link_outside", path=_shown(path), target=_shown(target))
        _check_name(meant)
        self.rows.append((path, "link", 0, "", 0, relative))

    def _absolute(self, path: str) -> str:
        return os.path.join(self.root, path) if path else self.root


def _digest(absolute: str, path: str) -> tuple[os.stat_result, str]:
    """Read a file that holds still meanwhile: its status, and its sha256 and stamp as one text."""
    digest = hashlib.sha256()
    with open(absolute, "rb", buffering=0) as file:
        status = os.fstat(file.fileno())
        while block := file.read(BLOCK):
            digest.update(block)
        stamp = _stamp(os.fstat(file.fileno()))
    if stamp != _stamp(status):
        raise Conflict("files_changed", path=_shown(path))
    return status, f"{digest.hexdigest()} {stamp}"


def _stamp(status: os.stat_result) -> str:
    """While this stays the same, so does the content."""
    return f"{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns} {status.st_ino}"


def _unreadable(path: str, error: OSError) -> PaddleCloudError:
    if isinstance(error, FileNotFoundError):
        return Conflict("files_changed", path=_shown(path))
    return Invalid("files_unreadable", path=_shown(path), reason=error.strerror or str(error))


def _is_plain(path: str) -> bool:
    """Whether a name that a directory gave needs no further look: nearly all are plain."""
    return path.isascii() and len(path) < 250 and "\\" not in path and ":" not in path


def _check_name(path: str) -> None:
    reason = _bad_path(path, path.split("/"))
    if reason:
        raise Invalid("files_name", path=_shown(path), reason=reason)


def _bad_path(path: str, names: Sequence[str]) -> str:
    """Why `model.snapshot.check_path` would refuse this path, or it is not UTF-8; else empty."""
    try:
        too_long = len(path.encode()) > MAX_PATH_BYTES or any(len(n.encode()) > 255 for n in names)
    except UnicodeEncodeError:
        return "not UTF-8"
    if too_long:
        return "too long"
    if "\\" in path or "\0" in path:
        return "backslash or NUL"
    if any(name in ("", ".", "..") for name in names):
        return "unsafe path"
    return "drive letter" if names[0][1:2] == ":" else ""


def _shown(path: str) -> str:
    """The path as text that any encoder takes, cut to a readable length."""
    return path[:200].encode("utf-8", "backslashreplace").decode()


def _relative_target(root: str, path: str, target: str) -> str:
    """The target of a link, relative to its own directory when it lies in the tree."""
    if os.path.isabs(target) and _is_below(target, root):
        target = os.path.relpath(target, os.path.join(root, os.path.dirname(path)))
    return target.replace(os.sep, "/")


def _lexical(path: str, target: str) -> str:
    """What a link means, as `model.snapshot.resolve_link` reads it; empty when it leaves."""
    names = path.split("/")[:-1]
    if not target or target.startswith("/"):
        return ""
    for name in target.split("/"):
        if name == ".." and not names:
            return ""
        if name == "..":
            names.pop()
        elif name not in ("", "."):
            names.append(name)
    return "/".join(names)


def _is_below(path: str, root: str) -> bool:
    real = os.path.realpath(root)
    return path.startswith((os.path.join(real, ""), os.path.join(root, "")))


class _Cache:
    """By path the sha256 and the stamp of each file of a directory, kept from scan to scan.

    Lines of text, because splitting 10,000 of them is faster than anything that parses. The cache
    is only ever a help: one that cannot be read or written is as good as none.
    """

    def __init__(self, root: str, home: str | None) -> None:
        name = hashlib.sha256(os.fsencode(root)).hexdigest()[:32]
        self._path = os.path.join(home, "cache", "files", name) if home else ""
        self.known = self._load()

    def save(self, cacheable: Mapping[str, str]) -> None:
        if not self._path or cacheable == self.known:
            return
        lines = [f"{path}\t{known}" for path, known in cacheable.items() if path.isprintable()]
        try:
            self._write("\n".join((_CACHE_HEADER, *lines)))
        except OSError:
            return

    def _load(self) -> dict[str, str]:
        try:
            with open(self._path, encoding="utf-8") as file:
                header, *lines = file.read().split("\n")
            if header != _CACHE_HEADER:
                return {}
            return dict([line.split("\t") for line in lines])
        except (OSError, ValueError):
            return {}

    def _write(self, text: str) -> None:
        os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
        part = f"{self._path}.{os.urandom(8).hex()}"
        fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with open(fd, "w", encoding="utf-8") as file:
                file.write(text)
            os.replace(part, self._path)
        except OSError:
            os.unlink(part)
            raise


# -- packing -----------------------------------------------------------------------------------


def _content(sha256: str, source: Source) -> Iterator[bytes]:
    """The bytes of one source, exactly as many as announced, and those of its digest."""
    path, size, stamp = source
    try:
        with open(path, "rb", buffering=0) as file:
            status = os.fstat(file.fileno())
            before = _stamp(status)
            # The digest was taken at this stamp; only a newer one makes hashing again worth it.
            digest = None if before == stamp else hashlib.sha256()
            left = size if status.st_size == size else -1
            while left > 0 and (block := file.read(min(BLOCK, left))):
                left -= len(block)
                if digest is not None:
                    digest.update(block)
                yield block
            changed = left != 0 or _stamp(os.fstat(file.fileno())) != before
    except OSError as error:
        raise _unreadable(path, error) from None
    if changed or (digest is not None and digest.hexdigest() != sha256):
        raise Conflict("files_changed", path=_shown(path))


# -- downloading -------------------------------------------------------------------------------


def _beside(final: str) -> str:
    above = os.path.dirname(final)
    part = os.path.join(above, f".paddlecloud-{os.urandom(8).hex()}")
    try:
        os.makedirs(above, exist_ok=True)
        os.mkdir(part)
    except OSError as error:
        raise _cannot_write(final, error) from None
    return part


def _get(
    fetch: Callable[[str], Fetched],
    path: str,
    part: str,
    name: str,
    progress: Callable[[str, int], None] | None,
) -> int:
    target = os.path.join(part, name)
    if path.endswith("/"):
        _make_directory(target, path)
        return 0
    _make_directory(os.path.dirname(target), path)
    answer = fetch(path)
    digest = hashlib.sha256() if answer.sha256 else None
    got = 0
    writer = _Writer(target, path)
    try:
        for chunk in answer.chunks:
            writer.write(chunk)
            got += len(chunk)
            if digest is not None:
                digest.update(chunk)
            if progress is not None:
                progress(path, len(chunk))
    finally:
        writer.close()
    _verify(path, answer, got, digest.hexdigest() if digest is not None else None)
    return got


def _verify(path: str, answer: Fetched, got: int, sha256: str | None) -> None:
    if answer.length is not None and got != answer.length:
        raise Retry("download_short", path=_shown(path), got=got, want=answer.length)
    if sha256 != answer.sha256:
        raise Retry("blob_digest", got=sha256, want=answer.sha256)


def _rename(part: str, final: str) -> None:
    try:
        os.rename(part, final)
    except OSError as error:
        if os.path.lexists(final):
            raise Invalid("download_dir_exists", path=_shown(final)) from None
        raise _cannot_write(final, error) from None


def _make_directory(target: str, path: str) -> None:
    try:
        os.makedirs(target, exist_ok=True)
    except FileExistsError:
        raise Conflict("download_name_twice", path=_shown(path)) from None
    except OSError as error:
        raise _cannot_write(path, error) from None


class _Writer:
    """A new local file; what the system says about it becomes an error with the path in it.

    The network's errors come through the same loop and must stay apart from these.
    """

    def __init__(self, target: str, path: str) -> None:
        self._path = path
        try:
            self._fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _BINARY, 0o666)
        except FileExistsError:
            raise Conflict("download_name_twice", path=_shown(path)) from None
        except OSError as error:
            raise _cannot_write(path, error) from None

    def write(self, chunk: bytes) -> None:
        try:
            written = os.write(self._fd, chunk)
            while written < len(chunk):
                written += os.write(self._fd, memoryview(chunk)[written:])
        except OSError as error:
            raise _cannot_write(self._path, error) from None

    def close(self) -> None:
        os.close(self._fd)


_BINARY: int = getattr(os, "O_BINARY", 0)  # Windows would change the line ends


def _cannot_write(path: str, error: OSError) -> PaddleCloudError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return Conflict("download_full", path=_shown(path))
    return Invalid("download_failed", path=_shown(path), reason=error.strerror or str(error))


def _remove(part: str) -> None:
    from shutil import rmtree  # noqa: PLC0415 - needed after a failure only

    rmtree(part, ignore_errors=True)


_WINDOWS_DEVICES = frozenset(
    ("CON", "PRN", "AUX", "NUL", *(f"{kind}{n}" for kind in ("COM", "LPT") for n in range(1, 10)))
)


def _windows_name(name: str) -> str:
    """A name that Windows takes: what it refuses is written as %XX, as in a URL."""
    safe = "".join(f"%{ord(c):02X}" if c in '<>:"|?*%' or ord(c) < 32 else c for c in name)
    if safe[-1] in ". ":
        safe = f"{safe[:-1]}%{ord(safe[-1]):02X}"
    if safe.partition(".")[0].upper() in _WINDOWS_DEVICES:
        safe = f"%{ord(safe[0]):02X}{safe[1:]}"
    return safe
