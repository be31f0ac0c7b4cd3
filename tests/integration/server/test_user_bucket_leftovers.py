"""Parts in users' own buckets that nobody joined: ours go after a day; a real S3 server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from paddlecloud.model.errors import Retry, Unreachable
from paddlecloud.server.loops import maintenance
from paddlecloud.server.schemas.transfer import (
    PrivateJoinRequest,
    PrivatePartsRequest,
    PrivateUploadRequest,
)
from paddlecloud.server.services.user_buckets import leftovers
from paddlecloud.server.services.user_buckets import uploads as user_buckets_uploads
from paddlecloud.server.services.user_buckets.uploads import ROOT
from paddlecloud.server.settings import Settings
from paddlecloud.stores.directory.store import DirectoryStore
from paddlecloud.stores.s3.store import S3Store
from tests.contract.stores.open_uploads import open_uploads
from tests.integration.server.conftest import MakeWorld
from tests.integration.server.world import World, a_submit, close_buckets

SIZE = 5 * 1024 * 1024


class Somebody:
    """Who has keys of a bucket, and sends files to a directory of it."""

    def __init__(self, world: World, settings: dict[str, str]) -> None:
        self.world = world
        self.settings = settings
        self.keys = {
            "bos_access_key": settings["access_key"],
            "bos_secret_key": settings["secret_key"],
        }

    def where(self, below: str = "", region: str = "bj") -> dict[str, str]:
        place = f"{self.settings['bucket']}.{region}.bcebos.com/{self.settings['prefix']}{below}"
        return {**self.keys, "bos_url": place}

    def begins(self, name: str = "big", owner: str = "someone", **place: str) -> str:
        """An upload of a file in one part, which is sent."""
        deps, where = self.world.deps, self.where(**place)
        asked = PrivateUploadRequest(**where, path=name, size=SIZE)
        return user_buckets_uploads.begin(deps, owner, asked).upload

    def ages(self, **earlier: float) -> None:
        """All records are older than they were."""
        store = self.world.deps.store
        for record in list(store.list(f"{ROOT}/")):
            modified = record.modified - timedelta(**earlier)
            store.write(record.path, store.read(record.path), modified=modified)

    def submits(self, **place: str) -> None:
        """The server has keys for this directory from now on."""
        where = self.where(**place)
        spec = {"start_cmd": "true", "public_bos": 0, "bos_url": where.pop("bos_url")}
        self.world.user.post("/api/v1/jobs", a_submit(spec) | where)

    def after(self, **later: float) -> int:
        """What is dropped then."""
        return leftovers.prune(self.world.with_clock(self.world.clock() + timedelta(**later)))

    def records(self) -> int:
        return len(list(self.world.deps.store.list(f"{ROOT}/")))


@pytest.fixture
def somebody(make_world: MakeWorld, s3_settings: dict[str, str]) -> Iterator[Somebody]:
    def change(settings: Settings) -> Settings:
        door = replace(settings.private_store, door=s3_settings["endpoint"])
        return replace(settings, private_store=door)

    world = make_world(change=change)
    yield Somebody(world, s3_settings)
    close_buckets(world.deps)


def uploads(bucket: S3Store, name: str = "big") -> set[str]:
    return {upload for upload, _ in open_uploads(bucket, name)}


def test_only_ours_that_are_old_are_dropped(somebody: Somebody, bucket: S3Store) -> None:
    ours = somebody.begins()
    bucket.put_part("big", ours, 1, b"x" * SIZE)
    theirs = bucket.begin_parts("big", part_size=SIZE)
    bucket.put_part("big", theirs, 1, b"x" * SIZE)
    somebody.submits()
    assert somebody.after(hours=23) == 0
    assert uploads(bucket) == {ours, theirs}
    somebody.world.clock.move(hours=25)
    maintenance.tick(somebody.world.deps, somebody.world.clock())
    assert uploads(bucket) == {theirs}
    assert somebody.records() == 0


def test_a_sweep_of_the_server_s_own_store_that_fails_keeps_none_of_them(
    somebody: Somebody, bucket: S3Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> int:
        raise Unreachable("store_stranger", place="there", came="no list")

    somebody.begins()
    somebody.submits()
    somebody.world.clock.move(hours=25)
    monkeypatch.setattr(DirectoryStore, "sweep", fails)
    maintenance.tick(somebody.world.deps, somebody.world.clock())
    assert uploads(bucket) == set()


def test_without_keys_they_stay_until_nobody_will_bring_any(
    somebody: Somebody, bucket: S3Store
) -> None:
    ours = somebody.begins()
    somebody.submits(below="/elsewhere")
    assert somebody.after(days=2) == 0
    assert (uploads(bucket), somebody.records()) == ({ours}, 1)
    assert somebody.after(days=31) == 0
    assert (uploads(bucket), somebody.records()) == ({ours}, 0)


def test_an_upload_that_goes_on_stays(somebody: Somebody, bucket: S3Store) -> None:
    ours = somebody.begins()
    somebody.submits()
    somebody.ages(days=2)
    asked = PrivatePartsRequest(**somebody.where(), path="big", upload=ours, numbers=[1])
    assert user_buckets_uploads.addresses(somebody.world.deps, "someone", asked)
    assert somebody.after(hours=1) == 0
    assert somebody.begins() == ours, "who comes again goes on with it"
    assert somebody.after(hours=25) == 1
    assert uploads(bucket) == set()


def test_that_of_another_user_of_the_same_file_stays(somebody: Somebody, bucket: S3Store) -> None:
    somebody.begins()
    somebody.submits()
    somebody.ages(days=2)
    theirs = somebody.begins(owner="another", below="/")
    assert somebody.after(hours=1) == 1
    assert (uploads(bucket), somebody.records()) == ({theirs}, 1)


def test_one_that_an_earlier_server_began_is_not_gone_on_with_and_dropped(
    somebody: Somebody, bucket: S3Store
) -> None:
    """Its record lies elsewhere, and does not say how large the file is."""
    theirs, deps = bucket.begin_parts("big", part_size=SIZE), somebody.world.deps
    place = somebody.where()["bos_url"]
    record = {"bos_url": place, "path": "big", "upload": theirs}
    deps.store.write(f"{ROOT}/{'0' * 64}/someone", [json.dumps(record).encode()])
    ours = somebody.begins()
    assert uploads(bucket) == {theirs, ours}
    somebody.submits()
    assert somebody.after(days=2) == 2
    assert (uploads(bucket), somebody.records()) == (set(), 0)


def test_one_that_somebody_comes_back_to_while_others_are_dropped_stays(
    somebody: Somebody, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(2):
        somebody.begins(f"file-{number}", below="/")
    somebody.submits()
    somebody.ages(days=2)
    drop = S3Store.drop_parts

    def they_come_back(store: S3Store, path: str, upload: str) -> None:
        drop(store, path, upload)
        for number in range(2):
            somebody.begins(f"file-{number}")

    monkeypatch.setattr(S3Store, "drop_parts", they_come_back)
    assert somebody.after(hours=1) == 1


def test_what_fails_for_one_file_leaves_the_others_their_turn(
    somebody: Somebody, bucket: S3Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        somebody.begins(f"file-{number}")
    somebody.submits()
    drop = S3Store.drop_parts

    def one_fails(store: S3Store, path: str, upload: str) -> None:
        if path == "file-1":
            raise Retry("store_failed", place="there", detail="500")
        drop(store, path, upload)

    monkeypatch.setattr(S3Store, "drop_parts", one_fails)
    assert somebody.after(days=2) == 2
    assert len(uploads(bucket, "file-1")) == 1
    assert somebody.records() == 1


def test_what_is_joined_is_forgotten(somebody: Somebody, bucket: S3Store) -> None:
    ours = somebody.begins()
    part = bucket.put_part("big", ours, 1, b"x" * SIZE)
    asked = PrivateJoinRequest(
        **somebody.where(), path="big", upload=ours, size=SIZE, tags=[part.tag]
    )
    assert somebody.records() == 1
    assert user_buckets_uploads.join(somebody.world.deps, "someone", asked) == SIZE
    assert somebody.records() == 0


def test_a_silent_bucket_is_asked_once_and_the_others_have_their_turn(
    somebody: Somebody, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        somebody.begins(f"file-{number}")
        somebody.begins(f"file-{number}", below="/2")
        somebody.begins(f"file-{number}", region="gz", below="/3")
    somebody.submits()
    somebody.submits(below="/2")
    somebody.submits(region="gz", below="/3")
    asked: list[str] = []
    drop = S3Store.drop_parts

    def some_are_silent(store: S3Store, path: str, upload: str) -> Any:
        asked.append(store.client.place)
        if "/3" not in str(store._prefix):
            raise Unreachable("store_unreachable", place="there", reason="timed out")
        return drop(store, path, upload)

    monkeypatch.setattr(S3Store, "drop_parts", some_are_silent)
    assert somebody.after(days=2) == 3
    assert len(asked) == 4
    assert somebody.records() == 6
    monkeypatch.setattr(S3Store, "drop_parts", drop)
    assert somebody.after(days=2, hours=2) == 6
