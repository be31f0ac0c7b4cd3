"""What is a person's own in a download directory stays, and nothing gets a name outside of it."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from paddlecloud.client.download import _journal
from paddlecloud.client.download.staging import staging_dir
from paddlecloud.messages import LANGUAGES
from paddlecloud.model.errors import Conflict, Invalid, PaddleCloudError, Retry
from tests.unit.client.download_server import (
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
    interrupted,
)

LOG_HERE = Path("output", JOB, "log/trainer-0.log")
MODEL_HERE = Path("output", JOB, "rank-0/model")
KEPT: dict[str, Any] = {"records": "records", "resume": True}

pytestmark = pytest.mark.usefixtures("one_by_one")


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
    assert Path(staging_dir("output"), "files", JOB, "log/trainer-0.log").read_bytes() == b"newer"
    edit(LOG_HERE)
    for _ in range(2):
        assert get(server, **KEPT).problems == edited(f"{JOB}/log/trainer-0.log")
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
    (half,) = found(Path(staging_dir("output"), "files")).values()
    assert len(half) < len(LARGE)
    server.faults = []
    result = get(server, rows=[log], **KEPT)
    assert (result.files, result.errors()) == (1, [])
    assert [path for path in Path("output").rglob("*") if path.is_file()] == [LOG_HERE]
    assert not Path(staging_dir("output")).exists()
    edit(MODEL_HERE, LARGE)
    renew(server, MODEL)
    assert get(server, **KEPT).problems == edited(f"{JOB}/rank-0/model")
    assert MODEL_HERE.read_bytes() == LARGE


@pytest.mark.parametrize("name", ["log/trainer-0.log", "rank-0/new"])
def test_an_edit_while_a_newer_file_comes_stays(server: Server, name: str) -> None:
    get(server, records="records")
    renew(server, f"output/{JOB}/{name}")
    place = Path("output", JOB, name)
    once(server, lambda: edit(place, b"yours"))  # as long as the newer one
    for _ in range(2):
        assert get(server, **KEPT).problems == edited(f"{JOB}/{name}")
        assert place.read_bytes() == b"yours"
    place.unlink()
    assert get(server, **KEPT).errors() == []
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
    assert get(server, known=known, **KEPT).problems == edited(f"{JOB}/rank-0/model")
    assert MODEL_HERE.read_bytes() == b"mine"


def test_a_file_of_a_person_in_the_place_of_a_directory_stays(server: Server) -> None:
    get(server, records="records")
    renew(server, LOG)
    renew(server, f"output/{JOB}/zz/new")
    taken = Path("output", JOB, "zz")
    once(server, lambda: edit(taken))
    assert get(server, **KEPT).problems == edited(f"{JOB}/zz/new")
    assert taken.read_bytes() == b"mine"
    taken.unlink()
    renew(server, LOG, b"newest")
    assert get(server, **KEPT).errors() == []
    new = {f"{JOB}/log/trainer-0.log": b"newest", f"{JOB}/zz/new": b"newer"}
    assert found("output") == {**WANT, **new}


def test_nothing_is_made_through_a_link_of_the_same_listing(here: Path) -> None:
    victim = here / "victim"
    victim.mkdir()
    server = Server({"f": b"f"})
    for pairs in ((("l", str(victim)), ("l/.bashrc", "../f")), (("l/x", "../f"), ("l", "d"))):
        directory = f"out-{pairs[0][0][-1]}"
        result = get(server, directory, rows=furnished(server, links(*pairs)))
        assert result.problems["download_links"][-1].startswith("l/")
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
    assert get(server, rows=rows, records="records").errors() == []
    rows = furnished(server, links(("e", target)))
    for directory in ("output", "another"):
        result = get(server, directory, rows=rows, **KEPT)
        assert result.problems == {"download_links": ["e"]}
        assert not os.path.lexists(Path(directory, "e"))


def test_a_link_that_goes_up_from_a_directory_is_made() -> None:
    server = Server({"f": b"f", "a/b/g": b"g"})
    assert get(server, rows=furnished(server, links(("e", "a/b/../../f")))).errors() == []
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
    assert result.problems == {"download_edited": ["d/g"], "download_links": ["d/l"]}
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
    files = Path(staging_dir("output"), "files")
    (files / "zz/g").unlink()
    (files / "zz").rmdir()
    (files / "zz").symlink_to(victim)
    server.faults = []
    assert get(server, **KEPT).errors() == []
    assert list(victim.iterdir()) == []
    assert found("output") == {"f": b"f", "zz/g": b"g"}


def test_a_directory_that_became_a_link_to_nowhere_is_not_ours(server: Server) -> None:
    get(server, records="records")
    Path("output").rename("moved")
    Path("output").symlink_to("gone")
    assert refused(server, **KEPT) == "download_dir_nowhere"


def refused(server: Server, directory: str = "output", **how: Any) -> str:
    """With which code, and before anything is fetched."""
    asked = len(server.asked)
    with pytest.raises(PaddleCloudError) as caught:
        get(server, directory, **how)
    assert len(server.asked) == asked
    assert all(directory[:150] in caught.value.text(lang) for lang in LANGUAGES)
    return caught.value.code


@pytest.mark.parametrize("resume", [True, False])
def test_an_unfinished_download_of_another_job_is_not_thrown_away(
    server: Server, resume: bool
) -> None:
    interrupted(server, 4)
    with pytest.raises(Invalid) as caught:
        get(server, job_id="job-2", resume=resume)
    assert caught.value.code == "download_dir_other"
    for lang in LANGUAGES:
        for words in (JOB, "--resume", "--download_dir", staging_dir("output")):
            assert words in caught.value.text(lang)
    assert server.asked == []
    assert get(server, resume=True).kept


def test_one_that_brought_nothing_is_in_nobody_s_way(server: Server) -> None:
    interrupted(server, 0)
    assert [*get(server, job_id="job-2").problems] == ["download_gone"]


def test_a_download_is_known_after_its_file_system_was_mounted_anew(server: Server) -> None:
    """As on NFS and btrfs, whose devices have the numbers that are free then."""
    get(server, records="records")
    (record,) = Path("records").iterdir()
    what, identity, *more = filter(None, record.read_text().splitlines())
    known = json.dumps(json.loads(identity) | {"device": 1_000_003})
    record.write_text("\n".join([what, known, *more]))
    assert get(server, **KEPT).errors() == []


def as_of_2026_11_17(record: Path, *, coming: bool) -> None:
    """Rewrite a record in the former format: versions and stamps apart, and the versions of files
    that were about to get their names."""
    source, identity, files = map(json.loads, filter(None, record.read_text().splitlines()))
    rows = files["files"].items()
    states = [] if coming else [[path, size, time, "", 0] for path, (size, time, _) in rows]
    stamps = {} if coming else {path: stamp for path, (_, _, stamp) in rows}
    lines = [source, identity, *states, {"stamps": stamps, "coming": dict(rows) if coming else {}}]
    record.write_text("\n".join(map(json.dumps, lines)))


@pytest.mark.parametrize("coming", [False, True])
def test_a_download_that_the_previous_version_finished_gets_what_is_new(
    server: Server, coming: bool
) -> None:
    get(server, records="records")
    (record,) = Path("records").iterdir()
    as_of_2026_11_17(record, coming=coming)
    renew(server, LOG)
    edit(MODEL_HERE)
    result = get(server, **KEPT)
    assert result.problems == edited(f"{JOB}/rank-0/model")
    assert (LOG_HERE.read_bytes(), MODEL_HERE.read_bytes()) == (b"newer", b"mine")


def test_a_download_that_the_previous_version_left_unfinished_is_resumed(server: Server) -> None:
    """It was killed while it gathered its files, so some are in a directory of their own."""
    interrupted(server, 4)
    files = Path(staging_dir("output"), "files")
    files.rename(files.with_name("ready"))
    assert get(server, **KEPT).errors() == []
    assert found("output") == WANT
    assert not files.parent.exists()


def test_the_records_of_the_last_downloads_are_kept(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_journal, "_MAX_RECORDS", 2)
    for number in range(3):
        get(server, f"output-{number}", records="records")
        for age, record in enumerate(sorted(Path("records").iterdir(), key=os.path.getmtime)):
            os.utime(record, (1000 * number + age, 1000 * number + age))
    assert refused(server, "output-0", **KEPT) == "download_dir_foreign"
    assert get(server, "output-2", **KEPT).errors() == []


def test_a_link_to_an_earlier_download_is_that_download(server: Server, here: Path) -> None:
    get(server, "deep/result", records="records")
    (here / "link").symlink_to("deep/result")
    (here / "above").symlink_to("deep")
    renew(server, LOG)
    for name in ("link", "above/result"):
        assert refused(server, name) == "download_dir_exists"
        assert get(server, name, **KEPT).errors() == []
    assert found("deep/result")[f"{JOB}/log/trainer-0.log"] == b"newer"
    assert (here / "link").is_symlink()
    assert sorted(path.name for path in (here / "deep").iterdir()) == ["result"]


@pytest.mark.parametrize("resume", [True, False])
def test_what_is_no_directory_is_called_what_it_is(
    server: Server, here: Path, resume: bool
) -> None:
    (here / "file").write_bytes(b"mine")
    (here / "link").symlink_to("file")
    (here / "dangling").symlink_to("nowhere")
    how = {"records": "records", "resume": resume}
    assert refused(server, "file", **how) == "download_dir_file"
    assert refused(server, "link", **how) == "download_dir_file"
    assert refused(server, "dangling", **how) == "download_dir_nowhere"
    assert refused(server, "n" * 256, **how) == "download_failed"
    assert sorted(path.name for path in here.iterdir()) == ["dangling", "file", "link"]


@pytest.mark.parametrize("name", ["n" * 237, "n" * 238, "n" * 255, "名" * 85])
def test_every_name_that_a_directory_can_have_is_taken(server: Server, name: str) -> None:
    server.faults = ["", *["cut 0"] * 100]
    with pytest.raises(Retry):
        get(server, name)
    server.faults = []
    assert get(server, name, resume=True).errors() == []
    assert found(name) == WANT
    assert [path.name for path in Path().iterdir()] == [name]


@pytest.mark.parametrize("resume", [True, False])
@pytest.mark.parametrize("kind", ["link", "dangling", "file"])
def test_what_others_put_in_the_place_of_the_hidden_directory_is_refused(
    server: Server, here: Path, resume: bool, kind: str
) -> None:
    victim = here / "victim"
    victim.mkdir()
    part = Path(staging_dir("output"))
    make: dict[str, Callable[[], object]] = {
        "link": lambda: part.symlink_to(victim),
        "dangling": lambda: part.symlink_to("nowhere"),
        "file": part.touch,
    }
    make[kind]()
    assert refused(server, resume=resume) == "download_part_foreign"
    assert list(victim.iterdir()) == []
    assert sorted(path.name for path in here.iterdir()) == sorted([part.name, "victim"])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory to somebody else")
def test_a_hidden_directory_of_somebody_else_is_refused(server: Server, here: Path) -> None:
    part = Path(staging_dir("output"))
    part.mkdir()
    os.chown(part, 12345, 12345)
    assert refused(server) == "download_part_foreign"
    assert list(part.iterdir()) == []
    os.chown(here, 12345, 12345)  # who can do there what they want anyway
    assert get(server).errors() == []


def test_a_file_that_cannot_be_put_into_its_directory_is_named(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    get(server, records="records")
    renew(server, LOG)

    def replace(source: str, target: str) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    with monkeypatch.context() as patched, pytest.raises(Conflict) as caught:
        patched.setattr(os, "replace", replace)
        get(server, **KEPT)
    assert caught.value.params["path"] == str(LOG_HERE.absolute())
    assert get(server, **KEPT).errors() == []
    assert LOG_HERE.read_bytes() == b"newer"


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
    assert get(server, **KEPT).errors() == []
    assert server.asked == []
    assert not Path(staging_dir("output")).exists()


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
    assert get(server, **KEPT).errors() == []
    assert set(found("output").values()) == {b"newest"}


@pytest.mark.parametrize(("work", "after"), [("replace", 0), ("rename", 0)])
def test_a_download_that_went_on_and_was_killed_in_its_last_moment_has_it_all(
    server: Server, monkeypatch: pytest.MonkeyPatch, work: str, after: int
) -> None:
    interrupted(server, 4)
    rows = furnished(server, [*links(("l", f"{JOB}/log")), ["e", "dir", 0, "", 0, ""]])
    real, given = getattr(os, work), iter(range(after))

    def give(source: str, target: str) -> None:
        if next(given, None) is None:
            raise KeyboardInterrupt
        real(source, target)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(os, work, give)
        get(server, rows=rows, **KEPT)
    assert not Path("output").exists()
    server.asked.clear()
    assert get(server, rows=rows, **KEPT).errors() == []
    assert (found("output"), server.asked) == (WANT, [])
    assert sorted(path.name for path in Path("output").iterdir()) == ["e", JOB, "l"]
    assert not Path(staging_dir("output")).exists()


OF_LOG: dict[str, Any] = {**KEPT, "prefix": f"output/{JOB}/log"}


def test_what_a_smaller_prefix_does_not_mean_is_kept(server: Server) -> None:
    told: list[str] = []
    how: dict[str, Any] = {"note": lambda code, **_: told.append(code)}
    interrupted(server, 4)
    log = [row for row in server.rows() if row["path"] == LOG]
    for _ in range(2):
        assert get(server, rows=log, **OF_LOG, **how).bytes == 0
        assert (found("output"), server.asked) == ({f"{JOB}/log/trainer-0.log": b"hello\n"}, [])
    assert told == ["download_rest"] * 2
    result = get(server, prefix="/", **KEPT, **how)
    assert (result.kept, result.errors()) == (len(FILES[LOG]) + 3 * PIECE, [])
    assert found("output") == WANT
    assert told == ["download_rest"] * 2
    assert not Path(staging_dir("output")).exists()


def test_of_what_smaller_prefixes_brought_in_turn_nothing_stays_hidden(server: Server) -> None:
    interrupted(server, 4)
    rows = {row["path"]: row for row in server.rows()}
    get(server, rows=[rows[LOG]], **OF_LOG)
    assert Path(staging_dir("output")).exists()
    result = get(server, rows=[rows[MODEL]], prefix=MODEL, **KEPT)
    assert (result.kept, result.errors()) == (3 * PIECE, [])
    assert set(found("output")) == {f"{JOB}/log/trainer-0.log", f"{JOB}/rank-0/model"}
    assert not Path(staging_dir("output")).exists()


def test_a_directory_of_which_there_is_no_record_is_told_as_such(
    server: Server, here: Path
) -> None:
    """As that of a download when the home could not be written."""
    (here / "file").touch()
    how = {"records": "file/records"}
    get(server, **how)
    with pytest.raises(Invalid) as caught:
        get(server, resume=True, **how)
    assert caught.value.code == "download_dir_foreign"
    assert "not created by a download" in caught.value.text("en") and "没有" in caught.value.text(
        "zh"
    )
