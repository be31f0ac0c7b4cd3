"""Where lines are broken: at blanks, between Chinese characters, never inside a command."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddlecloud.cli._text_width import clip, cut, width, wrap


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("", 0),
        ("abc", 3),
        ("任务", 4),
        ("a任b", 4),
        ("é", 1),
        ("e\u0301", 1),
        ("ｆｕｌｌ", 8),
        ("\x1b[31mfailed\x1b[0m 任务", 11),
    ],
)
def test_wide_characters_take_two_columns_and_colours_none(text: str, want: int) -> None:
    assert width(text) == want


@pytest.mark.parametrize(
    ("text", "columns", "want"),
    [
        ("one two three", 20, ["one two three"]),
        ("one two three", 8, ["one two", "three"]),
        ("  one two three", 9, ["  one two", "three"]),
        ("a word_that_is_too_long b", 10, ["a", "word_that_is_too_long", "b"]),
        ("任务已经结束，日志在此", 14, ["任务已经结束，", "日志在此"]),
        ("任务已经结束，日志在此", 12, ["任务已经结", "束，日志在此"]),
        ("看（这里）吧", 6, ["看（这", "里）吧"]),
        ("many retries (default: 1)", 20, ["many retries", "(default: 1)"]),
        ("实例数目（默认：1）", 12, ["实例数目", "（默认：1）"]),
        (
            "it waits; end it: paddlecloud kill_job job-1; bye",
            40,
            ["it waits; end it:", "paddlecloud kill_job job-1; bye"],
        ),
        (
            "see paddlecloud list_jobs before you submit again",
            40,
            ["see paddlecloud list_jobs before you", "submit again"],
        ),
        ('for example --start_cmd="sh run.sh"', 32, ["for example", '--start_cmd="sh run.sh"']),
        (
            "or: paddlecloud server start",
            26,
            ["or:", "paddlecloud server start"],
        ),
        ("停止：paddlecloud kill_job x；再见", 26, ["停止：", "paddlecloud kill_job x；再", "见"]),
    ],
)
def test_lines_are_broken_where_a_reader_would(text: str, columns: int, want: list[str]) -> None:
    assert wrap(text, columns) == want


def test_lines_after_the_first_are_indented() -> None:
    assert wrap("one two three four", 9, "  ") == ["one two", "  three", "  four"]


@given(st.text(st.sampled_from("ab 任务，（）\u0301"), max_size=60), st.integers(4, 30))
def test_no_letter_is_lost_and_no_line_too_wide(text: str, columns: int) -> None:
    lines = cut(text, columns)
    assert all(width(line) <= columns for line in lines)
    assert "".join("".join(lines).split()) == "".join(text.split())


@pytest.mark.parametrize(
    ("text", "columns", "want"), [("abc", 5, "abc"), ("abcdef", 3, "abc"), ("任务ab", 3, "任")]
)
def test_a_text_is_clipped(text: str, columns: int, want: str) -> None:
    assert clip(text, columns) == want
