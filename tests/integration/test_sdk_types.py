"""The types of the SDK as users get them: a wheel in an environment of its own, mypy --strict."""

from __future__ import annotations

import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
RIGHT = """\
from pathlib import Path

from paddlecloud import Client, Job, errors
from paddlecloud.data import cluster_files_reader


def train(client: Client, directory: Path) -> Job:
    job = client.submit_job(
        files=directory,
        start_cmd="sh run.sh",
        env={"EPOCHS": "1"},
        cpu=0.5,
        memory="1G",
        wall_time="01:00:00",
        retry_exit_codes=[101, 102],
    )
    job.wait(timeout=60).logs(follow=True)
    code: int | None = job.exit_code
    where: str = job.download(directory / "results", resume=True)
    print(job.id.upper(), job.state, code, where, job.workers[0]["name"])
    return client.rerun(job, env=["EPOCHS=2"], unset=["A"], cpu=2)


def names(client: Client) -> list[str]:
    try:
        client.kill_job("last")
    except errors.NotFound as error:
        print(error.code, error.text("zh"))
    return [job.job_name for job in client.list_jobs(state="running", limit=None)]


with Client() as client:
    train(client, Path("job"))
    print(sum(1 for _ in cluster_files_reader("*.pickle", 1, 0)()))
"""
#: Each line is wrong in its own way.
WRONG = """\
from paddlecloud import Client

client = Client()
client.submit_job(files="job", start_cmd="true", cpus=1)
client.submit_job(files="job", start_cmd="true", watch_mode=1)
client.submit_job(files="job", start_cmd=["true"])
client.dry_run(files="job", start_cmd="true", cpus=1)
client.rerun("last", memory=[1])
client.revoke_token(None)
client.query_job("last").wait("5")
client.nothing()
"""


@pytest.mark.slow(seconds=15)
def test_a_users_script_is_checked_against_the_wheel(tmp_path: Path) -> None:
    build = "import sys; from hatchling import build; print(build.build_wheel(sys.argv[1]))"
    command = [sys.executable, "-c", build, str(tmp_path)]
    built = subprocess.run(command, cwd=TOP, capture_output=True, text=True, check=True)
    wheel = tmp_path / built.stdout.split()[-1]
    environment = tmp_path / "venv"
    venv.create(environment, symlinks=True)
    (packages,) = environment.glob("lib/python3*/site-packages")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages)  # without an index, as pip would
    (tmp_path / "right.py").write_text(RIGHT)
    (tmp_path / "wrong.py").write_text(WRONG)
    python = environment / "bin" / "python"
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-incremental", "--no-error-summary",
         f"--python-executable={python}", "right.py", "wrong.py"],
        cwd=tmp_path, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.stderr == ""
    lines = [line.split(":")[:2] for line in done.stdout.splitlines() if ": error: " in line]
    first = WRONG.splitlines().index("client = Client()") + 2
    want = [["wrong.py", str(number)] for number in range(first, len(WRONG.splitlines()) + 1)]
    assert lines == want, done.stdout
