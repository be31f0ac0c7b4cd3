"""Copies on one machine: the bytes, the digest of what lies there, holes, and what goes wrong."""

from __future__ import annotations

import errno
import hashlib
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from paddlecloud.client.upload import copy_file
from tests.contract.disk import open_descriptors, small_disk

MIB = 1024 * 1024


@contextmanager
def two_files(source: Path, target: Path) -> Iterator[tuple[int, int]]:
    with source.open("rb") as read, target.open("w+b") as write:
        yield read.fileno(), write.fileno()


def ended() -> None:
    for thread in threading.enumerate():
        if thread.name == "copy":
            thread.join(60)
            assert not thread.is_alive()


@pytest.mark.parametrize("kernel", ["can", "cannot"])
@pytest.mark.parametrize(
    "size", [0, 1, copy_file.BLOCK, copy_file.BLOCK + 1, copy_file.STEP, 2 * copy_file.STEP + 12345]
)
def test_the_copy_is_whole_and_so_is_what_was_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, kernel: str
) -> None:
    if kernel == "cannot":
        monkeypatch.setattr(os, "copy_file_range", _across_file_systems)
    data = os.urandom(size)
    (tmp_path / "source").write_bytes(data)
    heard: list[int] = []
    with two_files(tmp_path / "source", tmp_path / "target") as (source, target):
        got = copy_file.copy_and_hash(source, target, size, flush=True, report=heard.append)
    assert got == hashlib.sha256(data).hexdigest()
    assert (tmp_path / "target").read_bytes() == data
    assert sum(heard) == size
    heard.clear()
    with two_files(tmp_path / "source", tmp_path / "plain") as (source, target):
        copy_file.copy(source, target, size, heard.append)
    assert (tmp_path / "plain").read_bytes() == data
    assert sum(heard) == size


@pytest.mark.parametrize("hashed", [True, False])
@pytest.mark.parametrize("more", [-5, 0, 5])
def test_a_file_that_is_shared_as_a_whole_has_the_size_that_was_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: int, hashed: bool
) -> None:
    """As where a file system can share blocks, which this one may not be able to."""

    def clone(target: int, _request: int, source: int) -> None:
        whole = os.pread(source, 8 * MIB, 0)
        os.pwrite(target, whole, 0)

    monkeypatch.setattr("fcntl.ioctl", clone)
    size = copy_file.BLOCK + 100
    data = os.urandom(size + more)
    (tmp_path / "source").write_bytes(data)
    copy = copy_file.copy_and_hash if hashed else copy_file.copy
    with two_files(tmp_path / "source", tmp_path / "target") as (source, target):
        if more < 0:
            with pytest.raises(copy_file.Shorter):
                copy(source, target, size)
            return
        copy(source, target, size)
    assert (tmp_path / "target").read_bytes() == data[:size]


def _across_file_systems(*_: object) -> int:
    raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))


def test_a_large_copy_is_flushed_and_leaves_nothing_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copy_file, "WORTH_FLUSHING", MIB)
    data = os.urandom(5 * MIB)
    (tmp_path / "source").write_bytes(data)
    before = open_descriptors()
    with two_files(tmp_path / "source", tmp_path / "target") as (source, target):
        copy_file.copy_and_hash(source, target, len(data), flush=True)
    ended()
    assert open_descriptors() <= before
    assert copy_file._flushing == []
    assert (tmp_path / "target").read_bytes() == data


def test_holes_stay_holes(tmp_path: Path) -> None:
    size = 64 * MIB
    with (tmp_path / "source").open("wb") as file:
        file.truncate(size)
        file.seek(20 * MIB)
        file.write(b"x" * MIB)
    with two_files(tmp_path / "source", tmp_path / "target") as (source, target):
        got = copy_file.copy_and_hash(source, target, size)
    want = bytes(20 * MIB) + b"x" * MIB + bytes(43 * MIB)
    assert got == hashlib.sha256(want).hexdigest()
    assert (tmp_path / "target").read_bytes() == want
    assert (tmp_path / "target").stat().st_blocks * 512 < 4 * MIB


@pytest.mark.parametrize("length", [1000, MIB])
def test_a_source_that_became_shorter_is_told(tmp_path: Path, length: int) -> None:
    (tmp_path / "source").write_bytes(b"x" * length)
    files = two_files(tmp_path / "source", tmp_path / "target")
    with files as (source, target), pytest.raises(copy_file.Shorter):
        copy_file.copy_and_hash(source, target, 3 * MIB)
    files = two_files(tmp_path / "source", tmp_path / "target")
    with files as (source, target), pytest.raises(copy_file.Shorter):
        copy_file.copy(source, target, 3 * MIB)


def test_a_kernel_that_copies_nothing_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "copy_file_range", lambda *_: 0)
    data = os.urandom(MIB)
    (tmp_path / "source").write_bytes(data)
    with two_files(tmp_path / "source", tmp_path / "target") as (source, target):
        got = copy_file.copy_and_hash(source, target, MIB)
    assert got == hashlib.sha256(data).hexdigest()
    assert (tmp_path / "target").read_bytes() == data


def test_a_full_disk_is_told(tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(os.urandom(6 * MIB))
    before = open_descriptors()
    with small_disk(tmp_path / "disk", size="3m") as disk:
        files = two_files(tmp_path / "source", disk / "target")
        with files as (source, target), pytest.raises(OSError, match="No space left") as caught:
            copy_file.copy_and_hash(source, target, 6 * MIB)
        assert caught.value.errno == errno.ENOSPC
        ended()
    assert open_descriptors() <= before
