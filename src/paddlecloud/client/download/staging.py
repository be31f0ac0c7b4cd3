"""The staging directory of a download, and how its files get their final names.

`.NAME.paddlecloud-part` beside the download directory NAME holds the files so far and the journal.
When everything is there, its directory of files is renamed to NAME; files that are added to a
finished download are renamed into it one by one. A file there is replaced only if the record shows
that it is an older version, unchanged since it was downloaded; every other file belongs to the
user. The directory is locked, and nothing is written through a symbolic link.
"""

# ruff: noqa: PTH103, PTH104, PTH105, PTH106, PTH108, PTH112, PTH114, PTH116, PTH118, PTH120
# Paths are text: there is one for each file.

from __future__ import annotations

import errno
import hashlib
import os
from contextlib import suppress
from stat import S_ISDIR
from typing import TYPE_CHECKING

from paddlecloud.client.download._journal import Journal, Record, read_journal, stamp_of
from paddlecloud.client.download._local_files import (
    intact_ranges,
    local_errors,
    remove,
)
from paddlecloud.client.download._symlinks import is_barred, make_links
from paddlecloud.client.file_names import CUT_DOWNLOAD, shown
from paddlecloud.model.errors import Conflict, Invalid

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from paddlecloud.client.download._journal import Stamp, State
    from paddlecloud.client.download._ranges import File

#: Prefix of the version of a file that only grows: its first bytes stay what they are.
APPEND = "append"
#: What the download directory has under the name of a file: nothing, the listed version, an older
#: one, or a file of the user.
MISSING, CURRENT, OUTDATED, USERS = "missing", "current", "outdated", "users"
_EXISTS, _IN_WAY = "download_dir_exists", "download_dir_in_way"
_JOURNAL, _FILES, _REST = "journal", "files", "rest"
#: Bytes of a name to which the suffix can be added: file systems take 255.
_LONGEST_NAME = 255 - len(f".{CUT_DOWNLOAD}")
_LOCK_ATTEMPTS = 20


def records_in(home: str) -> str:
    """The directory of the records of finished downloads, below PADDLECLOUD_HOME."""
    return os.path.join(home, "cache", "downloads")


def check_download_dir(download_dir: str, source: str, records: str) -> None:
    """Refuse a download directory that exists, unless `records` has a download of `source` there.
    Without `resume`, `records` is empty."""
    code = "download_dir_nowhere" if os.path.islink(download_dir) else ""
    with local_errors(download_dir), suppress(FileNotFoundError):
        is_directory = S_ISDIR(os.stat(download_dir).st_mode)
        code = _EXISTS if is_directory else "download_dir_file"
    if code == _EXISTS and records:
        record = Record(os.path.realpath(download_dir), source, records)
        code = "" if record.matches else "download_dir_foreign"
    part = staging_dir(download_dir)
    if code and records and read_journal(os.path.join(part, _JOURNAL))[0] == source:
        code = _IN_WAY
    if code:
        raise Invalid(code, path=shown(download_dir), part=shown(part))


def is_known(download_dir: str, source: str, records: str) -> bool:
    """Whether a download of `source` into this directory was finished or begun."""
    if Record(os.path.realpath(download_dir), source, records).matches:
        return True
    return read_journal(os.path.join(staging_dir(download_dir), _JOURNAL))[0] == source


def staging_dir(download_dir: str) -> str:
    above, name = os.path.split(os.path.realpath(download_dir))
    if len(os.fsencode(name)) > _LONGEST_NAME:
        name = hashlib.sha256(os.fsencode(name)).hexdigest()
    return os.path.join(above, f".{name}{CUT_DOWNLOAD}")


def is_resumable(download_dir: str) -> bool:
    """Whether an unfinished download into this directory was left."""
    return os.path.isdir(staging_dir(download_dir))


class Closed(Exception):
    """The download was interrupted, and another one may use the directory by now."""


class Staging:
    def __init__(
        self,
        download_dir: str,
        source: str,
        records: str,
        *,
        resume: bool,
        is_meant: Callable[[str], bool] = lambda _: True,
    ) -> None:
        """`is_meant`: whether a path is among those that are wanted this time."""
        self.outside_links = False
        self.final = os.path.realpath(download_dir)
        self.part = staging_dir(download_dir)
        self.files = os.path.join(self.part, _FILES)
        self._rest = os.path.join(self.part, _REST)
        self._is_meant = is_meant
        self._is_closed = False
        known = records if resume else ""
        check_download_dir(download_dir, source, known)
        self._lock = _lock(self.part, download_dir)
        try:
            # The download that held the lock until now may have finished.
            check_download_dir(self.final, source, known)
            self._record = Record(self.final, source, records)
            self._open(source, resume=resume)
        except BaseException:
            with suppress(OSError):
                os.rmdir(self.part)
            if self._lock >= 0:
                os.close(self._lock)
            raise

    def _open(self, source: str, *, resume: bool) -> None:
        journal = os.path.join(self.part, _JOURNAL)
        found, states = read_journal(journal)
        if found not in ("", source) and any(state.ranges for state in states.values()):
            job_id = (found.split("/")[2:3] or [found])[0]
            paths = {"path": shown(self.final), "part": shown(self.part)}
            raise Invalid("download_dir_other", job_id=shown(job_id), **paths)
        self.resumed = resume and found == source
        """Whether an unfinished download left something that may be of use."""
        self._states: dict[str, State] = states if self.resumed else {}
        self._adds = os.path.lexists(self.final)
        """Whether there is a finished download to add to."""
        self._stamps: dict[str, Stamp] = {}
        self._kept: set[str] = set()
        self._touched: dict[str, list[object]] = {}
        with local_errors(self.part):
            if not self.resumed:
                remove(self.files)
                remove(self._rest)
                with suppress(FileNotFoundError):
                    os.unlink(journal)
            elif os.path.isdir(self._rest) and not os.path.isdir(self.files):
                os.rename(self._rest, self.files)  # it was killed at the very end of `finish`
            os.makedirs(self.files, exist_ok=True)
            self._journal = Journal(journal)
        self._journal.append(source)

    def installed(self, file: File) -> str:
        """What a finished download has under the name of a file, from MISSING to USERS."""
        if not self._adds:
            return MISSING
        stamp, known = stamp_of(self.final_path(file)), None
        if stamp is not None:
            self._stamps[file.path] = stamp
            known = self._record.find(file.path, stamp)
            if known == (file.size, file.time):
                return CURRENT
        if (stamp and not known) or is_barred(self.final, file.name):
            return USERS
        return OUTDATED if known else MISSING

    def keep(self, file: File) -> None:
        """A file of a finished download is right as `installed` found it."""
        self._kept.add(file.path)
        stamp = self._stamps[file.path]
        if self._record.find(file.path, stamp) != (file.size, file.time):
            self._touched[file.path] = [file.size, file.record_time, stamp]

    def load(self, file: File) -> None:
        """Make the directory of a file, and fill in the ranges that are here of the version that
        is wanted; those of another version are deleted."""
        self.make_directory(file)
        state = self._states.get(file.path)
        # Also the ranges of a log that has grown since: with the next range the server sends its
        # version if it is another log.
        has_grown = state and state.version.startswith(APPEND) and state.size < file.size
        if state and (has_grown or state.is_version(file.size, file.time, "")):
            file.version = state.version
            stamp = stamp_of(self.path(file))
            end = min(stamp[0], state.size) if stamp else -1
            here = {at: known for at, known in state.ranges.items() if at + known[0] <= end}
            if not file.sha256:  # else the file is compared as a whole in the end
                here = intact_ranges(self.path(file), here)
            file.done = {at: length for at, (length, _) in here.items()}
        if self.resumed and not file.done:
            self.delete(file)

    def make_directory(self, file: File) -> None:
        """Make the directory of a file, or the one that it is. A file or a link in its place was
        listed when the download began, and is not any more."""
        directory = self.path(file) if file.is_directory else os.path.dirname(self.path(file))
        above = directory if self.resumed else self.files
        while len(above) > len(self.files):
            if os.path.islink(above) or not os.path.isdir(above):
                with suppress(OSError):
                    os.unlink(above)
            above = os.path.dirname(above)
        with local_errors(file.path, creating=True):
            os.makedirs(directory, exist_ok=True)

    def path(self, file: File) -> str:
        """Where a file is written."""
        return os.path.join(self.files, file.name)

    def final_path(self, file: File) -> str:
        return os.path.join(self.final, file.name)

    def add(self, file: File, start: int, length: int, sha256: str) -> None:
        """A range is here."""
        version = [file.path, file.size, file.journal_time, file.version]
        self._journal.append([*version, start, length, sha256])

    def truncate(self, file: File) -> None:
        """Restart a file that other threads may have open: Windows could not delete it."""
        with suppress(FileNotFoundError):
            os.truncate(self.path(file), 0)

    def delete(self, file: File) -> None:
        """Delete what is here of a file. The journal still lists its ranges, but they count only
        if the file has them."""
        path = self.path(file)
        if os.path.isdir(path) and not os.path.islink(path):  # when the download began
            remove(path)
        with local_errors(file.path), suppress(FileNotFoundError):
            os.unlink(path)

    def discard(self) -> None:
        """Delete the staging directory."""
        self._journal.close()  # Windows deletes no open file
        remove(self.part)

    def finish(self, files: Sequence[File], links: Sequence[File]) -> tuple[list[File], list[str]]:
        """Give complete files and links their final names.

        Returns the files that are left out because the user has something under their names, and
        the names of links that cannot be made or would lead out of the directory. A link that the
        user submitted with an absolute target is made with `outside_links`, that is from the
        user's own server.
        """
        new = [file for file in files if file.path not in self._kept]
        left_out: list[File] = []
        with local_errors(self.final):
            rows = {f.path: self._row(f) for f in new if not f.is_directory}
            if self._adds:
                self._record.append(self._touched | rows)
                left_out = [file for file in new if not self._install(file)]
            else:
                self._appear(new, rows)
            wanted = [link for link in links if not os.path.lexists(self.final_path(link))]
            targets = {link.name: link.link for link in wanted}
            unlinked = make_links(self.final, targets, outside=self.outside_links)
        if not self.has_rest():
            self.discard()
        else:
            for file in new:
                self._journal.append([file.path, -1, "", "", 0])
            with suppress(OSError):
                os.rename(self._rest, self.files)
        return left_out, unlinked

    def has_rest(self) -> bool:
        """Whether ranges are here of files that are not meant this time: a download with the
        earlier `--prefix` resumes with them."""
        states = self._states.items()
        return any(state.ranges and not self._is_meant(path) for path, state in states)

    def _row(self, file: File) -> list[object]:
        stamp = stamp_of(self.path(file))
        if stamp is None:  # another program deleted it
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        return [file.size, file.record_time, stamp]

    def _appear(self, new: Sequence[File], rows: Mapping[str, list[object]]) -> None:
        """Rename the directory of files, without those that an earlier download left there."""
        if os.path.lexists(self.final):  # since the download began
            raise Conflict(_IN_WAY, path=shown(self.final), part=shown(self.part))
        names = {file.name for file in new}
        for above, directories, found in os.walk(self.files) if self.resumed else ():
            for name in (*found, *directories):
                path = os.path.join(above, name)
                relative = os.path.relpath(path, self.files)
                is_file = os.path.islink(path) or not os.path.isdir(path)
                if is_file and relative.replace(os.sep, "/") not in names:
                    os.renames(path, os.path.join(self._rest, relative))
        # `renames` deletes directories that become empty.
        for path in [self.files, *(self.path(file) for file in new if file.is_directory)]:
            os.makedirs(path, exist_ok=True)
        # The record first: after a kill in between the directory is known.
        self._record.create(self.files, rows)
        os.rename(self.files, self.final)

    def _install(self, file: File) -> bool:
        """Move a file into the finished download; False if the user has something there."""
        target = self.final_path(file)
        with local_errors(target):
            if file.is_directory:
                if not is_barred(self.final, file.name) and not os.path.lexists(target):
                    os.makedirs(target)
                return True
            if self.installed(file) == USERS:
                return False
            os.makedirs(os.path.dirname(target), exist_ok=True)
            os.replace(self.path(file), target)
        return True

    def check_open(self) -> None:
        """Raises Closed after `close`: threads of an interrupted download live on for a while."""
        if self._is_closed:
            raise Closed

    def close(self) -> None:
        self._is_closed = True
        self._journal.close()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def _lock(part: str, download_dir: str) -> int:
    """Create and lock the staging directory; its descriptor, which holds the lock."""
    if os.name == "nt":  # without locks
        os.makedirs(part, exist_ok=True)
        return -1
    from fcntl import LOCK_EX, LOCK_NB, flock  # noqa: PLC0415 - Windows has none

    for _ in range(_LOCK_ATTEMPTS):
        fd = _open_directory(part)
        try:
            flock(fd, LOCK_EX | LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            break
        except OSError:  # a file system without locks
            return fd
        with suppress(FileNotFoundError):  # the download that held it has finished
            if os.path.samestat(os.fstat(fd), os.stat(part)):
                return fd
        os.close(fd)
    raise Invalid("download_dir_busy", path=shown(download_dir))


def _open_directory(part: str) -> int:
    """Create and open a directory; what another user may have put there, as is possible in /tmp, is
    refused: a link may lead anywhere."""
    if os.path.lexists(part) and not S_ISDIR(os.lstat(part).st_mode):
        raise Invalid("download_part_foreign", path=shown(part))
    with local_errors(part):
        os.makedirs(part, exist_ok=True)
        fd = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    # The owner of the directory above can do anything here, and some file systems show one owner
    # for everything.
    if os.fstat(fd).st_uid not in (os.geteuid(), os.stat(os.path.dirname(part)).st_uid):
        os.close(fd)
        raise Invalid("download_part_foreign", path=shown(part))
    return fd
