"""A team's server whose files lie in a bucket of a real S3 server: jobs notice nothing of it."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from paddlecloud.stores.s3.store import S3Store
from scripts import s3
from tests.integration.server.process import ServerProcess, ended
from tests.integration.server.world import eventually
from tests.live_files import files_below
from tests.ports import free_port
from tests.s3 import reader_settings

pytestmark = pytest.mark.slow(seconds=10)

NAMED = ("NAME", "EMAIL")
SETTINGS = """
team = true
default_plan = "unlimited"
[http]
host = "127.0.0.1"
port = {port}
[store]
kind = "s3"
endpoint = "{endpoint}"
bucket = "{bucket}"
prefix = "{prefix}"
region = "{region}"
access_key = "{access_key}"
secret_key = "{secret_key}"
[replica]
node = "here"
[pools.local]
users = ["admin"]
public = false
[running]
grace = "2s"
ship_interval = 1
"""
TRAIN = """
set -e
cat data/words.txt
mkdir -p "$OUTPUT_PATH/deep"
cp data/words.txt "$OUTPUT_PATH/deep/model 1.txt"
head -c 20000000 /dev/zero > "$OUTPUT_PATH/big"
echo trained
"""


class Team(ServerProcess):
    def __init__(self, home: Path, settings: dict[str, str]) -> None:
        super().__init__(home)
        home.mkdir(parents=True)
        file = home / "server.toml"
        file.write_text(SETTINGS.format(port=free_port(), **settings))
        file.chmod(0o600)

    def types(self, *words: str) -> subprocess.CompletedProcess[str]:
        """The admin's command line, on a machine of its own."""
        keys = json.loads((self.home / "server" / "credentials.json").read_text())
        here = {
            "PADDLECLOUD_HOME": str(self.home.parent / "person"),
            "PADDLECLOUD_HOST": f"127.0.0.1:{self.port}",
            "PADDLECLOUD_AK": keys["ak"],
            "PADDLECLOUD_SK": keys["sk"],
        }
        return subprocess.run(
            [sys.executable, "-m", "paddlecloud", *words],
            env={**os.environ, **here},
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )

    def verifies(self, *words: str) -> subprocess.CompletedProcess[str]:
        """`admin verify` on the machine of the server."""
        return subprocess.run(
            [sys.executable, "-m", "paddlecloud", "admin", "verify", *words],
            env={**os.environ, "PADDLECLOUD_HOME": str(self.home)},
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )

    def check(self) -> tuple[int, dict[str, str]]:
        """The exit code of `server check`, and what it says of the store."""
        words = ["-m", "paddlecloud", "server", "check", "--json"]
        done = subprocess.run(
            [sys.executable, *words, "--config", str(self.home / "server.toml")],
            env={**os.environ, "PADDLECLOUD_HOME": str(self.home)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        checks = [row for row in json.loads(done.stdout)["checks"] if row["subject"] == "store"]
        return done.returncode, checks[-1]


@pytest.fixture
def team(tmp_path: Path, s3_settings: dict[str, str]) -> Iterator[Team]:
    made = Team(tmp_path / "home", s3_settings)
    yield made
    made.close()


def test_a_job_from_its_files_to_its_results(team: Team, bucket: S3Store, tmp_path: Path) -> None:
    code = tmp_path / "code"
    (code / "data").mkdir(parents=True)
    (code / "run.sh").write_text(TRAIN)
    (code / "data" / "words.txt").write_text("to be or not to be\n")
    (code / "empty").touch()
    for number in range(300):
        (code / "data" / f"{number}.txt").write_text(f"file {number}\n")
    team.start()
    submitted = team.types("submit_job", f"--files={code}", "--start_cmd=sh run.sh", "--json")
    assert submitted.returncode == 0, submitted.stderr
    job_id = json.loads(submitted.stdout)["job_id"]
    watched = team.types("logs", job_id, "-f")
    assert watched.stdout == "to be or not to be\ntrained\n"
    into = tmp_path / "results"
    fetched = team.types("get_files", job_id, "--download=1", f"--download_dir={into}")
    assert fetched.returncode == 0, fetched.stderr
    (model,) = into.rglob("model 1.txt")
    assert model.read_text() == "to be or not to be\n"
    (big,) = into.rglob("big")
    assert big.stat().st_size == 20_000_000
    assert [path for path in into.rglob("*") if path.is_file() and "trained" in _text(path)]
    # The bytes lie in the bucket, and on the server's own disk only the log.
    stored = [stat.path for stat in bucket.list()]
    assert sum("/blobs/" in path for path in stored) == 303
    assert any(path.endswith("/deep/model 1.txt") for path in stored)
    own = map(str, files_below(team.home / "store"))
    assert not [path for path in own if "/log" not in path and "locks" not in path]
    again = team.types("submit_job", f"--files={code}", "--start_cmd=true", "--json")
    assert again.returncode == 0, again.stderr
    assert len([stat for stat in bucket.list() if "/blobs/" in stat.path]) == 303


def _text(path: Path) -> str:
    return path.read_bytes()[:1000].decode("utf-8", "replace")


def test_a_damaged_content_is_found_and_sent_again(
    team: Team, bucket: S3Store, tmp_path: Path
) -> None:
    code = tmp_path / "code"
    code.mkdir()
    words = b"to be or not to be\n"
    (code / "run.sh").write_text("cat words.txt\n")
    (code / "words.txt").write_bytes(words)
    team.start()
    submit = ("submit_job", f"--files={code}", "--start_cmd=sh run.sh", "--watch_mode=1")
    assert words.decode() in team.types(*submit).stdout
    (path,) = (stat.path for stat in bucket.list() if stat.path.endswith(_sha256(words)))
    bucket.write(path, [words.upper()])
    told = team.verifies("--repair", "--json")
    assert told.returncode == 1, told.stderr
    (row,) = json.loads(told.stdout)["damaged"]
    assert row["paths"] == ["words.txt"]
    with bucket.read(row["aside"]) as aside:
        assert b"".join(aside) == words.upper()
    assert bucket.stat(path) is None
    assert words.decode() in team.types(*submit).stdout
    with bucket.read(path) as stored:
        assert b"".join(stored) == words
    assert team.verifies().returncode == 0


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_check_tells_what_is_wrong(team: Team) -> None:
    code, said = team.check()
    assert (code, said["code"]) == (0, "check_bucket")
    file = team.home / "server.toml"
    good = file.read_text()
    for wrong, want in (
        (good.replace('secret_key = "', 'secret_key = "x'), "store_denied"),
        (with_keys_of_a_reader(good), "store_denied"),
        (good.replace('bucket = "', 'bucket = "no-'), "store_bucket_missing"),
        (re.sub(r"http://127.0.0.1:\d+", "http://127.0.0.1:9", good), "store_unreachable"),
    ):
        file.write_text(wrong)
        code, said = team.check()
        assert (code, said["code"], said["level"]) == (1, want, "failed")


def with_keys_of_a_reader(settings: str) -> str:
    """Keys with which a job could be looked at, and none submitted."""
    reader = reader_settings()
    for key in ("access_key", "secret_key"):
        settings = re.sub(f'{key} = ".*"', f'{key} = "{reader[key]}"', settings)
    return settings


def test_a_server_with_wrong_keys_does_not_start(team: Team) -> None:
    file = team.home / "server.toml"
    good = file.read_text()
    for wrong in (good.replace('secret_key = "', 'secret_key = "x'), with_keys_of_a_reader(good)):
        file.write_text(wrong)
        code, said = ended(team.spawn())
        assert code != 0
        assert "rejects these keys" in said


def test_a_store_that_goes_and_comes_back(tmp_path: Path, s3_place: Path) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "run.sh").write_text("echo again\n")
    team = Team(tmp_path / "home", {**s3.show(s3_place), "prefix": "p"})
    try:
        team.start()
        s3.stop(s3_place)
        refused = team.types("submit_job", f"--files={code}", "--start_cmd=sh run.sh")
        assert refused.returncode == 1
        assert "does not respond" in refused.stderr
        s3.start(s3_place)
        done = team.types("submit_job", f"--files={code}", "--start_cmd=sh run.sh", "--json")
        assert done.returncode == 0, done.stderr
        assert team.types("logs", json.loads(done.stdout)["job_id"], "-f").stdout == "again\n"
        outputs_of_a_killed_job_are_named(team, code, s3_place)
    finally:
        team.close()


def test_a_store_that_hangs(tmp_path: Path, s3_place: Path) -> None:
    """It takes connections and says nothing: everybody hears that it is the store."""
    code = tmp_path / "code"
    code.mkdir()
    (code / "run.sh").write_text("echo all > $OUTPUT_PATH/model\n")
    git(code, "init", "-q")
    git(code, "add", ".")
    git(code, "commit", "-qm", "x")
    (code / "run.sh").write_text("echo more > $OUTPUT_PATH/model\n")
    team = Team(tmp_path / "home", {**s3.show(s3_place), "prefix": "p"})
    server = int((s3_place / "pid").read_text())
    submit = ("submit_job", f"--files={code}", "--start_cmd=sh run.sh")
    try:
        team.start()
        done = team.types(*submit, "--watch_mode=1", "--json")
        assert done.returncode == 0, done.stderr
        job_id = json.loads(done.stdout.splitlines()[-1])["job_id"]
        assert "+echo more" in looked_at(team, job_id)["git"]["diff"]
        os.kill(server, signal.SIGSTOP)
        assert team.types("query_job", job_id).returncode == 0
        assert "does not respond" in looked_at(team, job_id)["git"]["diff_missing"]
        (code / "run.sh").write_text("echo other\n")
        for words in (("get_files", job_id), submit):
            told = team.types(*words)
            assert told.returncode == 1
            assert f"({urlsplit(s3.show(s3_place)['endpoint']).netloc}) does not respond" in (
                told.stderr
            )
    finally:
        os.kill(server, signal.SIGCONT)
        team.close()


def looked_at(team: Team, job_id: str) -> dict[str, Any]:
    done = team.types("query_job", job_id, "--json")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def git(place: Path, *words: str) -> None:
    names = {f"GIT_{who}_{what}": "x" for who in ("AUTHOR", "COMMITTER") for what in NAMED}
    subprocess.run(["git", *words], cwd=place, check=True, env={**os.environ, **names})


def outputs_of_a_killed_job_are_named(team: Team, code: Path, place: Path) -> None:
    """While the store is away the job says so, and who kills it hears where its outputs are."""
    start = "while [ ! -e go ]; do sleep 0.05; done; echo all > $OUTPUT_PATH/model"
    done = team.types("submit_job", f"--files={code}", f"--start_cmd={start}", "--json")
    job_id = json.loads(done.stdout)["job_id"]

    def job() -> dict[str, Any]:
        found: dict[str, Any] = json.loads(team.types("query_job", job_id, "--json").stdout)
        return found

    eventually(lambda: job()["job_status"] == "running", 60)
    s3.stop(place)
    (team.home / "agent" / "replicas" / f"{job_id}.1.trainer-0" / "work" / "go").touch()
    eventually(lambda: "does not respond" in "".join(job()["advice"]), 60)
    assert job()["advice"][0].startswith("the command of trainer-0 has ended, but its outputs or")
    assert team.types("kill_job", job_id).returncode == 0
    eventually(lambda: job()["job_status"] == "killed", 90)
    assert "these outputs were not stored: rank-0/model (the store" in job()["error_msg"]
    s3.start(place)
