"""What a log store promises: an unbroken prefix of the real log, whatever the sender repeats."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddlecloud.model.errors import Conflict, Invalid, NotFound, StorageFull
from paddlecloud.stores.directory.store import DirectoryStore
from paddlecloud.stores.logs.log_store import LogStore
from tests.contract.disk import open_descriptors, small_disk

LOG = "users/u/output/job-1/log/trainer-0.log"


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[LogStore]:
    opened = LogStore(tmp_path, max_open=4)
    yield opened
    opened.close()


def whole(logs: LogStore, path: str = LOG) -> bytes:
    return logs.read(path, 0, 1 << 30)


def test_appending_twice_is_appending_once(logs: LogStore) -> None:
    assert logs.append(LOG, 0, b"hello ") == 6
    assert logs.append(LOG, 0, b"hello ") == 6
    assert logs.append(LOG, 6, b"world") == 11
    assert logs.append(LOG, 3, b"lo world, again") == 18
    assert logs.append(LOG, 0, b"he") == 18
    assert whole(logs) == b"hello world, again"


def test_a_gap_is_not_kept(logs: LogStore) -> None:
    assert logs.append(LOG, 5, b"later") == 0
    assert logs.size(LOG) == 0
    logs.append(LOG, 0, b"abc")
    assert logs.append(LOG, 4, b"e") == 3
    assert whole(logs) == b"abc"


def test_a_log_that_is_let_go_is_gone_and_may_begin_anew(logs: LogStore) -> None:
    logs.append(LOG, 0, b"abc")
    reader = logs.open(LOG)
    for _ in range(2):
        logs.delete(LOG)
        assert (logs.size(LOG), whole(logs)) == (0, b"")
    assert reader is not None and reader.read(0, 10) == b"abc"
    assert logs.append(LOG, 0, b"d") == 1


def test_the_times_of_a_log_go_with_it(logs: LogStore, tmp_path: Path) -> None:
    for at in range(3):
        logs.append(LOG, at, b"x", at=1_000.0 + 10 * at)
    assert len(logs.notes(LOG, 0, 10)) == 3
    logs.delete(LOG)
    assert logs.notes(LOG, 0, 10) == []
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_log_that_does_not_exist_is_empty(logs: LogStore, tmp_path: Path) -> None:
    assert logs.size(LOG) == 0
    assert logs.read(LOG, 0, 10) == b""
    assert logs.tail_offset(LOG, 10) == 0
    logs.flush([LOG])
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(NotFound):
        logs.move(LOG, "x")


def test_an_empty_piece_makes_an_empty_log(logs: LogStore, tmp_path: Path) -> None:
    assert logs.append(LOG, 0, b"") == 0
    assert (tmp_path / LOG).read_bytes() == b""


def test_a_log_is_a_file_of_the_store(logs: LogStore, tmp_path: Path) -> None:
    logs.append(LOG, 0, b"hello\n")
    store = DirectoryStore(tmp_path)
    assert [(found.path, found.size) for found in store.list()] == [(LOG, 6)]
    store.close()


def test_a_deleted_log_begins_anew(logs: LogStore, tmp_path: Path) -> None:
    logs.append(LOG, 0, b"old")
    (tmp_path / LOG).unlink()
    assert logs.size(LOG) == 0
    assert logs.append(LOG, 3, b"more") == 0
    assert logs.append(LOG, 0, b"new!") == 4
    assert (tmp_path / LOG).read_bytes() == b"new!"


def test_moving_a_log_aside(logs: LogStore) -> None:
    first = "users/u/output/job-1/log/attempt-1/trainer-0.log"
    logs.append(LOG, 0, b"first attempt")
    logs.move(LOG, first)
    assert logs.append(LOG, 0, b"second") == 6
    assert (whole(logs), whole(logs, first)) == (b"second", b"first attempt")
    logs.move(LOG, first)
    assert (whole(logs), whole(logs, first)) == (b"", b"second")


def test_only_so_many_files_stay_open(logs: LogStore) -> None:
    before = open_descriptors()
    for n in range(40):
        logs.append(f"log-{n}", 0, b"x" * n)
    assert open_descriptors() <= before + 4
    assert [logs.size(f"log-{n}") for n in range(40)] == list(range(40))
    for n in range(40):
        logs.close_deleted(f"log-{n}")
    assert open_descriptors() <= before


@pytest.mark.parametrize("path", ["../x", "/x", "a/../b", "", "a\0"])
def test_a_hostile_path_is_refused(logs: LogStore, path: str) -> None:
    for call in (
        lambda: logs.append(path, 0, b"x"),
        lambda: logs.size(path),
        lambda: logs.read(path, 0, 1),
    ):
        with pytest.raises(Invalid):
            call()


def test_a_link_is_not_followed(logs: LogStore, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"secret")
    (tmp_path / "link").symlink_to("secret")
    assert logs.read("link", 0, 10) == b""
    with pytest.raises(Conflict):
        logs.append("link", 0, b"x")
    assert (tmp_path / "secret").read_bytes() == b"secret"


def test_threads_that_repeat_each_other(logs: LogStore) -> None:
    text = os.urandom(200_000)

    def send(step: int) -> None:
        size = 0
        while size < len(text):
            size = logs.append(LOG, max(0, size - 7), text[max(0, size - 7) : size + step])

    threads = [threading.Thread(target=send, args=(step,)) for step in (97, 1009, 4001, 16001)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert whole(logs) == text


@given(st.data())
def test_any_order_of_pieces_gives_an_unbroken_prefix(data: st.DataObject) -> None:
    text = data.draw(st.binary(max_size=200))
    spans = st.tuples(st.integers(0, len(text)), st.integers(0, 60))
    pieces = data.draw(st.lists(spans, max_size=25))
    want = 0
    with tempfile.TemporaryDirectory() as place:
        logs = LogStore(Path(place), max_open=1)
        for offset, length in pieces:
            piece = text[offset : offset + length]
            if offset <= want:
                want = max(want, offset + len(piece))
            assert logs.append(LOG, offset, piece) == want
            logs.size("another, so that the file is closed")
        assert whole(logs) == text[:want]
        assert logs.size(LOG) == want
        logs.close()


LINES = st.lists(st.sampled_from([b"", b"a", b"\r", b"\0\xff", b"x" * 70_000]), max_size=12)


@given(LINES, st.booleans(), st.integers(1, 14))
def test_the_tail_begins_at_a_line(lines: list[bytes], ended: bool, count: int) -> None:
    text = b"\n".join(lines) + (b"\n" if ended else b"")
    kept = text.split(b"\n")
    if kept[-1] == b"":
        kept.pop()
    want = sum(len(line) + 1 for line in kept[:-count])
    with tempfile.TemporaryDirectory() as place:
        logs = LogStore(Path(place))
        logs.append(LOG, 0, text)
        assert logs.tail_offset(LOG, count) == want
        assert logs.tail_offset(LOG, 0) == len(text)
        logs.close()


def test_the_tail_of_a_huge_log_costs_little(logs: LogStore, tmp_path: Path) -> None:
    logs.append("huge", 0, b"first\n")
    os.truncate(tmp_path / "huge", 1 << 30)  # a hole: a gibibyte that takes no disk
    logs.append("huge", 1 << 30, b"\nlast but one\nlast\n")
    before = bytes_read()
    offset = logs.tail_offset("huge", 2)
    assert bytes_read() - before < 1 << 20
    assert logs.read("huge", offset, 100) == b"last but one\nlast\n"


def bytes_read() -> int:
    """What this process has asked the system to read so far."""
    try:
        lines = Path("/proc/self/io").read_text().splitlines()
    except OSError as error:
        pytest.skip(f"this system does not count reads: {error}")
    return int(lines[0].removeprefix("rchar: "))


def test_a_full_disk_keeps_a_prefix_and_goes_on(tmp_path: Path) -> None:
    text = os.urandom(3_000_000)
    with small_disk(tmp_path / "disk", size="2m") as place:
        logs = LogStore(place)
        size = logs.append(LOG, 0, text[:1_000_000])
        with pytest.raises(StorageFull) as caught:
            logs.append(LOG, size, text[size:])
        assert caught.value.code == "store_full"
        kept = logs.size(LOG)
        assert 1_000_000 <= kept < len(text)
        assert whole(logs) == text[:kept]
        with pytest.raises(StorageFull):
            logs.append("another", 0, b"x" * 100_000)
        grown = ["mount", "-o", "remount,size=8m", str(place)]
        os.spawnvp(os.P_WAIT, grown[0], grown)
        assert logs.append(LOG, size, text[size:]) == len(text)
        assert whole(logs) == text
        assert logs.append("another", 0, b"x" * 100_000) == 100_000
        logs.close()
