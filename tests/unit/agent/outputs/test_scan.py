"""Which output files are sent: each under a name that can be told, and no two the same; what is not
sent is named."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path

import pytest

from paddlecloud.agent.outputs import scan
from paddlecloud.agent.outputs.retry_limits import retry_seconds
from paddlecloud.agent.outputs.scan import Found
from paddlecloud.agent.outputs.sent_files import SentFiles
from paddlecloud.agent.replica import notices
from paddlecloud.model.errors import PaddleCloudError, Refused, Retry, StorageFull
from paddlecloud.model.files.snapshot import MAX_DEPTH, check_path


def put(top: Path, *names: bytes) -> None:
    for name in names:
        place = top / os.fsdecode(name)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(name)


def test_each_name_has_its_own_and_only_what_is_no_text_is_changed(tmp_path: Path) -> None:
    put(tmp_path / "output", b"\xb0\xa3", b"\xb0\xa4", b"%B0%A4", b"50%", b"%\xff", b"\xff\xff")
    put(tmp_path / "output", "模型".encode(), b"d\xd0/one")
    passed = scan.Skipped()
    found = list(scan.scan(tmp_path, passed))
    contents = {each.path: each.where.read_bytes() for each in found}
    assert contents == {
        "%B0%A3": b"\xb0\xa3",
        "%B0%A4": b"%B0%A4",
        "%B0%A4~": b"\xb0\xa4",
        "50%": b"50%",
        "%25%FF": b"%\xff",
        "%FF%FF": b"\xff\xff",
        "模型": "模型".encode(),
        "d%D0/one": b"d\xd0/one",
    }
    kept = {f"output/{path}" for path in ("%B0%A4", "50%", "模型")}
    assert {each.name for each in found} - set(passed.renamed) == kept
    for each in found:
        each.name.encode()
        with scan.open_inside(each, tmp_path) as file:  # type: ignore[union-attr]
            assert file.read() == contents[each.path]


def test_a_name_that_gets_too_long_has_a_digest_in_the_place_of_its_end(tmp_path: Path) -> None:
    names = [b"\xb0\xa1" * 44 + end for end in (b".txt", b".csv")]
    put(tmp_path / "output", *names)
    found = {each.path: each.where.read_bytes() for each in scan.scan(tmp_path)}
    assert sorted(found.values()) == sorted(names)
    for path in found:
        assert path.startswith("%B0%A1" * 39)
        check_path(path)


def test_what_was_renamed_is_told_in_both_languages() -> None:
    said = notices.output_lines("output_names_bytes", "job-1.2.pserver-0", ["output/%B0%A3"])
    english, chinese = said.splitlines()
    assert ": pserver-0/%B0%A3; " in english
    assert "not UTF-8" in english
    assert "：pserver-0/%B0%A3；" in chinese
    assert "不是 UTF-8" in chinese


MIB = 1024 * 1024
"""The size from which on holes are looked for in these tests."""


@pytest.fixture
def low(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "_SPARSE_LIMIT", MIB)


def sparse(tmp_path: Path, size: int, *data: int) -> tuple[Found, Path]:
    """A file of holes, with a piece of 64 KiB at each of these places."""
    place = tmp_path / "output" / "sparse"
    place.parent.mkdir()
    with place.open("wb") as file:
        for at in data:
            file.seek(at)
            file.write(b"x" * 65536)
        file.truncate(size)
    (found,) = scan.scan(tmp_path)
    return found, place


def test_a_file_of_holes_is_sent_up_to_a_size(tmp_path: Path) -> None:
    found, place = sparse(tmp_path, scan._SPARSE_LIMIT)
    with place.open("r+b") as file:
        scan.refuse_sparse(found, file)
        file.truncate(scan._SPARSE_LIMIT + 1)
        with pytest.raises(Refused) as caught:
            scan.refuse_sparse(found, file)
    assert caught.value.code == "output_hollow"
    assert caught.value.params["size"] == scan._SPARSE_LIMIT + 1


@pytest.mark.parametrize(
    ("data", "refused"),
    [((), True), ((0, 2 * MIB), True), (range(0, 4 * MIB, 2 * 65536), False)],
    ids=["nothing", "little", "half"],
)
def test_above_it_one_that_is_mostly_hole_is_not(
    tmp_path: Path, low: None, data: tuple[int, ...], refused: bool
) -> None:
    del low
    found, place = sparse(tmp_path, 4 * MIB, *data)
    with place.open("rb") as file:
        try:
            scan.refuse_sparse(found, file)
        except Refused:
            assert refused
        else:
            assert not refused
        assert file.tell() == 0


def test_holes_are_counted_and_few_blocks_are_not_enough(tmp_path: Path) -> None:
    """As on a file system that compresses: it has few blocks of a file without any hole."""
    _, place = sparse(tmp_path, 4 * MIB, 0, 2 * MIB)
    fd = os.open(place, os.O_RDONLY)
    try:
        if os.lseek(fd, 0, os.SEEK_HOLE) == 4 * MIB:
            pytest.skip("this file system does not tell holes")
        assert scan._data_bytes(fd, 4 * MIB) == 2 * 65536
    finally:
        os.close(fd)


def test_what_cannot_be_listed_is_named_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / "output", b"good", b"bad/lost", b"d\xd0/lost", b"/".join([b"d"] * 205))
    real = os.scandir

    def scandir(fd: int) -> object:
        if Path(f"/proc/self/fd/{fd}").readlink().name in ("bad", "d\udcd0"):
            raise OSError(errno.EIO, "Input/output error")
        return real(fd)

    monkeypatch.setattr(os, "scandir", scandir)
    passed = scan.Skipped()
    assert [found.path for found in scan.scan(tmp_path, passed)] == ["good"]
    unread = passed.unreadable
    deep = "output/" + "/".join(["d"] * 200)
    assert sorted(unread) == ["output/bad", deep, "output/d\\udcd0"]
    told = {name: scan.unreadable(name, error) for name, error in unread.items()}
    assert {name: error.code for name, error in told.items()} == {
        "output/bad": "output_unreadable",
        "output/d\\udcd0": "output_unreadable",
        deep: "path_deep",
    }
    assert "Input/output error" in str(told["output/bad"])


def test_what_was_submitted_can_be_copied_however_deep_it_is(tmp_path: Path) -> None:
    put(tmp_path / "output", b"/".join([b"d"] * MAX_DEPTH))
    passed = scan.Skipped()
    (found,) = scan.scan(tmp_path, passed)
    assert (found.path.count("/") + 1, passed.unreadable) == (MAX_DEPTH, {})
    check_path(found.path)


def test_what_is_neither_a_file_nor_leads_to_one_is_named(tmp_path: Path) -> None:
    place = tmp_path / "output"
    (place / "empty" / "still").mkdir(parents=True)
    (place / "best").symlink_to("/no/such/place")
    (place / "up").symlink_to("../nothing")
    (place / "inside").symlink_to("later")
    (place / "loop").symlink_to("loop")
    (place / "empty" / "top").symlink_to("..")
    os.mkfifo(place / "pipe")
    (place / "to pipe").symlink_to("pipe")
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "dead").symlink_to("later")
    passed = scan.Skipped()
    assert list(scan.scan(tmp_path, passed)) == []
    assert passed.outside == ["output/best", "output/up"]
    odd = ["empty/top", "inside", "loop", "pipe", "to pipe"]
    assert passed.special == [*(f"output/{name}" for name in odd), "log/dead"]
    assert passed.unreadable == {}


def test_a_directory_that_a_link_leads_to_comes_with_the_links_in_it(tmp_path: Path) -> None:
    put(tmp_path / "output", b"1/model", b"1/sub/more")
    (tmp_path / "output" / "1" / "best").symlink_to("model")
    (tmp_path / "output" / "1" / "all").symlink_to("../1")
    (tmp_path / "output" / "last").symlink_to("1")
    found = {each.path: each.where.name for each in scan.scan(tmp_path)}
    assert found == {
        **{f"{top}/best": "model" for top in ("1", "last")},
        **{f"{top}/model": "model" for top in ("1", "last")},
        **{f"{top}/sub/more": "more" for top in ("1", "last")},
    }


def test_nothing_comes_back_through_an_area_that_is_a_link(tmp_path: Path) -> None:
    put(tmp_path / "elsewhere", b"secret", b"dir/other")
    root = tmp_path / "root"
    root.mkdir()
    (root / "output").symlink_to(tmp_path / "elsewhere")
    put(root / "log", b"events")
    passed = scan.Skipped()
    (found,) = scan.scan(root, passed)
    assert (found.name, passed.outside) == ("log/events", ["output"])
    inside = replace(found, area="output", where=tmp_path / "elsewhere" / "secret")
    assert scan.open_inside(inside, root) is None


@pytest.mark.parametrize(
    ("error", "want"),
    [
        (OSError(errno.EIO, "x"), 120.0),
        (OSError(errno.ESTALE, "x"), 120.0),
        (OSError(errno.EMFILE, "x"), 3600.0),
        (PermissionError(errno.EACCES, "x"), 0.0),
        (PaddleCloudError("path_deep", path="x", depth=1, limit=1), 0.0),
        (Retry("internal", request_id="r"), 600.0),
        (StorageFull("store_full", path="x"), 3600.0),
    ],
)
def test_what_may_work_later_is_tried_again(error: OSError, want: float) -> None:
    assert retry_seconds(error, 3600.0) == want
    assert retry_seconds(error, 20.0) == min(want, 20.0)


@pytest.mark.parametrize(("changed_at", "told"), [(-5, 0.0), (1.5, 1.5), (2**38, 253402300799.0)])
def test_a_time_that_no_date_can_tell_is_told_as_the_nearest(
    tmp_path: Path, changed_at: float, told: float
) -> None:
    mark = (1, int(changed_at * 10**9), 7)
    found = Found(area="output", path="x", where=tmp_path / "x", mark=mark)
    shipped = SentFiles(tmp_path)
    shipped.add(found, "digest")
    assert found.mtime == told
    assert shipped.rows() == [("output/x", 1, told, "digest")]
