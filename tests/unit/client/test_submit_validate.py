"""Whether a job is impossible is asked before much is read for it, and no job comes of that."""

from __future__ import annotations

from pathlib import Path

import pytest

from paddlecloud.client import submit
from paddlecloud.client.scan import walk
from paddlecloud.client.sdk import Client
from paddlecloud.model.errors import PaddleCloudError, Refused
from tests.unit.client.fake_server import AK, SK, Answer, FakeServer, error, ok

JOBS = "POST /api/v1/jobs"
MISSING = error(409, "SnapshotMissing", "snapshot_missing", snapshot="sha256:0")
DONE = ok({"job": {"job_id": "job-1", "job_status": "submitted"}, "notes": []})
REFUSED = error(422, "Refused", "quota_jobs")
BUCKET = {"public_bos": 0, "bos_url": "bucket.bj.bcebos.com/dir"}


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


def snapshots(server: FakeServer) -> list[str]:
    return [seen.json["spec"]["snapshot"] for seen in server.seen if seen.path.endswith("/jobs")]


def test_what_is_refused_is_not_read(
    server: FakeServer, client: Client, directory: Path, read: list[int]
) -> None:
    server.routes[JOBS] = [REFUSED]
    with pytest.raises(Refused):
        client.submit_job(files=directory, start_cmd="true")
    assert sum(read) < walk.MUCH
    assert snapshots(server) == [submit.NO_SNAPSHOT]


def test_a_bucket_s_job_is_asked_for_in_its_own_way(
    server: FakeServer, directory: Path, read: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PADDLECLOUD_BOS_AK", "AKB")
    monkeypatch.setenv("PADDLECLOUD_BOS_SK", "SKB")
    server.routes["POST /api/v1/private/files"] = [REFUSED]
    with Client(host=server.url, ak=AK, sk=SK) as client, pytest.raises(Refused):
        client.submit_job(files=directory, start_cmd="true", **BUCKET)
    assert sum(read) < walk.MUCH
    assert [seen.json["bos_access_key"] for seen in server.seen] == ["AKB"]


@pytest.mark.parametrize(
    "answer",
    [MISSING, Answer(drop=0), Answer(b"<html>", 502), error(503, "Retry", "database_busy")],
    ids=["possible", "lost", "a proxy", "busy"],
)
def test_without_a_refusal_the_submit_goes_on(
    server: FakeServer, client: Client, directory: Path, answer: Answer
) -> None:
    """And a refusal after it is told as it is: no job may be there of which nobody knows."""
    tries = 3 if answer.drop == 0 else 1
    server.routes[JOBS] = [*[answer] * tries, REFUSED]
    with pytest.raises(PaddleCloudError) as caught:
        client.submit_job(files=directory, start_cmd="true")
    assert caught.value.code == "quota_jobs"
    asked = snapshots(server)
    assert set(asked[:-1]) == {submit.NO_SNAPSHOT} != {asked[-1]}
    keys = [seen.json["idempotency_key"] for seen in server.seen]
    assert keys[-1] not in keys[:-1]


def test_it_is_asked_once_and_not_for_little_or_for_what_is_known(
    server: FakeServer, client: Client, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submit, "time", lambda: 4e9)  # or the files were too young
    server.routes[JOBS] = [MISSING, DONE]
    for _ in range(2):
        client.submit_job(files=directory, start_cmd="true")
    (directory / "one").unlink()
    (directory / "small").write_bytes(b"2")
    client.submit_job(files=directory, start_cmd="true")
    assert [snapshot == submit.NO_SNAPSHOT for snapshot in snapshots(server)] == [
        *(True, False),
        False,
        False,
    ]
