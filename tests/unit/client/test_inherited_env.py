"""Which Python a job on the submitter's own machine gets, with real virtual environments."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import paddlecloud
from paddlecloud.client._inherited_env import MARKS

_ASK = (
    "import json, os; from paddlecloud.client._inherited_env import inherited_env;"
    "print(json.dumps(inherited_env(os.environ)))"
)
SOURCE = str(Path(paddlecloud.__file__).parents[1])


class Venv:
    """An environment with PaddleCloud, without what only pip would add to it."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.bin = home / "bin"
        self.bin.mkdir(parents=True)
        for name in ("python", "python3"):
            (self.bin / name).symlink_to(os.path.realpath(sys.executable))
        base = Path(sys.base_prefix) / "bin"
        (home / "pyvenv.cfg").write_text(f"home = {base}\ninclude-system-site-packages = false\n")

    def asks(self, path: str, **more: str) -> tuple[dict[str, str], dict[str, str] | None]:
        """What a job gets that is submitted with the command of this environment."""
        done = subprocess.run(
            [self.bin / "python", "-s", "-c", _ASK],
            env={"PATH": path, "PYTHONPATH": SOURCE, **more},
            capture_output=True,
            check=True,
        )
        env, changed = json.loads(done.stdout)
        return env, changed


@pytest.fixture
def venv(tmp_path: Path) -> Venv:
    return Venv(tmp_path / "a venv")


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """A directory with the person's own interpreter."""
    directory = tmp_path / "mine"
    directory.mkdir()
    (directory / "python3").symlink_to("/bin/sh")
    return directory


def test_our_environment_on_path_is_left_out_and_reported(venv: Venv, mine: Path) -> None:
    env, changed = venv.asks(f"{venv.bin}/:{mine}:/nowhere:{venv.bin}")
    assert env["PATH"] == f"{mine}:/nowhere"
    assert changed == {"own": str(venv.home), "python": f"{mine}/python3"}


def test_a_link_to_our_environment_is_recognized(venv: Venv, mine: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(venv.home)
    env, changed = venv.asks(f"{tmp_path}/link/bin:{mine}")
    assert (env["PATH"], changed is None) == (str(mine), False)


def test_nothing_is_reported_if_the_python_stays_the_same(venv: Venv, mine: Path) -> None:
    env, changed = venv.asks(f"{mine}:{venv.bin}")
    assert (env["PATH"], changed) == (str(mine), None)
    env, changed = venv.asks(f"{mine}::/x", VIRTUAL_ENV="/other")
    assert (env["PATH"], env["VIRTUAL_ENV"], changed) == (f"{mine}::/x", "/other", None)


def test_without_another_python_that_is_reported(venv: Venv) -> None:
    env, changed = venv.asks(f"/nowhere:{venv.bin}")
    assert (env["PATH"], changed) == ("/nowhere", {"own": str(venv.home), "python": ""})


def test_an_activated_environment_of_the_person_is_kept(venv: Venv, mine: Path) -> None:
    path = f"{venv.bin}:{mine}"
    env, changed = venv.asks(path, VIRTUAL_ENV=str(venv.home))
    assert (env["PATH"], env["VIRTUAL_ENV"], changed) == (path, str(venv.home), None)


@pytest.mark.parametrize("mark", MARKS)
def test_an_environment_made_for_paddlecloud_is_never_given(
    venv: Venv, mine: Path, mark: str
) -> None:
    (venv.home / mark).touch()
    env, changed = venv.asks(f"{venv.bin}:{mine}", VIRTUAL_ENV=str(venv.home))
    assert "VIRTUAL_ENV" not in env
    assert (env["PATH"], changed is None) == (str(mine), False)
