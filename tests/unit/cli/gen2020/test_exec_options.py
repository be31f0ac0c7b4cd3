"""Whose words are whose: those of exec, and those of the command that it runs."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from paddlecloud.cli import help as cli_help
from paddlecloud.cli.gen2020 import _terminal
from paddlecloud.cli.gen2020.top import cells
from paddlecloud.cli.parser import parse
from paddlecloud.cli.registry import load
from paddlecloud.client._port_forward import parse_ports
from paddlecloud.model.errors import Invalid, Refused

MIB = 1024 * 1024


@pytest.mark.parametrize(
    ("words", "job", "worker", "command"),
    [
        (["J", "--", "ls", "--help", "-h"], "J", None, ["ls", "--help", "-h"]),
        (["J", "-w", "trainer-1", "--", "ls", "-w", "x"], "J", "trainer-1", ["ls", "-w", "x"]),
        (["-w", "trainer-1", "J", "ls", "-l", "--json"], "J", "trainer-1", ["ls", "-l", "--json"]),
        (["--worker=trainer-1", "J", "ls"], "J", "trainer-1", ["ls"]),
        (["--json", "J", "ls"], "J", None, ["ls"]),
        (["--job_id=J", "--", "ls", "--", "x"], "J", None, ["ls", "--", "x"]),
        (["J"], "J", None, []),
        (["J", "--"], "J", None, []),
    ],
)
def test_words_behind_ours_are_not_looked_at(
    words: list[str], job: str, worker: str | None, command: list[str]
) -> None:
    described = load("exec")
    assert described is not None
    args = parse(described, words)
    assert (args["job_id"], args["worker"], args["command"]) == (job, worker, command)


def test_help_is_ours_before_the_dashes() -> None:
    described = load("exec")
    assert described is not None
    assert parse(described, ["J", "--help", "--", "ls"]) == {"help": True}
    assert cli_help.usage(described).endswith("-- COMMAND ...")


def a_row(**changes: Any) -> dict[str, Any]:
    plain = {
        "job_id": "J",
        "job_name": "n",
        "worker": "trainer-0",
        "state": "running",
        "asked": {"cpu": 2, "memory": 0, "gpu": 0},
        "usage": {"cpu": 0.987, "memory": 3 * MIB, "gpu": None, "gpu_memory": None},
        "peak_memory": 4 * MIB,
    }
    return plain | changes


@pytest.mark.parametrize(
    ("row", "want"),
    [
        (a_row(), ("0.99 / 2", "3.0 MiB", "4.0 MiB", "-")),
        (a_row(usage=None, peak_memory=None), ("- / 2", "-", "-", "-")),
        (
            a_row(asked={"cpu": 0.5, "memory": 1024 * MIB, "gpu": 1}),
            ("0.99 / 0.5", "3.0 MiB / 1.0 GiB", "4.0 MiB", "- / 1"),
        ),
        (
            a_row(
                asked={"cpu": 1, "memory": 0, "gpu": 2},
                usage={"cpu": 1, "memory": 0, "gpu": 1.5, "gpu_memory": 5 * MIB},
            ),
            ("1.00 / 1", "0 B", "4.0 MiB", "1.50 / 2, 5.0 MiB"),
        ),
    ],
)
def test_a_line_of_the_table(row: dict[str, Any], want: tuple[str, ...]) -> None:
    assert cells(row)[4:] == want


@pytest.mark.parametrize(
    ("words", "tty", "command"),
    [
        (["-it", "J", "--", "bash", "-it"], True, ["bash", "-it"]),
        (["-ti", "J", "--", "bash"], True, ["bash"]),
        (["J", "-t", "--", "bash"], True, ["bash"]),
        (["-i", "J", "bash"], False, ["bash"]),
    ],
)
def test_letters_of_flags_may_be_joined(words: list[str], tty: bool, command: list[str]) -> None:
    described = load("exec")
    assert described is not None
    args = parse(described, words)
    assert (args["job_id"], args["tty"], args["command"]) == ("J", tty, command)
    with pytest.raises(Invalid, match="-itx"):
        parse(described, ["-itx", "J"])


def test_windows_has_no_such_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "termios", None)
    with pytest.raises(Refused, match="not supported on Windows"):
        _terminal.describe({})


@pytest.mark.parametrize(
    ("words", "pairs"),
    [
        (["8888"], [(8888, 8888)]),
        ([8888, "0:6006"], [(8888, 8888), (0, 6006)]),
        (["18888:8888"], [(18888, 8888)]),
    ],
)
def test_ports_to_forward(words: list[int | str], pairs: list[tuple[int, int]]) -> None:
    assert parse_ports(words) == pairs


@pytest.mark.parametrize("word", ["", "0", "x", "1:2:3", ":80", "80:", "65536", "-1", "８０"])
def test_what_is_no_port_is_named(word: str) -> None:
    with pytest.raises(Invalid) as wrong:
        parse_ports([word])
    assert wrong.value.code == "port_forward_ports"
