"""Atomic writes: a file appears complete or not at all."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import BinaryIO


class SafeFile:
    """Written under a hidden name in the same directory; `commit` flushes and renames it.

    As a context manager it commits at the end and aborts on an exception.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        name = f".{self.path.name}.{os.urandom(4).hex()}.part"
        self._part = self.path.with_name(name)
        self.file: BinaryIO = self._part.open("xb")

    def __enter__(self) -> BinaryIO:
        return self.file

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.commit()
        else:
            self.abort()

    def commit(self) -> None:
        try:
            self.file.flush()
            os.fsync(self.file.fileno())
            self.file.close()
            self._part.replace(self.path)
        except BaseException:
            self.abort()
            raise
        if os.name != "nt":  # a directory cannot be opened there
            directory = os.open(self.path.parent, os.O_RDONLY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)

    def abort(self) -> None:
        """Delete the hidden file; does nothing after `commit`."""
        with contextlib.suppress(OSError):
            self.file.close()
        self._part.unlink(missing_ok=True)
