"""The server validates a job before much is read for it, and before anything is uploaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from paddlecloud.client import submit
from paddlecloud.client.scan import walk
from paddlecloud.client.sdk import Client
from paddlecloud.model.errors import NotFound, PaddleCloudError, Refused, Unreachable
from paddlecloud.net.retry import IMMEDIATE
from tests.ports import free_port
from tests.unit.client.fake_server import AK, LACKING, SK, VALIDATE, Answer, FakeServer, error, ok

JOBS = "POST /api/v1/jobs"
DONE = ok({"job": {"job_id": "job-1", "job_status": "submitted"}, "notes": []})
REFUSED = error(422, "Refused", "quota_jobs")
BUCKET: dict[str, Any] = {"public_bos": 0, "bos_url": "bucket.bj.bcebos.com/dir"}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Three files, of which the first is small and two are read when enough is."""
    found = tmp_path / "job"
    found.mkdir()
    (found / "small").write_bytes(b"1")
    for name in ("one", "two"):
        with (found / name).open("wb") as file:
            file.truncate(walk.MUCH * 3 // 4)
    return found


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many bytes each file has that is read."""
    sizes: list[int] = []
    really = walk._digest

    def digest(absolute: str, *how: object) -> object:
        sizes.append(Path(absolute).stat().st_size)
        return really(absolute, *how)  # type: ignore[arg-type]

    monkeypatch.setattr(walk, "_digest", digest)
    return sizes


def asked(server: FakeServer) -> list[str]:
    return [seen.path.rpartition("/")[2] for seen in server.seen]


def test_what_is_refused_is_not_read(
    server: FakeServer, client: Client, directory: Path, read: list[int]
) -> None:
    server.routes[VALIDATE] = [REFUSED]
    with pytest.raises(Refused):
        client.submit_job(files=directory, start_cmd="true")
    assert sum(read) < walk.MUCH
    assert asked(server) == ["validate"]
    assert server.seen[0].json["spec"]["snapshot"] == submit.NO_SNAPSHOT


def test_a_job_of_a_bucket_is_validated_with_its_keys(
    server: FakeServer, directory: Path, read: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PADDLECLOUD_BOS_AK", "AKB")
    monkeypatch.setenv("PADDLECLOUD_BOS_SK", "SKB")
    server.routes[VALIDATE] = [REFUSED]
    with Client(host=server.url, ak=AK, sk=SK) as client, pytest.raises(Refused):
        client.submit_job(files=directory, start_cmd="true", **BUCKET)
    assert sum(read) < walk.MUCH
    assert [seen.json["bos_access_key"] for seen in server.seen] == ["AKB"]


@pytest.mark.parametrize(
    ("answer", "tries"),
    [
        (LACKING, 1),
        (Answer(drop=0), 2 * IMMEDIATE.attempts),
        (Answer(b"<html>", 502), 2 * IMMEDIATE.attempts),
        (error(503, "Retry", "database_busy"), 2 * IMMEDIATE.attempts),
        (error(404, "NotFound", "route_unknown"), 2),
    ],
    ids=["possible", "lost", "a proxy", "busy", "a server of before"],
)
def test_without_a_refusal_the_submit_goes_on(
    server: FakeServer, client: Client, directory: Path, answer: Answer, tries: int
) -> None:
    """And a refusal after it is told as it is: no job may be there of which nobody knows."""
    server.routes[VALIDATE] = [answer]
    server.routes["POST /api/v1/snapshots"] = [ok({"missing": []})]
    server.routes[JOBS] = [REFUSED]
    with pytest.raises(PaddleCloudError) as caught:
        client.submit_job(files=directory, start_cmd="true")
    assert caught.value.code == "quota_jobs"
    assert asked(server) == ["validate"] * tries + ["snapshots", "jobs"]


def test_a_server_that_is_not_there_is_told_before_much_is_read(
    directory: Path, read: list[int]
) -> None:
    with (
        Client(host=f"http://127.0.0.1:{free_port()}", ak=AK, sk=SK) as client,
        pytest.raises(Unreachable, match="cannot connect"),
    ):
        client.submit_job(files=directory, start_cmd="true")
    assert sum(read) < walk.MUCH


def test_what_does_not_exist_is_told(server: FakeServer, client: Client, directory: Path) -> None:
    server.routes[VALIDATE] = [error(404, "NotFound", "pool_unknown")]
    with pytest.raises(NotFound):
        client.submit_job(files=directory, start_cmd="true")


def test_it_is_asked_once_and_ahead_only_where_much_is_read(
    server: FakeServer, client: Client, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submit, "time", lambda: 4e9)  # or the files were too young
    server.routes["POST /api/v1/snapshots"] = [ok({"missing": []})]
    server.routes[JOBS] = [DONE]
    client.submit_job(files=directory, start_cmd="true")
    assert asked(server) == ["validate", "snapshots", "jobs"]
    assert server.seen[0].json["spec"]["snapshot"] == submit.NO_SNAPSHOT
    for change in (b"1", b"2"):
        server.seen.clear()
        (directory / "small").write_bytes(change)
        client.submit_job(files=directory, start_cmd="true")
        assert asked(server) == ["validate", "jobs"]
        first, last = (seen.json for seen in server.seen)
        assert first["spec"] == last["spec"]
        assert first["spec"]["snapshot"] != submit.NO_SNAPSHOT


def test_what_git_differs_in_is_sent_with_the_job_alone(
    server: FakeServer, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Git:
        def result(self, _: object) -> tuple[dict[str, str], str]:
            return {"commit": "c"}, "a long diff"

    monkeypatch.setattr("paddlecloud.client.scan.git.inspect", lambda *_: Git())
    server.routes[JOBS] = [DONE]
    client.submit_job(files=tmp_path, start_cmd="true")
    assert [seen.json.get("diff") for seen in server.seen] == [None, "a long diff"]
