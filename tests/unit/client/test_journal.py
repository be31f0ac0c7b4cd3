"""The journal of a download: whatever ends its writer, what it says is right."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from paddlecloud.client import downloads, landing
from paddlecloud.client.journal import Journal, learned, read
from paddlecloud.client.landing import Place, part_of
from paddlecloud.model.errors import Conflict
from tests.contract.disk import small_disk
from tests.unit.client.downloading import (
    JOB,
    LARGE,
    LOG,
    MODEL,
    PIECE,
    WAYS,
    WHERE,
    Server,
    cut_after,
    found,
    from_bucket,
    get,
    pieces_until,
)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(landing, "PIECE", PIECE)
    monkeypatch.setattr(downloads, "THREADS", 1)
    monkeypatch.chdir(tmp_path)


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


def interrupted(server: Server, answers: int, **how: Any) -> None:
    """A download that ends when so many answers have come."""
    cut_after(server, answers)
    with pytest.raises(KeyboardInterrupt):
        get(server, **how)
    server.meanwhile = lambda: None
    server.asked.clear()


def test_a_full_disk_keeps_no_fact_and_harms_none(full: Path) -> None:
    place = Place(str(full / "output"), WHERE, "", resume=False)
    filler = fill(full)
    for number in range(100):
        place.journal.note([f"output/{JOB}/{number}", 1, "t", "", 0])
    place.close()
    filler.unlink()
    again = Place(str(full / "output"), WHERE, "", resume=True)  # nobody holds it any more
    again.journal.note([MODEL, 1, "t", "", 0])
    again.close()
    facts = read(str(full / ".output.paddlecloud-part" / "journal"), WHERE)
    assert learned(facts)[MODEL].starts == [0]


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
    with Path(part_of("output"), "journal").open("a") as journal:
        journal.write('["outp')
    interrupted(server, 2, resume=True)
    assert get(server, resume=True).kept == 5000
    assert found("output") == {f"{JOB}/rank-0/model": LARGE}


@pytest.mark.parametrize("size", range(0, 40, 3))
def test_a_journal_may_end_anywhere(tmp_path: Path, size: int) -> None:
    path = tmp_path / "journal"
    for fact in ("what", ["a", 1, "t", "", 0]):
        journal = Journal(str(path))
        journal.note(fact)
        journal.close()
    os.truncate(path, size)
    journal = Journal(str(path))
    journal.note(["b", 1, "t", "", 0])
    journal.close()
    facts = read(str(path), "what")
    assert facts[-1:] == ([["b", 1, "t", "", 0]] if size > len('\n"what') else [])


def test_a_record_for_which_there_is_no_room_leaves_nothing(full: Path, tmp_path: Path) -> None:
    (full / "filler").write_bytes(bytes(200 * 1024 - 8192))
    server = Server({f"output/{JOB}/rank-0/{number:03}": b"x" for number in range(200)})
    get(server, str(tmp_path / "output"), records=str(full))
    assert [path.name for path in full.iterdir()] == ["filler"]


@pytest.mark.parametrize("known", [True, False], ids=["with digests", "without"])
@pytest.mark.parametrize("size", [2500, 700], ids=["of several pieces", "of one"])
def test_nothing_of_an_older_and_longer_file_stays(known: bool, size: int) -> None:
    server = Server({MODEL: LARGE})
    interrupted(server, 4)
    server.files[MODEL], server.versions[MODEL] = b"n" * size, "2"
    result = get(server, resume=True, known=known)
    assert (result.complaints(), result.kept) == ([], 0)
    assert found("output") == {f"{JOB}/rank-0/model": b"n" * size}


def test_a_log_that_grew_is_not_fetched_from_its_beginning() -> None:
    server = Server({LOG: LARGE})
    server.appended[LOG] = "append-1"
    interrupted(server, 4)
    server.files[LOG], server.versions[LOG] = LARGE + b"more", "2"
    assert get(server, resume=True).kept == 4 * PIECE
    assert server.asked == [(LOG, 4 * PIECE), (LOG, 5 * PIECE)]
    assert found("output") == {f"{JOB}/log/trainer-0.log": LARGE + b"more"}


@pytest.mark.parametrize("size", [len(LARGE), len(LARGE) + 9], ids=["as long", "longer"])
def test_the_log_of_another_attempt_is_not_put_behind_the_first(size: int) -> None:
    server = Server({LOG: LARGE, f"{LOG}x": b""})
    server.appended[LOG] = "append-1"
    interrupted(server, 6)
    server.files[LOG], server.versions[LOG], server.appended[LOG] = b"2" * size, "2", "append-2"
    get(server, resume=True)
    assert found("output")[f"{JOB}/log/trainer-0.log"] == b"2" * size


def test_pieces_of_a_bucket_stay_when_the_server_takes_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = Server({MODEL: LARGE})
    from_bucket(monkeypatch, pieces_until(3 * PIECE))
    interrupted(server, 1, known=True, ways=WAYS)
    result = get(server, known=True, resume=True)
    assert (result.kept, result.complaints()) == (4 * PIECE, [])
    assert found("output") == {f"{JOB}/rank-0/model": LARGE}


@pytest.mark.parametrize("resumed", [True, False], ids=["later", "at once"])
def test_pieces_of_a_bucket_are_not_mixed_with_another_file_as_long(
    monkeypatch: pytest.MonkeyPatch, resumed: bool
) -> None:
    server = Server({MODEL: LARGE})
    rows = server.rows(known=True)
    from_bucket(monkeypatch, pieces_until(3 * PIECE))
    if resumed:
        interrupted(server, 1, rows=rows, ways=WAYS)
    server.files[MODEL] = LARGE[::-1]
    if resumed:
        rows = server.rows()  # in the same second, and now nobody knows its digest
    else:
        server.versions[MODEL] = "2"
    result = get(server, rows=rows, ways=WAYS, resume=resumed)
    assert result.complaints() == []
    assert found("output") == {f"{JOB}/rank-0/model": LARGE[::-1]}
