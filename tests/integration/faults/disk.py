"""A small disk below a home: mounted for real, filled to the last page, emptied or made larger."""

from __future__ import annotations

import errno
import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from paddlecloud.stores.directory.safe_open import free_bytes
from tests.contract.disk import small_disk
from tests.integration.faults.home import Home


class Disk:
    def __init__(self, place: Path) -> None:
        self.place = place
        self._filler = place / "filler"

    def is_full(self) -> bool:
        return os.statvfs(self.place).f_bavail == 0

    def is_full_for_files(self) -> bool:
        """Nothing is left but what the store keeps free for the database."""
        fd = os.open(self.place, os.O_RDONLY)
        try:
            return free_bytes(fd) < os.fstatvfs(fd).f_frsize
        finally:
            os.close(fd)

    def fill(self) -> None:
        """Take what is left."""
        fd = os.open(self._filler, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            while True:
                os.write(fd, bytes(4096))
        except OSError as error:
            assert error.errno == errno.ENOSPC
        finally:
            os.close(fd)

    def empty(self) -> None:
        """Give back what `fill` took."""
        self._filler.unlink()

    def grow(self, size: str) -> None:
        command = ["mount", "-o", f"remount,size={size}", str(self.place)]
        subprocess.run(command, check=True)


@contextmanager
def disk_for(home: Home, part: str, size: str) -> Iterator[Disk]:
    """A disk of its own for a directory of a home, or for all of it (""); the home is cleared."""
    place = home.path / part if part else home.path
    place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with small_disk(place, size=size):
        try:
            yield Disk(place)
        finally:
            home.clear()


def diagnosis(home: Home) -> dict[str, Any]:
    """What `doctor` finds broken: the link and its words; {} when everything works."""
    done = home.run("doctor", "--json")
    answer: dict[str, Any] = json.loads(done.stdout)
    assert answer["ok"] is (done.returncode == 0), done
    return {} if answer["ok"] else answer["checks"][-1]
