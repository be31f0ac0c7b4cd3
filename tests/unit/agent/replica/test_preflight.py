"""The PaddlePaddle that a job would import is found without running anything, and looked into."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from paddlecloud.agent.replica import preflight
from paddlecloud.agent.replica.records import Launch
from tests.unit.agent.runs import a_run

WITHOUT, WITH = b"\x7fELF" + bytes(100), b"\x7fELF" + bytes(50) + b"DistFleetWrapper" + bytes(50)


def install(site: Path, library: bytes = WITHOUT, place: str = "base/libpaddle.so") -> Path:
    """A package with a native library like this."""
    package = site / "paddle"
    (package / place).parent.mkdir(parents=True)
    (package / "version").mkdir()
    (package / "__init__.py").touch()
    (package / "version" / "__init__.py").write_text("full_version = '3.3.1'\nmajor = 3\n")
    (package / place).write_bytes(library)
    return package


def python(prefix: Path, *, venv: str | None = None) -> str:
    """A directory for PATH with a `python3` in it, which is never run."""
    (prefix / "bin").mkdir(parents=True)
    (prefix / "bin" / "python3").write_text("#!/bin/false\n")
    (prefix / "bin" / "python3").chmod(0o755)
    if venv is not None:
        (prefix / "pyvenv.cfg").write_text(f"home = /usr\ninclude-system-site-packages = {venv}\n")
    return str(prefix / "bin")


def site_of(prefix: Path) -> Path:
    return prefix / "lib" / "python3.11" / "site-packages"


def test_the_package_of_the_first_python_on_the_path_is_looked_into(tmp_path: Path) -> None:
    path = f"{tmp_path / 'nothing'}:{python(tmp_path / 'a')}:{python(tmp_path / 'b')}"
    package = install(site_of(tmp_path / "a"))
    install(site_of(tmp_path / "b"), WITH)
    assert preflight.without_pserver({"PATH": path}) == ("3.3.1", str(package))


def test_one_that_has_parameter_servers_is_no_news(tmp_path: Path) -> None:
    path = python(tmp_path / "a")
    install(site_of(tmp_path / "a"), WITH)
    assert preflight.without_pserver({"PATH": path}) is None


def test_pythonpath_comes_first(tmp_path: Path) -> None:
    path = python(tmp_path / "a")
    install(site_of(tmp_path / "a"), WITH)
    package = install(tmp_path / "own")
    env = {"PATH": path, "PYTHONPATH": f"{tmp_path / 'x'}:{tmp_path / 'own'}"}
    assert preflight.without_pserver(env) == ("3.3.1", str(package))


@pytest.mark.parametrize(("system", "seen"), [("false", False), ("true", True)])
def test_a_closed_environment_does_not_see_the_home(
    tmp_path: Path, system: str, seen: bool
) -> None:
    path = python(tmp_path / "venv", venv=system)
    install(tmp_path / "home" / ".local" / "lib" / "python3.11" / "site-packages")
    found = preflight.without_pserver({"PATH": path, "HOME": str(tmp_path / "home")})
    assert (found is not None) is seen


def test_nothing_is_said_where_nothing_is_known(tmp_path: Path) -> None:
    assert preflight.without_pserver({}) is None
    path = python(tmp_path / "a", venv="false")
    assert preflight.without_pserver({"PATH": path}) is None
    package = install(site_of(tmp_path / "a"), place="elsewhere/core.so")
    assert preflight.without_pserver({"PATH": path}) is None
    (package / "base").mkdir()
    os.mkfifo(package / "base" / "libpaddle.so")
    assert preflight.without_pserver({"PATH": path}) is None, "it would wait for ever"


@pytest.mark.timeout(10)
def test_a_pipe_in_the_place_of_a_file_holds_up_nobody(tmp_path: Path) -> None:
    path = python(tmp_path / "a")
    package = install(site_of(tmp_path / "a"))
    (package / "version" / "__init__.py").unlink()
    os.mkfifo(package / "version" / "__init__.py")
    os.mkfifo(tmp_path / "a" / "pyvenv.cfg")
    assert preflight.without_pserver({"PATH": path}) == ("?", str(package))


def test_the_class_is_found_also_between_two_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preflight, "_BLOCK", 16)
    for offset in range(40):
        content = bytes(offset) + b"DistFleetWrapper" + bytes(20)
        package = install(tmp_path / str(offset), content)
        assert preflight.without_pserver({"PYTHONPATH": str(package.parent)}) is None


def test_an_exchanged_library_is_looked_at_again(tmp_path: Path) -> None:
    package = install(tmp_path)
    env = {"PYTHONPATH": str(tmp_path)}
    assert preflight.without_pserver(env) is not None
    (package / "base" / "libpaddle.so").write_bytes(WITH)
    assert preflight.without_pserver(env) is None


def test_a_library_that_takes_too_long_to_read_is_no_news(tmp_path: Path) -> None:
    install(tmp_path)
    assert preflight.without_pserver({"PYTHONPATH": str(tmp_path)}, seconds=0.0) is None
    assert preflight.without_pserver({"PYTHONPATH": str(tmp_path)}) is not None


def test_nothing_is_looked_at_for_a_replica_of_another_user(tmp_path: Path) -> None:
    install(tmp_path)
    env = {"PYTHONPATH": str(tmp_path)}
    launch: Launch = {
        "replica_id": "r",
        "root": str(tmp_path),
        "command": "x",
        "env": env,
        "grace": 1.0,
    }
    told = preflight.complete(launch, a_run(pserver_mode=True, uid=12345))
    assert told == {**launch, "pserver_mode": True}


def test_an_order_is_completed_only_where_it_asks_for_it(tmp_path: Path) -> None:
    install(tmp_path / "site")
    env = {"PATH": "/usr/bin", "PYTHONPATH": str(tmp_path / "site")}
    launch: Launch = {
        "replica_id": "r",
        "root": str(tmp_path),
        "command": "x",
        "env": env,
        "grace": 1.0,
    }
    assert preflight.complete(launch, a_run()) == launch
    told = preflight.complete(launch, a_run(pserver_mode=True))
    assert told["hint"] == "no_pserver"
    assert told["preamble"].startswith("[paddlecloud] this job runs in PSERVER mode")
    assert "--distribute_job_type=NCCL2" in told["preamble"]
    ready = preflight.complete(launch, a_run(stacks=True))
    hook = tmp_path / "stacks" / "hook"
    assert ready["env"]["PYTHONPATH"] == f"{hook}:{env['PYTHONPATH']}"
    assert (hook / "sitecustomize.py").is_file()
