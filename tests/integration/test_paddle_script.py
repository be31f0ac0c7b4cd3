"""scripts/paddle.py where nothing has to be installed: it is there already, or it cannot be."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
NEEDS = "paddlepaddle==3.3.1"


def script(*words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, TOP / "scripts" / "paddle.py", *words],
        capture_output=True,
        text=True,
        env={**os.environ, **environ},
        timeout=110,
        check=False,
    )


def test_what_is_complete_is_only_named(tmp_path: Path) -> None:
    env = tmp_path / "3.3"
    env.mkdir()
    (env / ".ready").write_text(NEEDS)
    done = script("--into", str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{env}/bin/python\n"
    assert sorted(path.name for path in env.iterdir()) == [".ready"], "nothing was touched"


def test_one_line_says_which_python_is_missing(tmp_path: Path) -> None:
    if sys.version_info[:2] == (3, 10):
        pytest.skip("this Python is the one that has to be missing")
    nothing = {"PATH": str(tmp_path), "PYENV_ROOT": str(tmp_path)}
    done = script("2.6", "--into", str(tmp_path / "paddle"), **nothing)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == "PaddlePaddle 2.6 needs Python 3.10 with its venv module: none here\n"


@pytest.mark.slow
def test_one_line_says_why_pip_could_not(tmp_path: Path) -> None:
    """An index that has nothing, as on a machine without a network."""
    (tmp_path / "index").mkdir()
    own = {
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(tmp_path / "index"),
        "PIP_CONFIG_FILE": "/dev/null",
    }
    done = script("3.3", "--into", str(tmp_path / "paddle"), **own)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("PaddlePaddle 3.3 cannot be installed: ")
    assert "No matching distribution found for paddlepaddle==3.3.1" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "paddle" / "3.3" / ".ready").exists()


def test_an_unknown_version_is_wrong_usage() -> None:
    done = script("1.8")
    assert done.returncode == 2
    assert "there are 3.3, 2.6" in done.stderr
