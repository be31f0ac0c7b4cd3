"""Frames of an exchange: whole however they are cut, and nothing but what was sealed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddlecloud.model.errors import TooLarge, Unauthenticated
from paddlecloud.model.protocol.report_frames import (
    LENGTH,
    LONGEST,
    SEAL,
    Reports,
    Seals,
    framed,
    key_of,
)

KEY = key_of("secret", "nonce")
SAID = st.lists(st.binary(max_size=40), min_size=1, max_size=6)


def wire(reports: list[bytes], key: bytes = KEY) -> list[bytes]:
    seals = Seals(key)
    return [seals.sealed(number, report) for number, report in enumerate(reports)]


@given(reports=SAID, cuts=st.lists(st.integers(0, 400), max_size=8))
def test_reports_come_out_whole_and_in_order_however_they_are_cut(
    reports: list[bytes], cuts: list[int]
) -> None:
    stream = b"".join(wire(reports))
    ends = sorted({min(cut, len(stream)) for cut in cuts} | {len(stream)})
    heard = Reports([KEY])
    got: list[bytes] = []
    begin = 0
    for end in ends:
        got += heard.feed(stream[begin:end])
        begin = end
    assert got == reports


@given(reports=SAID, data=st.data())
def test_not_one_bit_of_a_report_can_be_changed(reports: list[bytes], data: st.DataObject) -> None:
    *before, last = wire(reports)
    place = data.draw(st.integers(LENGTH, len(last) - 1))
    bit = data.draw(st.integers(0, 7))
    changed = bytearray(last)
    changed[place] ^= 1 << bit
    heard = Reports([KEY])
    assert list(heard.feed(b"".join(before))) == reports[:-1]
    with pytest.raises(Unauthenticated):
        list(heard.feed(bytes(changed)))


@pytest.mark.parametrize("order", [[0, 0], [1], [0, 2], [1, 0]])
def test_none_can_be_repeated_left_out_or_exchanged(order: list[int]) -> None:
    frames = wire([b"one", b"two", b"three"])
    with pytest.raises(Unauthenticated):
        list(Reports([KEY]).feed(b"".join(frames[number] for number in order)))


def test_the_key_is_of_one_exchange_alone() -> None:
    assert len({KEY, key_of("secret", "other"), key_of("other", "nonce")}) == 3
    with pytest.raises(Unauthenticated):
        list(Reports([KEY]).feed(Seals(key_of("secret", "other")).sealed(0, b"x")))


def test_a_key_of_before_is_good_for_the_whole_exchange_or_not_at_all() -> None:
    old = key_of("old", "nonce")
    heard = Reports([KEY, old])
    assert list(heard.feed(b"".join(wire([b"one", b"two"], old)))) == [b"one", b"two"]
    with pytest.raises(Unauthenticated):
        list(heard.feed(Seals(KEY).sealed(2, b"three")))


def test_a_report_has_a_longest() -> None:
    whole = b"x" * LONGEST
    assert list(Reports([KEY]).feed(Seals(KEY).sealed(0, whole))) == [whole]
    with pytest.raises(TooLarge):
        list(Reports([KEY]).feed((LONGEST + 1).to_bytes(LENGTH, "big")))


def test_an_answer_says_how_long_it_is() -> None:
    assert framed(b"{}") == b"\0\0\0\x02{}"
    assert len(Seals(KEY).sealed(0, b"")) == LENGTH + SEAL
