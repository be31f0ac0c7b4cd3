"""What a collection does where a store fails: others are seen to, and nobody waits for long."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from paddlecloud.model.errors import Unreachable
from paddlecloud.server.services.admin import garbage_collection
from paddlecloud.stores.base import Stat
from paddlecloud.stores.deadline import is_prompt
from tests.integration.server.world import World, packed


def leave_a_content(world: World, *owners: str) -> None:
    """For each of these users one that no snapshot ever named."""
    for owner in owners:
        world.caller(owner).post("/api/v1/blobs", packed(owner.encode()))


def contents(world: World, owner: str) -> list[Stat]:
    return list(world.deps.store.list(f"users/{owner}/blobs/"))


def fail_for(
    world: World, monkeypatch: pytest.MonkeyPatch, owner: str, error: Exception
) -> list[str]:
    """What is listed, until the files of this owner cannot be."""
    real, listed = world.deps.store.list, list[str]()

    def fails(prefix: str = "") -> Iterator[Stat]:
        listed.append(prefix)
        if prefix.startswith(f"users/{owner}/blobs"):
            raise error
        return real(prefix)

    monkeypatch.setattr(world.deps.store, "list", fails)
    return listed


def test_one_owner_whose_files_cannot_be_listed_stops_no_collection(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    leave_a_content(world, "ann", "bob", "cyd")
    world.clock.move(days=30)
    with monkeypatch.context() as patch:
        fail_for(world, patch, "bob", OSError(5, "Input/output error"))
        assert garbage_collection.collect(world.deps).bytes == len(b"ann" + b"cyd")
    assert [len(contents(world, owner)) for owner in ("ann", "bob", "cyd")] == [0, 1, 0]
    assert "bob" in caplog.text
    assert "Input/output error" in caplog.text


def test_a_store_that_is_away_is_not_asked_for_every_owner(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_a_content(world, "ann", "bob")
    world.clock.move(days=30)
    away = Unreachable("store_unreachable", place="there", reason="no answer")
    listed = fail_for(world, monkeypatch, "ann", away)
    with pytest.raises(Unreachable):
        garbage_collection.collect(world.deps)
    assert not any(prefix.startswith("users/bob/") for prefix in listed)


def test_whoever_waits_for_a_deletion_does_so_for_seconds(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for a collection, but submits wait while one file goes."""
    leave_a_content(world, "ann")
    held = "users/ann/uploads/" + "0" * 64
    world.deps.store.write(held, [b"{}"])
    world.clock.move(days=30)
    seen: dict[str, bool] = {}
    real = world.deps.store.delete

    def delete(path: str) -> None:
        seen[path] = is_prompt()
        real(path)

    monkeypatch.setattr(world.deps.store, "delete", delete)
    content = contents(world, "ann")[0].path
    garbage_collection.collect(world.deps)
    assert seen == {content: True, held: True}
    assert not is_prompt()
