"""A data set taken in turns, where there is nobody to take turns with; and how calls are signed."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from paddlecloud.data import recordio, task_reader
from paddlecloud.data.taskqueue._http import VARIABLE, Caller, ServerRefused, sign
from paddlecloud.data.taskqueue.reader import Task, TaskReader, _content, _own, _shared
from paddlecloud.model.protocol import bce_auth


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv(VARIABLE, raising=False)
    path = tmp_path / "train.recordio"
    with recordio.Writer(str(path), max_chunk_bytes=50) as writer:
        for number in range(20):
            writer.write(b"record %02d" % number)
    return path


RECORDS = [b"record %02d" % number for number in range(20)]


class Scripted:
    """A queue that hands out what the test says, and remembers what it was told."""

    def __init__(self, tasks: list[Task]) -> None:
        self.tasks = tasks
        self.said: list[tuple[str, int]] = []
        self.taken = False

    def next(self) -> Task | None:
        return self.tasks.pop(0) if self.tasks else None

    def is_ours(self, task: Task) -> bool:
        del task
        return not self.taken

    def finish(self, task: Task) -> bool:
        self.said.append(("finish", task.number))
        return True

    def fail(self, task: Task, *, counts: bool) -> None:
        self.said.append(("failed" if counts else "back", task.number))

    def close(self) -> None:
        self.said.append(("closed", -1))


def a_queue(file: Path) -> Scripted:
    chunks = recordio.Index.of(str(file)).chunks
    return Scripted(
        [
            Task(number=number, content=_content(chunk), fence=1, of_pass=0)
            for number, chunk in enumerate(chunks)
        ]
    )


def test_outside_of_a_job_everything_is_read_here(file: Path) -> None:
    assert list(task_reader(str(file))) == RECORDS
    assert list(task_reader(str(file), passes=3)) == RECORDS * 3
    by_pass = [(number, list(some)) for number, some in task_reader(file, passes=2).passes()]
    assert by_pass == [(0, RECORDS), (1, RECORDS)]


def test_a_chunk_is_finished_when_its_last_record_was_consumed(file: Path) -> None:
    queue = a_queue(file)
    reader = iter(TaskReader(queue))
    first = recordio.Index.of(str(file)).chunks[0].count
    for _ in range(first):
        next(reader)
    assert queue.said == []
    next(reader)
    assert queue.said == [("finish", 0)]


def test_who_stops_early_gives_the_chunk_back(file: Path) -> None:
    queue = a_queue(file)
    for _record in TaskReader(queue):
        break
    assert queue.said == [("back", 0), ("closed", -1)]


def test_a_damaged_chunk_is_a_failed_try_and_the_next_one_is_read(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    queue = a_queue(file)
    second = recordio.Index.of(str(file)).chunks[1]
    data = bytearray(file.read_bytes())
    data[second.offset + second.size - 1] ^= 0xFF
    file.write_bytes(data)
    with caplog.at_level(logging.WARNING):
        found = list(TaskReader(queue))
    assert len(found) == 20 - second.count
    assert queue.said[1] == ("failed", 1)
    assert "chunk 1 cannot be read" in caplog.text


def test_a_chunk_that_was_taken_is_left(file: Path) -> None:
    queue = a_queue(file)
    reader = iter(TaskReader(queue))
    next(reader)
    queue.taken = True
    assert list(reader) == []
    assert ("finish", 0) not in queue.said


def test_paths_are_told_as_every_trainer_has_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LOCAL_MOUNT_PATH", "/m/x")
    assert _shared(f"{tmp_path}/data/a") == "data/a"
    assert _shared("/m/x/data/a") == "$LOCAL_MOUNT_PATH/data/a"
    assert _shared("/pfs/data/a") == "/pfs/data/a"
    assert [_own(path) for path in ("data/a", "$LOCAL_MOUNT_PATH/data/a", "/pfs/a")] == [
        "data/a",
        "/m/x/data/a",
        "/pfs/a",
    ]


def test_a_call_is_signed_as_the_server_reads_it() -> None:
    headers = {
        "host": "127.0.0.1:80",
        "content-type": "application/json",
        "x-bce-content-sha256": "0" * 64,
        "x-bce-nonce": "n",
    }
    made = sign("job-1.1.trainer-0", "secret", "POST", "/api/v1/x", headers, 1_600_000_000)
    auth = bce_auth.parse(made)
    bce_auth.verify(auth, "secret", "POST", "/api/v1/x", "", headers, 1_600_000_001, tuple(headers))
    assert auth.ak == "job-1.1.trainer-0"


def test_a_server_that_is_away_is_waited_for_until_we_close() -> None:
    caller = Caller({"job_id": "job-1", "ak": "a", "sk": "s", "url": "http://127.0.0.1:1"})
    caller._closed.set()
    with pytest.raises(OSError):
        caller.call("GET", "/x")
    assert issubclass(ServerRefused, Exception)
