"""Downloading against real directories; the server (`downloading`) is a function here."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from paddlecloud.client.download import _ranges
from paddlecloud.client.download.listing import local_name
from paddlecloud.client.download.staging import staging_dir
from paddlecloud.messages import LANGUAGES
from paddlecloud.model.errors import Conflict, Invalid, PaddleCloudError, Retry
from tests.unit.client.download_server import (
    ENTRIES,
    FILES,
    JOB,
    LARGE,
    LOG,
    MODEL,
    PIECE,
    WANT,
    Answer,
    Server,
    edited,
    found,
    from_bucket,
    furnished,
    get,
)

pytestmark = pytest.mark.usefixtures("here")


@pytest.fixture
def server() -> Server:
    return Server(FILES)


@pytest.mark.parametrize("known", [True, False], ids=["with digests", "without"])
def test_everything_comes_whole_and_without_a_doubled_word(
    here: Path, server: Server, known: bool
) -> None:
    heard: list[int] = []
    result = get(server, known=known, progress=heard.append)
    assert found("output") == WANT
    size = sum(map(len, FILES.values()))
    assert (result.files, result.bytes, result.kept) == (3, size, 0)
    assert sum(heard) == size
    assert [path.name for path in here.iterdir()] == ["output"]


def test_a_directory_row_is_a_directory(here: Path) -> None:
    server = Server({})
    rows = [{"path": f"output/{JOB}/", "size": 0, "time": "2020-05-17T10:15:39Z"}]
    assert get(server, rows=rows).files == 0
    assert Path("output", JOB).is_dir()


@pytest.mark.parametrize(
    "faults",
    [["cut 0"], ["cut 10"], ["damage"], ["unreachable", "unreachable"], ["cut 5", "damage"] * 2],
    ids=["no byte", "broken off", "wrong bytes", "away", "all of it"],
)
def test_trouble_on_the_way_is_overcome(here: Path, server: Server, faults: list[str]) -> None:
    server.faults = faults
    get(server)
    assert found("output") == WANT


@pytest.mark.parametrize("first", [0, 2 * PIECE], ids=["at once", "in the middle"])
@pytest.mark.parametrize("known", [True, False], ids=["with digests", "without"])
def test_a_file_that_is_not_the_job_s_any_more_is_left_out(
    here: Path, server: Server, first: int, known: bool
) -> None:
    server.lost = {MODEL: first, LOG: 0}
    result = get(server, known=known, records="records")
    assert (result.files, result.problems) == (1, {"download_lost": [LOG, MODEL]})
    assert found("output") == {f"{JOB}/rank-0/empty": b""}
    (complaint,) = result.errors()
    for lang in LANGUAGES:
        assert LOG in complaint.text(lang) and MODEL in complaint.text(lang)
    server.lost = {}
    again = get(server, known=known, resume=True, records="records")
    assert again.errors() == []
    assert found("output") == WANT


@pytest.mark.parametrize("path", [MODEL, LOG], ids=["of several pieces", "of one"])
def test_a_file_that_is_gone_since_it_was_listed_is_named_and_the_others_come(
    here: Path, server: Server, path: str
) -> None:
    rows = server.rows()
    del server.files[path]
    result = get(server, rows=rows, records="records")
    assert (result.files, result.problems) == (2, {"download_gone": [path]})
    (complaint,) = result.errors()
    for lang in LANGUAGES:
        assert path in complaint.text(lang)
    assert f"{path}".removeprefix("output/") not in found("output")
    server.files[path] = FILES[path]
    assert get(server, resume=True, records="records").errors() == []
    assert found("output") == WANT


@pytest.mark.parametrize("known", [True, False], ids=["with digests", "without"])
def test_a_file_that_goes_while_it_is_fetched_is_named(
    here: Path, server: Server, known: bool
) -> None:
    def meanwhile() -> None:
        if sum(path == MODEL for path, _ in server.asked) == 2:
            server.files.pop(MODEL, None)

    server.meanwhile = meanwhile
    assert get(server, known=known).problems == {"download_gone": [MODEL]}
    assert set(found("output")) == {f"{JOB}/log/trainer-0.log", f"{JOB}/rank-0/empty"}


@pytest.mark.parametrize("fault", ["cut 100", "damage", "unreachable"])
def test_what_came_is_kept_and_only_the_rest_is_asked_for(
    here: Path, server: Server, fault: str
) -> None:
    server.faults = ["", "", "", *([fault] * 100)]
    with pytest.raises(Retry):
        get(server)
    assert not Path("output").exists()
    assert Path(staging_dir("output")).is_dir()
    server.faults, before, server.sent = [], list(server.asked), 0
    kept_of = set(server.asked[:3])
    server.asked.clear()
    result = get(server, resume=True)
    assert found("output") == WANT
    assert result.kept > 0
    assert result.bytes + result.kept == sum(map(len, FILES.values()))
    assert server.sent == result.bytes
    assert len(kept_of & set(server.asked)) < len(kept_of), before
    assert not Path(staging_dir("output")).exists()


def test_without_resume_it_begins_anew(here: Path, server: Server) -> None:
    server.faults = ["", "", *(["damage"] * 100)]
    with pytest.raises(Retry):
        get(server)
    server.faults = []
    assert get(server).kept == 0
    assert found("output") == WANT


def test_a_file_that_changed_since_is_not_patched_together(here: Path, server: Server) -> None:
    server.faults = [*[""] * 4, *(["unreachable"] * 100)]
    with suppress(Retry):
        get(server)
    server.faults = []
    server.files[MODEL], server.versions[MODEL] = LARGE[::-1], "2"
    get(server, resume=True)
    assert found("output") == {**WANT, f"{JOB}/rank-0/model": LARGE[::-1]}


def test_of_many_files_that_are_gone_it_is_told_how_many(here: Path) -> None:
    server = Server({f"gone-{number:02}": b"" for number in range(25)})
    rows = server.rows()
    server.files.clear()
    (complaint,) = get(server, rows=rows).errors()
    for lang, words in (("en", "gone-19 and 5 more"), ("zh", "gone-19，另有 5 个")):
        assert words in complaint.text(lang)


def test_a_file_that_is_replaced_meanwhile_is_begun_anew(here: Path, server: Server) -> None:
    rows = server.rows(known=True)

    def replace() -> None:
        if len(server.asked) == 4:
            server.files[MODEL], server.versions[MODEL] = LARGE[::-1] + b"more", "2"

    server.meanwhile = replace
    get(server, rows=rows)
    assert found("output") == {**WANT, f"{JOB}/rank-0/model": LARGE[::-1] + b"more"}


@pytest.mark.parametrize("fault", ["cut 600", "damage", "replaced"])
def test_what_came_in_vain_is_taken_back_from_the_progress(
    here: Path, server: Server, fault: str
) -> None:
    """Or it would stand at 100 % while data still comes."""
    told: list[int] = []
    size = sum(map(len, FILES.values()))

    def replace() -> None:
        if fault == "replaced" and len(server.asked) == 4:
            deadline = time.monotonic() + 10
            # Other threads fetch ranges of the same file: some of it has come.
            while sum(told) <= len(FILES[LOG]) and time.monotonic() < deadline:
                time.sleep(0.001)
            server.files[MODEL], server.versions[MODEL] = LARGE[::-1], "2"

    server.meanwhile = replace
    server.faults = [""] * 3 + [fault] * 2
    get(server, progress=told.append)
    assert sum(told) == size
    assert min(told) < 0


def test_a_file_that_is_never_the_same_is_named_and_the_others_come(
    here: Path, server: Server
) -> None:
    def replace() -> None:
        server.versions[MODEL] = str(int(server.versions[MODEL]) + 1)

    server.meanwhile = replace
    result = get(server, records="records")
    assert result.problems == {"download_changing": [MODEL]}
    assert "kept changing" in str(result.errors()[0])
    model = f"{JOB}/rank-0/model"
    assert found("output") == {path: data for path, data in WANT.items() if path != model}
    server.meanwhile = lambda: None
    assert get(server, records="records", resume=True).problems == {}
    assert found("output") == WANT


def test_a_log_that_grows_meanwhile_is_taken_as_it_was_listed(here: Path) -> None:
    server = Server({LOG: LARGE})
    rows = server.rows()

    class Growing(Server):
        def open(self, target: str, query: Mapping[str, Any], **_: object) -> Answer:
            self.files[LOG] += b"more"
            answer = super().open(target, query)
            answer.headers = {**answer.headers, "x-content-version": "append"}
            return answer

    get(Growing({LOG: LARGE}), rows=rows)
    assert found("output")[f"{JOB}/log/trainer-0.log"][: len(LARGE)] == LARGE


@pytest.mark.parametrize("path", [MODEL, LOG], ids=["of several pieces", "of one"])
@pytest.mark.parametrize("near", [True, False], ids=["on this machine", "of a server"])
def test_a_file_that_the_store_damaged_is_named_and_the_others_come(
    here: Path, server: Server, path: str, near: bool
) -> None:
    rows = server.rows(known=True)
    ways = stored(here) if near else {}
    if near:
        Path(ways[path]).write_bytes(FILES[path][::-1])
    server.files[path] = FILES[path][::-1]
    result = get(server, rows=rows, locations=ways, records="records")
    assert (result.files, result.problems) == (2, {"download_damaged": [path]})
    (complaint,) = result.errors()
    assert complaint.code == "download_damaged"
    for lang in LANGUAGES:
        assert path in complaint.text(lang)
    name = path.removeprefix("output/")
    assert found("output") == {key: content for key, content in WANT.items() if key != name}
    server.files[path] = FILES[path]
    again = get(server, rows=rows, resume=True, records="records")
    assert again.errors() == []
    assert found("output") == WANT


def cut_off(server: Server, **how: Any) -> None:
    """A download that ends when all but one file is here."""
    rows = server.rows(known=True)
    last = f"output/{JOB}/rank-0/zz"
    never = {"path": last, "size": 1, "time": "2020-05-17T10:15:39Z"}
    server.broken.add(last)
    with pytest.raises(Retry):
        get(server, rows=[*rows, never], **how)


def flip(path: Path) -> None:
    """One byte, and nobody sees it by size or time."""
    before = path.stat()
    content = path.read_bytes()
    path.write_bytes(bytes([content[0] ^ 1]) + content[1:])
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize("near", [True, False], ids=["on this machine", "of a server"])
def test_what_was_damaged_here_of_an_unfinished_download_is_fetched_anew_at_once(
    here: Path, near: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        _ranges, "concurrency", lambda *_, **__: 1
    )  # the files before the missing one are here then
    server = Server({**FILES, f"output/{JOB}/rank-0/other": LARGE[::-1]})
    cut_off(server)
    for name in ("log/trainer-0.log", "rank-0/model", "rank-0/other"):
        flip(Path(staging_dir("output"), "files", JOB, name))
    heard: list[int] = []
    ways = stored(here) if near else {}
    result = get(server, known=True, locations=ways, resume=True, progress=heard.append)
    assert result.errors() == []
    assert found("output") == {**WANT, f"{JOB}/rank-0/other": LARGE[::-1]}
    total = sum(map(len, server.files.values()))
    assert (result.files, result.bytes + result.kept, sum(heard)) == (4, total, total)


def test_what_is_damaged_in_the_store_as_well_is_told_once(here: Path, server: Server) -> None:
    cut_off(server)
    rows = server.rows(known=True)
    server.files[MODEL] = LARGE[::-1]
    flip(Path(staging_dir("output"), "files", JOB, "rank-0/model"))
    result = get(server, rows=rows, resume=True, records="records")
    assert (result.problems, result.files) == ({"download_damaged": [MODEL]}, 2)
    assert result.bytes + result.kept == len(FILES[LOG])


@pytest.mark.parametrize("path", [MODEL, LOG], ids=["of several pieces", "of one"])
@pytest.mark.parametrize("known", [True, False], ids=["with digests", "without"])
@pytest.mark.parametrize("edit", ["other", "longer", "shorter", "a directory", "newer"])
def test_what_a_person_changed_in_a_finished_download_is_theirs(
    here: Path, server: Server, path: str, known: bool, edit: str
) -> None:
    get(server, known=known, records="records")
    name = path.removeprefix("output/")
    place = Path("output", name)
    mine = {"longer": FILES[path] + b"mine", "shorter": b"m"}.get(edit, FILES[path][::-1])
    place.write_bytes(mine)
    if edit == "a directory":
        place.unlink()
        place.mkdir()
    os.utime(place, ns=(1, 1))  # both may be within one tick of the clock
    if edit == "newer":
        server.files[path], server.versions[path] = b"new", "2"
    server.asked.clear()
    for _ in range(2):
        result = get(server, known=known, resume=True, records="records")
        assert (result.problems, result.files) == (edited(name), 2)
        assert server.asked == []
        assert result.kept == sum(len(FILES[name]) for name in FILES if name != path)
        (complaint,) = result.errors()
        for lang in LANGUAGES:
            assert name in complaint.text(lang)
        assert place.is_dir() if edit == "a directory" else place.read_bytes() == mine
    place.rmdir() if edit == "a directory" else place.unlink()
    assert get(server, known=known, resume=True, records="records").errors() == []
    assert found("output") == {**WANT, name: server.files[path]}


def test_a_byte_that_the_disk_flipped_in_a_finished_download_is_told(
    here: Path, server: Server
) -> None:
    get(server, known=True, records="records")
    flip(Path("output", JOB, "rank-0/model"))
    result = get(server, known=True, resume=True, records="records")
    assert result.problems == edited(f"{JOB}/rank-0/model")


def test_a_file_of_a_person_in_the_place_of_a_new_one_stays(here: Path, server: Server) -> None:
    get(server, records="records")
    Path("output", JOB, "rank-0/notes").write_bytes(b"mine")
    notes = f"output/{JOB}/rank-0/notes"
    server.files[notes], server.versions[notes] = b"of the job", "1"
    result = get(server, resume=True, records="records")
    assert result.problems == edited(f"{JOB}/rank-0/notes")
    assert Path("output", JOB, "rank-0/notes").read_bytes() == b"mine"


def test_a_file_that_was_only_touched_is_as_it_came(here: Path, server: Server) -> None:
    get(server, known=True, records="records")
    os.utime(Path("output", JOB, "rank-0/model"), ns=(1, 1))
    for _ in range(2):
        assert get(server, known=True, resume=True, records="records").errors() == []


@pytest.mark.parametrize("resume", [True, False])
def test_two_at_once_do_not_write_to_one_directory(
    here: Path, server: Server, resume: bool
) -> None:
    refused: list[str] = []

    def second() -> None:
        server.meanwhile = lambda: None
        with pytest.raises(Invalid) as caught:
            get(server, resume=resume)
        refused.append(caught.value.code)

    server.meanwhile = second
    get(server)
    assert refused == ["download_dir_busy"]
    assert found("output") == WANT
    assert [path.name for path in here.iterdir()] == ["output"]


def test_one_after_the_other_is_no_two_at_once(here: Path, server: Server) -> None:
    cut_off(server)
    get(server, resume=True)
    get(server, "other")
    assert found("other") == WANT


def test_a_directory_that_appeared_meanwhile_is_not_touched(here: Path, server: Server) -> None:
    def appears() -> None:
        Path("output", JOB).mkdir(parents=True, exist_ok=True)
        Path("output", JOB, "mine").touch()

    server.meanwhile = appears
    refusals: list[PaddleCloudError] = []
    for resume in (False, True):
        with pytest.raises(PaddleCloudError) as caught:
            get(server, records="records", resume=resume)
        refusals.append(caught.value)
    server.asked.clear()
    assert [type(error) for error in refusals] == [Conflict, Invalid]
    for error in refusals:
        assert error.code == "download_dir_in_way"
        for lang in LANGUAGES:
            assert staging_dir("output") in error.text(lang)
    assert found("output") == {f"{JOB}/mine": b""}
    Path("output").rename("mine")
    assert get(server, records="records", resume=True).kept
    assert (found("output"), server.asked) == (WANT, [])


def test_a_place_where_no_directory_can_ever_be(here: Path, server: Server) -> None:
    with pytest.raises(PaddleCloudError) as caught:
        get(server, "/proc/output")
    assert caught.value.code == "download_failed"


def test_modes_links_and_empty_directories_come_back(here: Path) -> None:
    server = Server({"bin/run.sh": b"true\n", "bin/text": b"text\n"})
    for resume in (False, True):
        result = get(server, rows=furnished(server, ENTRIES), records="records", resume=resume)
        assert (result.files, result.errors()) == (2, [])
        root = Path("output")
        assert os.access(root / "bin/run.sh", os.X_OK)
        assert (root / "bin/text").stat().st_mode & 0o111 == 0
        assert (root / "empty/inner").is_dir()
        links = {name: str((root / name).readlink()) for name in ("latest", "empty/up", "nowhere")}
        assert links == {"latest": "bin/run.sh", "empty/up": "../bin", "nowhere": "bin/gone"}


@pytest.mark.parametrize(
    "links",
    [
        {"a": "../outside"},
        {"a": "/etc"},
        {"d/e/up": "..", "d/e/out": "up/../../outside"},
        {f"output/{JOB}/a": "../../outside"},
        {"a": "."},
    ],
    ids=["up", "absolute", "through another", "of a shortened name", "itself"],
)
def test_a_link_that_leads_out_is_not_made(here: Path, links: dict[str, str]) -> None:
    server = Server({"text": b"text\n"})
    entries = [[path, "link", 0, "", 0, target] for path, target in links.items()]
    result = get(server, rows=furnished(server, entries))
    last = local_name([*links][-1], JOB)
    assert result.problems == {"download_links": [last]}
    assert not os.path.lexists(Path("output", last))
    assert Path("output", "text").read_bytes() == b"text\n"


def test_a_file_that_was_replaced_since_it_was_listed_is_not_damaged(
    here: Path, server: Server
) -> None:
    rows = server.rows(known=True)
    for path in (MODEL, LOG):
        server.files[path], server.versions[path] = FILES[path][::-1], "2"
    assert get(server, rows=rows).errors() == []
    assert found("output")[f"{JOB}/rank-0/model"] == LARGE[::-1]


@pytest.mark.parametrize("near", [True, False], ids=["on this machine", "of a server"])
def test_a_file_with_another_time_is_compared_with_what_the_job_wrote(
    here: Path, server: Server, near: bool
) -> None:
    server.listed = {path: hashlib.sha256(FILES[path]).hexdigest() for path in (MODEL, LOG)}
    ways = stored(here) if near else {}
    assert get(server, locations=ways).errors() == []
    server.listed[LOG] = hashlib.sha256(b"other").hexdigest()
    result = get(server, "other", locations=ways)
    assert (result.files, result.problems) == (3, {"download_not_its_own": [LOG]})
    assert found("other") == WANT


def stored(here: Path) -> dict[str, str]:
    """The files in a store on this machine, by path."""
    ways = {}
    for number, (path, content) in enumerate(FILES.items()):
        ways[path] = str(here / f"stored-{number}")
        Path(ways[path]).write_bytes(content)
    return ways


@pytest.mark.parametrize("known", [True, False], ids=["with digests", "without"])
def test_a_store_on_this_machine_is_copied_from(here: Path, server: Server, known: bool) -> None:
    heard: list[int] = []
    got = get(server, known=known, locations=stored(here), progress=heard.append)
    assert found("output") == WANT
    assert server.asked == []
    total = sum(map(len, FILES.values()))
    assert (got.files, got.bytes, sum(heard)) == (3, total, total)


@pytest.mark.parametrize("kind", ["gone", "another", "longer", "a link", "a directory"])
def test_what_is_not_as_listed_there_comes_from_the_server(
    here: Path, server: Server, kind: str
) -> None:
    ways = stored(here)
    place = Path(ways[MODEL])
    place.rename(here / "moved")
    make: dict[str, Callable[[], object]] = {
        "gone": lambda: None,
        "another": lambda: place.write_bytes(bytes(len(LARGE))),
        "longer": lambda: place.write_bytes(LARGE + b"!"),
        "a link": lambda: place.symlink_to(here / "moved"),
        "a directory": place.mkdir,
    }
    make[kind]()
    heard: list[int] = []
    get(server, known=True, locations=ways, progress=heard.append)
    assert found("output") == WANT
    assert {path for path, _ in server.asked} == {MODEL}
    assert sum(heard) == sum(map(len, FILES.values()))


def test_what_was_copied_is_not_fetched_again(here: Path, server: Server) -> None:
    ways = stored(here)
    get(server, known=True, locations=ways, records=str(here / "records"))
    fresh = f"output/{JOB}/rank-0/fresh"
    server.files[fresh], server.versions[fresh] = b"new", "1"
    got = get(server, known=True, locations=ways, resume=True, records=str(here / "records"))
    assert found("output") == {**WANT, fresh.removeprefix("output/"): b"new"}
    assert [path for path, _ in server.asked] == [fresh]
    assert got.bytes == 3


@pytest.mark.parametrize("resume", [True, False])
def test_a_wrong_byte_of_a_bucket_costs_no_good_file(
    here: Path, monkeypatch: pytest.MonkeyPatch, resume: bool
) -> None:
    server = Server(FILES)
    if resume:
        cut_off(server)
    other = f"output/{JOB}/rank-0/other"
    server.files[other], server.versions[other] = LARGE, "1"
    from_bucket(monkeypatch, lambda start: b"?" + LARGE[start + 1 : start + PIECE])
    heard: list[int] = []
    ways = {MODEL: "http://bucket/model", other: "http://bucket/other"}
    result = get(server, known=True, locations=ways, resume=resume, progress=heard.append)
    assert result.errors() == []
    assert found("output") == {**WANT, f"{JOB}/rank-0/other": LARGE}
    total = sum(map(len, server.files.values()))
    assert (result.bytes + result.kept, sum(heard)) == (total, total)


def test_what_the_server_has_no_better_is_damaged(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server(FILES)
    rows = server.rows(known=True)
    server.files[MODEL] = LARGE[::-1]
    from_bucket(monkeypatch, lambda start: LARGE[::-1][start : start + PIECE])
    result = get(server, rows=rows, locations={MODEL: "http://bucket/model"})
    assert (result.files, result.problems) == (2, {"download_damaged": [MODEL]})
