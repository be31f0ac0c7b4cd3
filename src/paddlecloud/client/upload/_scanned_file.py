"""A scanned file that is read to be sent, as long as it is what was scanned."""

from __future__ import annotations

import os

from paddlecloud.client.file_names import shown
from paddlecloud.client.scan.walk import stamp, unreadable
from paddlecloud.model.errors import Conflict

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Self


class ScannedFile:
    """Belongs to one thread at a time. Conflict("files_changed") when it changed since the scan."""

    def __init__(self, path: str, size: int, scanned: str, name: str = "") -> None:
        """`scanned` is its stamp at the scan; `name`, if not `path`, is for messages."""
        self.size = size
        self._path = path
        self._scanned = scanned
        self._name = name or path
        try:
            self._file = open(path, "rb", buffering=0)  # noqa: PTH123, SIM115 - no pathlib; see close
        except OSError as error:
            raise unreadable(path, error) from None

    @property
    def allocated(self) -> int | None:
        """The bytes that it takes on the disk, fewer if it has holes; None where unknown."""
        blocks: int | None = getattr(os.fstat(self._file.fileno()), "st_blocks", None)
        return None if blocks is None else blocks * 512

    def read(self, begin: int, buffer: memoryview) -> None:
        """Fill the buffer with the bytes from `begin` on."""
        try:
            self._file.seek(begin)
            got = 0
            while got < len(buffer) and (count := self._file.readinto(buffer[got:])):
                got += count
        except OSError as error:
            raise unreadable(self._path, error) from None
        if got < len(buffer):
            raise Conflict("files_changed", path=shown(self._name))
        self.check()

    def check(self) -> None:
        try:
            now = stamp(os.fstat(self._file.fileno()))
        except OSError as error:
            raise unreadable(self._path, error) from None
        if now != self._scanned:
            raise Conflict("files_changed", path=shown(self._name))

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
