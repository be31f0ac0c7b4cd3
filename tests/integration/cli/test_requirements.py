"""--requirements and the root of a gang, from the command line to the job and back."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.agent.replicas import eventually
from tests.integration.cli.person import Person
from tests.uv import UV, a_wheel, needs_uv

#: An install is slow on a busy machine.
PATIENCE = 240.0
#: As programs of 2017 do it.
LISTS = (
    "import os; i = int(open('/trainer_id').readline()[:-1]);"
    " n = int(open('/trainer_count').readline()[:-1]); open('/train.list', 'w').write(f'part-{i}');"
    " same = open(os.environ['PADDLECLOUD_TRAINER_ID_FILE']).read() == open('/trainer_id').read();"
    " print(i, n, open('/train.list').read(), same)"
)


@pytest.fixture(scope="module")
def person(shared: Person) -> Person:
    return shared


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param(None, "requirements.txt", id="no such file"),
        pytest.param(b"six\n-r more.txt\n", "line 2 of the requirements (-r more.txt)", id="-r"),
        pytest.param(b"\xff\xfea", "neither UTF-8 nor UTF-16", id="not text"),
        pytest.param(b"a\n" * 40_000, "has 80000 bytes", id="too long"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_before_anything_is_sent(
    newcomer: Callable[[str], Person], text: bytes | None, want: str
) -> None:
    person = newcomer("home")
    file = person.here / "requirements.txt"
    if text is not None:
        file.write_bytes(text)
    words = (f"--files={person.here}", "--start_cmd=true", f"--requirements={file}")
    done = person.types("submit_job", *words)
    assert (done.code, done.out) == (2, "")
    assert want in done.err
    assert not person.home.exists()


@pytest.mark.skipif(
    sys.platform != "linux"
    or subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode != 0,
    reason="needs to be allowed to mount",
)
def test_each_rank_of_a_gang_has_its_own_root(person: Person) -> None:
    words = ("--instance_count=2", "--distribute_job_type=NCCL2", "--job_type=cpu")
    job_id = person.submits(f'{shlex.quote(sys.executable)} -c "{LISTS}"', *words)
    view = person.waits_for(job_id)
    assert view["job_status"] == "success", view["error_msg"]
    for rank in (0, 1):
        said = person.types("logs", job_id, "-w", f"trainer-{rank}").out
        assert said == f"{rank} 2 part-{rank} True\n"
    assert not Path("/train.list").exists() and not Path("/trainer_id").exists()


@pytest.mark.slow
def test_what_cannot_be_installed_fails_the_job_with_the_last_lines(person: Person) -> None:
    file = person.here / "requirements.txt"
    file.write_text("--no-index\nnosuchthing==9.9\n")
    job_id = person.submits("true", f"--requirements={file}", "--max_retries=2")
    view = over(person, job_id)
    assert view["job_status"] == "failed"
    assert "No matching distribution found for nosuchthing==9.9" in view["error_msg"]
    assert view["attempts"] == 1
    log = person.types("logs", job_id).out
    assert "[paddlecloud] cannot install the packages; output of the installer:\n" in log
    assert "pip install -r" in view["failure"]["advice"]


@pytest.mark.slow
def test_the_job_runs_in_the_environment(person: Person) -> None:
    file = person.here / "requirements.txt"
    file.write_text("# nothing\n")
    command = 'python -c "import sys; print(sys.prefix != sys.base_prefix, sys.prefix)"'
    job_id = person.submits(command, f"--requirements={file}")
    view = over(person, job_id)
    assert view["job_status"] == "success", view["error_msg"]
    is_one, place = person.types("logs", job_id).out.splitlines()[-1].split()
    assert is_one == "True"
    assert place.startswith(f"{person.home}{os.sep}")


@needs_uv
@pytest.mark.slow
def test_uv_installs_and_what_it_cannot_is_left_to_pip(person: Person) -> None:
    """With the index settings of pip; the error is that of pip."""
    assert UV is not None
    a_wheel(person.here)
    found = {"PATH": f"{Path(UV).parent}:{os.environ['PATH']}"}
    links = f"--env=PIP_FIND_LINKS={person.here}"
    words = ("submit_job", "--files=empty", "--env=PIP_NO_INDEX=1", links, "--json")
    (person.here / "empty").mkdir(exist_ok=True)
    code = (
        "import tinything, importlib.metadata as m, shutil, sys;"
        " print(m.distribution('tinything').read_text('INSTALLER').strip(),"
        " shutil.which('pip').startswith(sys.prefix))"
    )
    good, wrong = person.here / "good.txt", person.here / "wrong.txt"
    good.write_text("tinything\n")
    wrong.write_text("tinything==2.0\n")
    command = f"--start_cmd=python -c {shlex.quote(code)}"
    job_id = person.types(*words, command, f"--requirements={good}", **found).json["job_id"]
    view = over(person, job_id)
    assert view["job_status"] == "success", view["error_msg"]
    assert person.types("logs", job_id).out.splitlines()[-1] == "uv True"
    job_id = person.types(*words, command, f"--requirements={wrong}", **found).json["job_id"]
    assert "No matching distribution found for tinything==2.0" in over(person, job_id)["error_msg"]


def over(person: Person, job_id: str) -> dict[str, Any]:
    eventually(lambda: person.sees(job_id)["finish_time"], PATIENCE)
    return person.sees(job_id)
