"""A download that is taken up: what came of one state of a file, and what of another."""

from __future__ import annotations

import errno
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from paddlecloud.client import downloads, landing
from paddlecloud.client.landing import part_of
from paddlecloud.model.errors import Conflict, Invalid
from tests.unit.client.downloading import (
    JOB,
    LARGE,
    LOG,
    MODEL,
    PIECE,
    WAYS,
    Server,
    found,
    from_bucket,
    get,
    interrupted,
    pieces_until,
)
from tests.unit.client.trees import NOW


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(landing, "PIECE", PIECE)
    monkeypatch.setattr(downloads, "THREADS", 1)
    monkeypatch.chdir(tmp_path)


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
    server.files[MODEL] = b"two"
    server.asked.clear()
    later = how | {"now": NOW, "resume": True}
    assert get(server, **later).complaints() == []
    assert found("output")[f"{JOB}/rank-0/model"] == b"two"
    assert (LOG, 0) not in server.asked
    server.asked.clear()
    assert get(server, **later).complaints() == []
    assert server.asked == []


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


class Windows:
    """Where no file can lose its name while somebody has it open."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._open: dict[str, int] = {}
        opened, closed, unlink = landing.Writer.__init__, landing.Writer.close, os.unlink
        targets: dict[object, str] = {}

        def begin(writer: landing.Writer, target: str, path: str, offset: int) -> None:
            opened(writer, target, path, offset)
            targets[writer] = target
            self._open[target] = self._open.get(target, 0) + 1

        def end(writer: landing.Writer) -> None:
            self._open[targets[writer]] -= 1
            closed(writer)

        def remove(path: str, **how: Any) -> None:
            if self._open.get(path):
                raise PermissionError(errno.EACCES, "somebody has it open", path)
            unlink(path, **how)

        monkeypatch.setattr(landing.Writer, "__init__", begin)
        monkeypatch.setattr(landing.Writer, "close", end)
        monkeypatch.setattr(os, "unlink", remove)


@pytest.mark.parametrize("size", [len(LARGE) + 900, 1500], ids=["longer", "shorter"])
@pytest.mark.parametrize("cut", [True, False], ids=["interrupted", "at once"])
def test_a_file_that_is_replaced_while_another_thread_writes_it_on_windows(
    monkeypatch: pytest.MonkeyPatch, size: int, cut: bool
) -> None:
    Windows(monkeypatch)
    server = Server({MODEL: LARGE})
    rows = server.rows()
    target = str(Path(part_of("output"), "files", JOB, "rank-0/model"))
    other: list[landing.Writer] = []

    def replaced() -> None:
        if len(server.asked) == 2:
            other.append(landing.Writer(target, MODEL, 4 * PIECE))
            server.files[MODEL], server.versions[MODEL] = b"n" * size, "2"
        if len(server.asked) == 5 and cut:
            raise KeyboardInterrupt
        if len(server.asked) == 5:
            other[0].write(LARGE[4 * PIECE : 5 * PIECE])

    server.meanwhile = replaced
    if cut:
        with pytest.raises(KeyboardInterrupt):
            get(server, rows=rows)
        server.meanwhile = lambda: None
        other[0].close()
        rows = server.rows()
    get(server, rows=rows, resume=cut)
    assert found("output") == {f"{JOB}/rank-0/model": b"n" * size}
