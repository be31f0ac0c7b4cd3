"""Snapshots that name a damaged content, on every engine: found, out of use, and in use again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from paddlecloud.db.engine.base import Database, Tx
from paddlecloud.db.tables import snapshots
from paddlecloud.model.files.snapshot import Entry, Snapshot, snapshot_of
from tests.unit.db.values import ENGINES, NOW, SECOND, opened

BAD, GOOD = "b" * 64, "a" * 64


@pytest.fixture(params=sorted(ENGINES))
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    with opened(request.param, tmp_path) as database:
        yield database


def with_files(**files: str) -> Snapshot:
    return snapshot_of(Entry(path=path, size=1, sha256=sha) for path, sha in files.items())


def test_what_names_a_content_goes_out_of_use_until_it_is_put_again(db: Database) -> None:
    hit, spared = with_files(a=BAD, b=GOOD), with_files(a=GOOD, **{BAD: GOOD})

    def put(tx: Tx) -> None:
        for owner, snapshot in (("ann", hit), ("ann", spared), ("bob", hit)):
            snapshots.put_snapshot(tx, owner, snapshot, NOW)

    db.write(put)
    assert db.read(lambda tx: snapshots.naming(tx, "ann", BAD, 5)) == [hit.id]
    assert len(db.read(lambda tx: snapshots.naming(tx, "ann", GOOD, 1))) == 1
    assert db.write(lambda tx: snapshots.take_out_of_use(tx, "ann", BAD)) == 1

    def used(owner: str, snapshot: Snapshot) -> bool:
        return db.write(lambda tx: snapshots.touch(tx, owner, snapshot.id, NOW + SECOND))

    assert (used("ann", hit), used("ann", spared), used("bob", hit)) == (False, True, True)
    assert db.read(lambda tx: snapshots.last_use(tx, "ann", hit.id)) is None
    assert db.read(lambda tx: snapshots.get_snapshot(tx, "ann", hit.id)) == hit
    db.write(lambda tx: snapshots.put_snapshot(tx, "ann", hit, NOW))
    assert used("ann", hit)
