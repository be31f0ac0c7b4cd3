"""A team's server with a bucket of its own: the bytes of jobs go past it, and only with a fence."""

from __future__ import annotations

import hashlib
import http.client
import json
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from paddlecloud.stores.s3.store import S3Store
from paddlecloud.testing import Reply, SignedCaller
from tests.integration.server.test_object_store import Team, team
from tests.integration.server.test_user_buckets import asked, until

__all__ = ["team"]
pytestmark = pytest.mark.slow

TRAIN = """
cat data/words.txt
head -c 20000000 /dev/urandom > "$OUTPUT_PATH/big"
echo small > "$OUTPUT_PATH/small"
echo begun
while [ ! -e "$OUTPUT_PATH/../work/go" ] && [ -n "$1" ]; do sleep 0.05; done
"""


def submit(team: Team, top: Path, command: str) -> str:
    code = top / "code"
    (code / "data").mkdir(parents=True)
    (code / "run.sh").write_text(TRAIN)
    (code / "data" / "words.txt").write_text("to be\n")
    for number in range(300):
        (code / "data" / f"{number}.txt").write_text(f"file {number}\n")
    done = team.types("submit_job", f"--files={code}", f"--start_cmd={command}", "--json")
    assert done.returncode == 0, done.stderr
    return str(json.loads(done.stdout)["job_id"])


def test_bytes_go_past_the_server(team: Team, bucket: S3Store, tmp_path: Path) -> None:
    team.start()
    job_id = submit(team, tmp_path, "sh run.sh")
    assert team.types("logs", job_id, "-f").stdout == "to be\nbegun\n"
    counts = asked(team)
    assert counts["POST replicas/{replica}/contents"] == 1
    assert counts["GET blobs/{sha256}"] == 0
    assert counts["PUT replicas/{replica}/parts/{area}/{path:path}"] == 1
    assert counts["PUT replicas/{replica}/files/{area}/{path:path}"] == 1
    sizes = {
        stat.path.rpartition("/")[2]: stat.size for stat in bucket.list() if "rank-0" in stat.path
    }
    assert sizes == {"big": 20_000_000, "small": 6}
    into = tmp_path / "results"
    fetched = team.types("get_files", job_id, "--download=1", f"--download_dir={into}")
    assert fetched.returncode == 0, fetched.stderr
    counts = asked(team)
    assert counts["GET /api/v1/jobs/{job_id}/files"] == 1
    assert counts["GET /api/v1/jobs/{job_id}/files/{path:path}"] == 1, "the log, which is here"
    (big,) = into.rglob("big")
    (stored,) = (stat.path for stat in bucket.list() if stat.path.endswith("/big"))
    with bucket.read(stored) as reader:
        assert big.read_bytes() == b"".join(reader)
    listed = json.loads(team.types("get_files", job_id, "--json").stdout)["files"]
    known = {row["path"].rpartition("/")[2]: row["sha256"] for row in listed}
    assert known["big"] == hashlib.sha256(big.read_bytes()).hexdigest()


def test_a_file_gets_its_name_only_by_the_current_attempt(
    team: Team, bucket: S3Store, tmp_path: Path
) -> None:
    team.start()
    job_id = submit(team, tmp_path, "sh run.sh wait")
    replica = f"{job_id}.1.trainer-0"
    root = team.home / "agent" / "replicas" / replica
    order = until(lambda: order_of(root), bool)
    keys = json.loads((team.home / "agent" / "agent.json").read_text())
    agent = SignedCaller(host="127.0.0.1", port=team.port, ak=keys["ak"], sk=keys["sk"])
    path = f"/api/v1/agent/replicas/{replica}/parts/output/late"
    fence = int(order["fence"])
    given = ask(agent, "POST", path, fence, {"size": 5}).json()
    assert len(given["addresses"]) == 1
    early = ask(agent, "PUT", path, fence, {"upload": given["upload"], "size": 5})
    assert early.code == "upload_incomplete"
    assert status_of(given["addresses"][0], b"bytes") == 200
    stale = ask(agent, "PUT", path, fence - 1, {"upload": given["upload"], "size": 5})
    assert (stale.status, stale.code) == (409, "fence_stale")
    assert not [stat for stat in bucket.list() if stat.path.endswith("/late")]
    assert ask(agent, "POST", path, fence - 1, {"size": 5}).code == "fence_stale"
    done = ask(agent, "PUT", path, fence, {"upload": given["upload"], "size": 5})
    assert done.status == 200
    (late,) = [stat for stat in bucket.list() if stat.path.endswith("/late")]
    assert late.path.endswith(f"output/{job_id}/rank-0/late")
    away = f"/api/v1/agent/replicas/{replica}/parts/output/../../x"
    assert ask(agent, "POST", away, fence, {"size": 5}).status == 400
    assert team.types("kill_job", job_id).returncode == 0


def ask(agent: SignedCaller, method: str, path: str, fence: int, body: dict[str, object]) -> Reply:
    return agent.call(method, path, {"fence": fence}, json.dumps(body).encode())


def order_of(root: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads((root / "order.json").read_bytes())
    except (OSError, ValueError):
        return {}
    return found


def status_of(address: str, data: bytes) -> int:
    parts = urlsplit(address)
    connection = http.client.HTTPConnection(parts.netloc, timeout=60)
    try:
        connection.request("PUT", f"{parts.path}?{parts.query}", data)
        return connection.getresponse().status
    finally:
        connection.close()
