"""A disk that others filled: a few writes still go through, by what was kept back for them."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from paddlecloud.db.engine.base import Database, Tx
from paddlecloud.db.engine.disk_reserve import MIN_FREE_FACTOR, STEPS, Reserve
from paddlecloud.db.engine.sqlite import open_sqlite
from paddlecloud.model.errors import StorageFull
from tests.contract.disk import small_disk
from tests.unit.db.values import NOW

SIZE = 1 << 20


def put(tx: Tx, name: str, size: int) -> int:
    return tx.execute("insert into counters (name, value) values (?, 0)", (name + "x" * size,))


def grow(db: Database, pages: int, name: str = "row") -> None:
    """Rows in new pages, which are in the log and not yet in the database's own file."""
    db.write(lambda tx: [put(tx, f"{name}-{number}-", 4000) for number in range(pages)])


def fill(path: Path) -> None:
    with path.open("ab", buffering=0) as file, pytest.raises(OSError, match="space"):
        while True:
            file.write(b"x" * 4096)


def test_without_it_a_full_disk_takes_nothing(tmp_path: Path) -> None:
    with (
        small_disk(tmp_path / "disk", size="8m") as disk,
        closing(open_sqlite(disk / "x.db", now=NOW)) as db,
    ):
        grow(db, 600)
        fill(disk / "ballast")
        with pytest.raises(StorageFull):
            db.write(lambda tx: put(tx, "urgent", 10))
        assert [path.name for path in disk.glob("*reserve")] == []


def test_who_fills_the_disk_gets_only_a_step_of_it(tmp_path: Path) -> None:
    with (
        small_disk(tmp_path / "disk", size="8m") as disk,
        closing(open_sqlite(disk / "x.db", now=NOW, reserve=SIZE)) as db,
    ):
        grow(db, 400)
        for number in range(5):
            fill(disk / "ballast")
            db.write(lambda tx, n=number: put(tx, f"urgent-{n}", 10))  # type: ignore[misc]
        assert 0 < (disk / "x.db-reserve").stat().st_size < SIZE


def test_what_was_there_before_can_be_changed_without_it(tmp_path: Path) -> None:
    """The job that fills the disk may take what was kept back, too."""
    with (
        small_disk(tmp_path / "disk", size="8m") as disk,
        closing(open_sqlite(disk / "x.db", now=NOW)) as db,
    ):
        db.write(lambda tx: put(tx, "job", 10))
        fill(disk / "ballast")
        for _ in range(2000):
            db.write(lambda tx: tx.execute("update counters set value = value + 1"))
        assert db.read(lambda tx: tx.one("select value from counters")) == (2000,)


@pytest.mark.parametrize(("pages", "urgent"), [(5, 120), (300, 40)])
def test_a_full_disk_takes_what_is_urgent(tmp_path: Path, pages: int, urgent: int) -> None:
    """Whether the log has little that would make the database's file grow, or a lot."""
    with (
        small_disk(tmp_path / "disk", size="8m") as disk,
        closing(open_sqlite(disk / "x.db", now=NOW, reserve=SIZE)) as db,
    ):
        kept = disk / "x.db-reserve"
        assert kept.exists()
        grow(db, pages)
        fill(disk / "ballast")
        # The log of a new database has space for the first ones, more with every migration.
        for number in range(urgent):
            db.write(lambda tx, n=number: put(tx, f"urgent-{n}", 10))  # type: ignore[misc]
        assert kept.stat().st_size < SIZE
        fill(disk / "ballast")
        with pytest.raises(StorageFull):
            grow(db, 2000, "more")
        (disk / "ballast").unlink()
        db.write(lambda tx: put(tx, "after", 10))
        assert kept.stat().st_size == SIZE, "it was not made again"
        assert db.read(lambda tx: tx.one("select count(*) from counters")) == (pages + urgent + 1,)
        assert db.read(lambda tx: tx.one("pragma integrity_check")) == ("ok",)


def test_it_is_made_only_where_there_is_plenty(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", size="3m") as disk:
        reserve = Reserve(disk / "reserve", SIZE)
        reserve.keep()
        assert not (disk / "reserve").exists()
        assert reserve.release() == 0
        little = Reserve(disk / "reserve", SIZE // MIN_FREE_FACTOR)
        little.keep()
        assert (disk / "reserve").stat().st_blocks * 512 >= SIZE // MIN_FREE_FACTOR
        again = Reserve(disk / "reserve", SIZE // MIN_FREE_FACTOR)
        for step in range(STEPS):
            assert (disk / "reserve").stat().st_size == SIZE // MIN_FREE_FACTOR * (
                STEPS - step
            ) // STEPS
            assert again.release() == SIZE // MIN_FREE_FACTOR // STEPS
        assert not (disk / "reserve").exists()
        assert again.release() == 0
