"""When a log grew, to a second: where to begin, and how several logs make one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddlecloud.model.logs.merge import Source, merged
from paddlecloud.stores.directory.store import DirectoryStore
from paddlecloud.stores.logs.log_store import LogStore

LOG = "users/u/output/job-1/log/trainer-0.log"
ASIDE = "users/u/output/job-1/log/attempt-1/trainer-0.log"


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[LogStore]:
    opened = LogStore(tmp_path, max_open=4)
    yield opened
    opened.close()


def grow(logs: LogStore, *lines: tuple[float, bytes], path: str = LOG) -> None:
    for at, line in lines:
        logs.append(path, logs.size(path), line, at)


def since(logs: LogStore, time: float, path: str = LOG) -> bytes:
    return logs.read(path, logs.offset_at(path, time), 1000)


def test_a_log_is_read_from_a_time_on(logs: LogStore) -> None:
    grow(logs, (100, b"one\n"), (110, b"two\n"), (120, b"three\n"))
    assert since(logs, 90) == since(logs, 100) == b"one\ntwo\nthree\n"
    assert since(logs, 105) == since(logs, 110.5) == b"two\nthree\n"
    assert since(logs, 115) == b"three\n"
    assert since(logs, 130) == b""


def test_notes_are_a_hundredth_of_a_second_apart(logs: LogStore) -> None:
    for number in range(1000):
        grow(logs, (100 + number / 250, b"x\n"))
    notes = logs.notes(LOG, 0, 1000)
    assert len(notes) == 334
    assert notes[:3] == [(100, 0), (100.012, 6), (100.024, 12)]
    assert since(logs, 103.5) == b"x\n" * 373, "to a second: half of them would do"
    assert logs.notes(LOG, 330, 100) == notes[330:], "in memory or on disk"


def test_bytes_may_have_been_written_long_before_they_come(logs: LogStore) -> None:
    logs.append(LOG, 0, b"one\ntwo\nthr", 100, [(50, 0), (60, 4), (170, 8)])
    assert logs.notes(LOG, 0, 10) == [(50, 0), (60, 4), (100, 8)], "but not later"
    logs.append(LOG, 8, b"three\nfour\n", 110, [(101, 8), (102, 10), (105, 14), (109, 99)])
    assert logs.notes(LOG, 3, 10) == [(102, 11), (105, 14)], "and what is stored stays"


def test_an_index_stays_small_beside_its_log(logs: LogStore) -> None:
    for number in range(6000):
        grow(logs, (100 + number / 50, b"x\n"))
    notes = logs.notes(LOG, 0, 10_000)
    assert 4096 <= len(notes) <= 4200, "then one a second"
    assert notes[-1][0] - notes[-2][0] >= 1


def test_the_times_of_an_ended_log_outlive_the_server(logs: LogStore, tmp_path: Path) -> None:
    grow(logs, (100, b"one\n"), (100.5, b"two\n"))
    assert not (tmp_path / ".times").exists()
    logs.flush([LOG])
    another = LogStore(tmp_path)
    assert another.notes(LOG, 0, 10) == logs.notes(LOG, 0, 10) == [(100, 0), (100.5, 4)]
    another.close()


def test_a_line_is_shown_whole(logs: LogStore) -> None:
    grow(logs, (100, b"one\nbeg"), (110, b"in\n"))
    assert since(logs, 110) == b"begin\n"


def test_a_line_that_is_longer_than_anybody_reads_is_cut(logs: LogStore) -> None:
    grow(logs, (100, b"x" * 3_000_000), (110, b"y\n"))
    assert since(logs, 110) == b"y\n"


def test_a_short_log_needs_no_side_file(logs: LogStore, tmp_path: Path) -> None:
    grow(logs, (100, b"one\n"), (100.009, b"two\n"))
    logs.flush([LOG])
    assert [entry.name for entry in tmp_path.iterdir()] == ["users"]
    assert logs.notes(LOG, 0, 10) == [(100, 0)]


def test_times_are_no_files_of_the_store(logs: LogStore, tmp_path: Path) -> None:
    grow(logs, (100, b"one\n"), (110, b"two\n"))
    assert (tmp_path / ".times" / LOG).exists()
    store = DirectoryStore(tmp_path)
    assert [found.path for found in store.list()] == [LOG]
    store.close()


def test_a_log_without_notes_is_as_old_as_its_file(logs: LogStore, tmp_path: Path) -> None:
    logs.append(LOG, 0, b"old\n")
    written = (tmp_path / LOG).stat().st_mtime
    assert since(logs, written - 10) == b"old\n"
    assert since(logs, written + 10) == b""
    assert logs.offset_at("users/nobody", 0) == 0


def test_notes_are_found_again_after_a_restart(logs: LogStore, tmp_path: Path) -> None:
    grow(logs, (100, b"one\n"), (110, b"two\n"))
    another = LogStore(tmp_path)
    grow(another, (110.5, b"three\n"), (120, b"four\n"))
    assert since(another, 105) == b"two\nthree\nfour\n"
    assert since(another, 119) == b"four\n"
    another.close()


def test_notes_go_where_the_log_goes_and_end_with_it(logs: LogStore, tmp_path: Path) -> None:
    grow(logs, (100, b"one\n"), (110, b"two\n"))
    logs.move(LOG, ASIDE)
    assert since(logs, 110, ASIDE) == b"two\n"
    assert logs.notes(LOG, 0, 10) == []
    grow(logs, (120, b"again\n"), (130, b"more\n"))
    assert since(logs, 130) == b"more\n"
    logs.close_deleted("users/u/output/job-1")
    assert logs.notes(LOG, 0, 10) == logs.notes(ASIDE, 0, 10) == []
    assert not list((tmp_path / ".times").rglob("*.log"))


def test_a_note_that_was_cut_by_a_full_disk_is_written_over(logs: LogStore, tmp_path: Path) -> None:
    grow(logs, (100, b"one\n"), (110, b"two\n"))
    side = tmp_path / ".times" / LOG
    side.write_bytes(side.read_bytes() + b"\0" * 7)
    grow(logs, (120, b"three\n"))
    assert logs.notes(LOG, 0, 10) == [(100, 0), (110, 4), (120, 8)]


def test_where_no_note_can_be_written_the_log_still_is(logs: LogStore, tmp_path: Path) -> None:
    (tmp_path / ".times").write_bytes(b"")
    grow(logs, (100, b"one\n"), (110, b"two\n"))
    assert logs.read(LOG, 0, 100) == b"one\ntwo\n"


def a_source(*lines: tuple[float, bytes], offset: int = 0) -> Source:
    """A log to which these pieces came at these times."""
    data = b"".join(piece for _, piece in lines)
    sizes = [sum(len(piece) for _, piece in lines[:number]) for number in range(len(lines))]
    notes = [(at, size) for (at, _), size in zip(lines, sizes, strict=True)]
    return Source(
        lambda begin, limit: data[begin : begin + limit],
        lambda first, count: notes[first : first + count],
        offset=offset,
        end=len(data),
        modified=0.0,
    )


def test_lines_of_several_logs_come_in_the_order_of_time() -> None:
    sources = [
        a_source((100, b"a1\n"), (103, b"a2\na3\n")),
        a_source((101, b"b1\nb"), (102, b"2\n"), (104, b"b3")),
    ]
    assert list(merged(sources, size=100)) == [
        (0, 100, b"a1\n"),
        (1, 101, b"b1\nb2\n"),
        (0, 103, b"a2\na3\n"),
        (1, 104, b"b3"),
    ]


def test_each_moment_can_be_told_apart() -> None:
    sources = [a_source((100, b"a1\na"), (103, b"2\n")), a_source((101, b"b1\n"), (102, b"b2\n"))]
    assert list(merged(sources, size=100, dated=True)) == [
        (0, 100, b"a1\n"),
        (1, 101, b"b1\n"),
        (1, 102, b"b2\n"),
        (0, 103, b"a2\n"),
    ]


def test_a_log_that_grows_is_merged_again_from_where_it_was() -> None:
    pieces = [b"a1\na", b"2\n", b"a3\n"]
    notes: list[tuple[float, int]] = [(100, 0)]
    data = bytearray(pieces[0])
    source = Source(
        lambda begin, limit: bytes(data[begin : begin + limit]),
        lambda first, count: notes[first : first + count],
        offset=0,
        end=len(data),
        modified=50,
    )
    assert list(merged([source], size=100, whole=True, dated=True)) == [(0, 100, b"a1\n")]
    assert list(merged([source], size=100, whole=True, dated=True)) == []
    for at, piece in ((110, pieces[1]), (120, pieces[2])):
        notes.append((at, len(data)))
        data += piece
    source.grow(len(data), 120)
    assert list(merged([source], size=100, whole=True, dated=True)) == [
        (0, 110, b"a2\n"),
        (0, 120, b"a3\n"),
    ]


def test_a_line_without_an_end_is_kept_back_when_more_may_come() -> None:
    source = a_source((100, b"a1\n1%\r2"))
    assert list(merged([source], size=100, whole=True)) == [(0, 100, b"a1\n1%\r")]
    assert source.offset == 6


def test_a_long_line_is_not_torn_apart_by_others() -> None:
    long = a_source((100, b"x" * 500), (101, b"x" * 500 + b"\n"))
    short = a_source((100.5, b"one\n"), (101.5, b"two\n"))
    got = list(merged([long, short], size=64))
    assert [number for number, _, _ in got] == [1] + [0] * 16 + [1]
    assert b"".join(data for number, _, data in got if number == 0) == b"x" * 1000 + b"\n"


PIECES = st.lists(
    st.tuples(st.integers(0, 50), st.binary(max_size=12) | st.sampled_from([b"a\n", b"\n", b"b"])),
    max_size=12,
)


@given(st.lists(PIECES, min_size=1, max_size=4), st.integers(1, 9), st.booleans(), st.booleans())
def test_nothing_is_lost_doubled_or_out_of_its_own_order(
    logs: list[list[tuple[int, bytes]]], size: int, whole: bool, dated: bool
) -> None:
    given_logs = [sorted(log, key=lambda pair: pair[0]) for log in logs]
    sources = [a_source(*[(float(at), data) for at, data in log]) for log in given_logs]
    told = [b""] * len(sources)
    for number, _, data in merged(sources, size=size, whole=whole, dated=dated):
        assert 0 < len(data) <= size
        told[number] += data
    for number, log in enumerate(given_logs):
        everything = b"".join(data for _, data in log)
        ends = max(everything.rfind(b"\n"), everything.rfind(b"\r")) + 1
        assert told[number] == (everything[:ends] if whole else everything)
        assert sources[number].offset == len(told[number])
