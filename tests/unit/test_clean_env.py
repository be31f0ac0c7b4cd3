"""scripts/clean-env.sh: what of the caller's environment reaches the tests."""

from __future__ import annotations

import subprocess
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "clean-env.sh"


def seen(**environ: str) -> dict[str, str]:
    done = subprocess.run(
        [SCRIPT, "env"],
        env={"PATH": "/usr/bin:/bin", "HOME": "/home/a b"} | environ,
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    return dict(line.split("=", 1) for line in done.stdout.splitlines())


def test_what_a_shell_exports_does_not_arrive() -> None:
    given = {"PYTHONUNBUFFERED": "1", "PADDLECLOUD_LANG": "zh", "TZ": "Asia/Tokyo", "X_PIP_Y": "1"}
    assert seen(**given) == {
        "PATH": "/usr/bin:/bin",
        "HOME": "/home/a b",
        "LANG": "C.UTF-8",
        "XDG_CACHE_HOME": "/home/a b/.cache",
    }


def test_what_package_clients_need_arrives_as_it_was() -> None:
    given = {
        "PIP_INDEX_URL": "https://example.com/a b?c='$d'",
        "HTTPS_PROXY": "http://proxy:1",
        "XDG_CACHE_HOME": "/cache",
        "LANG": "zh_CN.UTF-8",
    }
    assert seen(**given).items() >= given.items()


def test_the_exit_code_and_the_words_are_those_of_the_command() -> None:
    done = subprocess.run(
        [SCRIPT, "sh", "-c", 'printf "%s|" "$@"; exit 7', "sh", "a  b", ""],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (done.returncode, done.stdout) == (7, "a  b||")
