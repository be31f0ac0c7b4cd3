"""How much goes to a user's own bucket twice when whoever sends it is killed; a real S3 server."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from paddlecloud.model.files.etag import part_size
from paddlecloud.stores.s3.store import S3Store
from tests.integration.server.counting_proxy import Toll
from tests.integration.server.process import agents_of
from tests.integration.server.several_servers import replicas
from tests.integration.server.test_several_servers import end_of
from tests.integration.server.test_user_buckets import Laptop, asked, until
from tests.integration.server.world import a_submit

pytestmark = [pytest.mark.slow(seconds=10), pytest.mark.timeout(400)]

SIZE = 110_000_000
# Under its name at once: what an agent sees grow it sends more than once anyway.
WRITE = f'head -c {SIZE} /dev/urandom > big; sha256sum big; mv big "$OUTPUT_PATH/big"'


@pytest.fixture
def toll(s3_settings: dict[str, str]) -> Iterator[Toll]:
    where = urlsplit(s3_settings["endpoint"])
    with closing(Toll(where.hostname or "", where.port or 0)) as made:
        yield made


@pytest.fixture
def laptop(tmp_path: Path, s3_settings: dict[str, str], toll: Toll) -> Iterator[Laptop]:
    made = Laptop(tmp_path / "home", s3_settings | {"endpoint": toll.url})
    made.start()
    yield made
    made.close()


def test_a_client_that_is_killed_sends_a_twentieth_twice(
    laptop: Laptop, toll: Toll, bucket: S3Store, tmp_path: Path
) -> None:
    code = tmp_path / "code"
    code.mkdir()
    data = os.urandom(SIZE)
    (code / "big").write_bytes(data)
    words = ["submit_job", "--public_bos=0", f"--bos_url={laptop.bos_url}", f"--files={code}"]
    toll.shut_at(SIZE // 2)
    client = subprocess.Popen(
        [sys.executable, "-m", "paddlecloud", *words, "--start_cmd=true"],
        env={**os.environ, "PADDLECLOUD_HOME": str(laptop.home)},
    )
    assert toll.is_shut(120)
    client.kill()
    client.wait(60)
    toll.shut_at(None)
    done = laptop.types(*words, "--start_cmd=true", "--json")
    assert done.returncode == 0, done.stderr
    with bucket.read("big") as reader:
        assert b"".join(reader) == data
    assert SIZE <= toll.passed <= SIZE * 1.05 + part_size(SIZE)


def test_an_agent_that_is_killed_sends_a_twentieth_twice(
    laptop: Laptop, toll: Toll, bucket: S3Store
) -> None:
    with output_of(laptop, toll, bucket):
        kill_agents(laptop)
        toll.shut_at(None)


def test_a_server_that_is_killed_with_its_agent_goes_on(
    laptop: Laptop, toll: Toll, bucket: S3Store
) -> None:
    with output_of(laptop, toll, bucket):
        kill_server(laptop)
        kill_agents(laptop)
        toll.shut_at(None)
        laptop.start()


def test_a_server_that_is_away_when_all_is_sent_goes_on(
    laptop: Laptop, toll: Toll, bucket: S3Store
) -> None:
    with output_of(laptop, toll, bucket):
        kill_server(laptop)
        toll.shut_at(None)
        until(lambda: is_waiting(laptop.home), bool, 120)
        laptop.start()


def test_a_line_that_breaks_costs_a_part(laptop: Laptop, toll: Toll, bucket: S3Store) -> None:
    def cut() -> bool:
        toll.recover()
        return is_waiting(laptop.home)

    with output_of(laptop, toll, bucket):
        until(cut, bool, 120)
        toll.shut_at(None)


def test_another_server_goes_on_where_one_is_killed(
    tmp_path: Path,
    postgres_url: str,
    s3_settings: dict[str, str],
    toll: Toll,
    bucket: S3Store,
) -> None:
    with replicas(tmp_path, postgres_url, ["machine-a", ""]) as servers:
        for one in servers:
            one.settings.write_text(
                f'{one.settings.read_text()}\n[private_store]\ndoor = "{toll.url}"\n'
            )
            one.start()
        first, second = servers
        caller = second.caller()
        place = f"{s3_settings['bucket']}.bj.bcebos.com/{s3_settings['prefix']}"
        spec = {"start_cmd": WRITE, "public_bos": 0, "bos_url": place, "cpu": 0.1}
        access, secret = s3_settings["access_key"], s3_settings["secret_key"]
        keys = {"bos_access_key": access, "bos_secret_key": secret}
        toll.shut_at(SIZE // 2)
        job_id = caller.post("/api/v1/jobs", a_submit(spec) | keys)["job"]["job_id"]
        assert toll.is_shut(120)
        first.process.kill()

        def cut() -> bool:
            toll.recover()
            return is_waiting(first.home)

        until(cut, bool, 120)
        toll.shut_at(None)
        assert end_of(caller, job_id, 120) == "success"
        (big,) = bucket.list(f"output/{job_id}/rank-0/")
        assert big.size == SIZE
        assert SIZE <= toll.passed <= SIZE * 1.05 + part_size(SIZE), asked(second)


@contextmanager
def output_of(laptop: Laptop, toll: Toll, bucket: S3Store) -> Iterator[None]:
    """A job with one large output, half of which is in its bucket; afterwards all of it must be,
    and little may have been sent twice."""
    bucket.write("empty", [])
    before = toll.passed
    toll.shut_at(before + SIZE // 2)
    job_id = laptop.submits(command=WRITE)
    assert toll.is_shut(120)
    yield
    job = until(lambda: laptop.job(job_id), lambda job: bool(job["finished_at"]), 120)
    assert job["job_status"] == "success"
    with bucket.read(f"output/{job_id}/rank-0/big") as reader:
        digest = hashlib.sha256(b"".join(reader)).hexdigest()
    assert laptop.types("logs", job_id).stdout.split()[0] == digest
    assert SIZE <= toll.passed - before <= SIZE * 1.05 + part_size(SIZE), asked(laptop)


def is_waiting(home: Path) -> bool:
    return "its outputs wait" in (home / "agent" / "agent.log").read_text()


def kill_agents(laptop: Laptop) -> None:
    for pid in agents_of(laptop.home / "agent" / "agent.json"):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def kill_server(laptop: Laptop) -> None:
    pid = laptop.facts()["pid"]
    os.kill(pid, signal.SIGKILL)
    (process,) = [one for one in laptop._started if one.pid == pid]
    process.wait(60)
