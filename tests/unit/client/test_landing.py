"""What is a person's own in a download directory stays, and nothing gets a name outside of it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from paddlecloud.client import landing
from paddlecloud.client.landing import part_of
from paddlecloud.model.errors import Conflict, Invalid, Retry
from tests.unit.client.downloading import (
    FILES,
    JOB,
    LARGE,
    LOG,
    MODEL,
    PIECE,
    WANT,
    Server,
    edited,
    found,
    furnished,
    get,
)

LOG_HERE = Path("output", JOB, "log/trainer-0.log")
MODEL_HERE = Path("output", JOB, "rank-0/model")
KEPT: dict[str, Any] = {"records": "records", "resume": True}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(landing, "PIECE", PIECE)
    monkeypatch.setattr("paddlecloud.client.retries.PAUSE", 0.0)
    monkeypatch.setattr("paddlecloud.client.downloads.THREADS", 1)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def server() -> Server:
    return Server(FILES)


def edit(path: Path, content: bytes = b"mine") -> None:
    """With a time of its own: two edits may be within one tick of the clock."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    os.utime(path, ns=(1, 1))


def renew(server: Server, path: str, content: bytes = b"newer") -> None:
    server.files[path] = content
    server.versions[path] = str(int(server.versions.get(path, "0")) + 1)


def once(server: Server, act: Callable[[], None]) -> None:
    """Do something while the next file is fetched."""

    def meanwhile() -> None:
        server.meanwhile = lambda: None
        act()

    server.meanwhile = meanwhile


def links(*pairs: tuple[str, str]) -> list[list[Any]]:
    return [[path, "link", 0, "", 0, target] for path, target in pairs]


def test_an_edit_after_an_interrupted_addition_stays(server: Server) -> None:
    get(server, records="records")
    renew(server, LOG)
    never = {"path": f"output/{JOB}/zz", "size": 1, "time": "2020-05-17T10:15:39Z"}
    server.broken.add(f"output/{JOB}/zz")
    with pytest.raises(Retry):
        get(server, rows=[*server.rows(), never], **KEPT)
    assert Path(part_of("output"), "files", JOB, "log/trainer-0.log").read_bytes() == b"newer"
    edit(LOG_HERE)
    for _ in range(2):
        assert get(server, **KEPT).named == edited(f"{JOB}/log/trainer-0.log")
        assert LOG_HERE.read_bytes() == b"mine"


@pytest.mark.parametrize("adds", [False, True], ids=["a new directory", "a finished download"])
@pytest.mark.parametrize("pieces", [0, 2])
def test_a_part_of_what_is_not_wanted_any_more_gets_no_name(
    server: Server, adds: bool, pieces: int
) -> None:
    (log,) = (row for row in server.rows() if row["path"] == LOG)
    if adds:
        get(server, rows=[log], records="records")
    server.faults = [*[""] * pieces, *["cut 100"] * 100]
    with pytest.raises(Retry):
        get(server, rows=[row for row in server.rows() if row["path"] == MODEL], **KEPT)
    (half,) = found(Path(part_of("output"), "files")).values()
    assert len(half) < len(LARGE)
    server.faults = []
    result = get(server, rows=[log], **KEPT)
    assert (result.files, result.complaints()) == (1, [])
    assert [path for path in Path("output").rglob("*") if path.is_file()] == [LOG_HERE]
    edit(MODEL_HERE, LARGE)
    renew(server, MODEL)
    assert get(server, **KEPT).named == edited(f"{JOB}/rank-0/model")
    assert MODEL_HERE.read_bytes() == LARGE


@pytest.mark.parametrize("name", ["log/trainer-0.log", "rank-0/new"])
def test_an_edit_while_a_newer_file_comes_stays(server: Server, name: str) -> None:
    get(server, records="records")
    renew(server, f"output/{JOB}/{name}")
    place = Path("output", JOB, name)
    once(server, lambda: edit(place, b"yours"))  # as long as the newer one
    for _ in range(2):
        assert get(server, **KEPT).named == edited(f"{JOB}/{name}")
        assert place.read_bytes() == b"yours"
    place.unlink()
    assert get(server, **KEPT).complaints() == []
    assert place.read_bytes() == b"newer"


@pytest.mark.parametrize("known", [True, False], ids=["with digests", "without"])
def test_an_edit_of_what_is_kept_while_something_else_comes_stays(
    server: Server, known: bool
) -> None:
    get(server, known=known, records="records")
    renew(server, f"output/{JOB}/new")
    once(server, lambda: edit(MODEL_HERE))
    get(server, known=known, **KEPT)
    renew(server, MODEL)
    assert get(server, known=known, **KEPT).named == edited(f"{JOB}/rank-0/model")
    assert MODEL_HERE.read_bytes() == b"mine"


def test_a_file_of_a_person_in_the_place_of_a_directory_stays(server: Server) -> None:
    get(server, records="records")
    renew(server, LOG)
    renew(server, f"output/{JOB}/zz/new")
    taken = Path("output", JOB, "zz")
    once(server, lambda: edit(taken))
    assert get(server, **KEPT).named == edited(f"{JOB}/zz/new")
    assert taken.read_bytes() == b"mine"
    taken.unlink()
    renew(server, LOG, b"newest")
    assert get(server, **KEPT).complaints() == []
    new = {f"{JOB}/log/trainer-0.log": b"newest", f"{JOB}/zz/new": b"newer"}
    assert found("output") == {**WANT, **new}


def test_nothing_is_made_through_a_link_of_the_same_listing(here: Path) -> None:
    victim = here / "victim"
    victim.mkdir()
    server = Server({"f": b"f"})
    for pairs in ((("l", str(victim)), ("l/.bashrc", "../f")), (("l/x", "../f"), ("l", "d"))):
        directory = f"out-{pairs[0][0][-1]}"
        result = get(server, directory, rows=furnished(server, links(*pairs)))
        assert result.named["download_links"][-1].startswith("l/")
        assert list(victim.iterdir()) == []
        assert not os.path.lexists(Path(directory, "l/.bashrc"))
        assert not os.path.lexists(Path(directory, "l/x"))


@pytest.mark.parametrize(
    "target",
    ["a/b/c/d/../../..", "a/x/../b", "a/b/../../..", "../files/f", "f/../../f"],
    ids=["of what was there", "of nothing", "of directories", "as it is called", "of a file"],
)
def test_a_link_that_would_lead_out_of_a_finished_download_is_not_made(target: str) -> None:
    server = Server({"f": b"f", "a/b/c/g": b"g"})
    rows = furnished(server, [["x", "dir", 0, "", 0, ""], *links(("a/b/c/d", "../../../x"))])
    assert get(server, rows=rows, records="records").complaints() == []
    rows = furnished(server, links(("e", target)))
    for directory in ("output", "another"):
        result = get(server, directory, rows=rows, **KEPT)
        assert result.named == {"download_links": ["e"]}
        assert not os.path.lexists(Path(directory, "e"))


def test_a_link_that_goes_up_from_a_directory_is_made() -> None:
    server = Server({"f": b"f", "a/b/g": b"g"})
    assert get(server, rows=furnished(server, links(("e", "a/b/../../f")))).complaints() == []
    assert Path("output/e").read_bytes() == b"f"


def test_nothing_is_added_through_a_link(here: Path) -> None:
    server = Server({"d/f": b"f"})
    get(server, records="records")
    (here / "elsewhere").mkdir()
    Path("output/d").rename(here / "elsewhere/d")
    Path("output/d").symlink_to(here / "elsewhere/d")
    renew(server, "d/g")
    rows = furnished(server, [*links(("d/l", "f")), ["d/e", "dir", 0, "", 0, ""]])
    result = get(server, rows=rows, **KEPT)
    assert result.named == {"download_edited": ["d/g"], "download_links": ["d/l"]}
    assert result.kept == 1
    assert found("elsewhere") == {"d/f": b"f"}
    assert [path.name for path in Path("elsewhere/d").iterdir()] == ["f"]


def test_nothing_is_fetched_through_a_link_that_was_left_behind(here: Path) -> None:
    victim = here / "victim"
    victim.mkdir()
    server = Server({"f": b"f", "zz/g": b"g"})
    server.faults = ["", *["cut 0"] * 100]
    with pytest.raises(Retry):
        get(server, records="records")
    files = Path(part_of("output"), "files")
    (files / "zz/g").unlink()
    (files / "zz").rmdir()
    (files / "zz").symlink_to(victim)
    server.faults = []
    assert get(server, **KEPT).complaints() == []
    assert list(victim.iterdir()) == []
    assert found("output") == {"f": b"f", "zz/g": b"g"}


def test_a_directory_that_became_a_link_to_nowhere_is_not_ours(server: Server) -> None:
    get(server, records="records")
    Path("output").rename("moved")
    Path("output").symlink_to("gone")
    with pytest.raises(Invalid) as caught:
        get(server, **KEPT)
    assert caught.value.code == "download_dir_foreign"


def killed(monkeypatch: pytest.MonkeyPatch, server: Server, work: str, after: int) -> None:
    """A download that ends when `os.rename` or `os.replace` has given so many names, and does not
    come to write anything down."""
    given: list[str] = []
    real = getattr(os, work)

    def give(source: str, target: str) -> None:
        if len(given) == after:
            raise KeyboardInterrupt
        real(source, target)
        if Path(target).is_relative_to(Path("output").absolute()):
            given.append(target)
        if len(given) == after:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(os, work, give)
        get(server, **KEPT)
    assert len(given) == after


def test_a_download_that_was_killed_in_its_last_moment_is_known(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed(monkeypatch, server, "rename", after=1)
    assert found("output") == WANT
    server.asked.clear()
    assert get(server, **KEPT).complaints() == []
    assert server.asked == []
    assert not Path(part_of("output")).exists()


@pytest.mark.parametrize("between", [True, False], ids=["later", "at once"])
@pytest.mark.parametrize("after", [1, 2])
def test_files_that_got_their_names_before_a_kill_are_known(
    server: Server, monkeypatch: pytest.MonkeyPatch, after: int, between: bool
) -> None:
    get(server, records="records")
    for path in FILES:
        renew(server, path)
    killed(monkeypatch, server, "replace", after)
    if between:  # with another prefix
        assert get(server, rows=[row for row in server.rows() if row["path"] == LOG], **KEPT).files
    for path in FILES:
        renew(server, path, b"newest")
    assert get(server, **KEPT).complaints() == []
    assert set(found("output").values()) == {b"newest"}


def test_a_file_system_that_numbers_its_files_anew_loses_none(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.faults = ["", *["cut 0"] * 100]
    with pytest.raises(Retry):
        get(server)
    server.faults = []
    numbers = iter(range(1000))
    with monkeypatch.context() as patched:
        patched.setattr(landing, "_inode", lambda status: (0, next(numbers)))
        with pytest.raises(Conflict) as caught:
            get(server, resume=True)
    assert caught.value.code == "download_failed"
    assert not Path("output").exists()
    assert get(server, resume=True).complaints() == []
    assert found("output") == WANT
