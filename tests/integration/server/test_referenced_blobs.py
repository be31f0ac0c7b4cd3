"""What collections remember of snapshots is what the snapshots name, whatever came and went."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from paddlecloud.db.engine.base import Database, Tx
from paddlecloud.db.tables import snapshots
from paddlecloud.model.files.snapshot import Entry, Snapshot, snapshot_of
from paddlecloud.server.services.admin import garbage_collection
from paddlecloud.server.services.files.referenced_blobs import ReferencedBlobs
from tests.integration.server.world import World
from tests.unit.db.values import ENGINES, NOW, opened

FAR = NOW + timedelta(days=9)


@pytest.fixture(params=sorted(ENGINES))
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    with opened(request.param, tmp_path) as database:
        yield database


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Ids of snapshots that were taken apart."""
    found: list[str] = []
    real = snapshots.get_digests

    def get(tx: Tx, owner: str, snapshot_id: str) -> set[str] | None:
        found.append(snapshot_id)
        return real(tx, owner, snapshot_id)

    monkeypatch.setattr(snapshots, "get_digests", get)
    return found


def digest(number: int) -> str:
    return f"{number:064x}"


def put(db: Database, *numbers: int, at: int = 0) -> Snapshot:
    made = snapshot_of(Entry(path=f"{n}", size=1, sha256=digest(n)) for n in numbers)
    when = NOW + timedelta(seconds=at)
    db.write(lambda tx: snapshots.put_snapshot(tx, "ann", made, when))
    return made


def delete(db: Database, *gone: Snapshot) -> None:
    for one in gone:
        assert db.write(
            partial(snapshots.delete_snapshot, owner="ann", snapshot_id=one.id, before=FAR)
        )


def named_of(known: ReferencedBlobs, most: int = 100) -> set[int]:
    return {number for number in range(most) if digest(number) in known}


def test_each_snapshot_is_read_once(db: Database, read: list[str]) -> None:
    known = ReferencedBlobs("ann")
    first = put(db, 1, 2)
    known.refresh(db)
    second = put(db, 2, 3, at=1)
    known.refresh(db)
    known.refresh(db)
    assert (read, named_of(known)) == ([first.id, second.id], {1, 2, 3})


def test_the_oldest_go_and_none_is_read_again(db: Database, read: list[str]) -> None:
    made = [put(db, number, number + 1, 50, at=number) for number in range(10)]
    known = ReferencedBlobs("ann")
    known.refresh(db)
    read.clear()
    delete(db, *made[:3])
    known.refresh(db)
    assert (read, named_of(known)) == ([], {*range(3, 11), 50})


def test_one_that_goes_early_has_older_ones_read_again_once(db: Database, read: list[str]) -> None:
    made = [put(db, number, 50, at=number) for number in range(6)]
    known = ReferencedBlobs("ann")
    known.refresh(db)
    read.clear()
    delete(db, made[3])
    known.refresh(db)
    assert read == [one.id for one in made[:3]]
    delete(db, made[0], made[5])
    known.refresh(db)
    assert named_of(known) == {1, 2, 4, 50}


def test_a_collection_reads_what_is_new_since_the_last(world: World, read: list[str]) -> None:
    first = world.snapshot({"a": b"1"})
    world.submit(snapshot=first)
    world.clock.move(days=400)
    garbage_collection.collect(world.deps)
    second = world.snapshot({"a": b"1", "b": b"2"})
    world.submit(snapshot=second)
    for _ in range(2):
        garbage_collection.collect(world.deps)
    assert {first, second} <= set(read)
    assert len(read) == len(set(read))


@pytest.mark.parametrize("seed", range(5))
def test_it_is_what_the_snapshots_name_whatever_came_and_went(db: Database, seed: int) -> None:
    chance = random.Random(seed)
    known, there = ReferencedBlobs("ann"), dict[str, tuple[Snapshot, set[int]]]()
    for step in range(60):
        for _ in range(chance.randrange(3)):
            numbers = set(chance.sample(range(30), chance.randint(1, 6)))
            made = put(db, *sorted(numbers), at=chance.randrange(1000))
            there[made.id] = made, numbers
        for snapshot_id in chance.sample(sorted(there), min(len(there), chance.randrange(3))):
            delete(db, there.pop(snapshot_id)[0])
        if chance.random() < 0.7 or step == 59:
            known.refresh(db)
            assert named_of(known) == set().union(*(numbers for _, numbers in there.values()))


def test_one_that_goes_while_it_is_looked_at_is_noticed_the_next_time(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, between, new = put(db, 1, 7), put(db, 2, 7, at=1), put(db, 3, 7, at=2)
    known = ReferencedBlobs("ann")
    known.refresh(db)
    delete(db, new)
    real = snapshots.get_digests

    def get(tx: Tx, owner: str, snapshot_id: str) -> set[str] | None:
        return None if snapshot_id == old.id else real(tx, owner, snapshot_id)

    monkeypatch.setattr(snapshots, "get_digests", get)
    known.refresh(db)
    delete(db, old)
    known.refresh(db)
    assert named_of(known) == {2, 7}
    delete(db, between)
    known.refresh(db)
    assert len(known) == 0


def test_many_of_the_same_contents_take_no_more_memory_than_one(db: Database) -> None:
    known = ReferencedBlobs("ann")
    put(db, *range(500))
    known.refresh(db)
    for version in range(20):
        put(db, *range(500), 1000 + version)
    tracemalloc.start()
    try:
        known.refresh(db)
        grown, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(known) == 520
    assert grown < 64 * 500
