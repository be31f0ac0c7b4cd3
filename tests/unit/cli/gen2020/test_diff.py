"""What two jobs differ in, as it is shown to a person."""

from __future__ import annotations

import json
from typing import Any

from paddlecloud.cli.main import main
from tests.unit.cli.scripted import Captured
from tests.unit.client.fake_server import FakeServer, ok

FIRST, SECOND = "job-" + "1" * 32, "job-" + "2" * 32


def test_no_value_of_a_job_reaches_the_terminal_as_an_order(
    server: FakeServer, capsys: Captured
) -> None:
    """A job may be somebody else's: what it holds could redraw the screen of who compares it."""
    one: dict[str, Any] = {"snapshot": "s", "start_cmd": "a\nb", "env": {}, "git": {}}
    two = {
        "snapshot": "s",
        "start_cmd": "\x1b[2Jclear",
        "env": {"A\x1b]0;": "\x9b31m", "LONG": "\x07" * 300},
        "git": {"branch": "x\u202ey\r"},
    }
    for job, spec in ((FIRST, one), (SECOND, two)):
        server.routes[f"GET /api/v1/jobs/{job}/spec"] = [ok({"spec": spec})]
    assert main(["diff", FIRST, SECOND]) == 0
    assert capsys.readouterr().out.splitlines() == [
        r"start_cmd: a\nb -> \033[2Jclear",
        r"env A\033]0;: (not set) -> \23331m",
        rf"env LONG: (not set) -> {(chr(92) + '007') * 50}...",
        r"git branch: (not set) -> x\u202ey\r",
    ]
    assert main(["diff", FIRST, SECOND, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["git"][0]["second"] == "x\u202ey\r"


def test_long_values_are_cut_around_what_differs(server: FakeServer, capsys: Captured) -> None:
    same = "a" * 300
    commands = (f"{same}1 b", f"{same}2 {'c' * 300}")
    for job, command in zip((FIRST, SECOND), commands, strict=True):
        spec = {"snapshot": "s", "start_cmd": command, "job_name": same if job == FIRST else "a"}
        server.routes[f"GET /api/v1/jobs/{job}/spec"] = [ok({"spec": spec})]
    assert main(["diff", FIRST, SECOND]) == 0
    before = f"...{'a' * 40}"
    assert capsys.readouterr().out.splitlines() == [
        f"job_name: {'a' * 200}... -> a",
        f"start_cmd: {before}1 b -> {before}2 {'c' * 158}...",
    ]


def test_sizes_and_times_are_told_as_submit_job_takes_them(
    server: FakeServer, capsys: Captured
) -> None:
    one: dict[str, Any] = {"snapshot": "s", "memory": 100_000_000, "wall_time": 600, "cpu": 1}
    two = {"snapshot": "s", "memory": 2**29, "wall_time": 3723, "pserver_memory": 1001}
    for job, spec in ((FIRST, one), (SECOND, two)):
        server.routes[f"GET /api/v1/jobs/{job}/spec"] = [ok({"spec": spec})]
    assert main(["diff", FIRST, SECOND]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "cpu: 1 -> (not set)",
        "memory: 100M -> 512Mi",
        "pserver_memory: (not set) -> 1001",
        "wall_time: 00:10:00 -> 01:02:03",
    ]


def test_a_change_of_mode_is_told_as_such(server: FakeServer, capsys: Captured) -> None:
    entries: dict[str, list[list[Any]]] = {
        FIRST: [["a", "file", 2, "1", 0, ""], ["b", "file", 3, "2", 1, ""]],
        SECOND: [["a", "file", 2, "1", 1, ""], ["b", "file", 4, "3", 0, ""]],
    }
    for job, rows in entries.items():
        server.routes[f"GET /api/v1/jobs/{job}/spec"] = [ok({"spec": {"snapshot": job}})]
        server.routes[f"GET /api/v1/jobs/{job}/snapshot"] = [ok({"entries": rows})]
    assert main(["diff", FIRST, SECOND]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "~ a (mode: not executable -> executable)",
        "~ b (3 -> 4 bytes, mode: executable -> not executable)",
    ]


def test_directories_and_links_have_no_bytes(server: FakeServer, capsys: Captured) -> None:
    entries: dict[str, list[list[Any]]] = {
        FIRST: [["a", "file", 29, "1", 0, ""], ["b", "file", 3, "2", 0, ""]],
        SECOND: [
            ["a", "file", 1, "3", 0, ""],
            ["b", "link", 0, "", 0, "a"],
            ["c", "dir", 0, "", 0, ""],
        ],
    }
    for job, rows in entries.items():
        server.routes[f"GET /api/v1/jobs/{job}/spec"] = [ok({"spec": {"snapshot": job}})]
        server.routes[f"GET /api/v1/jobs/{job}/snapshot"] = [ok({"entries": rows})]
    assert main(["diff", FIRST, SECOND]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "~ a (29 -> 1 byte)",
        "~ b (3 bytes -> link to a)",
        "+ c (directory)",
    ]
