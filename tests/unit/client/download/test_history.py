"""What is remembered of finished downloads, and for how long."""

from __future__ import annotations

import os
from pathlib import Path
from time import time

import pytest

from paddlecloud.client.download import history
from paddlecloud.client.download.history import Record

DAY = 24 * 3600


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def written(final: Path) -> None:
    Record(str(final), "/jobs/job-1/files", "records").write()


def aged(name: str, days: int) -> None:
    """The record of a download into a directory that is written so many days ago."""
    before = {*Path().glob("records/*")}
    Path(name).mkdir()
    written(Path(name).absolute())
    (record,) = {*Path().glob("records/*")} - before
    at = time() - days * DAY
    os.utime(record, (at, at))


def known(name: str) -> bool:
    return Record(str(Path(name).absolute()), "/jobs/job-1/files", "records").is_of_this()


@pytest.mark.parametrize(
    ("days", "gone", "want"),
    [
        (0, True, True),
        (29, True, True),
        (31, True, False),
        (31, False, True),
        (399, False, True),
        (401, False, False),
    ],
)
def test_a_record_goes_with_its_directory_or_in_the_end(
    here: Path, days: int, gone: bool, want: bool
) -> None:
    aged("old", days)
    if gone:
        Path("old").rename("away")
    written(here)
    if gone:
        Path("away").rename("old")
    assert known("old") == want
    assert Record(str(here), "/jobs/job-1/files", "records").is_of_this()


@pytest.mark.parametrize("text", ["", "\n[", '"what"\n[]', '"what"\n{}', '"what"\n{"path": 1}'])
def test_of_what_tells_no_directory_nobody_knows_that_it_is_gone(here: Path, text: str) -> None:
    Path("records").mkdir()
    strange = Path("records/strange")
    strange.write_text(text)
    os.utime(strange, (time() - 31 * DAY,) * 2)
    written(here)
    assert strange.exists()


def test_each_time_only_a_few_are_looked_at(here: Path) -> None:
    for number in range(100):
        aged(f"old-{number}", 0)
    for path in (*Path().glob("records/*"),):
        os.utime(path, (1, 1))
    for _ in range(3):
        before = len([*Path().glob("records/*")])
        history.sweep("records", time())
        assert len([*Path().glob("records/*")]) == before - 20


def test_records_that_cannot_be_kept_harm_nobody(here: Path) -> None:
    Path("records").mkdir()
    history.sweep("records", time())
    Path("records").rmdir()
    Path("records").touch()
    written(here)
