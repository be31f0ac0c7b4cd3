"""Brings files of a job into a new directory: several at once, each piece of them verified.

Large files come in pieces of some MiB at most, and what is under way at once is never more than a
twentieth of a download of 10 MB or more. The server sends the sha256 of each piece behind it, and
only then it counts as here: whatever is killed or cut, `resume` asks only for pieces that are not,
or were damaged here since (see `landing`, which keeps them). A file whose own sha256 is known is
checked as a whole instead. What a finished download brought is left to its owner: nothing that was
changed there since is ever written over.
Files that can be had past the server come from there: copied from its store on this machine, or
from the addresses of a bucket; whatever is not right about that, the server is asked.
"""

from __future__ import annotations

import hashlib
import os
from stat import S_ISREG
from threading import Lock
from time import gmtime, sleep, strftime, time

from paddlecloud.client.display import alike, few, folded, shown
from paddlecloud.client.download import local_files, ranges, staging
from paddlecloud.client.download.history import records_in
from paddlecloud.client.download.listing import NAME_TWICE, check_twice, local_name, with_ways
from paddlecloud.client.download.local_files import Writer, claim
from paddlecloud.client.download.ranges import File
from paddlecloud.client.download.staging import APPEND, Place
from paddlecloud.client.response_checks import number, whole_number
from paddlecloud.model.errors import Conflict, Invalid, NotFound, Retry
from paddlecloud.model.files.path_rules import means
from paddlecloud.model.protocol.bce_auth import MAX_AHEAD, quote
from paddlecloud.net import retry
from paddlecloud.transfer.workers import run_workers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from paddlecloud.client.download.presigned import Addresses
    from paddlecloud.client.download.ranges import Piece, Row
    from paddlecloud.client.sdk import Client, Listing
    from paddlecloud.client.transport import Transport
    from paddlecloud.net.http1 import Response

    Wanted = tuple[File, Piece, int]
    """A piece of a file, and how often that had been begun anew when it was wanted."""
    Progress = Callable[[int], None]
    Note = Callable[..., None]

_BLOCK = 1024 * 1024
_DIGEST = 32
#: What the times of a listing are exact to, in seconds; a clock may be ahead by MAX_AHEAD.
_SECOND = 1
#: In the place of a piece: the whole file, from this machine.
_ALL = (-1, -1)
#: A file that is replaced again and again while it is fetched.
_MOST_VERSIONS = 5
_MOST_NAMED = 20
#: What is complained about: a file in a bucket that is not any more what the job was given; one
#: that was listed and is nowhere now; one of which the store does not have what was put there; one
#: that is here, but is not what the job wrote, since somebody put another; one of a finished
#: download that was changed here and is left so (by its local name); a link that cannot be made;
#: one that was another one whenever more of it was asked for.
_LOST, _GONE, _DAMAGED = "download_lost", "download_gone", "download_damaged"
_CHANGING = "download_changing"
_REPLACED, _EDITED, _UNLINKED = "download_not_its_own", "download_edited", "download_links"
_COMPLAINTS = (_LOST, _GONE, _CHANGING, _DAMAGED, _REPLACED, _EDITED, _UNLINKED)
#: What is said of a file that cannot come, most of it by a server, and what that is to a person.
_NEVER = {
    "private_file_changed": _LOST,
    "file_missing": _GONE,
    "file_unknown": _GONE,
    _CHANGING: _CHANGING,
}


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
        return [Conflict(code, paths=few(paths, _MOST_NAMED)) for code, paths in self.named.items()]


def of_job(
    client: Client,
    job_id: str,
    found: Listing,
    download_dir: str,
    *,
    resume: bool = False,
    progress: Progress | None = None,
    skipped: Progress | None = None,
) -> Result:
    """Get what `Client.listing` found of a job; see `download`."""
    return download(
        client.transport,
        job_id,
        with_ways(found.files, found.ways),
        download_dir,
        resume=resume,
        progress=progress,
        skipped=skipped,
        records=records_in(client.config.home),
        prefix=found.prefix,
        note=client.note,
        now=time(),
    )


def download(  # noqa: PLR0913 - what is not asked for every time has a name
    transport: Transport,
    job_id: str,
    rows: Sequence[Row],
    download_dir: str,
    *,
    now: float,
    resume: bool = False,
    progress: Progress | None = None,
    skipped: Progress | None = None,
    records: str = "",
    prefix: str = "",
    note: Note | None = None,
) -> Result:
    """Get the files of a job that these rows tell of.

    The leading `output/` of a job's own results is left out of the local names, so that the default
    directory does not double the word. `way` of a row tells where else a file is: at a path of this
    machine, or at an address. `progress` hears the bytes of each piece, `skipped` (if nobody does,
    `progress`) of those that were here before, `note` the codes of what takes long. With `resume`
    what an earlier download into the same directory brought is not fetched again; one that was
    finished is remembered in the directory `records`, and what is new is added to it, but what was
    changed there stays. What came of files that `prefix` does not mean is kept for whoever goes on
    with those. After an error what came stays for that, unless it could never be of use. A file
    that cannot come is left out, and the result names it: one in a bucket that was changed since
    the job got it, one that is gone since it was listed, one that changes all the time, and one of
    which the store does not give what was put there. `now` (epoch seconds) tells which files are so
    young that another one may get the same time: with `resume` these come again, if they are small
    and nothing else is known.
    """
    settled = strftime("%Y-%m-%dT%H:%M:%SZ", gmtime(now - MAX_AHEAD - _SECOND))
    piece = ranges.piece_of(rows)
    path = f"/jobs/{job_id}/files"
    files = [File(row, local_name(row["path"], job_id), settled, piece) for row in rows]
    check_twice(files)
    is_meant = means(prefix.lstrip("/"), [row["path"] for row in rows])
    place = Place(download_dir, path, records, resume=resume, is_meant=is_meant)
    try:
        wanted = _Download(transport, path, place, files, progress, skipped or progress, note)
        return wanted.run(ranges.at_once(rows))
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
        skipped: Progress | None,
        note: Note | None,
    ) -> None:
        self._transport = transport
        self._path = path
        self._place = place
        self._files = files
        self._progress = progress
        self._skipped = skipped
        self._note = note
        self._lock = Lock()
        self._todo: list[Wanted] = []
        self._alike = alike(file.name for file in files) if not place.goes_on else frozenset()
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

    def run(self, at_once: int) -> Result:
        """Fetch with so many threads. Of names that cannot be told apart here nothing stays, for it
        would be so again; but what an earlier download brought is of use to another --prefix."""
        try:
            asked = [file for file in self._files if not self._prepare(file)]
            while asked:
                self._fetch_all(asked, at_once)
                asked = [file for file in asked if not self._is_settled(file)]
        except Invalid as error:
            if error.code == NAME_TWICE and not self._place.goes_on:
                self._place.drop()
            raise
        finally:
            if self._addresses is not None:
                self._addresses.close()
        self._finish()
        return self._result()

    def _fetch_all(self, asked: Sequence[File], at_once: int) -> None:
        """Work off the list. If the line is cut for longer than a moment, the rest is tried again
        as an upload is: for half a minute in which nothing comes."""
        retries = retry.Retries(retry.RESUME)
        while True:
            before = sum(self._came_of.values())
            try:
                return self._work_off(at_once)
            except Retry as error:
                if before != sum(self._came_of.values()):
                    retries.reset()
                pause = retries.next_pause(error)
                if pause is None:
                    raise
            if self._note is not None and retries.failed == 1:
                self._note("download_again")
            sleep(pause)
            left = [file for file in asked if file.path not in self._left_out]
            self._todo = [item for file in left for item in _wanted(file)]

    def _work_off(self, at_once: int) -> None:
        # From the end of a list: the last row first would be odd to look at.
        self._todo.reverse()
        run_workers(max(1, min(at_once, len(self._todo))), self._next, self._fetch_some)

    def _finish(self) -> None:
        """Give everything its final name."""
        links = [file for file in self._files if file.link]
        edited, unlinked = self._place.finish(self._whole(), links)
        for file in edited:
            self._leave_out(file, _EDITED)
        self._complaints[_UNLINKED].update(unlinked)
        if self._note is not None and self._place.has_rest():
            self._note("download_rest", part=shown(self._place.part))

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
        if file.is_directory:
            self._place.make_room(file)
        if file.is_directory or file.link or self._is_there(file):
            return True
        self._place.make_room(file)
        if folded(file.name) in self._alike:
            claim(self._place.target(file), file.path)
        self._place.knows(file)
        if file.done:
            self._unsure.add(file.path)
        self._queue(file)
        return False

    def _is_there(self, file: File) -> bool:
        """Whether a finished download has it; what is not as it came is left to its owner."""
        have = self._place.finished(file)
        if have == staging.UNSURE:
            is_same = self._version_now(file) == self._place.version(file)
            have = staging.OURS if is_same else staging.OLDER
        if have in (staging.NOTHING, staging.OLDER):
            return False
        want = file.sha256 or file.written
        is_right = _digest_of(self._place.place(file)) == want if want else have == staging.OURS
        if is_right or (have == staging.OURS and not file.sha256):
            self._kept_of[file.path] = file.size
            self._place.keep(file)
            if not is_right:
                self._complaints[_REPLACED].add(file.path)
        else:
            self._leave_out(file, _EDITED)
        self._skip(file.size)
        return True

    def _version_now(self, file: File) -> str:
        """Which state of a file the server has; one that cannot come has none."""

        def ask() -> str:
            query = {"offset": 0, "length": 1, "digest": 1}
            path = f"{self._path}/{quote(file.path, '/')}"
            with self._transport.open(path, query, policy=retry.IMMEDIATE) as stream:
                stream.read(_BLOCK)
                return stream.headers.get("x-content-version") or ""

        try:
            return retry.run(ask)
        except (Conflict, NotFound):
            return ""

    def _queue(self, file: File) -> None:
        """Have all of it fetched that is not here."""
        self._todo += _wanted(file)
        here = file.size - sum(length for _, length in file.missing())
        self._kept_of[file.path] = here
        self._skip(here)

    def _next(self) -> Wanted | None:
        with self._lock:
            return self._todo.pop() if self._todo else None

    def _fetch_some(self, wanted: Iterator[Wanted]) -> None:
        for file, piece, versions in wanted:
            self._fetch(file, piece, versions)

    def _tell(self, count: int) -> None:
        if self._progress is not None:
            with self._lock:
                self._progress(count)

    def _skip(self, count: int) -> None:
        if self._skipped is not None:
            with self._lock:
                self._skipped(count)

    def _fetch(self, file: File, piece: Piece, versions: int) -> None:
        """Get one piece, in one of a few tries."""
        if piece == _ALL:
            self._copy(file)
            return

        def once() -> None:
            if not self._fetch_past(file, *piece):
                self._fetch_once(file, *piece, versions)

        try:
            retry.run(once)
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
        self._todo = [wanted for wanted in self._todo if wanted[0] is not file]

    def _came(self, file: File, start: int, length: int, sha256: str = "") -> None:
        """One piece more is here, and of the state that the file has; its lock is held. `sha256`
        is what the server says of it."""
        self._place.check_open()
        file.done[start] = length
        with self._lock:
            self._came_of[file.path] = self._came_of.get(file.path, 0) + length
        self._place.came(file, start, length, sha256)

    def _copy(self, file: File) -> None:
        """Copy a file of the server's store, or have its pieces fetched if it is not as listed."""
        told: list[int] = []

        def tell(count: int) -> None:
            self._place.check_open()
            told.append(count)
            self._tell(count)

        self._place.check_open()
        if not self._copied(file, tell):
            self._tell(-sum(told))
            with self._lock:
                self._todo += reversed(_pieces(file))
            return
        file.verified = True
        with file.lock:
            for start, length in file.missing():
                self._came(file, start, length)

    def _copied(self, file: File, tell: Progress) -> bool:
        source = _open_ours(file.way, file.size)
        if source < 0:
            return False
        try:
            return local_files.copy_of(source, self._place.target(file), file, tell)
        finally:
            os.close(source)

    def _writer(self, file: File, start: int) -> Writer:
        return Writer(self._place.target(file), file.path, start, self._place.check_open)

    def _fetch_past(self, file: File, start: int, length: int) -> bool:
        """Get one piece from the store itself; False: ask the server."""
        if self._addresses is None or not self._past or not file.way:
            return False
        with file.lock:
            whole = file.is_whole(start, length)
            sha256 = file.sha256
            if not sha256:
                return False
            writer = self._writer(file, start)
        with writer:
            got = self._addresses.fetch(file.way, start, length, writer.write)
            if whole:
                writer.cut(length)
        if not got or (whole and got != sha256):
            self._past = False
            return False
        with file.lock:
            if file.sha256 != sha256:  # begun anew meanwhile, as another file
                return False
            file.verified = whole
            self._came(file, start, length)
        if not whole:
            self._unsure.add(file.path)
        self._tell(length)
        return True

    def _fetch_once(self, file: File, start: int, length: int, versions: int) -> None:
        """Get one piece from the server. Of a file that is begun anew meanwhile it is of no use:
        all of that is wanted again, maybe in other pieces."""
        query: dict[str, object] = {"digest": 1}
        whole = file.is_whole(start, length)
        if not whole:
            query |= {"offset": start, "length": length}
        path = f"{self._path}/{quote(file.path, '/')}"
        with self._transport.open(path, query, policy=retry.IMMEDIATE) as stream:
            ranges.check_length(stream.headers, _DIGEST, None if whole else length)
            version = stream.headers.get("x-content-version") or ""
            with file.lock:
                if versions != file.versions or not (whole or self._is_same(file, version)):
                    return
                writer = self._writer(file, start)
            got, digest = self._take(file, writer, stream, whole=whole)
            known = stream.headers.get("x-content-sha256") or _known(file, version)
        if whole and known and digest != known:
            self._leave_out(file, _DAMAGED)
            return
        with file.lock:
            if versions != file.versions:
                self._tell(-got)
                return
            if whole:
                file.size, file.verified = got, True
            self._came(file, start, got, digest)

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
            raise Conflict(_CHANGING, paths=shown(file.path))
        file.version, file.sha256 = version, ""
        now = whole_number(size)
        file.size = file.size if now is None else now
        # The fewer they are, the less it changes between two of them; a small one comes at once.
        file.piece = ranges.largest(ranges.PIECE, file.size)
        file.done.clear()
        self._place.check_open()
        self._place.clear(file)
        with self._lock:
            self._drop(file)
            self._todo += reversed(_pieces(file))
        self._uncount(file)
        return False

    def _uncount(self, file: File) -> None:
        """Nothing that is here of it is of use."""
        self._tell(-self._came_of.pop(file.path, 0))
        self._skip(-self._kept_of.pop(file.path, 0))

    def _take(
        self, file: File, writer: Writer, stream: Response, *, whole: bool
    ) -> tuple[int, str]:
        """Write a piece to its place and compare it with the digest behind it; size and digest.
        What was told of one that is not right is taken back."""
        length = number(stream.headers, "content-length") - _DIGEST
        digest = hashlib.sha256()
        got, behind = 0, b""
        try:
            with writer:
                while piece := stream.read(_BLOCK):
                    content = piece[: max(0, length - got)]
                    behind += piece[len(content) :]
                    writer.write(content)
                    digest.update(content)
                    got += len(content)
                    self._tell(len(content))
                if whole:
                    writer.cut(got)
            if got != length:
                raise Retry("download_short", path=shown(file.path), got=got, want=length)
            if behind != digest.digest():
                path, want = shown(file.path), behind.hex()
                raise Retry("download_digest", path=path, got=digest.hexdigest(), want=want)
        except BaseException:
            self._tell(-got)
            raise
        return got, digest.hexdigest()

    def _is_settled(self, file: File) -> bool:
        """Whether no more can be done: a file whose own digest is known is compared with that, and
        one that may have been damaged on the way or here is begun anew."""
        if file.path in self._left_out:
            self._place.forget(file)
            return True
        self._place.settle(file)
        want = "" if file.verified else file.sha256
        got = ""
        if want or file.written:
            got = local_files.sha256_of(self._place.target(file), file.path)
        if want and got != want:
            self._place.forget(file)
            if file.path in self._unsure:
                self._begin_anew(file)
                return False
            self._leave_out(file, _DAMAGED)
            return True
        if file.written and got != file.written:
            self._complaints[_REPLACED].add(file.path)
        if file.executable:
            local_files.make_executable(self._place.target(file))
        return True

    def _begin_anew(self, file: File) -> None:
        self._unsure.discard(file.path)
        self._past = False
        self._uncount(file)
        file.done.clear()
        file.version = ""
        self._queue(file)


def _wanted(file: File) -> list[Wanted]:
    """What has to be fetched of a file."""
    if file.way.startswith("/") and not file.done:
        return [(file, _ALL, file.versions)]
    return _pieces(file)


def _pieces(file: File) -> list[Wanted]:
    return [(file, piece, file.versions) for piece in file.missing()]


def _digest_of(path: str) -> str:
    """Of what cannot be read nothing, which is no digest."""
    try:
        return local_files.sha256_of(path, path)
    except Conflict:
        return ""


def _known(file: File, version: str) -> str:
    """The digest of a file that still is the one that was listed."""
    return file.sha256 if version.startswith(f"{file.size}-{file.time}") else ""


def _addresses(files: Sequence[File]) -> Addresses | None:
    """The way to addresses of a store, if there are any among these."""
    if not any(file.way and not file.way.startswith("/") for file in files):
        return None
    from paddlecloud.client.download.presigned import Addresses  # noqa: PLC0415 - only with such a store

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
