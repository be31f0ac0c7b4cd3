"""Uploads that nobody goes on with: nothing of them stays, and nothing else goes with them.

The store here cannot give parts before they are joined, as an object store cannot, and has the
clock of the test.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import replace

import pytest

from paddlecloud.server.http.app import App
from paddlecloud.server.services.admin import garbage_collection
from paddlecloud.server.services.transfer.verification import Verifications
from paddlecloud.stores.base import Stat
from paddlecloud.stores.memory import MemoryStore
from tests.integration.server.conftest import MakeWorld
from tests.integration.server.test_uploads import begun, put
from tests.integration.server.world import World, packed

SIZE = 9 * 1024 * 1024


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def world(make_world: MakeWorld, store: MemoryStore) -> World:
    world = make_world()
    store._clock = world.clock
    world.deps = replace(world.deps, store=store)
    world.app = App(world.deps)
    return world.enter()


def send(world: World, announced: bytes, sent: bytes) -> str:
    digest, state = begun(world, announced)
    size = state["part_size"]
    for number, at in enumerate(range(0, len(sent), size), 1):
        put(world, digest, number, sent[at : at + size])
    return digest


def finish(world: World, digest: str) -> bool:
    return bool(world.user.post(f"/api/v1/uploads/{digest}/finish", {})["stored"])


def join_unchecked(world: World, digest: str) -> None:
    """Its client leaves when the server has read the first bytes of the joined file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Verifications, "sha256", lambda *_: None)
        assert not finish(world, digest)


def blob(digest: str) -> str:
    return f"users/someone/blobs/{digest[:2]}/{digest}"


def test_what_was_joined_and_never_checked_is_never_believed(
    world: World, store: MemoryStore
) -> None:
    good, bad = b"g" * SIZE, b"g" * (SIZE - 1) + b"b"
    digest = send(world, good, bad)
    join_unchecked(world, digest)
    entries = [["model", "file", SIZE, digest, 0, ""]]
    for _ in range(2):
        answer = world.user.post("/api/v1/snapshots", {"entries": entries})
        assert answer["missing"] == [digest]
        world.clock.move(days=2)
        garbage_collection.collect(world.deps)
    assert list(store.list("users/someone/")) == []
    assert begun(world, good)[1]["parts"] == []


def test_what_goes_on_at_the_last_moment_is_kept(
    world: World, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was listed as abandoned, and begun again before it was its turn to go."""
    data = os.urandom(SIZE)
    digest = send(world, data, data)
    join_unchecked(world, digest)
    world.clock.move(days=2)
    listed, real = list(store.list("users/someone/uploads/")), store.list
    begun(world, data)

    def as_before(prefix: str = "") -> Iterator[Stat]:
        return iter(listed) if "/uploads/" in prefix else real(prefix)

    monkeypatch.setattr(store, "list", as_before)
    garbage_collection.collect(world.deps)
    assert store.stat(listed[0].path) is not None
    assert finish(world, digest)
    assert b"".join(store.read(blob(digest))) == data


def test_a_check_is_not_abandoned_however_long_the_parts_took(world: World) -> None:
    data = os.urandom(SIZE)
    digest = send(world, data, data)
    world.clock.move(hours=23)
    join_unchecked(world, digest)
    world.clock.move(hours=2)
    garbage_collection.collect(world.deps)
    assert finish(world, digest)


def test_a_good_content_outlives_an_upload_of_another_size(
    world: World, store: MemoryStore
) -> None:
    digest = hashlib.sha256(b"good").hexdigest()
    world.user.post("/api/v1/uploads", {"sha256": digest, "size": SIZE})
    world.user.post("/api/v1/blobs", packed(b"good"))
    world.clock.move(days=2)
    garbage_collection.collect(world.deps)
    assert list(store.list("users/someone/uploads/")) == []
    assert store.stat(blob(digest)) is not None
