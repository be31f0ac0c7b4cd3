"""Brings files of a job into a new directory: several at once, each piece of them verified.

Large files come in pieces of a few MiB. The server sends the sha256 of each piece behind it, and
only then it counts as here: whatever is killed or cut, `resume` asks only for pieces that are not
(see `landing`, which keeps them). A file whose own sha256 is known is checked once more as a whole,
and is fetched again if what came earlier was damaged here. What a finished download brought is left
to its owner: nothing that was changed there since is ever written over.
Files that can be had past the server come from there: copied from its store on this machine, or
from the addresses of a bucket; whatever is not right about that, the server is asked.
"""

# pathlib costs 8 ms:
# ruff: noqa: PTH100, PTH120

from __future__ import annotations

import hashlib
import os
from stat import S_ISREG
from threading import Lock
from time import gmtime, strftime, time

from paddlecloud.client import landing
from paddlecloud.client.crew import work_off
from paddlecloud.client.furnishing import furnished, with_ways
from paddlecloud.client.landing import (
    APPEND,
    File,
    Place,
    Writer,
    claim,
    local_name,
    make_directory,
)
from paddlecloud.client.naming import shown
from paddlecloud.client.records import records_in
from paddlecloud.client.retries import patiently
from paddlecloud.model.errors import Conflict, Invalid, NotFound, Retry
from paddlecloud.model.signing import MAX_AHEAD, quote

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Any

    from paddlecloud.client.addresses import Addresses
    from paddlecloud.client.landing import Row
    from paddlecloud.client.sdk import Client
    from paddlecloud.client.transport import Stream, Transport

    Progress = Callable[[int], None]

THREADS = 4
_BLOCK = 1024 * 1024
_DIGEST = 32
#: What the times of a listing are exact to, in seconds; a clock may be ahead by MAX_AHEAD.
_SECOND = 1
#: In the place of a piece: the whole file, from this machine.
_ALL = -1
#: A file that is replaced again and again while it is fetched.
_MOST_VERSIONS = 5
_MOST_NAMED = 20
#: What is complained about: a file in a bucket that is not any more what the job was given; one
#: that was listed and is nowhere now; one of which the store does not have what was put there; one
#: that is here, but is not what the job wrote, since somebody put another; one of a finished
#: download that was changed here and is left so (by its local name); a link that cannot be made.
_LOST, _GONE, _DAMAGED = "download_lost", "download_gone", "download_damaged"
_REPLACED, _EDITED, _UNLINKED = "download_not_its_own", "download_edited", "download_links"
_COMPLAINTS = (_LOST, _GONE, _DAMAGED, _REPLACED, _EDITED, _UNLINKED)
#: What a server says of a file that cannot come, and what that is to a person.
_NEVER = {"private_file_changed": _LOST, "file_missing": _GONE, "file_unknown": _GONE}


class Result:
    """What a download did: files and bytes that came, bytes that were here already, and by the code
    of a complaint the files that are missing or not as they should be."""

    __slots__ = ("bytes", "files", "kept", "named")

    def __init__(self, files: int, count: int, kept: int, named: Mapping[str, set[str]]) -> None:
        self.files = files
        self.bytes = count
        self.kept = kept
        self.named = {code: sorted(named[code]) for code in _COMPLAINTS if named[code]}

    def complaints(self) -> list[Conflict]:
        """What to tell, although all else is here."""
        return [Conflict(code, paths=_named(paths)) for code, paths in self.named.items()]


def of_job(
    client: Client,
    job_id: str,
    prefix: str | None,
    found: tuple[Sequence[dict[str, Any]], Mapping[str, str]],
    download_dir: str,
    *,
    resume: bool = False,
    progress: Progress | None = None,
) -> Result:
    """Get what `Client.listing` found of a job below `prefix`; see `download`."""
    rows = furnished(client.transport, job_id, prefix, found[0])
    return download(
        client.transport,
        f"/jobs/{job_id}/files",
        with_ways(rows, found[1]),
        download_dir,
        resume=resume,
        progress=progress,
        records=records_in(client.config.home),
        now=time(),
    )


def download(
    transport: Transport,
    path: str,
    rows: Sequence[Row],
    download_dir: str,
    *,
    now: float,
    resume: bool = False,
    progress: Progress | None = None,
    records: str = "",
) -> Result:
    """Get the files of these rows, which lie below `path` on the server.

    The leading `output/` of a job's own results is left out of the local names, so that the default
    directory does not double the word. `way` of a row tells where else a file is: at a path of this
    machine, or at an address. `progress` hears the bytes of each piece. With `resume` what
    an earlier download into the same directory brought is not fetched again; one that was finished
    is remembered in the directory `records`, and what is new is added to it, but what was changed
    there stays. After an error what came stays for that, unless it could never be of use. A file
    that cannot come is left out, and the result names it: one in a bucket that was changed since
    the job got it, one that is gone since it was listed, and one of which the store does not give
    what was put there. `now` (epoch seconds) tells which files are so young that another one may
    get the same time: with `resume` these come again, if they are small and nothing else is known.
    """
    final = os.path.abspath(download_dir)
    settled = strftime("%Y-%m-%dT%H:%M:%SZ", gmtime(now - MAX_AHEAD - _SECOND))
    files = [File(row, local_name(row["path"]), settled) for row in rows]
    _check_twice(files)
    place = Place(final, path, records, resume=resume)
    try:
        return _Download(transport, path, place, files, progress).run()
    finally:
        place.close()


class _Download:
    """One run: a list of pieces that some threads fetch."""

    def __init__(
        self,
        transport: Transport,
        path: str,
        place: Place,
        files: Sequence[File],
        progress: Progress | None,
    ) -> None:
        self._transport = transport
        self._path = path
        self._place = place
        self._files = files
        self._progress = progress
        self._lock = Lock()
        self._todo: list[tuple[File, int]] = []
        self._alike = _alike(files) if not place.goes_on else frozenset()
        self._addresses = _addresses(files)
        self._past = self._addresses is not None
        """Whether addresses are of use from here."""
        self._came_of: dict[str, int] = {}
        """By path the bytes that came now."""
        self._kept_of: dict[str, int] = {}
        """By path the bytes that were here."""
        self._complaints: dict[str, set[str]] = {code: set() for code in _COMPLAINTS}
        self._left_out: set[str] = set()
        """Paths of files that do not come."""
        self._unsure: set[str] = set()
        """Files with pieces that nobody compared as they came: by an address, or lying here since
        an unfinished download. If such a file is wrong, it may be right from the server."""

    def run(self) -> Result:
        """Of names that cannot be told apart here nothing stays: it would be so again."""
        try:
            asked = [file for file in self._files if not self._prepare(file)]
            while asked:
                self._fetch_all()
                asked = [file for file in asked if not self._is_settled(file)]
        except Invalid as error:
            if error.code == landing.NAME_TWICE:
                self._place.drop()
            raise
        if self._addresses is not None:
            self._addresses.close()
        self._finish()
        return self._result()

    def _fetch_all(self) -> None:
        # From the end of a list: the last row first would be odd to look at.
        self._todo.reverse()
        work_off(max(1, min(THREADS, len(self._todo))), self._next, self._fetch_some)

    def _finish(self) -> None:
        """Give everything its final name."""
        links = [file for file in self._files if file.link]
        edited, unlinked = self._place.finish(self._whole(), links)
        for file in edited:
            self._leave_out(file, _EDITED)
        self._complaints[_UNLINKED].update(unlinked)

    def _whole(self) -> list[File]:
        """What is here and right."""
        return [file for file in self._files if file.path not in self._left_out and not file.link]

    def _result(self) -> Result:
        here = [file.path for file in self._whole() if not file.is_directory]
        came, kept = (
            sum(of.get(path, 0) for path in here) for of in (self._came_of, self._kept_of)
        )
        return Result(len(here), came, kept, self._complaints)

    def _prepare(self, file: File) -> bool:
        """Plan what has to be done about a file; whether that is nothing."""
        target = self._place.target(file)
        if file.is_directory:
            make_directory(target, file.path)
        if file.is_directory or file.link or self._is_there(file):
            return True
        make_directory(os.path.dirname(target), file.path)
        if _folded(file.name) in self._alike:
            claim(target, file.path)
        self._place.knows(file)
        if file.done:
            self._unsure.add(file.path)
        self._queue(file)
        return False

    def _is_there(self, file: File) -> bool:
        """Whether a finished download has it; what is not as it came is left to its owner."""
        have = self._place.finished(file)
        if have in (landing.NOTHING, landing.OLDER):
            return False
        want = file.sha256 or file.written
        is_right = _digest_of(self._place.place(file)) == want if want else have == landing.OURS
        if is_right or (have == landing.OURS and not file.sha256):
            self._kept_of[file.path] = file.size
            self._place.keep(file)
            if not is_right:
                self._complaints[_REPLACED].add(file.path)
        else:
            self._leave_out(file, _EDITED)
        self._tell(file.size)
        return True

    def _queue(self, file: File) -> None:
        """Have all of it fetched that is not here."""
        if file.way.startswith("/") and not file.done:
            self._todo.append((file, _ALL))
            return
        for start in file.pieces():
            if start not in file.done:
                self._todo.append((file, start))
            else:
                length = file.length(start)
                self._kept_of[file.path] = self._kept_of.get(file.path, 0) + length
                self._tell(length)

    def _next(self) -> tuple[File, int] | None:
        with self._lock:
            return self._todo.pop() if self._todo else None

    def _fetch_some(self, pieces: Iterator[tuple[File, int]]) -> None:
        for file, start in pieces:
            self._fetch(file, start)

    def _tell(self, count: int) -> None:
        if self._progress is not None:
            with self._lock:
                self._progress(count)

    def _fetch(self, file: File, start: int) -> None:
        """Get one piece, in one of a few tries."""
        if start == _ALL:
            self._copy(file)
            return

        def once() -> None:
            if not self._fetch_past(file, start):
                self._fetch_once(file, start)

        try:
            patiently(once)
        except (Conflict, NotFound) as error:
            if error.code not in _NEVER:
                raise
            self._leave_out(file, _NEVER[error.code])

    def _leave_out(self, file: File, why: str) -> None:
        """Go on without a file."""
        with self._lock:
            self._left_out.add(file.path)
            self._complaints[_REPLACED].discard(file.path)
            self._complaints[why].add(file.name if why == _EDITED else file.path)
            self._drop(file)

    def _drop(self, file: File) -> None:
        """Nothing of it is to be fetched any more; the lock is held."""
        self._todo = [(one, start) for one, start in self._todo if one is not file]

    def _came(self, file: File, start: int, size: int) -> None:
        """One piece more is here."""
        with self._lock:
            self._came_of[file.path] = self._came_of.get(file.path, 0) + size
        self._place.came(file, start)

    def _copy(self, file: File) -> None:
        """Copy a file of the server's store, or have its pieces fetched if it is not as listed."""
        told: list[int] = []

        def tell(count: int) -> None:
            told.append(count)
            self._tell(count)

        if not self._copied(file, tell):
            self._tell(-sum(told))
            with self._lock:
                self._todo += [(file, start) for start in reversed(file.pieces())]
            return
        file.sha256 = ""
        file.done.update(file.pieces())
        for start in file.pieces():
            self._came(file, start, file.length(start))

    def _copied(self, file: File, tell: Progress) -> bool:
        source = _open_ours(file.way, file.size)
        if source < 0:
            return False
        try:
            return landing.copy_of(source, self._place.target(file), file, tell)
        finally:
            os.close(source)

    def _fetch_past(self, file: File, start: int) -> bool:
        """Get one piece from the store itself; False: ask the server."""
        if self._addresses is None or not self._past or not file.way:
            return False
        whole = file.size <= landing.PIECE
        length = file.length(start)
        with file.lock:
            sha256 = file.sha256
            if not sha256:
                return False
            writer = Writer(self._place.target(file), file.path, start)
        try:
            got = self._addresses.fetch(file.way, start, length, writer.write)
            if whole:
                writer.cut(length)
        finally:
            writer.close()
        if not got or (whole and got != sha256):
            self._past = False
            return False
        with file.lock:
            if file.sha256 != sha256:  # begun anew meanwhile, as another file
                return False
            file.done.add(start)
            file.sha256 = "" if whole else file.sha256
        if not whole:
            self._unsure.add(file.path)
        self._tell(length)
        self._came(file, start, length)
        return True

    def _fetch_once(self, file: File, start: int) -> None:
        query: dict[str, object] = {"digest": 1}
        whole = file.size <= landing.PIECE
        if not whole:
            query |= {"offset": start, "length": landing.PIECE}
        with self._transport.open(f"{self._path}/{quote(file.path, '/')}", query) as stream:
            version = stream.headers.get("x-content-version") or ""
            with file.lock:
                if not whole and not self._is_same(file, version):
                    return
                writer = Writer(self._place.target(file), file.path, start)
            got, digest = self._take(file, writer, stream, whole=whole)
            known = stream.headers.get("x-content-sha256") or _known(file, version)
        if whole and known and digest != known:
            self._leave_out(file, _DAMAGED)
            return
        with file.lock:
            if whole:
                file.size, file.sha256 = got, ""
            elif version != file.version:
                return
            file.done.add(start)
        self._came(file, start, got)

    def _is_same(self, file: File, version: str) -> bool:
        """Whether a piece is of the same file as those before; else all of it is begun again.

        Of pieces from elsewhere only a digest of the whole tells that they are of this file.
        """
        size = version.partition("-")[0]
        known = _known(file, version)
        if not file.version and size in (APPEND, str(file.size)) and (known or not file.done):
            file.version, file.sha256 = version, known
        if version == file.version:
            return True
        file.versions += 1
        if file.versions > _MOST_VERSIONS:
            raise Conflict("download_changing", path=shown(file.path))
        file.version, file.sha256 = version, ""
        file.size = int(size) if size.isdigit() else file.size
        file.done.clear()
        self._place.clear(file)
        with self._lock:
            self._drop(file)
            self._uncount(file)
            self._todo += [(file, start) for start in reversed(file.pieces())]
        return False

    def _uncount(self, file: File) -> int:
        """Nothing that is here of it is of use; how many bytes that was."""
        return self._came_of.pop(file.path, 0) + self._kept_of.pop(file.path, 0)

    def _take(self, file: File, writer: Writer, stream: Stream, *, whole: bool) -> tuple[int, str]:
        """Write a piece to its place and compare it with the digest behind it; size and digest."""
        length = int(stream.headers.get("content-length") or 0) - _DIGEST
        digest = hashlib.sha256()
        got, behind = 0, b""
        try:
            while piece := stream.read(_BLOCK):
                content = piece[: max(0, length - got)]
                behind += piece[len(content) :]
                writer.write(content)
                digest.update(content)
                got += len(content)
                self._tell(len(content))
            if whole:
                writer.cut(got)
        finally:
            writer.close()
        if got != length:
            raise Retry("download_short", path=shown(file.path), got=got, want=length)
        if behind != digest.digest():
            path, want = shown(file.path), behind.hex()
            raise Retry("download_digest", path=path, got=digest.hexdigest(), want=want)
        return got, digest.hexdigest()

    def _is_settled(self, file: File) -> bool:
        """Whether no more can be done: a file whose own digest is known is compared with that, and
        one that may have been damaged on the way or here is begun anew."""
        if file.path in self._left_out:
            self._place.forget(file)
            return True
        self._place.settle(file)
        got = ""
        if file.sha256 or file.written:
            got = landing.sha256_of(self._place.target(file), file.path)
        if file.sha256 and got != file.sha256:
            self._place.forget(file)
            if file.path in self._unsure:
                self._begin_anew(file)
                return False
            self._leave_out(file, _DAMAGED)
            return True
        if file.written and got != file.written:
            self._complaints[_REPLACED].add(file.path)
        if file.executable:
            landing.make_executable(self._place.target(file))
        return True

    def _begin_anew(self, file: File) -> None:
        self._unsure.discard(file.path)
        self._past = False
        self._tell(-self._uncount(file))
        file.done.clear()
        file.version = ""
        self._queue(file)


def _digest_of(path: str) -> str:
    """Of what cannot be read nothing, which is no digest."""
    try:
        return landing.sha256_of(path, path)
    except (Invalid, Conflict):
        return ""


def _named(paths: Sequence[str]) -> str:
    names = ", ".join(shown(path) for path in paths[:_MOST_NAMED])
    return names + (", ..." if len(paths) > _MOST_NAMED else "")


def _known(file: File, version: str) -> str:
    """The digest of a file that still is the one that was listed."""
    return file.sha256 if version.startswith(f"{file.size}-{file.time}") else ""


def _addresses(files: Sequence[File]) -> Addresses | None:
    """The way to addresses of a store, if there are any among these."""
    if not any(file.way and not file.way.startswith("/") for file in files):
        return None
    from paddlecloud.client.addresses import Addresses  # noqa: PLC0415 - only with such a store

    return Addresses()


def _open_ours(path: str, size: int) -> int:
    """A file of this person on this machine, open, if it has that size; else -1."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return -1
    status = os.fstat(file)
    if S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and status.st_size == size:
        return file
    os.close(file)
    return -1


def _check_twice(files: Sequence[File]) -> None:
    names: set[str] = set()
    for file in files:
        if file.name in names:
            raise Invalid(landing.NAME_TWICE, path=shown(file.path))
        names.add(file.name)


def _alike(files: Sequence[File]) -> frozenset[str]:
    """Names that differ only in how they are written: on some systems they are one file."""
    seen: set[str] = set()
    twice: set[str] = set()
    for file in files:
        name = _folded(file.name)
        (twice if name in seen else seen).add(name)
    return frozenset(twice)


def _folded(name: str) -> str:
    """Without the size of letters, and with one of the ways to write an accent."""
    if name.isascii():
        return name.lower()
    from unicodedata import normalize  # noqa: PLC0415 - few names need it

    return normalize("NFC", name.casefold())
