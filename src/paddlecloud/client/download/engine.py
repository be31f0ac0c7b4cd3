"""Downloads files of a job into a directory: in parallel, verified, resumable.

Large files are fetched in ranges. The server sends the sha256 of each range after its bytes, and a
range counts, also in the journal, once it has been compared; so `resume` requests only ranges that
are missing or were damaged on this machine since. A file whose sha256 is listed is compared as a
whole instead. Files that are in the server's store on this machine are copied, and those with a
presigned URL come from its bucket; if either fails, the server is asked.
"""

from __future__ import annotations

import hashlib
import os
from collections import deque
from contextlib import suppress
from threading import Lock
from time import gmtime, sleep, strftime, time
from typing import TYPE_CHECKING

from paddlecloud.client.download import _presigned, _ranges
from paddlecloud.client.download._local_files import (
    Writer,
    copy_local,
    create_exclusively,
    make_executable,
    sha256_of,
)
from paddlecloud.client.download._ranges import File
from paddlecloud.client.download.listing import NAME_TWICE, check_twice, local_name
from paddlecloud.client.download.staging import (
    APPEND,
    CURRENT,
    MISSING,
    OUTDATED,
    Staging,
    is_known,
    records_in,
)
from paddlecloud.client.file_names import alike, few, folded, shown
from paddlecloud.client.response_checks import number, refuse, whole_number
from paddlecloud.model.errors import Conflict, Invalid, NotFound, Retry
from paddlecloud.model.files.path_rules import means
from paddlecloud.model.protocol.bce_auth import MAX_AHEAD, quote
from paddlecloud.net import retry
from paddlecloud.transfer.workers import run_workers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from paddlecloud.client.download._ranges import Range, Row
    from paddlecloud.client.sdk import Client, Listing
    from paddlecloud.client.transport import Transport
    from paddlecloud.net.http1 import Response

    Task = tuple[File, Range, int]
    """A range of a file, and the generation of the file when it was queued."""
    Progress = Callable[[int], None]
    Note = Callable[..., None]

DEFAULT_DIR = "output"
_BLOCK = 1024 * 1024
_DIGEST = 32
#: Resolution of the times in a listing, in seconds; a clock may be ahead by MAX_AHEAD.
_SECOND = 1
#: Instead of a range: the whole file, copied from this machine.
_COPY = (-1, -1)
#: Restarts of a file that changes while it is fetched.
_MAX_RESTARTS = 5
_MAX_NAMED = 20
#: What is wrong with a file: an input that was changed in its bucket, one that was deleted since it
#: was listed, one that kept changing, one that is damaged in the store, one that is not what the
#: job wrote, one of the user that was left (by its local name), a link that cannot be made.
_LOST, _GONE, _CHANGING = "download_lost", "download_gone", "download_changing"
_DAMAGED, _REPLACED = "download_damaged", "download_not_its_own"
_EDITED, _UNLINKED = "download_edited", "download_links"
_PROBLEMS = (_LOST, _GONE, _CHANGING, _DAMAGED, _REPLACED, _EDITED, _UNLINKED)
#: Errors with which one file is left out, and the others are downloaded.
_LEFT_OUT = {
    "private_file_changed": _LOST,
    "file_missing": _GONE,
    "file_unknown": _GONE,
    _CHANGING: _CHANGING,
}


class Result:
    """What a download did: files and bytes that were fetched, bytes that were here already, and by
    the code of a problem the files that are left out or not as they should be."""

    __slots__ = ("bytes", "files", "kept", "problems")

    def __init__(self, files: int, count: int, kept: int, found: Mapping[str, set[str]]) -> None:
        self.files = files
        self.bytes = count
        self.kept = kept
        self.problems = {code: sorted(found[code]) for code in _PROBLEMS if found[code]}

    def errors(self) -> list[Conflict]:
        """The problems as errors, although everything else was downloaded."""
        found = self.problems.items()
        return [Conflict(code, paths=few(paths, _MAX_NAMED)) for code, paths in found]


class _Restarted(Exception):
    """The file has changed, and its download was restarted: this range is of no use."""


class Target:
    """Where a download goes. `leaves_out` is the beginning of local names that the directory stands
    for itself."""

    __slots__ = ("directory", "leaves_out")

    def __init__(self, directory: str, leaves_out: str = "") -> None:
        self.directory = directory
        self.leaves_out = leaves_out


def target_of(client: Client, listing: Listing, named: str | None, *, resume: bool) -> Target:
    """The directory that the user named; otherwise `output/<job_id>` for what the job left there,
    so that `output` holds the results of many jobs, and `output` for a download of other files."""
    own = f"{listing.job_id}/"
    if named:
        return Target(named)
    is_of_job = all(row["path"].startswith(f"output/{own}") for row in listing.files)
    records = records_in(client.config.home)
    if not is_of_job or (resume and is_known(DEFAULT_DIR, _source(listing.job_id), records)):
        return Target(DEFAULT_DIR)
    return Target(f"{DEFAULT_DIR}/{listing.job_id}", own)


def download_job(
    client: Client,
    listing: Listing,
    target: Target,
    *,
    resume: bool = False,
    progress: Progress | None = None,
    skipped: Progress | None = None,
) -> Result:
    """Download what `Client.listing` found of a job; see `download`."""
    return download(
        client.transport,
        listing.job_id,
        listing.files,
        target.directory,
        now=time(),
        resume=resume,
        progress=progress,
        skipped=skipped,
        locations=listing.locations,
        records=records_in(client.config.home),
        prefix=listing.prefix,
        note=client.note,
        leaves_out=target.leaves_out,
        outside_links=client.config.embedded,
    )


def download(  # noqa: PLR0913 - all but four are options
    transport: Transport,
    job_id: str,
    rows: Sequence[Row],
    download_dir: str,
    *,
    now: float,
    resume: bool = False,
    progress: Progress | None = None,
    skipped: Progress | None = None,
    locations: Mapping[str, str] | None = None,
    records: str = "",
    prefix: str = "",
    note: Note | None = None,
    leaves_out: str = "",
    outside_links: bool = False,
) -> Result:
    """Download the files of a job that these rows list.

    Local names are without the leading `output/` of the job's own results, and without
    `leaves_out`. `locations` are paths
    on this machine or presigned URLs, by path. `progress` gets the bytes of each block, `skipped`
    (else `progress`) those that were here before, and `note` the codes of notices. With `resume`
    an unfinished download into the same directory is continued, and a finished one, which the
    directory `records` lists, gets what is new; files that the user changed there stay. Data of
    files that `prefix` does not mean is kept for a download that does. After an error the staging
    directory is kept. A file that cannot be fetched is left out and named by the result. A file
    that is so new at `now` (epoch seconds) that its next version may get the same time is fetched
    again with `resume`, unless its sha256 is known. `outside_links`: see `Staging.finish`.
    """
    locations = locations or {}
    settled = strftime("%Y-%m-%dT%H:%M:%SZ", gmtime(now - MAX_AHEAD - _SECOND))
    is_local = any(location.startswith("/") for location in locations.values())
    at_once = _ranges.concurrency(rows, local=is_local)
    size = _ranges.range_size(rows, at_once)
    files = []
    for row in rows:
        path = row["path"]
        name = local_name(path, job_id)
        if f"{name}/" != leaves_out:  # the directory of the download itself
            name = name.removeprefix(leaves_out)
            files.append(File(row, name, settled, size, locations.get(path, "")))
    check_twice(files)
    source = _source(job_id)
    is_meant = means(prefix.lstrip("/"), [row["path"] for row in rows])
    staging = Staging(download_dir, source, records, resume=resume, is_meant=is_meant)
    staging.outside_links = outside_links
    try:
        download = _Download(transport, source, staging, files, progress, skipped, note)
        return download.run(at_once)
    finally:
        staging.close()


def _source(job_id: str) -> str:
    return f"/jobs/{job_id}/files"


class _Download:
    """One download: a list of ranges that some threads fetch."""

    def __init__(
        self,
        transport: Transport,
        source: str,
        staging: Staging,
        files: Sequence[File],
        progress: Progress | None,
        skipped: Progress | None,
        note: Note | None,
    ) -> None:
        self._transport = transport
        self._source = source
        self._staging = staging
        self._files = files
        self._report_fetched = progress
        self._report_kept = skipped or progress
        self._note = note
        self._lock = Lock()
        self._tasks: deque[Task] = deque()
        names = () if staging.resumed else (file.name for file in files)
        self._alike = alike(names)
        self._direct = True
        """Whether presigned URLs work from here."""
        self._fetched: dict[str, int] = {}
        """Bytes by path, and below those that were here."""
        self._kept: dict[str, int] = {}
        self._problems: dict[str, set[str]] = {code: set() for code in _PROBLEMS}
        self._left_out: set[str] = set()

    def run(self, at_once: int) -> Result:
        try:
            pending = [file for file in self._files if self._prepare(file)]
            while pending:
                self._fetch_all(pending, at_once)
                pending = [file for file in pending if not self._is_settled(file)]
        except Invalid as error:
            # The same names would clash again; data of an earlier download serves another --prefix.
            if error.code == NAME_TWICE and not self._staging.resumed:
                self._staging.discard()
            raise
        whole = [f for f in self._files if f.path not in self._left_out and not f.link]
        edited, unlinked = self._staging.finish(whole, [f for f in self._files if f.link])
        for file in edited:
            self._leave_out(file, _EDITED)
        self._problems[_UNLINKED].update(unlinked)
        if self._note is not None and self._staging.has_rest():
            self._note("download_rest", part=shown(self._staging.part))
        done = [f.path for f in whole if f.path not in self._left_out and not f.is_directory]
        fetched = sum(self._fetched.get(path, 0) for path in done)
        kept = sum(self._kept.get(path, 0) for path in done)
        return Result(len(done), fetched, kept, self._problems)

    def _prepare(self, file: File) -> bool:
        """Whether anything of a file has to be fetched; its ranges are queued."""
        if file.is_directory:
            self._staging.make_directory(file)
        if file.is_directory or file.link or self._is_installed(file):
            return False
        self._staging.load(file)
        if folded(file.name) in self._alike:
            create_exclusively(self._staging.path(file), file.path)
        if file.done:
            file.unproven = True
            file.location = "" if file.location.startswith("/") else file.location
        self._queue(file)
        return True

    def _is_installed(self, file: File) -> bool:
        """Whether a finished download has the file, or the user has another one in its place."""
        found = self._staging.installed(file)
        if found == MISSING:
            return False
        want = file.sha256 or file.written
        path, got = self._staging.final_path(file), ""
        with suppress(Conflict, OSError):  # it cannot be read
            if want and os.lstat(path).st_size == file.size:
                got = sha256_of(path, path)
        is_right = bool(want) and got == want
        if found == OUTDATED and not is_right:
            return False
        if is_right or (found == CURRENT and not file.sha256):
            self._kept[file.path] = file.size
            self._staging.keep(file)
            if want and not is_right:
                self._problems[_REPLACED].add(file.path)
        else:
            self._leave_out(file, _EDITED)
        self._report(self._report_kept, file.size)
        return True

    def _queue(self, file: File) -> None:
        """Queue all ranges that are not here."""
        with self._lock:
            self._tasks.extend(_tasks(file))
        here = file.size - sum(length for _, length in file.missing())
        self._kept[file.path] = here
        self._report(self._report_kept, here)

    def _fetch_all(self, files: Sequence[File], at_once: int) -> None:
        """Work through the queue. If the connection breaks for longer than a moment, retry what is
        left as an upload does: for half a minute without progress."""
        retries = retry.Retries(retry.RESUME)
        while True:
            before = sum(self._fetched.values())
            try:
                count = max(1, min(at_once, len(self._tasks)))
                return run_workers(count, self._next, self._fetch_some)
            except Retry as error:
                if before != sum(self._fetched.values()):
                    retries.reset()
                pause = retries.next_pause(error)
                if pause is None:
                    raise
            if self._note is not None and retries.failed == 1:
                self._note("download_again")
            sleep(pause)
            left = [file for file in files if file.path not in self._left_out]
            self._tasks = deque(task for file in left for task in _tasks(file))

    def _next(self) -> Task | None:
        with self._lock:
            return self._tasks.popleft() if self._tasks else None

    def _fetch_some(self, tasks: Iterator[Task]) -> None:
        for file, part, generation in tasks:
            if part == _COPY:
                self._copy(file)
                continue
            try:
                retry.run(lambda: self._fetch(file, *part, generation))  # noqa: B023 - called at once
            except _Restarted:
                pass
            except (Conflict, NotFound) as error:
                if error.code not in _LEFT_OUT:
                    raise
                self._leave_out(file, _LEFT_OUT[error.code])

    def _copy(self, file: File) -> None:
        """Copy a file of the server's store; queue its ranges if it is not as listed there."""
        copied = 0

        def report(count: int) -> None:
            nonlocal copied
            self._staging.check_open()
            copied += count
            self._report(self._report_fetched, count)

        self._staging.check_open()
        if copy_local(self._staging.path(file), file, report):
            file.verified = True
            with file.lock:
                for start, length in file.missing():
                    self._add(file, start, length)
        else:
            self._report(self._report_fetched, -copied)
            file.location = ""
            with self._lock:
                self._tasks.extendleft(reversed(_tasks(file)))

    def _fetch_direct(self, file: File, start: int, length: int, generation: int) -> bool:
        """Fetch a range by presigned URL; False: ask the server."""
        whole, sha256 = file.is_whole(start, length), file.sha256
        if not (self._direct and file.location and sha256):
            return False
        with self._writer(file, start, generation) as writer:
            pool = self._transport.pool
            got = _presigned.fetch(pool, file.location, start, length, writer.write)
            if whole:
                writer.truncate(length)
        if not got or (whole and got != sha256):
            self._direct = False
            return False
        with file.lock:
            if file.sha256 != sha256:  # the server has another version by now
                return False
            file.verified = whole
            file.unproven = file.unproven or not whole
            self._add(file, start, length)
        self._report(self._report_fetched, length)
        return True

    def _fetch(self, file: File, start: int, length: int, generation: int) -> None:
        if self._fetch_direct(file, start, length, generation):
            return
        query: dict[str, object] = {"digest": 1}
        whole = file.is_whole(start, length)
        if not whole:
            query |= {"offset": start, "length": length}
        path = f"{self._source}/{quote(file.path, '/')}"
        with self._transport.open(path, query, policy=retry.IMMEDIATE) as response:
            version = response.headers.get("x-content-version") or ""
            size = number(response.headers, "content-length") - _DIGEST
            if size < 0:
                refuse("content-length", size + _DIGEST, "response_at_least", least=_DIGEST)
            if not whole and size > length:
                most = length + _DIGEST
                refuse("content-length", size + _DIGEST, "response_count", most=most)
            with file.lock:
                if generation != file.generation or not (whole or self._is_same(file, version)):
                    return
            writer = self._writer(file, start, generation)
            digest = self._write(file, writer, response, size, whole=whole)
            known = response.headers.get("x-content-sha256") or _listed_sha256(file, version)
        if whole and known and digest != known:
            self._leave_out(file, _DAMAGED)
            return
        with file.lock:
            if generation != file.generation:
                self._report(self._report_fetched, -size)
                return
            if whole:
                file.size, file.verified = size, True
            self._add(file, start, size, digest)

    def _write(
        self, file: File, writer: Writer, response: Response, size: int, *, whole: bool
    ) -> str:
        """Write a range and compare it with the digest that follows it; the digest."""
        digest = hashlib.sha256()
        got, trailer = 0, b""
        try:
            with writer:
                while block := response.read(_BLOCK):
                    content = block[: max(0, size - got)]
                    trailer += block[len(content) :]
                    writer.write(content)
                    digest.update(content)
                    got += len(content)
                    self._report(self._report_fetched, len(content))
                if whole:
                    writer.truncate(got)
            if got != size:
                raise Retry("download_short", path=shown(file.path), got=got, want=size)
            if trailer != digest.digest():
                digests = {"got": digest.hexdigest(), "want": trailer.hex()}
                raise Retry("download_digest", path=shown(file.path), **digests)
        except BaseException:
            self._report(self._report_fetched, -got)
            raise
        return digest.hexdigest()

    def _writer(self, file: File, start: int, generation: int) -> Writer:
        def check() -> None:
            self._staging.check_open()
            if file.generation != generation:
                raise _Restarted

        return Writer(self._staging.path(file), file.path, start, check, file.lock)

    def _is_same(self, file: File, version: str) -> bool:
        """Whether a range is of the same version as those before; else the file is restarted.

        Only a digest of the whole proves that ranges of a bucket are of this version.
        """
        size = version.partition("-")[0]
        known = _listed_sha256(file, version)
        if not file.version and size in (APPEND, str(file.size)) and (known or not file.done):
            file.version, file.sha256 = version, known
        if version == file.version:
            return True
        self._staging.check_open()
        file.generation += 1
        if file.generation > _MAX_RESTARTS:
            raise Conflict(_CHANGING, paths=shown(file.path))
        file.version, file.sha256 = version, ""
        now = whole_number(size)
        file.size = file.size if now is None else now
        # The fewer the ranges, the less a file changes between two of them.
        file.range_size = _ranges.at_least(_ranges.MAX_RANGE, file.size)
        self._uncount(file)
        self._staging.truncate(file)
        with self._lock:
            self._tasks = deque(task for task in self._tasks if task[0] is not file)
            self._tasks.extendleft(reversed(_tasks(file)))
        return False

    def _is_settled(self, file: File) -> bool:
        """Verify a file with a known sha256; False if it has to be fetched again, because it was
        damaged on the way or on this machine."""
        if file.path in self._left_out:
            self._staging.delete(file)
            return True
        target = self._staging.path(file)
        want = "" if file.verified else file.sha256
        got = sha256_of(target, file.path) if want or file.written else ""
        if want and got != want:
            self._staging.delete(file)
            if file.unproven:
                file.unproven = self._direct = False
                file.version = file.location = ""
                self._uncount(file)
                self._queue(file)
                return False
            self._leave_out(file, _DAMAGED)
            return True
        if file.written and got != file.written:
            self._problems[_REPLACED].add(file.path)
        if file.executable:
            make_executable(target)
        return True

    def _add(self, file: File, start: int, length: int, sha256: str = "") -> None:
        """A range is here; the lock of the file is held. `sha256` is that of the server."""
        self._staging.check_open()
        file.done[start] = length
        with self._lock:
            self._fetched[file.path] = self._fetched.get(file.path, 0) + length
        self._staging.add(file, start, length, sha256)

    def _leave_out(self, file: File, problem: str) -> None:
        with self._lock:
            self._left_out.add(file.path)
            self._problems[_REPLACED].discard(file.path)
            self._problems[problem].add(file.name if problem == _EDITED else file.path)
            self._tasks = deque(task for task in self._tasks if task[0] is not file)

    def _uncount(self, file: File) -> None:
        """Nothing that is here of a file is of use."""
        file.done.clear()
        self._report(self._report_fetched, -self._fetched.pop(file.path, 0))
        self._report(self._report_kept, -self._kept.pop(file.path, 0))

    def _report(self, report: Progress | None, count: int) -> None:
        if report is not None:
            with self._lock:
                report(count)


def _tasks(file: File) -> list[Task]:
    if file.location.startswith("/"):
        return [(file, _COPY, file.generation)]
    return [(file, part, file.generation) for part in file.missing()]


def _listed_sha256(file: File, version: str) -> str:
    """The listed digest of a file, if the server still has the listed version."""
    return file.sha256 if version.startswith(f"{file.size}-{file.time}") else ""
