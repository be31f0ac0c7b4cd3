"""Files on their way into a user's own bucket."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from paddlecloud.client.sdk import Client
from paddlecloud.client.upload import user_bucket
from tests.unit.client.fake_server import AK, BUCKET, SK, Answer, FakeServer, Seen, ok


@pytest.mark.parametrize(
    ("most", "most_bytes", "want"),
    [(500, 1000, ["abcd"]), (3, 1000, ["abc", "d"]), (500, 15, ["ab", "c", "d"])],
)
def test_few_addresses_are_asked_for_so_that_none_expires(
    server: FakeServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    most: int,
    most_bytes: int,
    want: list[str],
) -> None:
    monkeypatch.setenv("PADDLECLOUD_BOS_AK", "AKB")
    monkeypatch.setenv("PADDLECLOUD_BOS_SK", "SKB")
    monkeypatch.setattr(user_bucket, "BATCH", most)
    monkeypatch.setattr(user_bucket, "BATCH_BYTES", most_bytes)
    for name, size in (("a", 5), ("b", 10), ("c", 20), ("d", 1)):
        (tmp_path / name).write_bytes(b"x" * size)
        server.routes[f"PUT {BUCKET}{name}"] = [Answer(b"", headers={"etag": '"0"'})]
    asked: list[str] = []

    def addresses(seen: Seen) -> Answer:
        asked.append("".join(seen.json["paths"]))
        return ok({"addresses": [f"{server.url}{BUCKET}{path}" for path in asked[-1]]})

    server.routes["POST /api/v1/private/files"] = [ok({"files": []})]
    server.routes["POST /api/v1/private/addresses"] = addresses
    server.routes["POST /api/v1/jobs"] = [
        ok({"job": {"job_id": "job-1", "job_status": "submitted"}, "notes": []})
    ]
    bucket: dict[str, Any] = {"public_bos": 0, "bos_url": "bucket.bj.bcebos.com/dir"}
    with Client(host=server.url, ak=AK, sk=SK) as client:
        client.submit_job(files=str(tmp_path), start_cmd="true", **bucket)
    assert asked == want
