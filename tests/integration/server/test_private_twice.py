"""How much goes to a user's own bucket twice when whoever sends it is killed; a real S3 server."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from paddlecloud.model.private import part_size
from paddlecloud.stores.s3 import S3Store
from tests.integration.server.process import agents_of
from tests.integration.server.test_private_storage import Laptop, asked, until
from tests.integration.server.toll import Toll

pytestmark = pytest.mark.slow

SIZE = 110_000_000


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
    bucket.write("empty", [])
    before = toll.passed
    toll.shut_at(before + SIZE // 2)
    # Under its name at once: what an agent sees grow it sends more than once anyway.
    write = f'head -c {SIZE} /dev/urandom > big; sha256sum big; mv big "$OUTPUT_PATH/big"'
    job_id = laptop.submits(command=write)
    assert toll.is_shut(120)
    for pid in agents_of(laptop.home / "agent" / "agent.json"):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    toll.shut_at(None)
    job = until(lambda: laptop.job(job_id), lambda job: bool(job["finished_at"]), 120)
    assert job["job_status"] == "success"
    with bucket.read(f"output/{job_id}/rank-0/big") as reader:
        digest = hashlib.sha256(b"".join(reader)).hexdigest()
    assert laptop.types("logs", job_id).stdout.split()[0] == digest
    assert SIZE <= toll.passed - before <= SIZE * 1.05 + part_size(SIZE), asked(laptop)
