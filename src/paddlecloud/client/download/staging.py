"""Where a download lands: the hidden directory beside the final one, its journal.

What is here so far lies in that directory, which gets its name when everything is whole; nothing
partial is ever seen under a final name. A line in the journal says that a piece of a file is here
and is right. Whoever writes there holds the directory: two at once would write over each other. Of
a finished download a record tells which files are still as they came: all others are a person's
own, and stay. Nothing is written through a link, whoever made it, because it may lead anywhere.
Nothing here talks to a server.
"""

# pathlib costs 8 ms:
# ruff: noqa: PTH102, PTH103, PTH104, PTH105, PTH106, PTH108, PTH112
# ruff: noqa: PTH114, PTH116, PTH118, PTH120

from __future__ import annotations

import errno
import hashlib
import os
from contextlib import suppress
from stat import S_ISDIR

from paddlecloud.client.display import CUT_DOWNLOAD, shown
from paddlecloud.client.download.history import Record, stamp_of
from paddlecloud.client.download.journal import Journal, Known, learned, other_than, read
from paddlecloud.client.download.local_files import (
    cannot_make,
    cannot_write,
    make_directory,
    remove,
    right_ones,
)
from paddlecloud.client.download.ranges import File
from paddlecloud.client.download.symlinks import is_barred, make_links
from paddlecloud.model.errors import Conflict, Invalid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

#: How the version of a file begins whose bytes stay what they are while it grows.
APPEND = "append"
#: What a finished download has in the place of a file: nothing, the file that is wanted, an older
#: state of it as it came, one of these two (only its version tells which), or something that a
#: person put there.
NOTHING, OURS, OLDER, UNSURE, THEIRS = "nothing", "ours", "older", "unsure", "theirs"
#: Downloads that end between two looks of somebody who wants the same directory.
_MOST_ENDINGS = 20
_EXISTS, _IN_WAY = "download_dir_exists", "download_dir_in_way"
_JOURNAL, _FILES, _READY = "journal", "files", "ready"
#: Bytes of a name that can be hidden: file systems take 255.
_LONGEST_NAME = 255 - len(f".{CUT_DOWNLOAD}")


def check_download_dir(download_dir: str, path: str = "", records: str = "") -> None:
    """Refuse a download directory that exists: it is never mixed with what was there.

    Except one that `records` knows to hold an earlier download from `path`, by whatever name.
    """
    fault = _fault_of(download_dir)
    part = part_of(download_dir)
    if fault == _EXISTS and records:
        record = Record(os.path.realpath(download_dir), path, records)
        fault = "" if record.is_of_this() else "download_dir_foreign"
    if fault and records and read(os.path.join(part, _JOURNAL), path):
        fault = _IN_WAY
    if fault:
        raise Invalid(fault, path=shown(download_dir), part=shown(part))


def part_of(final: str) -> str:
    """Where the files of an unfinished download into `final` lie."""
    above, name = os.path.split(os.path.realpath(final))
    if len(os.fsencode(name)) > _LONGEST_NAME:
        name = hashlib.sha256(os.fsencode(name)).hexdigest()
    return os.path.join(above, f".{name}{CUT_DOWNLOAD}")


def is_begun(final: str) -> bool:
    """Whether a download into `final` left something that another can go on with."""
    return os.path.isdir(part_of(final))


class Closed(Exception):
    """Somebody else may hold the place by now: nothing more is to be written there."""


class Place:
    """The hidden directory: files as far as they are here, and the journal of what is right."""

    def __init__(
        self,
        final: str,
        what: str,
        records: str,
        *,
        resume: bool,
        is_meant: Callable[[str], bool] = lambda _: True,
    ) -> None:
        """For `what`, of which those paths are wanted that are meant."""
        self.final = os.path.realpath(final)
        self.part = part_of(final)
        self.files = os.path.join(self.part, _FILES)
        self._ready = os.path.join(self.part, _READY)
        self._is_meant = is_meant
        self._resume = resume
        self._what = what
        self._record = Record(self.final, what, records)
        self._is_closed = False
        records = records if resume else ""
        check_download_dir(final, what, records)
        self._held = _hold(self.part, final)
        try:
            # Whoever held it until now may have finished.
            check_download_dir(self.final, what, records)
            self._open()
        except BaseException:
            with suppress(OSError):
                os.rmdir(self.part)
            _release(self._held)
            raise

    def _open(self) -> None:
        journal = os.path.join(self.part, _JOURNAL)
        self._check_other(other_than(journal, self._what))
        begun = read(journal, self._what) if self._resume else []
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
                # Of one that ended just before all of it got its final name.
                _unlink_links(self.files)
                _move_back(self._ready, self.files)
            else:
                _empty(self.part)
            os.makedirs(self.files, exist_ok=True)
            self.journal = Journal(journal)
        except OSError as error:
            raise cannot_write(self.part, error) from None
        self.journal.note(self._what)

    def _check_other(self, other: str) -> None:
        """Refuse to take the place of a download of something else that somebody may go on with."""
        if other:
            job_id = other.split("/")[2:3] or [other]
            told = {"job_id": shown(job_id[0]), "path": shown(self.final), "part": shown(self.part)}
            raise Invalid("download_dir_other", **told)

    def finished(self, file: File) -> str:
        """What a finished download has in the place of a file, from NOTHING to THEIRS."""
        have = self._have(file) if self._adds else NOTHING
        if self._adds and have in (NOTHING, OLDER, UNSURE) and is_barred(self.final, file.name):
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
        if had.size == file.size and had.version and not had.time:
            return UNSURE
        return OURS if (had.size, had.time) == (file.size, file.time) else OLDER

    def version(self, file: File) -> str:
        """Of the state that a finished download has of a file."""
        return self._record.version(file.path)

    def keep(self, file: File) -> None:
        """A file of a finished download is right as `finished` saw it; it may change any time."""
        self._kept.add(file.path)
        if file.path in self._seen:
            self._record.confirm(file.path, self._seen[file.path], file.lasting)

    def knows(self, file: File) -> None:
        """Fill in what is here of an unfinished file, if it is of the state that is wanted; bytes
        of another state go, or they would be its end."""
        found = self._begun.get(file.path)
        if found is not None and _is_wanted(found, file):
            file.version = found.version
            file.done = self._still_here(found, file)
        if self.goes_on and not file.done:
            self.clear(file)

    def _still_here(self, found: Known, file: File) -> dict[int, int]:
        """The pieces that are as they came, as `File.done`. A file whose own digest is known is
        compared as a whole in the end; of all others each piece is read and compared now."""
        stamp = stamp_of(self.target(file)) or [-1]
        end = min(stamp[0], found.size)
        here = {at: piece for at, piece in found.pieces.items() if at + piece[0] <= end}
        if not file.sha256:
            here = right_ones(self.target(file), here)
        return {at: length for at, (length, _) in here.items()}

    def target(self, file: File) -> str:
        """Where what comes of a file is written."""
        return file.aside or os.path.join(self.files, file.name)

    def came(self, file: File, start: int, length: int, sha256: str) -> None:
        """A piece is here; whoever takes the download up looks for it under the file's own name."""
        if not file.aside:
            state = [file.path, file.size, file.noted, file.version]
            self.journal.note([*state, start, length, sha256])

    def clear(self, file: File) -> None:
        """Have a file begin with nothing; whoever still writes to it does so without a name, or,
        where no open file can lose its name (Windows), under a name that it gives up."""
        try:
            os.unlink(self.target(file))
        except FileNotFoundError:
            return
        except IsADirectoryError:  # it was one when the download was begun
            remove(self.target(file))
        except PermissionError:
            file.aside = os.path.join(self.part, os.urandom(8).hex())
        except OSError as error:
            raise cannot_write(file.path, error) from None

    def make_room(self, file: File) -> None:
        """Make the directory of a file, or the one that it is. What had the name of a directory
        when the download was begun is not wanted any more."""
        directory = self.target(file) if file.is_directory else os.path.dirname(self.target(file))
        above = directory if self.goes_on else self.files
        while len(above) > len(self.files):
            if os.path.lexists(above) and not _is_directory(above):
                with suppress(OSError):
                    os.unlink(above)
            above = os.path.dirname(above)
        make_directory(directory, file.path)

    def settle(self, file: File) -> None:
        """Nobody writes to a file any more: it has its own name."""
        aside, file.aside = file.aside, ""
        if aside:
            try:
                os.replace(aside, self.target(file))
            except OSError as error:
                raise cannot_make(file.path, error) from None

    def forget(self, file: File) -> None:
        """Nothing that came of a file is of use: the next try must begin it anew."""
        self._has_none_of(file)
        file.aside = ""
        self.clear(file)

    def _has_none_of(self, file: File) -> None:
        self.journal.note([file.path, -1, "", "", 0])

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
            raise cannot_write(self.final, error) from None
        if self.has_rest():
            for file in came:
                self._has_none_of(file)
        else:
            self.drop()
        return result

    def has_rest(self) -> bool:
        """Whether pieces are here that came for a download of more than is wanted now: whoever
        wants that again goes on with them."""
        begun = self._begun.items()
        return any(known.pieces and not self._is_meant(path) for path, known in begun)

    def _appear(self, came: Sequence[File], links: Sequence[File]) -> tuple[list[File], list[str]]:
        """All at once; a part of something else that was begun here is not among it."""
        for file in came:
            self._is_ours_now(file, self._stamp(file))
        ready = self._gathered(came) if self.goes_on else self.files
        unlinked = make_links(ready, {link.name: link.link for link in links})
        if os.path.lexists(self.final):  # since it was begun
            raise Conflict(_IN_WAY, path=shown(self.final), part=shown(self.part))
        # The record first: whoever is killed in between leaves a directory that is known.
        self._record.write(ready)
        os.rename(ready, self.final)
        return [], unlinked

    def _gathered(self, came: Sequence[File]) -> str:
        """The directory to which these were moved."""
        os.makedirs(self._ready)
        for file in came:
            place = os.path.join(self._ready, file.name)
            os.makedirs(place if file.is_directory else os.path.dirname(place), exist_ok=True)
            if not file.is_directory:
                os.replace(self.target(file), place)
        return self._ready

    def _add(self, came: Sequence[File], links: Sequence[File]) -> tuple[list[File], list[str]]:
        """One after the other; the record tells of each before, and of all in the end."""
        news = [file for file in came if not file.is_directory]
        self._record.expect({f.path: [f.size, f.lasting, self._stamp(f)] for f in news})
        try:
            edited = [file for file in came if not self._put(file)]
            return edited, make_links(self.final, {link.name: link.link for link in links})
        finally:
            self._record.write()

    def _stamp(self, file: File) -> list[int]:
        """Of what came, unless somebody took it away."""
        stamp = stamp_of(self.target(file))
        if stamp is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        return stamp

    def _put(self, file: File) -> bool:
        """Give a file its name; False: a person has put something there."""
        try:
            return self._is_put(file)
        except OSError as error:
            raise cannot_write(self.place(file), error) from None

    def _is_put(self, file: File) -> bool:
        place, target = self.place(file), self.target(file)
        barred = is_barred(self.final, file.name)
        if file.is_directory:
            if not barred and not os.path.lexists(place):
                os.makedirs(place)
            return True
        if barred or self.finished(file) == THEIRS:
            return False
        stamp = self._stamp(file)
        os.makedirs(os.path.dirname(place), exist_ok=True)
        os.replace(target, place)
        self._is_ours_now(file, stamp)
        return True

    def _is_ours_now(self, file: File, stamp: list[int]) -> None:
        if not file.is_directory:
            self._record.add(file.path, Known(file.size, file.lasting, file.version), stamp)

    def check_open(self) -> None:
        """Asked before each write: after an interrupt threads live on for as long as what they wait
        for, and nobody waits for them."""
        if self._is_closed:
            raise Closed

    def close(self) -> None:
        """Nothing is written there any more: somebody else may."""
        self._is_closed = True
        self.journal.close()
        _release(self._held)
        self._held = -1


def _fault_of(download_dir: str) -> str:
    """What is in the place of a download directory, as the code of a refusal."""
    try:
        status = os.stat(download_dir)
    except FileNotFoundError:
        return "download_dir_nowhere" if os.path.islink(download_dir) else ""
    except OSError as error:
        raise cannot_write(download_dir, error) from None
    return _EXISTS if S_ISDIR(status.st_mode) else "download_dir_file"


def _unlink_links(root: str) -> None:
    for above, directories, names in os.walk(root):
        for name in (*names, *directories):
            path = os.path.join(above, name)
            if os.path.islink(path):
                os.unlink(path)


def _move_back(ready: str, files: str) -> None:
    """Have all files where they were before they were gathered; links are made anew."""
    for above, _, names in os.walk(ready):
        back = os.path.join(files, os.path.relpath(above, ready))
        os.makedirs(back, exist_ok=True)
        for name in names:
            if not os.path.islink(os.path.join(above, name)):
                os.replace(os.path.join(above, name), os.path.join(back, name))
    remove(ready)


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
    """The directory, made if need be; somebody who is done may take it away meanwhile. What others
    put in its place, as they can in /tmp, is refused: it may lead anywhere, or change."""
    reason: OSError = FileNotFoundError()
    for _ in range(_MOST_ENDINGS):
        try:
            made = _is_made(part)
            held = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError as error:
            reason = error
        except OSError as error:
            if os.path.lexists(part) and not _is_directory(part):
                raise Invalid("download_part_foreign", path=shown(part)) from None
            raise cannot_write(part, error) from None
        else:
            if made or _is_of_friend(held, part):
                return held
            os.close(held)
            raise Invalid("download_part_foreign", path=shown(part))
    raise cannot_write(part, reason)


def _is_made(part: str) -> bool:
    """Make a directory; False: it was there, or something else is."""
    os.makedirs(os.path.dirname(part), exist_ok=True)
    try:
        os.mkdir(part)
    except FileExistsError:
        return False
    return True


def _is_directory(path: str) -> bool:
    return os.path.isdir(path) and not os.path.islink(path)


def _is_of_friend(held: int, part: str) -> bool:
    """Whether a directory is ours, or of whom the one is in which it lies: there is no help against
    that one, and some file systems tell one owner for all that they hold."""
    owners = (os.geteuid(), os.stat(os.path.dirname(part)).st_uid)
    return os.fstat(held).st_uid in owners


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
    return found.is_of(file.size, file.time, "")


def _empty(part: str) -> None:
    """Without what an earlier download left there."""
    for name in (_FILES, _READY):
        remove(os.path.join(part, name))
    with suppress(FileNotFoundError):
        os.unlink(os.path.join(part, _JOURNAL))
