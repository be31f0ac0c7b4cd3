"""Installs PaddlePaddle into environments of its own, for the tests and for trying the examples.

`3.3` is today's CPU wheel. `2.6` is the last one that still has a parameter server; it needs
Python 3.10, because the protobuf it works with has no C++ part for newer ones. They are kept in
`paddlecloud-dev/paddle` of the user's cache directory, so that every checkout shares them.
An environment that is complete already costs nothing. Where one cannot be had, one line says what
is missing and the exit code is 3. Which index pip asks is the business of pip's own configuration.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
PLACE = CACHE / "paddlecloud-dev" / "paddle"
PATIENCE = 900.0
NEEDS = {
    "3.3": ("paddlepaddle==3.3.1",),
    "2.6": ("paddlepaddle==2.6.2", "numpy<2", "protobuf==3.20.2"),
}
PYTHONS = {"3.3": ("3.11", "3.12", "3.13", "3.10"), "2.6": ("3.10",)}


class Missing(Exception):
    """PaddlePaddle cannot be had here; the message names what is missing."""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("versions", nargs="*", metavar="VERSION", help="3.3 (the default) or 2.6")
    parser.add_argument("--into", type=Path, default=PLACE, help=f"default: {PLACE}")
    args = parser.parse_args()
    unknown = [version for version in args.versions if version not in NEEDS]
    if unknown:
        parser.error(f"no such version: {unknown[0]}; there are {', '.join(NEEDS)}")
    try:
        for version in args.versions or ["3.3"]:
            print(install(version, args.into))
    except Missing as error:
        print(error, file=sys.stderr)
        return 3
    return 0


def install(version: str, place: Path = PLACE) -> Path:
    """The Python that imports this PaddlePaddle, which is installed first where it is not."""
    env = place.resolve() / version
    python = env / "bin" / "python"
    if is_ready(version, place):
        return python
    env.parent.mkdir(parents=True, exist_ok=True)
    with (env.parent / f"{version}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not is_ready(version, place):
            _make(version, env)
    return python


def is_ready(version: str, place: Path = PLACE) -> bool:
    """Whether exactly what this version needs was installed to the end."""
    ready = place / version / ".ready"
    return ready.exists() and ready.read_text("utf-8") == _wanted(version)


def _wanted(version: str) -> str:
    return "\n".join(NEEDS[version])


def _make(version: str, env: Path) -> None:
    base = find_python(version)
    shutil.rmtree(env, ignore_errors=True)
    pip = [str(env / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]
    _run(version, [base, "-m", "venv", str(env)])
    _run(version, [*pip, "install", "--quiet", *NEEDS[version]])
    _run(version, [str(env / "bin" / "python"), "-c", "import paddle"])
    (env / ".ready").write_text(_wanted(version), "utf-8")


def find_python(version: str) -> str:
    """A Python that can make an environment for this PaddlePaddle; tried, not guessed by name."""
    for number in PYTHONS[version]:
        for candidate in _candidates(number):
            if _is(candidate, number):
                return candidate
    wanted = " or ".join(PYTHONS[version])
    raise Missing(f"PaddlePaddle {version} needs Python {wanted} with its venv module: none here")


def _candidates(number: str) -> list[str]:
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    found = [shutil.which(f"python{number}"), sys.executable]
    found += [str(path) for path in sorted(pyenv.glob(f"versions/{number}.*/bin/python"))]
    return [path for path in found if path]


def _is(python: str, number: str) -> bool:
    asked = "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2])"
    try:
        said = subprocess.run(
            [python, "-c", asked], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return said.stdout.strip() == number


def _run(version: str, command: list[str]) -> None:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=PATIENCE, check=False
        )
    except subprocess.TimeoutExpired:
        raise Missing(f"installing PaddlePaddle {version} took over {PATIENCE:.0f} s") from None
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines() or ["nothing was said"]
        raise Missing(f"PaddlePaddle {version} cannot be installed: {said[-1]}")


if __name__ == "__main__":
    raise SystemExit(main())
