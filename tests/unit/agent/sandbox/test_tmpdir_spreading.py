from __future__ import annotations

import fcntl
import os
import struct
from pathlib import Path

import pytest

from paddlecloud.agent.sandbox import tmpdir


def flags_of(directory: Path) -> int:
    fd = os.open(directory, os.O_RDONLY)
    try:
        answer = fcntl.ioctl(fd, tmpdir._GET_FLAGS, struct.pack("l", 0))
    except OSError:
        pytest.skip("this file system has no such flags")
    finally:
        os.close(fd)
    return int(struct.unpack("l", answer)[0])


def test_a_directory_is_told_once_and_keeps_its_other_flags(tmp_path: Path) -> None:
    before = flags_of(tmp_path)
    tmpdir.spread(tmp_path)
    tmpdir.spread(tmp_path)
    if flags_of(tmp_path) == before:
        pytest.skip("this file system knows no such flag")
    assert flags_of(tmp_path) == before | tmpdir._TOP_DIRECTORY


def test_what_is_not_there_or_no_directory_is_left_alone(tmp_path: Path) -> None:
    tmpdir.spread(tmp_path / "missing")
    file = tmp_path / "file"
    file.write_text("kept")
    tmpdir.spread(file)
    assert file.read_text() == "kept"
