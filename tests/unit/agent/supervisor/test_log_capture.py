"""A log held to its limit: what is kept, what is left out, and that the sum is right."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddlecloud.agent.supervisor.log_capture import LONGEST_TAIL, LogLimit

LINES = re.compile(
    (
        r"\n?\[paddlecloud: the log reached .*\]\n\[paddlecloud: 日志达到上限 .*\]\n"
        r"\[paddlecloud: (\d+) bytes omitted here\]\n\[paddlecloud: 此处省略 \1 字节\]\n"
    ).encode()
)


def trimmed(pieces: list[bytes], *, limit: int | None, size: int = 0) -> bytes:
    trim = LogLimit(limit=limit, size=size)
    return b"".join([*(trim.take(piece) for piece in pieces), trim.rest()])


def test_without_a_limit_all_goes_through() -> None:
    assert trimmed([b"a" * 5_000_000, b"b"], limit=None) == b"a" * 5_000_000 + b"b"


@given(pieces=st.lists(st.binary(min_size=1, max_size=50)), limit=st.integers(0, 400))
def test_the_head_and_the_tail_are_kept_and_the_rest_is_counted(
    pieces: list[bytes], limit: int
) -> None:
    whole = b"".join(pieces)
    tail = limit // 4
    head = limit - tail
    got = trimmed(pieces, limit=limit)
    if len(whole) <= head:
        assert got == whole
        return
    kept = whole[max(head, len(whole) - tail) :]
    left_out = len(whole) - head - len(kept)
    assert got.startswith(whole[:head])
    assert got.endswith(kept)
    middle = got[head : len(got) - len(kept)]
    told = LINES.fullmatch(middle)
    assert told is not None, middle
    assert int(told[1]) == left_out


@pytest.mark.parametrize(
    ("limit", "tail"),
    [(1000, 250), (4 * LONGEST_TAIL, LONGEST_TAIL), (40 * LONGEST_TAIL, LONGEST_TAIL)],
)
def test_a_quarter_is_for_the_tail_but_not_too_much(limit: int, tail: int) -> None:
    trim = LogLimit(limit=limit, size=0)
    assert trim.take(b"x" * (limit - tail)) == b"x" * (limit - tail)
    assert b"the last %d bytes" % tail in trim.take(b"y")


def test_what_the_log_holds_already_counts() -> None:
    assert trimmed([b"0123456789"], limit=40, size=25).startswith(b"01234\n[paddlecloud: the log")


def test_a_line_of_ours_begins_a_line() -> None:
    assert trimmed([b"x" * 6], limit=8).startswith(b"x" * 6)
    assert trimmed([b"x" * 7], limit=8).startswith(b"x" * 6 + b"\n[paddlecloud")
    assert trimmed([b"xxxxx\n", b"x"], limit=8).startswith(b"xxxxx\n[paddlecloud")
