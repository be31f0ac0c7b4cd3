"""A download that is taken up: what came of one state of a file, and what of another."""

from __future__ import annotations

import errno
import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from paddlecloud.client.download import _local_files, _ranges, engine
from paddlecloud.client.download.listing import NAME_TWICE
from paddlecloud.client.download.staging import staging_dir
from paddlecloud.model.errors import Conflict, Invalid, Retry, TooMany, Unreachable
from paddlecloud.net import retry
from tests.unit.client.download_server import (
    JOB,
    LARGE,
    LOCATIONS,
    LOG,
    MODEL,
    PIECE,
    WHERE,
    Server,
    found,
    from_bucket,
    get,
    interrupted,
    pieces_until,
)
from tests.unit.client.trees import NOW

pytestmark = pytest.mark.usefixtures("one_by_one")


@pytest.mark.parametrize("known", [True, False], ids=["with digests", "without"])
@pytest.mark.parametrize("size", [2500, 700], ids=["of several pieces", "of one"])
def test_nothing_of_an_older_and_longer_file_stays(known: bool, size: int) -> None:
    server = Server({MODEL: LARGE})
    interrupted(server, 4)
    server.files[MODEL], server.versions[MODEL] = b"n" * size, "2"
    result = get(server, resume=True, known=known)
    assert (result.errors(), result.kept) == ([], 0)
    assert found("output") == {f"{JOB}/rank-0/model": b"n" * size}


def test_a_log_that_grew_is_not_fetched_from_its_beginning() -> None:
    server = Server({LOG: LARGE})
    server.appended[LOG] = "append-1"
    interrupted(server, 4)
    server.files[LOG], server.versions[LOG] = LARGE + b"more", "2"
    assert get(server, resume=True).kept == 4 * PIECE
    assert server.asked == [(LOG, 4 * PIECE), (LOG, 5 * PIECE)]
    assert found("output") == {f"{JOB}/log/trainer-0.log": LARGE + b"more"}


@pytest.mark.parametrize("changed", [False, True])
def test_what_is_here_is_told_apart_from_what_comes(changed: bool) -> None:
    server = Server({MODEL: LARGE})
    interrupted(server, 4)
    if changed:
        server.files[MODEL], server.versions[MODEL] = b"n" * len(LARGE), "2"
    came: list[int] = []
    skipped: list[int] = []
    get(server, resume=True, progress=came.append, skipped=skipped.append)
    here = 0 if changed else 4 * PIECE
    assert (sum(came), sum(skipped)) == (len(LARGE) - here, here)


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
    interrupted(server, 1, known=True, locations=LOCATIONS)
    result = get(server, known=True, resume=True)
    assert (result.kept, result.errors()) == (4 * PIECE, [])
    assert found("output") == {f"{JOB}/rank-0/model": LARGE}


@pytest.mark.parametrize("resumed", [True, False], ids=["later", "at once"])
def test_pieces_of_a_bucket_are_not_mixed_with_another_file_as_long(
    monkeypatch: pytest.MonkeyPatch, resumed: bool
) -> None:
    server = Server({MODEL: LARGE})
    rows = server.rows(known=True)
    from_bucket(monkeypatch, pieces_until(3 * PIECE))
    if resumed:
        interrupted(server, 1, rows=rows, locations=LOCATIONS)
    server.files[MODEL] = LARGE[::-1]
    if resumed:
        rows = server.rows()  # in the same second, and now nobody knows its digest
        server.appended[MODEL] = f"{len(LARGE)}-2020-05-17T10:15:31Z-1"
    else:
        server.versions[MODEL] = "2"
    result = get(server, rows=rows, locations=LOCATIONS, resume=resumed)
    assert result.errors() == []
    assert found("output") == {f"{JOB}/rank-0/model": LARGE[::-1]}


LISTED = datetime(2020, 5, 17, 10, 15, 31, tzinfo=UTC).timestamp()
"""When the files of a `Server` were written."""


@pytest.mark.parametrize("finished", [True, False])
def test_a_small_file_that_is_replaced_in_the_same_second_is_seen(finished: bool) -> None:
    server = Server({MODEL: b"one", LOG: LARGE})
    how: dict[str, Any] = {"now": LISTED, "records": "records"}
    if finished:
        get(server, **how)
    else:
        interrupted(server, 2, **how)
    rest = [*range(0 if finished else PIECE, len(LARGE), PIECE)]
    server.files[MODEL] = b"two"
    server.asked.clear()
    later = how | {"now": NOW, "resume": True}
    assert get(server, **later).errors() == []
    assert found("output")[f"{JOB}/rank-0/model"] == b"two"
    # The version of an unfinished large file shows whether it was replaced as well.
    assert [start for path, start in server.asked if path == LOG] == rest
    server.asked.clear()
    assert get(server, **later).errors() == []
    assert server.asked == []


@pytest.mark.parametrize("gone", [True, False])
def test_a_large_file_that_is_replaced_in_the_same_second_is_seen(gone: bool) -> None:
    server = Server({MODEL: LARGE, LOG: b"1"})
    get(server, now=LISTED, records="records")
    server.files[MODEL] = LARGE[::-1]
    server.appended[MODEL] = f"{len(LARGE)}-2020-05-17T10:15:31Z-1"
    rows = server.rows()
    if gone:
        del server.files[MODEL]
    result = get(server, rows=rows, now=NOW, records="records", resume=True)
    assert [*result.problems] == ["download_gone"] * gone
    want = LARGE if gone else LARGE[::-1]
    assert found("output")[f"{JOB}/rank-0/model"] == want


def test_a_disk_that_fails_once_costs_nothing_that_came(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server({MODEL: LARGE})
    written = [0]
    write = os.write

    def failing(fd: int, data: bytes) -> int:
        written[0] += 1
        if written[0] == 15:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return write(fd, data)

    monkeypatch.setattr(os, "write", failing)
    with pytest.raises(Conflict) as caught:
        get(server)
    assert caught.value.code == "download_failed"
    assert get(server, resume=True).kept == 3 * PIECE
    assert found("output") == {f"{JOB}/rank-0/model": LARGE}


@pytest.mark.parametrize("call", ["close", "ftruncate"])
def test_a_file_system_that_tells_late_that_it_is_full_is_understood(
    monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """As NFS does; only what is written is meant, and not what the test itself closes."""
    server = Server({MODEL: LARGE[:PIECE]})

    class Full(_local_files.Writer):
        def write(self, chunk: bytes) -> None:
            monkeypatch.setattr(os, call, full)

    def full(*_: object) -> None:
        monkeypatch.undo()
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    here = Path.cwd()
    monkeypatch.setattr("paddlecloud.client.download.engine.Writer", Full)
    with pytest.raises(Conflict) as caught:
        get(server, str(here / "output"))
    assert caught.value.code == "download_full"


@pytest.mark.parametrize(("before", "now"), [("a", "a/b/c"), ("a/b/c", "a"), ("a/b", "a/b/c")])
def test_what_became_a_directory_or_a_file_since_is_no_obstacle(before: str, now: str) -> None:
    server = Server({before: LARGE, "z": LARGE})
    interrupted(server, 2)
    interrupted(server, 7, resume=True)
    server = Server({now: LARGE, "z": LARGE})
    assert get(server, resume=True).kept
    assert found("output") == {now: LARGE, "z": LARGE}


def test_names_that_are_one_file_cost_nothing_that_came_before() -> None:
    server = Server({MODEL: LARGE})
    interrupted(server, 4)
    rows = Server({MODEL: LARGE, f"{MODEL}/below": b"x"}).rows()
    with pytest.raises(Invalid) as caught:
        get(server, rows=rows, resume=True)
    assert caught.value.code == NAME_TWICE
    assert get(server, resume=True).kept == 4 * PIECE


def test_what_a_server_refuses_costs_nothing_that_came() -> None:
    server = Server({MODEL: LARGE})

    def refuse() -> None:
        if len(server.asked) == 4:
            raise Invalid("path_unsafe", path=MODEL)

    server.meanwhile = refuse
    with pytest.raises(Invalid):
        get(server)
    server.meanwhile = lambda: None
    assert get(server, resume=True).kept == 3 * PIECE


def test_a_range_of_an_earlier_version_is_not_written_into_the_file() -> None:
    """Its thread has the file open and notices before its next write that it was restarted."""
    server = Server({MODEL: LARGE})
    rows = server.rows()
    refused: list[int] = []
    stale: list[_local_files.Writer] = []
    real = engine._Download._writer

    def writer(of: Any, file: Any, start: int, generation: int) -> _local_files.Writer:
        if start == PIECE and not stale:
            stale.append(real(of, file, 4 * PIECE, generation))
        return real(of, file, start, generation)

    def replaced() -> None:
        if len(server.asked) == 2:
            server.files[MODEL], server.versions[MODEL] = b"n" * 1500, "2"
        if stale and len(server.asked) > 3:
            try:
                stale[0].write(LARGE[4 * PIECE :])
            except engine._Restarted:
                refused.append(len(server.asked))

    server.meanwhile = replaced
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(engine._Download, "_writer", writer)
        get(server, rows=rows)
    assert found("output") == {f"{JOB}/rank-0/model": b"n" * 1500}
    assert refused


@pytest.mark.parametrize("size", [10_000_000, 30_000_000])
@pytest.mark.parametrize("after", [1, 7, 70])
def test_a_kill_costs_a_twentieth_at_most(
    monkeypatch: pytest.MonkeyPatch, size: int, after: int
) -> None:
    monkeypatch.setattr(_ranges, "MAX_RANGE", 8 * 2**20)
    monkeypatch.setattr(_ranges, "concurrency", lambda *_, **__: 4)
    server = Server({MODEL: (LARGE * (size // len(LARGE) + 1))[:size]})
    interrupted(server, after)
    get(server, resume=True)
    assert size < server.sent <= size * 1.05
    assert found("output") == {f"{JOB}/rank-0/model": server.files[MODEL]}


@pytest.mark.parametrize("later", [300, 1700, 10 * PIECE])
@pytest.mark.parametrize("known", [True, False], ids=["with digests", "without"])
def test_what_came_in_pieces_of_another_size_is_not_fetched_again(
    monkeypatch: pytest.MonkeyPatch, later: int, known: bool
) -> None:
    server = Server({MODEL: LARGE})
    interrupted(server, 4, known=known)
    monkeypatch.setattr(_ranges, "MAX_RANGE", later)
    assert get(server, resume=True, known=known).kept == 4 * PIECE
    assert server.asked == [(MODEL, start) for start in range(4 * PIECE, len(LARGE), later)]
    assert found("output") == {f"{JOB}/rank-0/model": LARGE}


def test_a_journal_that_does_not_tell_how_long_its_pieces_are_tells_of_none() -> None:
    server = Server({MODEL: LARGE})
    interrupted(server, 4)
    path = Path(staging_dir("output"), "journal")
    facts = [json.loads(line) for line in path.read_text().splitlines() if line]
    path.write_text("\n".join(json.dumps(fact[:5]) for fact in facts if fact != WHERE))
    path.write_text(f"{json.dumps(WHERE)}\n{path.read_text()}")
    assert get(server, resume=True).kept == 0
    assert found("output") == {f"{JOB}/rank-0/model": LARGE}


def test_of_an_earlier_journal_pieces_count_where_the_whole_can_be_compared() -> None:
    for known, kept in ((True, 4 * PIECE), (False, 0)):
        server = Server({MODEL: LARGE})
        interrupted(server, 4, directory=f"{known}")
        path = Path(staging_dir(f"{known}"), "journal")
        facts = [json.loads(line) for line in path.read_text().splitlines() if line]
        earlier = [fact if fact == WHERE else fact[:6] for fact in facts]
        path.write_text("\n".join(map(json.dumps, earlier)))
        assert get(server, f"{known}", resume=True, known=known).kept == kept
        assert found(f"{known}") == {f"{JOB}/rank-0/model": LARGE}


@pytest.mark.parametrize("kind", ["a byte", "all of it", "cannot be read"])
def test_a_damaged_piece_of_a_file_without_a_digest_is_fetched_again(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    server = Server({MODEL: LARGE, LOG: LARGE})
    interrupted(server, 10)
    here = Path(staging_dir("output"), "files", JOB, "rank-0/model")
    content = bytearray(LARGE)
    content[PIECE + 100] ^= 1
    here.write_bytes(content if kind != "all of it" else bytes(len(LARGE)))
    if kind == "cannot be read":
        real = _local_files._range_digest

        def fail(file: Any, start: int, length: int) -> str:
            if file.name == str(here.absolute()):
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return real(file, start, length)

        monkeypatch.setattr(_local_files, "_range_digest", fail)
    heard: list[int] = []
    result = get(server, resume=True, progress=heard.append)
    assert found("output") == {f"{JOB}/rank-0/model": LARGE, f"{JOB}/log/trainer-0.log": LARGE}
    again = [PIECE] if kind == "a byte" else [*range(0, len(LARGE), PIECE)]
    rest = [4 * PIECE, 5 * PIECE]
    assert server.asked == [*((MODEL, start) for start in again), *((LOG, start) for start in rest)]
    assert result.bytes + result.kept == sum(heard) == 2 * len(LARGE)


def test_what_is_compared_as_a_whole_is_not_read_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server({MODEL: LARGE})
    interrupted(server, 4, known=True)
    monkeypatch.delattr(_local_files, "_range_digest")
    assert get(server, resume=True, known=True).kept == 4 * PIECE
    assert found("output") == {f"{JOB}/rank-0/model": LARGE}


def test_a_small_file_that_changes_all_the_time_comes_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_ranges, "SMALL_DOWNLOAD", 0)
    monkeypatch.setattr(_ranges, "MIN_RANGE", PIECE)
    monkeypatch.setattr(_ranges, "MAX_RANGE", 10 * PIECE)
    server = Server({MODEL: LARGE})

    def replace() -> None:
        server.files[MODEL] = server.files[MODEL][1:] + server.files[MODEL][:1]
        server.versions[MODEL] = str(int(server.versions[MODEL]) + 1)

    server.meanwhile = replace
    get(server)
    assert sorted(found("output")[f"{JOB}/rank-0/model"]) == sorted(LARGE)
    assert len(server.asked) == 3


def away(server: Server, tries: int, error: Retry) -> None:
    """Have so many tries fail from the fourth answer on."""
    failed: list[int] = []

    def meanwhile() -> None:
        if len(server.asked) > 3 and len(failed) < tries:
            failed.append(1)
            raise error

    server.meanwhile = meanwhile


@pytest.mark.parametrize(
    ("error", "a_round"),
    [
        (Unreachable("store_unreachable", place="there", reason="timed out"), 1),
        (Retry("unknown_answer", status=502), retry.TRANSPORT.attempts),
    ],
)
def test_a_store_that_is_away_is_waited_for_as_long_as_by_an_upload(
    monkeypatch: pytest.MonkeyPatch, error: Retry, a_round: int
) -> None:
    rounds = 4
    monkeypatch.setattr(retry.RESUME, "attempts", rounds)
    monkeypatch.setattr(retry.RESUME, "first_pause", 0.0)
    monkeypatch.setattr(retry.TRANSPORT, "first_pause", 0.0)
    told: list[str] = []
    server = Server({MODEL: LARGE})
    away(server, rounds * a_round - 1, error)
    assert get(server, note=told.append).bytes == len(LARGE)
    assert found("output") == {f"{JOB}/rank-0/model": LARGE}
    assert told == ["download_again"]
    server.asked.clear()
    away(server, rounds * a_round, error)
    with pytest.raises(Retry):
        get(server, "other")
    assert len(server.asked) == 3 + rounds * a_round
    server.meanwhile = lambda: None
    assert get(server, "other", resume=True).kept == 3 * PIECE


def test_a_line_that_breaks_again_and_again_is_patiently_borne(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(retry.RESUME, "attempts", 2)
    monkeypatch.setattr(retry.RESUME, "first_pause", 0.0)
    server = Server({MODEL: LARGE})

    def meanwhile() -> None:
        if len(server.asked) % 2:
            raise Unreachable("store_unreachable", place="there", reason="timed out")

    server.meanwhile = meanwhile
    assert get(server).bytes == len(LARGE)
    assert len(server.asked) == 12


def test_what_does_not_pass_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry.RESUME, "first_pause", 3600.0)
    server = Server({MODEL: LARGE})

    def meanwhile() -> None:
        raise TooMany("store_crowded", limit=32)

    server.meanwhile = meanwhile
    with pytest.raises(TooMany):
        get(server)
