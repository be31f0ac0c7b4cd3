"""scripts/run_tier.py on small test projects with flaky, failing and skipped tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

TOP = Path(__file__).resolve().parents[2]
PASSES = "def test_passes(): pass\n"
FLAKY = """
from pathlib import Path
def test_flaky{number}():
    mark = Path(__file__).with_suffix(".ran{number}")
    ran, _ = mark.exists(), mark.touch()
    assert ran, "first run of {number}"
"""
FAILS = "def test_fails(): assert False, 'always'\n"
SKIPPED = "import pytest\n@pytest.mark.skip(reason='no zsh here')\ndef test_skipped(): pass\n"
MODULE_SKIPPED = "import pytest\npytest.skip('no kernel', allow_module_level=True)\n"
PARALLEL = ("--numprocesses=2", "--dist=loadfile")

pytestmark = pytest.mark.slow


class Project:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.results = folder / "results"
        self.results.mkdir()
        (folder / "pytest.ini").write_text("[pytest]\n")

    def write(self, *sources: str) -> None:
        for number, source in enumerate(sources):
            (self.folder / f"test_{number}.py").write_text(source)

    def run(self, *words: str, tier: str = "slow") -> subprocess.CompletedProcess[str]:
        options = [word for word in words if word == "--rerun"]
        others = [word for word in words if word != "--rerun"]
        place = ["--tier", tier, "--results", str(self.results)]
        plugins = ["-p", "no:cacheprovider", "-p", "no:hypothesispytest", "-p", "no:schemathesis"]
        return self._script("run", *place, *options, "--", *plugins, *others, str(self.folder))

    def skip(self, tier: str, reason: str) -> subprocess.CompletedProcess[str]:
        place = ["--tier", tier, "--results", str(self.results)]
        return self._script("skip", *place, "--reason", reason)

    def summary(self, *may_skip: str) -> subprocess.CompletedProcess[str]:
        rules = [word for rule in may_skip for word in ("--may-skip", rule)]
        return self._script("summary", "--results", str(self.results), *rules)

    def record(self, tier: str = "slow") -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.results / f"{tier}.json").read_text("utf-8"))
        return found

    def _script(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "scripts.run_tier", *words]
        return subprocess.run(
            command, cwd=TOP, capture_output=True, text=True, timeout=60, env=_environment()
        )


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


@pytest.mark.parametrize("how", [(), PARALLEL], ids=["serial", "parallel"])
def test_a_test_that_passes_alone_is_flaky(project: Project, how: tuple[str, ...]) -> None:
    project.write(PASSES, FLAKY.format(number=1))
    done = project.run("--rerun", *how)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "running again, alone: " in done.stdout
    summary = project.summary()
    assert summary.returncode == 0
    assert "slow: 1 passed, 0 failed, 0 skipped, 1 flaky in " in summary.stdout
    assert "FLAKY " in summary.stdout
    assert "::test_flaky1 (slow) failed once and passed alone:" in summary.stdout
    assert "first run of 1" in summary.stdout


def test_a_test_that_fails_again_fails_the_tier(project: Project) -> None:
    project.write(PASSES, FLAKY.format(number=1), FAILS)
    assert project.run("--rerun", *PARALLEL).returncode == 1
    record = project.record()
    assert (record["passed"], record["failed"], len(record["flaky"])) == (1, 1, 1)


def test_without_rerun_a_failure_fails_the_tier(project: Project) -> None:
    project.write(PASSES, FLAKY.format(number=1))
    done = project.run()
    assert done.returncode == 1
    assert "running again" not in done.stdout
    assert project.record()["failed"] == 1


def test_more_than_three_flaky_tests_fail(project: Project) -> None:
    project.write(*(FLAKY.format(number=number) for number in range(4)))
    done = project.run("--rerun")
    assert done.returncode == 1
    assert "running again" not in done.stdout


def test_flaky_tests_of_other_tiers_count(project: Project) -> None:
    project.write(*(FLAKY.format(number=number) for number in range(3)))
    assert project.run("--rerun", tier="slow").returncode == 0
    assert project.summary().returncode == 0
    project.write(FLAKY.format(number="four"))
    assert project.run("--rerun", tier="chaos").returncode == 1


@pytest.mark.parametrize("how", [(), PARALLEL], ids=["serial", "parallel"])
def test_a_module_that_cannot_be_imported_fails_the_tier(
    project: Project, how: tuple[str, ...]
) -> None:
    project.write(PASSES, "import no_such_module\n")
    done = project.run("--rerun", *how)
    assert done.returncode not in (0, 5)
    assert "running again" not in done.stdout


def test_no_tests_at_all_fail_the_tier(project: Project) -> None:
    assert project.run("--rerun").returncode == 5


@pytest.mark.parametrize("how", [(), PARALLEL], ids=["serial", "parallel"])
def test_a_skip_has_to_be_allowed(project: Project, how: tuple[str, ...]) -> None:
    project.write(PASSES, SKIPPED, MODULE_SKIPPED)
    assert project.run(*how).returncode == 0
    refused = project.summary("*: no kernel: this machine has none")
    assert refused.returncode == 1
    (line,) = [line for line in refused.stdout.splitlines() if "no zsh here" in line]
    assert line.startswith("  slow: ")
    assert line.endswith("test_1.py::test_skipped: no zsh here")
    allowed = project.summary("*: no kernel: none here", "*::test_skipped: no zsh*: apt only")
    assert allowed.returncode == 0
    assert "  1 x slow: no zsh here (apt only)\n" in allowed.stdout
    assert "  1 x slow: no kernel (none here)\n" in allowed.stdout


def test_a_tier_that_cannot_run_is_a_skip(project: Project) -> None:
    project.write(PASSES)
    assert project.run().returncode == 0
    assert project.skip("python3.13", "Python 3.13 is not installed").returncode == 0
    refused = project.summary()
    assert refused.returncode == 1
    assert "  python3.13: all tests: Python 3.13 is not installed\n" in refused.stdout
    assert project.summary("python3.1[23]: all tests: Python *: optional").returncode == 0
