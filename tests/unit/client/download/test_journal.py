"""The journal of a download: whatever ends its writer, what it says is right."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from paddlecloud.client.download._journal import Journal, read_journal
from paddlecloud.client.download.staging import Staging, staging_dir
from paddlecloud.model.errors import Conflict
from tests.contract.disk import small_disk
from tests.unit.client.download_server import (
    JOB,
    LARGE,
    MODEL,
    WHERE,
    Server,
    found,
    get,
    interrupted,
)

pytestmark = pytest.mark.usefixtures("one_by_one")


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", size="200k") as disk:
        yield disk


def fill(disk: Path) -> Path:
    filler = disk / "filler"
    with filler.open("ab", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            return filler


def test_a_full_disk_keeps_no_fact_and_harms_none(full: Path) -> None:
    staging = Staging(str(full / "output"), WHERE, "", resume=False)
    filler = fill(full)
    for number in range(100):
        staging._journal.append([f"output/{JOB}/{number}", 1, "t", "", 0, 1])
    staging.close()
    filler.unlink()
    again = Staging(str(full / "output"), WHERE, "", resume=True)  # nobody holds it any more
    again._journal.append([MODEL, 1, "t", "", 0, 1])
    again.close()
    _, states = read_journal(str(full / ".output.paddlecloud-part" / "journal"))
    assert states[MODEL].ranges == {0: (1, "")}


def test_a_disk_that_is_full_in_the_end_is_told_as_such(full: Path) -> None:
    names = [f"output/{JOB}/rank-0/{number:03}" for number in range(151)]
    server = Server({name: b"x" if name.endswith("150") else b"" for name in names})

    def meanwhile() -> None:
        server.meanwhile = lambda: None
        fill(full)

    server.meanwhile = meanwhile
    with pytest.raises(Conflict) as caught:
        get(server, str(full / "output"))
    assert caught.value.code == "download_full"


def test_a_line_that_was_cut_spoils_no_other() -> None:
    server = Server({MODEL: LARGE})
    interrupted(server, 3)
    with Path(staging_dir("output"), "journal").open("a") as journal:
        journal.write('["outp')
    interrupted(server, 2, resume=True)
    assert get(server, resume=True).kept == 5000
    assert found("output") == {f"{JOB}/rank-0/model": LARGE}


@pytest.mark.parametrize("size", range(0, 40, 3))
def test_a_journal_may_end_anywhere(tmp_path: Path, size: int) -> None:
    path = tmp_path / "journal"
    for fact in ("what", ["a", 1, "t", "", 0]):
        journal = Journal(str(path))
        journal.append(fact)
        journal.close()
    os.truncate(path, size)
    journal = Journal(str(path))
    journal.append(["b", 1, "t", "", 0])
    journal.close()
    source, states = read_journal(str(path))
    assert "b" in states if size > len('\n"what') else source != "what"


def test_a_record_for_which_there_is_no_room_leaves_nothing(full: Path, tmp_path: Path) -> None:
    (full / "filler").write_bytes(bytes(200 * 1024 - 8192))
    server = Server({f"output/{JOB}/rank-0/{number:03}": b"x" for number in range(200)})
    get(server, str(tmp_path / "output"), records=str(full))
    assert [path.name for path in full.iterdir()] == ["filler"]
