"""Tables of a terminal: what is wrapped and what is dropped when they do not fit."""

from __future__ import annotations

import sys

import pytest

from paddlecloud.cli._text_width import width
from paddlecloud.cli.output import Output
from paddlecloud.cli.table import Column, lines, short_ids
from tests.unit.cli.test_output import on_terminal

FIRST, SECOND = "job-" + "ab" * 16, "job-" + "cd" * 16
COLUMNS = (
    Column(("JOB", "任务"), "job"),
    Column(("STATE", "状态"), "state"),
    Column(("NAME", "名称"), least=10),
    Column(("SINCE", "时间"), drop=1),
    Column(("REASON", "原因"), "note", drop=2, least=30),
)
ROWS = [
    [FIRST, "failed", "resnet50-imagenet", "2026-11-18 10:09:30",
     "trainer-0 exited with code 1: ValueError: tensor shape is wrong"],
    [SECOND, "running", "b", "2026-11-18 10:09:31", ""],
]  # fmt: skip


def shown(monkeypatch: pytest.MonkeyPatch, columns: int, lang: str = "en") -> list[str]:
    on_terminal(monkeypatch)
    out = Output(lang, {"NO_COLOR": "1", "COLUMNS": str(columns)})
    found = lines(COLUMNS, ROWS, out)
    assert all(width(line) <= columns for line in found)
    return found


def test_a_wide_terminal_shows_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    found = shown(monkeypatch, 200)
    assert found[0].split() == ["JOB", "STATE", "NAME", "SINCE", "REASON"]
    assert found[1].endswith("2026-11-18 10:09:30  " + ROWS[0][-1])
    assert len(found) == 3


def test_a_long_text_is_wrapped_before_a_column_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    found = shown(monkeypatch, 100)
    assert found[0].split()[-2:] == ["SINCE", "REASON"]
    at = found[0].index("REASON")
    want = ["trainer-0 exited with code 1:", "ValueError: tensor shape is wrong"]
    assert [line[at:] for line in found[1:3]] == want


def test_then_the_reason_goes_below_and_the_others_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(monkeypatch, 66) == [
        "JOB           STATE    NAME               SINCE",
        "job-abababab  failed   resnet50-imagenet  2026-11-18 10:09:30",
        "  trainer-0 exited with code 1: ValueError: tensor shape is wrong",
        "job-cdcdcdcd  running  b                  2026-11-18 10:09:31",
    ]


def test_what_matters_least_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    found = shown(monkeypatch, 60, "zh")
    assert found[0] == "任务          状态               名称"
    assert found[1] == "job-abababab  失败（failed）     resnet50-imagenet"
    assert found[2].startswith("  trainer-0 exited")


def test_a_column_that_has_to_stay_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    on_terminal(monkeypatch)
    out = Output("en", {"NO_COLOR": "1", "COLUMNS": "60"})
    found = lines([Column("a"), Column("b")], [["x" * 50, "y" * 20]], out)
    assert all(width(line) <= 60 for line in found)
    assert "".join(line[:38].strip() for line in found[1:]) == "x" * 50


def test_a_very_long_reason_ends_with_dots(monkeypatch: pytest.MonkeyPatch) -> None:
    on_terminal(monkeypatch)
    out = Output("en", {"NO_COLOR": "1", "COLUMNS": "60"})
    found = lines([Column("a"), Column("b", "note", drop=1, least=40)], [["x", "word " * 90]], out)
    assert len(found) == 4 and found[-1].endswith("…")


def test_ids_are_as_short_as_can_be_told_apart() -> None:
    assert short_ids([FIRST, SECOND]) == {FIRST: "job-abababab", SECOND: "job-cdcdcdcd"}
    twin = FIRST[:12] + "0" * 24
    assert short_ids([FIRST, twin]) == {FIRST: FIRST[:16], twin: twin[:16]}
    assert short_ids([FIRST, FIRST]) == {FIRST: "job-abababab"}
    assert short_ids([]) == {}


def test_colours_do_not_move_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    on_terminal(monkeypatch)
    found = lines(COLUMNS, ROWS, Output("en", {"COLUMNS": "66"}))
    assert "\x1b[31mfailed\x1b[0m   resnet50" in found[1]
    plain = found[1].replace("\x1b[31m", "").replace("\x1b[0m", "")
    assert plain == shown(monkeypatch, 66)[1]


@pytest.mark.parametrize(("asked", "want"), [("132", 132), ("20", 60), ("x", 80), ("", 80)])
def test_the_width_is_that_of_the_terminal(
    asked: str, want: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_terminal(monkeypatch)
    assert Output("en", {"COLUMNS": asked}).columns == want
    assert sys.stdout.isatty()
