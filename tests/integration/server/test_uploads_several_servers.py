"""Uploads to two servers of one store: neither spoils what the other has taken in since.

The store cannot give parts before they are joined, as an object store cannot.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from dataclasses import replace

import pytest

from paddlecloud.model.errors import Invalid, NotFound
from paddlecloud.server.deps import Deps
from paddlecloud.server.schemas.transfer import PartsAnswer, PartsRequest
from paddlecloud.server.services.files import snapshots
from paddlecloud.server.services.transfer import blobs
from paddlecloud.server.services.transfer.uploads import State
from paddlecloud.server.services.transfer.verification import Verifications
from paddlecloud.stores.base import Part
from paddlecloud.stores.memory import MemoryStore
from tests.integration.server.world import World, packed

OWNER = "someone"
SIZE = 9 * 1024 * 1024
GOOD = os.urandom(SIZE)
BAD = GOOD[:-1] + bytes([GOOD[-1] ^ 1])
DIGEST = hashlib.sha256(GOOD).hexdigest()
BLOB = snapshots.blob_path(OWNER, DIGEST)
RECORD = f"users/{OWNER}/uploads/{DIGEST}"


def two_servers(world: World, store: MemoryStore) -> tuple[Deps, Deps]:
    first = replace(world.deps, store=store)
    return first, replace(first, verifications=Verifications())


@pytest.fixture
def servers(world: World) -> tuple[Deps, Deps]:
    return two_servers(world, MemoryStore())


def begin(deps: Deps) -> PartsAnswer:
    return blobs.begin(deps, OWNER, PartsRequest(sha256=DIGEST, size=SIZE))


def put(deps: Deps, number: int, data: bytes) -> None:
    upload = blobs.BlobUpload(deps, OWNER, DIGEST)
    record = upload.open()
    size = record.part_size
    upload.put_part(record, number, data[(number - 1) * size : number * size])


def send(deps: Deps, data: bytes) -> None:
    assert begin(deps).parts == []
    for number in (1, 2):
        put(deps, number, data)


def finish(deps: Deps) -> bool:
    return blobs.finish(deps, OWNER, DIGEST)


def join_unchecked(deps: Deps) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Verifications, "sha256", lambda *_: None)
        assert not finish(deps)


def find_wrong(deps: Deps) -> None:
    with pytest.raises(Invalid) as caught:
        finish(deps)
    assert caught.value.code == "blob_digest"


def test_a_snapshot_never_names_a_content_that_is_found_wrong_meanwhile(world: World) -> None:
    class Store(MemoryStore):
        def sizes(self, paths: Iterable[str]) -> dict[str, int]:
            found = super().sizes(paths)
            self.delete(BLOB)  # as the check at another server does
            self.delete(RECORD)
            return found

    deps, _ = two_servers(world, Store())
    send(deps, BAD)
    join_unchecked(deps)
    missing = snapshots.offer(deps, OWNER, [("model", "file", SIZE, DIGEST, 0, "")]).missing
    assert missing == [DIGEST]


def test_an_upload_that_began_anew_elsewhere_is_gone_on_with(servers: tuple[Deps, Deps]) -> None:
    here, there = servers
    send(here, BAD)
    find_wrong(there)
    assert begin(there).parts == []
    put(there, 2, GOOD)
    with pytest.raises(Invalid) as caught:
        finish(here)
    assert (caught.value.code, caught.value.params["missing"]) == ("upload_incomplete", 1)
    assert begin(here).parts == [2]
    put(here, 1, GOOD)
    assert finish(there)
    assert finish(here)
    assert here.store.stat(RECORD) is None


def test_the_record_of_a_new_upload_outlives_one_whose_parts_are_gone(world: World) -> None:
    """Between the look at the record and that at the parts, another server has begun anew."""
    told: list[str] = []

    class Store(MemoryStore):
        def parts(self, path: str, upload: str) -> list[Part]:
            if told:
                other = told.pop()
                self.drop_parts(path, upload)
                blobs.begin(there, OWNER, PartsRequest(sha256=other, size=SIZE))
            return list(super().parts(path, upload))

    here, there = two_servers(world, Store())
    send(here, BAD)
    told.append(DIGEST)
    with pytest.raises(NotFound):
        finish(here)
    assert here.store.stat(RECORD) is not None
    for number in (1, 2):
        put(there, number, GOOD)
    assert finish(here)


def test_good_bytes_outlive_the_late_check_of_wrong_ones(
    servers: tuple[Deps, Deps], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = servers
    send(here, BAD)
    join_unchecked(here)
    real = Verifications.sha256

    def late(*_: object) -> str:
        """All of it was read here before it went there."""
        monkeypatch.setattr(Verifications, "sha256", real)
        find_wrong(there)
        send(there, GOOD)
        assert finish(there)
        return "of the wrong bytes"

    monkeypatch.setattr(Verifications, "sha256", late)
    find_wrong(here)
    assert b"".join(here.store.read(BLOB)) == GOOD


def test_nothing_gets_its_name_unchecked_and_without_a_record(
    servers: tuple[Deps, Deps], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was abandoned for a day, and goes just when somebody comes to finish it."""
    here, _ = servers
    send(here, BAD)
    monkeypatch.setattr(State, "check_whole", lambda state: here.store.delete(RECORD))
    with pytest.raises(NotFound):
        finish(here)
    assert here.store.stat(BLOB) is None


def arrives_whole(deps: Deps) -> None:
    """By the way of small files."""
    receiver = snapshots.Receiver(deps, OWNER)
    receiver.feed(packed(GOOD))
    receiver.finish()
    receiver.close()


def is_submitted(deps: Deps) -> bool:
    return snapshots.offer(deps, OWNER, [("model", "file", SIZE, DIGEST, 0, "")]).missing == []


def test_another_size_than_that_of_a_content_begins_no_upload(servers: tuple[Deps, Deps]) -> None:
    here, _ = servers
    arrives_whole(here)
    assert is_submitted(here)
    with pytest.raises(Invalid) as caught:
        blobs.begin(here, OWNER, PartsRequest(sha256=DIGEST, size=SIZE - 1))
    assert caught.value.code == "upload_size"
    assert caught.value.params == {"got": SIZE - 1, "want": SIZE}
    assert begin(here).stored
    assert b"".join(here.store.read(BLOB)) == GOOD


def test_wrong_parts_take_no_content_away_that_came_meanwhile(
    servers: tuple[Deps, Deps],
) -> None:
    here, there = servers
    send(here, BAD)
    arrives_whole(there)
    assert not is_submitted(there), "it may be that of the parts"
    assert finish(here)
    assert b"".join(here.store.read(BLOB)) == GOOD
    assert here.store.stat(RECORD) is None
    assert is_submitted(there)


def test_parts_of_another_size_take_no_content_away_that_came_meanwhile(
    servers: tuple[Deps, Deps],
) -> None:
    here, there = servers
    blobs.begin(here, OWNER, PartsRequest(sha256=DIGEST, size=1))
    put(here, 1, b"x")
    arrives_whole(there)
    with pytest.raises(Invalid) as caught:
        finish(here)
    assert (caught.value.code, caught.value.params["want"]) == ("upload_size", SIZE)
    assert b"".join(here.store.read(BLOB)) == GOOD
    assert is_submitted(there)
