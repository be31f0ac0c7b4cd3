"""Where a download lands: directories that are there already, names, disks that take no more."""

from __future__ import annotations

from pathlib import Path

import pytest

from paddlecloud.client.download import _local_files, engine
from paddlecloud.client.download.listing import local_name
from paddlecloud.model.errors import Conflict, Invalid, PaddleCloudError
from tests.contract.disk import small_disk
from tests.unit.client.download_server import (
    FILES,
    JOB,
    LARGE,
    LOG,
    MODEL,
    WANT,
    Server,
    found,
    furnished,
    get,
)

pytestmark = pytest.mark.usefixtures("here")


@pytest.fixture
def server() -> Server:
    return Server(FILES)


def test_an_existing_directory_is_not_touched(here: Path, server: Server) -> None:
    Path("output").mkdir()
    Path("output", "mine").touch()
    for resume, code in ((False, "download_dir_exists"), (True, "download_dir_foreign")):
        with pytest.raises(Invalid) as caught:
            get(server, resume=resume, records=str(here / "records"))
        assert caught.value.code == code
    assert found("output") == {"mine": b""}
    assert server.asked == []


def test_a_finished_download_gets_what_is_new(here: Path, server: Server) -> None:
    records = str(here / "records")
    get(server, records=records)
    server.files[f"output/{JOB}/rank-0/new"] = b"new"
    server.versions[f"output/{JOB}/rank-0/new"] = "1"
    server.files[LOG], server.versions[LOG] = b"hello\nagain\n", "2"
    server.asked.clear()
    result = get(server, resume=True, records=records)
    assert sorted(path for path, _ in server.asked) == [LOG, f"output/{JOB}/rank-0/new"]
    assert result.bytes == len(b"new") + len(b"hello\nagain\n")
    want = {**WANT, f"{JOB}/rank-0/new": b"new", f"{JOB}/log/trainer-0.log": b"hello\nagain\n"}
    assert found("output") == want
    server.asked.clear()
    assert get(server, resume=True, records=records).bytes == 0
    assert server.asked == []


def test_a_directory_in_its_place_is_not_ours(here: Path, server: Server) -> None:
    records = str(here / "records")
    get(server, records=records)
    Path("output").rename("moved")
    Path("output").mkdir()
    with pytest.raises(Invalid):
        get(server, resume=True, records=records)


def test_results_of_another_job_that_were_submitted_stay_where_they_were(here: Path) -> None:
    server = Server({"output/job-1/rank-0/w": b"1", "job-1/rank-0/w": b"2", MODEL: LARGE})
    link = ["ckpt", "link", 0, "", 0, "output/job-1/rank-0"]
    assert get(server, rows=furnished(server, [link])).errors() == []
    assert Path("output/ckpt/w").read_bytes() == b"1"
    want = {"output/job-1/rank-0/w": b"1", "job-1/rank-0/w": b"2", f"{JOB}/rank-0/model": LARGE}
    assert found("output") == want


HOSTILE = ["../x", "/etc/x", "a/../../x", "a//x", "a\\x", "c:/../x", "a\0x", "a/" * 3000 + "x", "."]


@pytest.mark.parametrize("path", HOSTILE)
def test_a_hostile_path_is_refused_before_anything_is_fetched(here: Path, path: str) -> None:
    server = Server({path: b"evil"})
    with pytest.raises(Invalid):
        get(server)
    assert server.asked == []
    assert list(here.iterdir()) == []


@pytest.mark.parametrize("other", [MODEL, f"{MODEL}/below"], ids=["the same", "below a file"])
def test_a_name_twice_is_refused(here: Path, server: Server, other: str) -> None:
    rows = [*server.rows(), {"path": other, "size": 1, "time": "2020-05-17T10:15:39Z"}]
    server.files[other] = b"x"
    server.versions[other] = "1"
    with pytest.raises(Invalid) as caught:
        get(server, rows=rows)
    assert caught.value.code == "download_name_twice"
    assert MODEL.removeprefix("output/") in caught.value.text("en")
    assert server.asked == []
    assert not Path("output").exists()


def test_names_that_differ_in_the_size_of_letters_are_two_files_where_they_can_be(
    here: Path,
) -> None:
    get(Server({"A": b"1", "a": b"2"}))
    assert found("output") == {"A": b"1", "a": b"2"}


@pytest.mark.parametrize("resume", [True, False])
@pytest.mark.parametrize(("one", "other"), [("A", "a"), ("caf\u00e9", "cafe\u0301")])
def test_names_that_are_one_file_are_refused_where_they_are(
    here: Path, monkeypatch: pytest.MonkeyPatch, resume: bool, one: str, other: str
) -> None:
    """As on macOS and Windows: the second name cannot be made."""
    made: set[str] = set()
    real = _local_files.create_exclusively

    def claim(target: str, path: str) -> None:
        if made:
            raise Invalid("download_name_twice", path=path)
        made.add(target)
        real(target, path)

    monkeypatch.setattr(engine, "create_exclusively", claim)
    with pytest.raises(Invalid) as caught:
        get(Server({one: b"1", other: b"2"}), resume=resume)
    assert caught.value.code == "download_name_twice"
    assert list(here.iterdir()) == []


def test_a_place_that_cannot_be_written_is_named(here: Path, server: Server) -> None:
    Path("file").touch()
    with pytest.raises(PaddleCloudError) as caught:
        get(server, "file/output")
    assert caught.value.code == "download_failed"


def test_a_full_disk_is_told_and_it_goes_on_when_there_is_space(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", size="200k") as disk:
        filler = disk / "filler"
        filler.write_bytes(bytes(150 * 1024))
        server = Server({f"output/{JOB}/rank-0/{n}": LARGE * 4 for n in range(4)})
        with pytest.raises(Conflict) as caught:
            get(server, str(disk / "output"))
        assert caught.value.code == "download_full"
        filler.unlink()
        get(server, str(disk / "output"), resume=True)
        assert found(disk / "output") == {
            path.removeprefix("output/"): content for path, content in server.files.items()
        }


@pytest.mark.parametrize(
    ("path", "want"),
    [
        (f"output/{JOB}/log/trainer-0.log", f"{JOB}/log/trainer-0.log"),
        (f"output/{JOB}/", JOB),
        ("output/mine/x", "output/mine/x"),
        ("output/job-1/rank-0/w", "output/job-1/rank-0/w"),
        ("run.sh", "run.sh"),
        ("output", "output"),
    ],
)
def test_local_names(path: str, want: str) -> None:
    assert local_name(path, JOB) == want


@pytest.mark.parametrize(
    ("path", "want"),
    [
        ("a/time 10:16.txt", "a/time 10%3A16.txt"),
        ("c:/b:0", "c%3A/b%3A0"),
        ("what?/a*b", "what%3F/a%2Ab"),
        ("ends./with ", "ends%2E/with%20"),
        ("nul", "%6Eul"),
        ("COM1.txt", "%43OM1.txt"),
        ("tab\there", "tab%09here"),
        ("100%", "100%25"),
        ("模型", "模型"),
    ],
)
def test_local_names_on_windows(path: str, want: str) -> None:
    assert local_name(path, JOB, windows=True) == want
