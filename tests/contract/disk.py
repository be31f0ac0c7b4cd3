"""What tests ask of the system: a small disk that can be filled, and a count of open files.

The disk is a tmpfs, real but for its medium; making one needs the right to mount.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


def open_descriptors() -> int:
    """How many files this process holds open."""
    return sum(1 for _ in Path("/dev/fd").iterdir())


@contextmanager
def small_disk(place: Path, *, size: str) -> Iterator[Path]:
    """An empty file system of `size` at `place`; skips the test where mounting is not allowed."""
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=700", "tmpfs", str(place)]
    try:
        done = subprocess.run(mount, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("no mount command: a full disk cannot be made here")
    if done.returncode != 0:
        pytest.skip(f"mounting a small disk is not allowed here: {done.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)
