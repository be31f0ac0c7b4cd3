"""Uploads in parts as a server has them in its mind: the ones that go on stay there."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from paddlecloud.model.errors import Invalid, NotFound, Retry
from paddlecloud.server.services.transfer import upload_session
from paddlecloud.server.services.transfer.upload_session import Record, Target, Upload, Uploads
from paddlecloud.stores.base import Part, Reader
from paddlecloud.stores.memory import MemoryStore


def an_upload(name: str, path: str = "there") -> Upload:
    target = Target(owner="me", sha256="", path=path, record=name)
    return Upload(target, Record(upload=name, size=3, part_size=2))


def test_whoever_goes_on_is_not_forgotten_for_newcomers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upload_session, "KEPT", 2)
    uploads, long, short = Uploads(), an_upload("long"), an_upload("short")
    uploads.put(long)
    uploads.put(short)
    assert uploads.get(long.target) is long
    uploads.put(an_upload("new"))
    assert uploads.get(long.target) is long
    assert uploads.get(short.target) is None


def test_nothing_is_let_in_while_the_whole_is_checked() -> None:
    store = MemoryStore()
    upload = an_upload(store.begin_parts("x", part_size=2), path="x")
    with upload.closed() as closed, pytest.raises(Retry) as caught:
        assert closed
        upload.put(store, 1, b"ab")
    assert caught.value.code == "upload_closing"
    upload.put(store, 1, b"ab")
    with pytest.raises(Invalid) as missing:
        upload.check_whole()
    assert missing.value.params == {"got": 2, "want": 3, "missing": 2}
    upload.put(store, 2, b"c")
    upload.check_whole()


def test_it_is_not_checked_while_a_part_is_being_written() -> None:
    told: list[bool] = []

    class Slow(MemoryStore):
        def put_part(self, *given: Any, **more: Any) -> Part:
            with upload.closed() as closed:
                told.append(closed)
            return super().put_part(*given, **more)

    store = Slow()
    upload = an_upload(store.begin_parts("x", part_size=2), path="x")
    upload.put(store, 1, b"ab")
    assert (told, upload.there) == ([False], {1: 2})


def test_an_upload_that_is_gone_is_forgotten() -> None:
    uploads, upload = Uploads(), an_upload("of nobody")
    uploads.put(upload)
    with pytest.raises(NotFound):
        uploads.put_part(upload, MemoryStore(), 1, b"ab")
    assert uploads.get(upload.target) is None


class Breaking(MemoryStore):
    """What is read from it breaks off after the first byte, so many times."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.times = times

    def read(self, path: str, offset: int = 0, length: int | None = None) -> Reader:
        whole = super().read(path, offset, length)
        given: list[int] = []

        def read(_size: int) -> bytes:
            if given and self.times:
                self.times -= 1
                raise Retry("store_failed", place="there", detail="for a moment")
            given.append(1)
            return whole._read(1)

        return Reader(whole.stat, whole.length, read, whole.close)


def test_a_joined_file_that_could_not_be_read_for_a_moment_is_read_again() -> None:
    store = Breaking(times=2)
    store.write("x", [b"abc"])
    upload = an_upload("joined", path="x")
    upload.joined = True
    digest = hashlib.sha256(b"abc").hexdigest()
    for _ in range(2):
        with pytest.raises(Retry):
            upload.checked(store, digest)
    assert upload.checked(store, digest)
    assert upload.checked(store, digest)
