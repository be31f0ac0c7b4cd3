"""The life cycle that all multipart uploads share, and records that earlier servers wrote."""

from __future__ import annotations

import hashlib
import json
from types import SimpleNamespace
from typing import Any

import pytest

from paddlecloud.model.errors import Invalid, NotFound
from paddlecloud.server.services.transfer import open_uploads
from paddlecloud.server.services.transfer.open_uploads import Record
from paddlecloud.server.services.transfer.uploads import State, Upload
from paddlecloud.server.services.transfer.verification import Verifications
from paddlecloud.stores.memory import MemoryStore

DATA = b"abc"
SHA256 = hashlib.sha256(DATA).hexdigest()


class Plain(Upload):
    """Goes to a store whose parts cannot be read before they are joined."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        deps: Any = SimpleNamespace(store=self.store, verifications=Verifications())
        super().__init__(deps, owner="me", store=self.store, path="file", record_path="record")
        self.events: list[str] = []

    def begin(self) -> State:
        record = Record(upload=self.start(2), size=len(DATA), part_size=2)
        open_uploads.write(self.deps, self.record_path, record)
        return State(record=record)

    def before_join(self, record: Record) -> bool:
        assert self.store.stat("file") is None
        self.events.append("before")
        return False

    def completed(self, record: Record) -> None:
        assert self.store.stat("file") is not None
        self.events.append("completed")


def found(upload: Upload) -> State:
    state = upload.find()
    assert state is not None
    return state


def test_a_file_gets_its_name_when_all_parts_are_there() -> None:
    upload = Plain()
    assert upload.find() is None
    upload.begin()
    upload.put_part(upload.open(), 2, DATA[2:])
    assert found(upload).numbers() == [2]
    with pytest.raises(Invalid) as caught:
        upload.complete(found(upload), SHA256)
    assert caught.value.code == "upload_incomplete"
    upload.put_part(upload.open(), 1, DATA[:2])
    assert upload.complete(found(upload), SHA256)
    assert upload.events == ["before", "completed"]
    assert b"".join(upload.store.read("file")) == DATA


def test_a_verification_that_takes_long_is_continued(monkeypatch: pytest.MonkeyPatch) -> None:
    upload = Plain()
    upload.begin()
    for number in (1, 2):
        upload.put_part(upload.open(), number, DATA[2 * number - 2 : 2 * number])
    with monkeypatch.context() as patch:
        patch.setattr(Verifications, "sha256", lambda *_: None)
        assert not upload.complete(found(upload), SHA256)
    assert found(upload).file is not None
    assert found(upload).numbers() == [1, 2]
    with pytest.raises(NotFound):
        upload.put_part(upload.open(), 1, DATA[:2])
    assert upload.complete(found(upload), SHA256)
    assert upload.events == ["before", "completed"]


def test_parts_of_an_upload_that_is_gone_or_another_are_not_taken() -> None:
    upload = Plain()
    first = upload.begin().record
    upload.abort(first, is_joined=False)
    with pytest.raises(NotFound):
        upload.put_part(upload.open(first.upload), 1, DATA[:2])
    second = upload.begin().record
    assert upload.open(second.upload) == upload.open() == second
    with pytest.raises(NotFound):
        upload.open(first.upload)


def test_other_bytes_get_no_name() -> None:
    upload = Plain()
    upload.begin()
    for number in (1, 2):
        upload.put_part(upload.open(), number, DATA[2 * number - 2 : 2 * number])
    with pytest.raises(Invalid) as caught:
        upload.complete(found(upload), "0" * 64)
    assert (caught.value.code, upload.events) == ("blob_digest", ["before"])


def test_a_store_without_presigned_urls_gives_none() -> None:
    upload = Plain()
    assert upload.presign("one", [1, 2], open_uploads.TOUCH) == []


@pytest.mark.parametrize(
    "written",
    [
        {"upload": "u", "size": 3, "part_size": 2},
        {
            "replica": "r",
            "fence": 4,
            "size": 3,
            "mtime": 1.5,
            "part_size": 2,
            "upload": "u",
            "sha256": "",
        },
        {"bos_url": "b.bj.bcebos.com/x", "path": "big", "upload": "u"},
    ],
    ids=["of a blob", "of an output", "in a user's bucket"],
)
def test_records_of_earlier_servers_are_read(written: dict[str, Any]) -> None:
    deps: Any = SimpleNamespace(store=MemoryStore())
    deps.store.write("record", [json.dumps(written).encode()])
    record = open_uploads.read(deps, "record")
    assert record is not None
    assert {name: getattr(record, name) for name in written} == written
