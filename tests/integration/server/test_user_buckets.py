"""Jobs in their owner's own bucket, by the command line; a real S3 server in the place of BOS."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from paddlecloud.model.files.etag import is_ours
from paddlecloud.stores import create
from paddlecloud.stores.s3.store import S3Store
from paddlecloud.testing import Reply
from scripts import s3
from tests.integration.server.process import ServerProcess
from tests.live_files import contents_below, files_below
from tests.s3 import reader_settings, writer_settings

pytestmark = pytest.mark.slow(seconds=6)

SETTINGS = """
[private_store]
door = "{endpoint}"
[local_pool]
cpu = 1
[running]
grace = "2s"
ship_interval = 1
"""
WAIT = "echo on; while [ ! -e go ]; do sleep 0.05; done"
TRAIN = """
set -e
env; cat data/words.txt
mkdir -p "$OUTPUT_PATH/deep"
cp data/words.txt "$OUTPUT_PATH/deep/model 1.txt"
head -c 20000000 /dev/zero > "$OUTPUT_PATH/big"
echo trained
"""


class Laptop(ServerProcess):
    """An embedded server whose S3 door is that of the tests, and a person with keys for it."""

    def __init__(self, home: Path, settings: dict[str, str]) -> None:
        super().__init__(home)
        home.mkdir(parents=True)
        (home / "server.toml").write_text(SETTINGS.format(**settings))
        self.settings = settings
        self.bos_url = f"{settings['bucket']}.bj.bcebos.com/{settings['prefix']}"
        self.keys(settings["access_key"], settings["secret_key"])

    def keys(self, ak: str, sk: str) -> None:
        conf = self.home / "client.conf"
        conf.touch(mode=0o600)
        conf.write_text(f"[bos]\nak = {ak}\nsk = {sk}\n")

    def types(self, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "paddlecloud", *words],
            env={**os.environ, "PADDLECLOUD_HOME": str(self.home), **environ},
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )

    def submits(self, *words: str, command: str = "sh run.sh") -> str:
        """The id of a job with its files in the bucket."""
        done = self.tries(*words, command=command)
        assert done.returncode == 0, done.stderr
        return str(json.loads(done.stdout)["job_id"])

    def tries(
        self, *words: str, command: str = "sh run.sh", bos_url: str = ""
    ) -> subprocess.CompletedProcess[str]:
        where = f"--bos_url={bos_url or self.bos_url}"
        start = f"--start_cmd={command}"
        return self.types("submit_job", "--public_bos=0", where, start, "--json", *words)

    def job(self, job_id: str) -> dict[str, Any]:
        done = self.types("query_job", job_id, "--json")
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def ends(self, job_id: str) -> dict[str, Any]:
        job: dict[str, Any] = until(lambda: self.job(job_id), lambda job: bool(job["finished_at"]))
        return job


def until(look: Callable[[], Any], good: Callable[[Any], bool], seconds: float = 40) -> Any:
    deadline = time.monotonic() + seconds
    while not good(found := look()):
        assert time.monotonic() < deadline, found
        time.sleep(0.1)
    return found


@pytest.fixture
def laptop(tmp_path: Path, s3_settings: dict[str, str]) -> Iterator[Laptop]:
    made = Laptop(tmp_path / "home", s3_settings)
    made.start()
    yield made
    made.close()


def fill(bucket: S3Store) -> None:
    bucket.write("run.sh", [TRAIN.encode()])
    bucket.write("data/words.txt", [b"to be or not to be\n"])
    bucket.write("empty", [])
    bucket.write("output/job-" + "0" * 32 + "/rank-0/old", [b"of an earlier job"])


def paths(bucket: S3Store) -> list[str]:
    return [stat.path for stat in bucket.list()]


def text(bucket: S3Store, path: str) -> str:
    with bucket.read(path) as reader:
        return b"".join(reader).decode()


def test_a_job_from_its_files_to_its_results(
    laptop: Laptop, bucket: S3Store, tmp_path: Path
) -> None:
    fill(bucket)
    job_id = laptop.submits()
    shown = laptop.types("logs", job_id, "-f")
    assert shown.stdout.endswith("to be or not to be\ntrained\n"), shown.stderr
    job = laptop.ends(job_id)
    assert (job["job_status"], job["bos_url"], job["public_bos"]) == ("success", laptop.bos_url, 0)
    top = f"output/{job_id}"
    log = f"{top}/log/trainer-0.log"
    until(lambda: paths(bucket), lambda found: log in found)
    assert text(bucket, log) == shown.stdout
    assert text(bucket, f"{top}/rank-0/deep/model 1.txt") == "to be or not to be\n"
    into = tmp_path / "results"
    fetched = laptop.types("get_files", job_id, "--download=1", f"--download_dir={into}")
    assert fetched.returncode == 0, fetched.stderr
    (big,) = into.rglob("big")
    assert big.stat().st_size == 20_000_000
    (model,) = into.rglob("model 1.txt")
    assert model.read_text() == "to be or not to be\n"
    everything = json.loads(laptop.types("get_files", job_id, "--prefix=/", "--json").stdout)
    assert {"run.sh", "data/words.txt", log} <= {row["path"] for row in everything["files"]}
    assert not [row for row in everything["files"] if row["path"].endswith("/old")]
    # The bytes went past the server, but for what is smaller than the way there.
    counts = asked(laptop)
    assert counts["POST replicas/{replica}/contents"] == 1
    assert counts["GET blobs/{sha256}"] == 0
    assert counts["PUT replicas/{replica}/parts/{area}/{path:path}"] == 1
    assert counts["PUT replicas/{replica}/files/{area}/{path:path}"] == 1
    # Nothing of it lies in the server's own store but the log, and notes about its outputs.
    own = map(str, files_below(laptop.home / "store"))
    notes = ("/log", "/listings/", "/sending/")
    assert not [path for path in own if not any(note in path for note in notes)]
    keys_are_nowhere(laptop, shown.stdout)


def asked(server: ServerProcess) -> Counter[str]:
    """How often each route was asked with success, as the server counts it."""
    text = server.caller().call("GET", "/metrics").body.decode()
    form = r'paddlecloud_requests_total{method="(.*?)",route="(.*?)",status="200"} (\d+)'
    found: Counter[str] = Counter()
    for method, route, count in re.findall(form, text):
        found[f"{method} {route.removeprefix('/api/v1/agent/')}"] += int(count)
    return found


def keys_are_nowhere(laptop: Laptop, log: str) -> None:
    secret, access = laptop.settings["secret_key"], laptop.settings["access_key"]
    assert secret not in log
    assert access not in log
    for path, data in contents_below(laptop.home):
        if path.name != "client.conf":
            assert secret.encode() not in data, path
            assert access.encode() not in data, path


def test_files_given_as_well_are_put_into_the_bucket_first(
    laptop: Laptop, bucket: S3Store, tmp_path: Path
) -> None:
    fill(bucket)
    code = tmp_path / "code"
    (code / "data").mkdir(parents=True)
    (code / "data" / "words.txt").write_text("from my laptop\n")
    (code / "run.sh").write_text(TRAIN)
    (code / "link").symlink_to("run.sh")
    large = os.urandom(17 * 1024 * 1024)
    (code / "data" / "large").write_bytes(large)
    done = laptop.tries(f"--files={code}")
    assert done.returncode == 0, done.stderr
    assert "these links of --files are skipped: link;" in done.stderr
    assert "gets the 4 files" in done.stderr
    job_id = str(json.loads(done.stdout)["job_id"])
    assert laptop.types("logs", job_id, "-f").stdout.endswith("from my laptop\ntrained\n")
    assert text(bucket, "data/words.txt") == "from my laptop\n"
    assert text(bucket, "run.sh") == TRAIN
    with bucket.read("data/large") as reader:
        assert b"".join(reader) == large
    before = {stat.path: stat.modified for stat in bucket.list() if not is_ours(stat.path)}
    assert set(before) == {"run.sh", "data/words.txt", "data/large", "empty"}
    again = laptop.submits(f"--files={code}", command="cat data/words.txt")
    assert laptop.types("logs", again, "-f").stdout == "from my laptop\n"
    after = {stat.path: stat.modified for stat in bucket.list() if not is_ours(stat.path)}
    assert after == before


def test_a_directory_without_files_is_told_at_the_submit(laptop: Laptop, bucket: S3Store) -> None:
    done = laptop.tries(command="true")
    assert done.returncode == 0, done.stderr
    assert f"bos_url={laptop.bos_url} holds no files" in done.stderr
    bucket.write("run.sh", [b"true\n"])
    done = laptop.tries()
    assert done.returncode == 0, done.stderr
    assert "the job gets the only file (5 B)" in done.stderr


def test_a_file_that_changed_since_fails_the_attempt(laptop: Laptop, bucket: S3Store) -> None:
    fill(bucket)
    first = laptop.submits("--cpu=1", command="sleep 600")
    until(lambda: laptop.job(first), lambda job: job["job_status"] == "running")
    bucket.write("data/second.txt", [b"as submitted\n"])
    second = laptop.submits("--cpu=1", command="cat data/second.txt")
    bucket.write("data/second.txt", [b"changed since\n"])
    laptop.types("kill_job", first)
    job = laptop.ends(second)
    assert job["job_status"] == "failed"
    assert "data/second.txt" in job["error_msg"]
    assert "changed or deleted after" in job["error_msg"]
    rerun = laptop.types("rerun", second, "--json")
    assert rerun.returncode != 0
    assert "data/second.txt" in rerun.stderr
    assert "submit_job" in rerun.stderr


def test_a_rerun_has_the_same_files(laptop: Laptop, bucket: S3Store) -> None:
    fill(bucket)
    first = laptop.submits(command="cat data/words.txt")
    laptop.ends(first)
    bucket.write("data/new.txt", [b"later"])
    done = laptop.types("rerun", first, "--json", "--start_cmd=ls data; cat data/words.txt")
    assert done.returncode == 0, done.stderr
    second = json.loads(done.stdout)["job_id"]
    assert laptop.types("logs", second, "-f").stdout == "words.txt\nto be or not to be\n"


def test_a_file_that_changed_since_is_left_out_of_a_download(
    laptop: Laptop, bucket: S3Store, tmp_path: Path
) -> None:
    fill(bucket)
    first = laptop.submits()
    assert laptop.ends(first)["job_status"] == "success"
    bucket.write("data/words.txt", [b"that is the question\n"])
    into = tmp_path / "all"
    words = ("get_files", first, "--prefix=/", "--download=1", f"--download_dir={into}")
    fetched = laptop.types(*words)
    assert fetched.returncode == 1, fetched.stderr
    assert "data/words.txt" in fetched.stderr
    assert (into / "run.sh").read_text() == TRAIN
    assert not (into / "data/words.txt").exists()
    assert [path.stat().st_size for path in into.rglob("big")] == [20_000_000]
    assert [path.name for path in tmp_path.iterdir() if "paddlecloud-part" in path.name] == []
    second = laptop.submits(command="sh run.sh again")
    assert laptop.ends(second)["job_status"] == "success"
    found = json.loads(laptop.types("diff", first, second, "--json").stdout)
    assert [row["path"] for row in found["files"]] == ["data/words.txt"]
    assert found["files"][0]["first"]["sha256"] is None


def test_files_of_another_directory_of_the_bucket_may_be_the_same(
    laptop: Laptop, bucket: S3Store
) -> None:
    for above in ("one", "two"):
        bucket.write(f"{above}/run.sh", [b"true\n"])
        bucket.write(f"{above}/name", [above.encode()])
    jobs = []
    for above in ("one", "two"):
        done = laptop.tries(bos_url=f"{laptop.bos_url}/{above}")
        assert done.returncode == 0, done.stderr
        jobs.append(json.loads(done.stdout)["job_id"])
    found = json.loads(laptop.types("diff", *jobs, "--json").stdout)
    assert [row["path"] for row in found["files"]] == ["name"]


def test_each_attempt_has_its_logs_in_the_bucket(laptop: Laptop, bucket: S3Store) -> None:
    fill(bucket)
    twice = "echo try; if [ -e $OUTPUT_PATH/was ]; then exit 0; fi; touch $OUTPUT_PATH/was; exit 9"
    job_id = laptop.submits("--max_retries=1", "--retry_exit_codes=any", command=twice)
    assert laptop.ends(job_id)["job_status"] == "success"
    logs = f"output/{job_id}/log"
    want = {f"{logs}/trainer-0.log", f"{logs}/attempt-1/trainer-0.log"}
    until(lambda: set(paths(bucket)), lambda found: want <= found)
    assert [text(bucket, path) for path in sorted(want)] == ["try\n", "try\n"]


def test_what_is_refused(laptop: Laptop, bucket: S3Store) -> None:
    fill(bucket)
    settings = laptop.settings
    laptop.keys(settings["access_key"], "not-this-one")
    assert said(laptop) == ("private_store_denied", True)
    laptop.keys("", "")
    assert said(laptop)[0] == "private_store_no_keys"
    for lesser in (reader_settings(), writer_settings()):
        laptop.keys(lesser["access_key"], lesser["secret_key"])
        assert said(laptop)[0] == "private_store_denied"
    laptop.keys(settings["access_key"], settings["secret_key"])
    nowhere = laptop.tries(bos_url="nothing-here.bj.bcebos.com/dir")
    assert nowhere.returncode != 0
    assert "bucket nothing-here does not exist in region bj" in nowhere.stderr
    assert stored(laptop) == {"jobs": 0, "snapshots": 0, "private_stores": 0, "private_files": 0}


def stored(laptop: Laptop) -> dict[str, int]:
    """How many rows there are of everything that a submit writes."""
    with closing(sqlite3.connect(laptop.home / "server" / "paddlecloud.db")) as db:
        return {
            table: db.execute(f"select count(*) from {table}").fetchone()[0]
            for table in ("jobs", "snapshots", "private_stores", "private_files")
        }


def said(laptop: Laptop) -> tuple[str, bool]:
    done = laptop.tries()
    assert done.returncode != 0
    error = json.loads(done.stderr.strip().splitlines()[-1])["error"]
    return error["code"], "not-this-one" not in done.stderr


class Away:
    """A laptop whose bucket can go away and come back."""

    def __init__(self, laptop: Laptop, store: S3Store, place: Path) -> None:
        self.laptop = laptop
        self.store = store
        self._place = place

    def goes(self) -> None:
        s3.stop(self._place)

    def comes_back(self) -> None:
        s3.start(self._place)

    def waiting_job(self, command: str) -> tuple[str, Path]:
        """A job that runs, and the file that lets it go on."""
        job_id = self.laptop.submits(command=f"{WAIT}; {command}")
        until(lambda: self.laptop.types("logs", job_id).stdout, lambda out: out == "on\n")
        return job_id, self.laptop.home / "agent" / "replicas" / f"{job_id}.1.trainer-0" / "work/go"


@pytest.fixture
def away(tmp_path: Path, s3_place: Path) -> Iterator[Away]:
    settings = {**s3.show(s3_place), "prefix": "mine"}
    laptop = Laptop(tmp_path / "home", settings)
    store = create("s3", settings)
    assert isinstance(store, S3Store)
    with closing(store):
        fill(store)
        laptop.start()
        try:
            yield Away(laptop, store, s3_place)
        finally:
            laptop.close()


def test_logs_wait_for_a_bucket_that_is_away(away: Away) -> None:
    laptop = away.laptop
    quiet, go = away.waiting_job("echo end")
    away.goes()
    go.touch()
    assert laptop.ends(quiet)["job_status"] == "success"
    told = until(lambda: laptop.job(quiet)["advice"], bool)
    assert "the logs are not in bos_url=" in told[0]
    chinese = laptop.types("query_job", quiet, "--json", PADDLECLOUD_LANG="zh")
    assert "没有响应" in json.loads(chinese.stdout)["advice"][0]
    assert "does not respond" not in chinese.stdout
    assert laptop.types("logs", quiet).stdout == "on\nend\n"
    refused = laptop.tries()
    assert refused.returncode != 0
    assert "does not respond" in refused.stderr
    away.comes_back()
    log = f"output/{quiet}/log/trainer-0.log"
    until(lambda: paths(away.store), lambda found: log in found)
    assert until(lambda: laptop.job(quiet)["advice"], lambda told: not told) == []


def test_a_job_waits_for_files_in_a_bucket_that_is_away(away: Away) -> None:
    laptop = away.laptop
    first = laptop.submits("--cpu=1", command="sleep 600")
    until(lambda: laptop.job(first), lambda job: job["job_status"] == "running")
    away.store.write("data/late.txt", [b"late\n"])
    late = laptop.submits("--cpu=1", command="cat data/late.txt")
    away.goes()
    assert laptop.types("kill_job", first).returncode == 0
    journal = laptop.home / "agent" / "agent.log"
    until(lambda: journal.read_text(), lambda text: "cannot be started yet" in text)
    waits = "trainer-0 waits for its files before it starts ("
    (told,) = until(lambda: laptop.job(late)["advice"], lambda told: waits in "".join(told))
    assert told.startswith(waits)
    away.comes_back()
    assert laptop.ends(late)["job_status"] == "success"
    assert laptop.types("logs", late).stdout == "late\n"
    # Its log may wait a little longer for the bucket than its files did.
    until(lambda: laptop.job(late)["advice"], lambda told: not told)


def test_outputs_wait_for_a_bucket_that_is_away(away: Away) -> None:
    laptop = away.laptop
    big = "head -c 3000000 /dev/zero > $OUTPUT_PATH/big; echo small > $OUTPUT_PATH/small"
    loud, go = away.waiting_job(big)
    away.goes()
    go.touch()
    until((go.parents[1] / "exit.json").exists, bool)
    assert laptop.job(loud)["finished_at"] is None
    door = urlsplit(laptop.settings["endpoint"]).netloc
    why = f"are not in its bucket yet (bos_url={laptop.bos_url}: {door} does not respond"
    until(lambda: laptop.job(loud)["advice"], lambda told: why in "".join(told))
    waiting = laptop.types("query_job", loud, "--json", PADDLECLOUD_LANG="zh")
    job = json.loads(waiting.stdout)
    assert job["job_status"] == "running"
    assert f"尚未写入存储桶（bos_url={laptop.bos_url}：{door} 没有响应" in job["advice"][0]
    away.comes_back()
    job = laptop.ends(loud)
    assert not [told for told in job["advice"] if "not in its bucket" in told]
    sizes = {stat.path: stat.size for stat in away.store.list(f"output/{loud}/rank-0/")}
    assert sizes == {
        f"output/{loud}/rank-0/big": 3_000_000,
        f"output/{loud}/rank-0/small": len("small\n"),
    }


def test_a_kill_does_not_wait_for_a_bucket_that_is_away(away: Away) -> None:
    """Who kills the job is told what is not there, and where it is."""
    laptop = away.laptop
    loud, go = away.waiting_job("echo small > $OUTPUT_PATH/small")
    away.goes()
    try:
        go.touch()
        why = "its outputs are not in its bucket yet"
        until(lambda: laptop.job(loud)["advice"], lambda told: why in "".join(told))
        assert laptop.types("kill_job", loud).returncode == 0
        job = laptop.ends(loud)
        assert job["job_status"] == "killed"
        assert "these outputs were not stored: rank-0/small (" in job["error_msg"]
        (kept,) = (laptop.home / "agent" / "unsent").rglob("small")
        assert str(kept.parents[1]) in job["error_msg"]
    finally:
        away.comes_back()


def test_a_silent_bucket_holds_up_only_who_asks_it(tmp_path: Path, s3_place: Path) -> None:
    settings = {**s3.show(s3_place), "prefix": "mine"}
    laptop = Laptop(tmp_path / "home", settings)
    laptop.start()
    try:
        job_id = laptop.submits(command="echo done > $OUTPUT_PATH/result")
        laptop.ends(job_id)
        for _ in range(3):  # so that the server has a connection, which will be silent as well
            assert "/result" in laptop.types("get_files", job_id).stdout
        caller, listing = laptop.caller(), f"/api/v1/jobs/{job_id}/files"
        with ThreadPoolExecutor(50) as people, silent(s3_place):
            began = time.monotonic()
            others = [people.submit(caller.call, "GET", listing) for _ in range(12)]
            told = laptop.types("get_files", job_id)
            assert time.monotonic() - began < 30
            assert told.returncode == 1
            door = urlsplit(settings["endpoint"]).netloc
            assert f"bos_url={laptop.bos_url}: {door} does not respond" in told.stderr
            codes = {code_of(other.result()) for other in others}
            assert codes == {"private_store_unreachable"}
            others = [people.submit(caller.call, "GET", listing) for _ in range(50)]
            until(lambda: sum(other.done() for other in others), lambda done: done >= 18, 8)
            early = [code_of(other.result()) for other in others if other.done()]
            assert early == ["store_crowded"] * 18
            asked = time.monotonic()
            assert caller.get(f"/api/v1/jobs/{job_id}")["job_status"] == "success"
            assert time.monotonic() - asked < 4, "it stood in line behind the bucket"
        assert "/result" in laptop.types("get_files", job_id).stdout
    finally:
        laptop.close()


def code_of(reply: Reply) -> str:
    return str(json.loads(reply.body)["error"]["code"])


@contextmanager
def silent(place: Path) -> Iterator[None]:
    """The S3 server takes connections and says nothing."""
    pid = int((place / "pid").read_text("ascii"))
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)
