"""The last lines of a log, safe on any terminal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddlecloud.model.logs.tail import MAX_LETTERS, MAX_LINES, TAIL_BYTES, last_lines


@pytest.mark.parametrize(
    ("tail", "want"),
    [
        (b"", ()),
        (b"\n\n", ()),
        (b"one\ntwo\n", ("one", "two")),
        (b"one\n\ntwo", ("one", "", "two")),
        (b" 10%\r 50%\r100%\ndone\n", ("100%", "done")),
        (b"100%\r\nwindows\r\n", ("100%", "windows")),
        (b"\x1b[31mred\x1b[0m \x1b]0;title\x07x\n", ("red x",)),
        ("训练".encode()[1:] + b" ok\n", ("练 ok",)),
        (b"a\xff\xfeb\n", ("a\ufffd\ufffdb",)),
        (b"a\tb\x00c\x07\n", ("a b\ufffdc\ufffd",)),
    ],
)
def test_lines_are_made_readable(tail: bytes, want: tuple[str, ...]) -> None:
    assert last_lines(tail) == want


@pytest.mark.parametrize(
    ("tail", "want"),
    [
        (
            b"[paddlecloud] a\nboom\n\n[paddlecloud] b\n[paddlecloud] c\n",
            ("[paddlecloud] a", "boom"),
        ),
        (b"[paddlecloud] a\n\n[paddlecloud] b\n", ("[paddlecloud] a", "", "[paddlecloud] b")),
        (b"[paddlecloud]x\n", ("[paddlecloud]x",)),
    ],
)
def test_what_the_platform_adds_hides_no_line_of_the_program(
    tail: bytes, want: tuple[str, ...]
) -> None:
    assert last_lines(tail) == want


def test_only_the_last_lines_are_kept_and_none_is_endless() -> None:
    tail = b"".join(b"line %d\n" % number for number in range(100))
    assert last_lines(tail) == tuple(f"line {number}" for number in range(80, 100))
    (line,) = last_lines(b"x" * 100_000)
    assert len(line) == MAX_LETTERS
    assert line.endswith("...")


@given(st.binary(max_size=200) | st.text(max_size=100).map(str.encode))
def test_whatever_was_written_can_be_printed(tail: bytes) -> None:
    lines = last_lines(tail)
    assert len(lines) <= MAX_LINES
    assert all(line.isprintable() and len(line) <= MAX_LETTERS for line in lines)


@given(st.text(max_size=50), st.integers(0, 200))
def test_a_cut_anywhere_leaves_the_last_line_whole(text: str, cut: int) -> None:
    last = "last line \u8bad"
    whole = (text + "\n" + last).encode()
    kept = whole[min(cut, len(whole) - len(last.encode()) - 1) :]
    assert last_lines(kept)[-1] == last
    assert last_lines(b"y" * TAIL_BYTES + kept)[-1] == last
