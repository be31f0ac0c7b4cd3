"""Hands big files over to the private server, which is on this machine and of this person.

The server names a fresh directory in its store that only this person can enter. A file is copied
there while its digest is taken, and gets that digest as its name; the server then gives it its
place among the contents without reading it again: whoever can write there could write anywhere in
the store. Where this is not possible nothing is lost, files then go as they go to any server.
"""

# pathlib costs 8 ms at every submit:
# ruff: noqa: PTH106

from __future__ import annotations

import os
import stat
from contextlib import suppress

from paddlecloud.client import response_schemas
from paddlecloud.client.display import shown
from paddlecloud.client.scan.walk import stamp, unreadable
from paddlecloud.model.errors import Conflict, NotFound
from paddlecloud.net.retry import patiently

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddlecloud.client.scan.walk import Source
    from paddlecloud.client.transport import Transport
    from paddlecloud.client.upload.copy_file import Tell

#: So much is copied before it is known whether the server lacks it.
AHEAD = 8 * 1024**3
_DIRECTORY: int = getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)


class Handing:
    """The files that one submit hands over. Nothing is asked before the first big one."""

    def __init__(self, transport: Transport, *, near: bool) -> None:
        """`near`: the server is the private one; of any other nothing is asked."""
        self._transport = transport
        self._name = ""
        """What the server calls the directory."""
        self._path = ""
        self._directory = -1
        self._possible = near
        self._held: set[str] = set()
        self._ahead = 0

    def read(self, file: int, status: os.stat_result, tell: Tell | None = None) -> str:
        """The sha256 of an open file, which is copied at the same time; empty: neither was done.

        It is not known yet whether the server lacks it, so there has to be room for it and more.
        `tell` hears of bytes that were read.
        """
        if not self._open():
            return ""
        room = status.st_blocks * 512  # which Windows does not tell, where nothing is handed over
        if self._ahead + room > AHEAD or not self._has_room(2 * room):
            return ""
        self._ahead += room
        return self._take(file, status.st_size, tell)

    def give(self, sha256: str, source: Source) -> bool:
        """Have the server take over a file; False: it has to be sent.

        Conflict("files_changed") when it is not the one any more that was read.
        """
        if not self._open() or (sha256 not in self._held and not self._fetch(sha256, source)):
            return False
        request = {"sha256": sha256, "size": source[1], "handed": self._name}
        post = self._transport.post
        answer = patiently(
            lambda: post("/uploads", request, schema=response_schemas.UPLOAD, again=True)
        )
        self._held.discard(sha256)
        return bool(answer["stored"])

    def close(self) -> None:
        """Leave nothing behind; what a dead process leaves the server sweeps."""
        directory, self._directory = self._directory, -1
        self._possible = False
        if directory < 0:
            return
        with suppress(OSError):
            for name in os.listdir(directory):  # noqa: PTH208 - see the top
                os.unlink(name, dir_fd=directory)
            os.rmdir(self._path)
        os.close(directory)

    def __enter__(self) -> Handing:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self) -> bool:
        if self._directory < 0 and self._possible:
            self._possible = False
            with suppress(NotFound, OSError):
                self._begin()
        return self._directory >= 0

    def _begin(self) -> None:
        """Ask for a directory; one that others could enter too is not the one that was meant."""
        post = self._transport.post
        place = patiently(
            lambda: post("/uploads/place", {}, schema=response_schemas.HANDING, again=True)
        )
        path, name = place.get("path", ""), place.get("name", "")
        if not path or "\0" in path:
            return
        directory = os.open(path, os.O_RDONLY | _DIRECTORY)
        found = os.fstat(directory)
        if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
            os.close(directory)
            return
        _hold(directory)
        self._name, self._path, self._directory = name, path, directory

    def _has_room(self, size: int) -> bool:
        found = os.fstatvfs(self._directory)
        return found.f_bavail * found.f_frsize > size

    def _fetch(self, sha256: str, source: Source) -> bool:
        """Copy a file whose digest was known; whether that worked."""
        path, size, read_at = source
        try:
            file = os.open(path, os.O_RDONLY)
        except OSError as error:
            raise unreadable(path, error) from None
        try:
            before = os.fstat(file)
            if stamp(before) != read_at:
                raise Conflict("files_changed", path=shown(path))
            found = self._take(file, size)
            changed = stamp(os.fstat(file)) != read_at or (found and found != sha256)
        finally:
            os.close(file)
        if changed:
            raise Conflict("files_changed", path=shown(path))
        return bool(found)

    def _take(self, file: int, size: int, tell: Tell | None = None) -> str:
        """Copy an open file to the place; its digest, which is its name there. Empty: no room."""
        from paddlecloud.client.upload.copy_file import copy_and_hash  # noqa: PLC0415 - only big files

        part = f"part-{len(self._held)}-{self._ahead}"
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC
        try:
            copy = os.open(part, flags, 0o600, dir_fd=self._directory)
            try:
                sha256 = copy_and_hash(file, copy, size, flush=True, tell=tell)
            finally:
                os.close(copy)
            os.rename(part, sha256, src_dir_fd=self._directory, dst_dir_fd=self._directory)
        except OSError:
            # No room, or no such file any more: the usual way finds out, and says it.
            with suppress(OSError):
                os.unlink(part, dir_fd=self._directory)
            return ""
        self._held.add(sha256)
        return sha256


def _hold(directory: int) -> None:
    """Tell the server by a lock, which ends with this process, that the place is in use.

    Where the file system has no such lock the server cannot take it either, and waits for a day.
    """
    from fcntl import LOCK_NB, LOCK_SH, flock  # noqa: PLC0415 - only big files, and no Windows

    with suppress(OSError):
        flock(directory, LOCK_SH | LOCK_NB)
