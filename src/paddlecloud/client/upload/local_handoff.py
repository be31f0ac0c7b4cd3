"""Copies big files into the store of the embedded server instead of sending them.

The server names a fresh directory in its store that only its own user can enter. A file is copied
there while its digest is taken, and gets that digest as its name; the server then makes it a blob
without reading it again, because its user could write anywhere in the store. Where this is not
possible, files are sent as to any server.
"""

# pathlib costs 8 ms at every submit:
# ruff: noqa: PTH106

from __future__ import annotations

import os
import stat
from contextlib import suppress

from paddlecloud.client import response_schemas
from paddlecloud.client.file_names import shown
from paddlecloud.client.scan.walk import stamp, unreadable
from paddlecloud.model.errors import Conflict, NotFound

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddlecloud.client.scan.walk import Source
    from paddlecloud.client.transport import Transport
    from paddlecloud.client.upload.copy_file import Report

#: Bytes that are copied before it is known whether the server lacks them.
AHEAD = 8 * 1024**3
_DIRECTORY: int = getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)


class LocalHandoff:
    """The files that one submit copies. The server is not asked before the first big one."""

    def __init__(self, transport: Transport, *, near: bool) -> None:
        """`near`: the server is the embedded one; any other is not asked."""
        self._transport = transport
        self._name = ""
        """Of the directory, on the server."""
        self._path = ""
        self._directory = -1
        self._possible = near
        self._held: set[str] = set()
        self._ahead = 0

    def read(self, file: int, status: os.stat_result, report: Report | None = None) -> str:
        """The sha256 of an open file, which is copied at the same time; empty: neither was done.

        It is not known yet whether the server lacks it, so there has to be twice its space.
        `report` is called with the bytes that were read.
        """
        if not self._open():
            return ""
        space = status.st_blocks * 512  # not on Windows, which has no embedded server
        free = os.fstatvfs(self._directory)
        if self._ahead + space > AHEAD or free.f_bavail * free.f_frsize <= 2 * space:
            return ""
        self._ahead += space
        return self._take(file, status.st_size, report)

    def give(self, sha256: str, source: Source) -> bool:
        """Have the server adopt a file; False: it has to be sent.

        Conflict("files_changed") when it is not any more the one that was read.
        """
        if not self._open() or (sha256 not in self._held and not self._fetch(sha256, source)):
            return False
        request = {"sha256": sha256, "size": source[1], "handed": self._name}
        post = self._transport.post
        answer = post("/uploads", request, schema=response_schemas.UPLOAD, idempotent=True)
        self._held.discard(sha256)
        return bool(answer["stored"])

    def close(self) -> None:
        """Delete what was not adopted; the server sweeps what a killed process leaves."""
        directory, self._directory = self._directory, -1
        self._possible = False
        if directory < 0:
            return
        with suppress(OSError):
            for name in os.listdir(directory):  # noqa: PTH208 - see the top
                os.unlink(name, dir_fd=directory)
            os.rmdir(self._path)
        os.close(directory)

    def __enter__(self) -> LocalHandoff:
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
        """Ask for a directory; one that other users could enter is not used."""
        from fcntl import LOCK_NB, LOCK_SH, flock  # noqa: PLC0415 - only big files, and no Windows

        post = self._transport.post
        place = post("/uploads/place", {}, schema=response_schemas.HANDING, idempotent=True)
        path, name = place.get("path", ""), place.get("name", "")
        if not path or "\0" in path:
            return
        directory = os.open(path, os.O_RDONLY | _DIRECTORY)
        found = os.fstat(directory)
        if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
            os.close(directory)
            return
        # Locked until this process ends, so that the server does not sweep it. Where the file
        # system has no such lock the server cannot take it either, and waits for a day.
        with suppress(OSError):
            flock(directory, LOCK_SH | LOCK_NB)
        self._name, self._path, self._directory = name, path, directory

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

    def _take(self, file: int, size: int, report: Report | None = None) -> str:
        """Copy an open file there; its digest, which is its name there. Empty: no space."""
        from paddlecloud.client.upload.copy_file import copy_and_hash  # noqa: PLC0415 - only big files

        part = f"part-{len(self._held)}-{self._ahead}"
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC
        try:
            copy = os.open(part, flags, 0o600, dir_fd=self._directory)
            try:
                sha256 = copy_and_hash(file, copy, size, flush=True, report=report)
            finally:
                os.close(copy)
            os.rename(part, sha256, src_dir_fd=self._directory, dst_dir_fd=self._directory)
        except OSError:
            # No space, or no such file any more: sending it finds out, and reports it.
            with suppress(OSError):
                os.unlink(part, dir_fd=self._directory)
            return ""
        self._held.add(sha256)
        return sha256
