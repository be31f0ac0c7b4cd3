"""Runs one tier of the tests with pytest; records failed, flaky and skipped tests.

Usage: python -m scripts.run_tier run --tier NAME --results DIR [--rerun] -- PYTEST-ARGUMENT ...
       python -m scripts.run_tier skip --tier NAME --results DIR --reason TEXT
       python -m scripts.run_tier summary --results DIR [--may-skip "PATTERN: REASON"] ...

`run` writes DIR/NAME.json. With --rerun, each failed test runs once more, alone, after the others:
if it passes then, it is flaky and does not fail the tier. If more than FLAKY_LIMIT tests of all
tiers fail, the tier fails at once. `skip` records that a whole tier cannot run.

`summary` prints the tiers with their times, the flaky tests with the traceback of their first
failure, and what was skipped. It fails if a skip, written as "tier: path::test: reason", matches
none of the --may-skip patterns (fnmatch).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections import Counter
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

FLAKY_LIMIT = 3


class Recorder:
    """A pytest plugin that collects failures and skips; with xdist, in the controlling process."""

    def __init__(self) -> None:
        self.config: pytest.Config | None = None
        self.passed: set[str] = set()
        self.failed: dict[str, str] = {}
        self.skipped: dict[str, str] = {}
        self.broken: list[str] = []

    def pytest_configure(self, config: pytest.Config) -> None:
        self.config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed[report.nodeid] = report.longreprtext
        elif report.skipped and not hasattr(report, "wasxfail"):
            self.skipped[report.nodeid] = _skip_reason(report)
        elif report.when == "call":
            self.passed.add(report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.broken.append(report.nodeid)
        elif report.skipped:
            self.skipped[report.nodeid] = _skip_reason(report)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run")
    run.add_argument("--tier", required=True)
    run.add_argument("--results", type=Path, required=True)
    run.add_argument("--rerun", action="store_true")
    skip = commands.add_parser("skip")
    skip.add_argument("--tier", required=True)
    skip.add_argument("--results", type=Path, required=True)
    skip.add_argument("--reason", required=True)
    summary = commands.add_parser("summary")
    summary.add_argument("--results", type=Path, required=True)
    summary.add_argument("--may-skip", action="append", default=[])
    split = arguments.index("--") if "--" in arguments else len(arguments)
    args = parser.parse_args(arguments[:split])
    if args.command == "run":
        return run_tier(args.tier, args.results, arguments[split + 1 :], rerun=args.rerun)
    if args.command == "skip":
        _write(args.results, tier=args.tier, skipped={"all tests": args.reason})
        return 0
    return print_summary(args.results, args.may_skip)


def run_tier(tier: str, results: Path, arguments: list[str], *, rerun: bool) -> int:
    recorder = Recorder()
    started = time.monotonic()
    code = int(pytest.main(arguments, plugins=[recorder]))
    flaky: dict[str, str] = {}
    earlier = sum(len(found["flaky"]) for found in _read(results))
    failed, broken = recorder.failed, recorder.broken
    only_tests_failed = code == pytest.ExitCode.TESTS_FAILED and failed and not broken
    if rerun and only_tests_failed and len(failed) + earlier <= FLAKY_LIMIT:
        flaky = {name: text for name, text in failed.items() if _passes_alone(recorder, name)}
        if flaky.keys() == failed.keys():
            code = 0
    _write(
        results,
        tier=tier,
        seconds=round(time.monotonic() - started),
        passed=len(recorder.passed),
        failed=len(failed) - len(flaky),
        skipped=recorder.skipped,
        flaky=flaky,
    )
    return code


def _passes_alone(recorder: Recorder, name: str) -> bool:
    """Run one test again, with the options of the first run but without parallel workers."""
    config = recorder.config
    assert config is not None
    paths = config.option.file_or_dir
    options = [each for each in config.invocation_params.args if each not in paths]
    if config.pluginmanager.hasplugin("xdist"):
        options.append("--numprocesses=0")
    print(f"\nrunning again, alone: {name}", flush=True)
    again = [sys.executable, "-m", "pytest", *options, name]
    return subprocess.run(again, cwd=config.rootpath, check=False).returncode == 0


def print_summary(results: Path, may_skip: list[str]) -> int:
    tiers = sorted(_read(results), key=lambda found: found["finished"])
    for found in tiers:
        counts = f"{found['passed']} passed, {found['failed']} failed"
        counts += f", {len(found['skipped'])} skipped, {len(found['flaky'])} flaky"
        print(f"{found['tier']}: {counts} in {found['seconds']} s")
    flaky = [(found["tier"], *each) for found in tiers for each in found["flaky"].items()]
    for tier, name, text in flaky:
        print(f"\nFLAKY {name} ({tier}) failed once and passed alone:\n{text}")
    return 1 if _print_skips(tiers, may_skip) or len(flaky) > FLAKY_LIMIT else 0


def _print_skips(tiers: list[dict[str, Any]], may_skip: list[str]) -> bool:
    """List the skipped tests by reason; whether one of them is not allowed to be skipped."""
    rules = [rule.rsplit(": ", 1) for rule in may_skip]
    allowed: Counter[str] = Counter()
    forbidden = []
    for found in tiers:
        for name, reason in found["skipped"].items():
            line = f"{found['tier']}: {name}: {reason}"
            why = next((why for pattern, why in rules if fnmatchcase(line, pattern)), None)
            if why is None:
                forbidden.append(line)
            else:
                allowed[f"{found['tier']}: {reason} ({why})"] += 1
    if allowed:
        print("\nskipped, as allowed:")
    for line, count in sorted(allowed.items()):
        print(f"  {count} x {line}")
    if forbidden:
        print("\nskipped, but not in CI_MAY_SKIP:")
    for line in forbidden:
        print(f"  {line}")
    return bool(forbidden)


def _skip_reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    if isinstance(report.longrepr, tuple):
        return report.longrepr[2].removeprefix("Skipped: ")
    return report.longreprtext


def _write(results: Path, **record: object) -> None:
    empty = {"seconds": 0, "passed": 0, "failed": 0, "skipped": {}, "flaky": {}}
    path = results / f"{record['tier']}.json"
    path.write_text(json.dumps({**empty, **record}, indent=1), "utf-8")


def _read(results: Path) -> list[dict[str, Any]]:
    return [
        {**json.loads(path.read_text("utf-8")), "finished": path.stat().st_mtime}
        for path in results.glob("*.json")
    ]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
