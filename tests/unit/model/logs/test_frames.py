"""Lines of several workers in one stream: on the wire, and as a person sees them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddlecloud.model.logs.frames import Frames, Prefixes, framed

WORKERS = st.sampled_from(["trainer-0", "trainer-1", "pserver-0"])
FRAMES = st.lists(
    st.tuples(
        WORKERS,
        st.integers(0, 10**12),
        st.binary(max_size=40),
        st.none() | st.integers(0, 10**10),
    ),
    max_size=6,
)


@given(FRAMES, st.integers(1, 7))
def test_frames_come_out_as_they_went_in_wherever_the_stream_is_cut(
    frames: list[tuple[str, int, bytes, int | None]], cut: int
) -> None:
    stream = b"".join(framed(*frame) for frame in frames)
    parser = Frames()
    got = [
        frame
        for begin in range(0, len(stream), cut)
        for frame in parser.feed(stream[begin : begin + cut])
    ]
    assert got == [(*frame, at and at * 1000) for *frame, at in frames]


def test_a_stream_of_something_else_is_noticed() -> None:
    with pytest.raises(ValueError, match="without frames"):
        list(Frames().feed(b"x" * 5000))
    for head in (b"a 1", b"a 1 2 3 4", b"a 1 x", b"a 1 1 9999999999999999", "a 1 ١".encode()):
        with pytest.raises(ValueError, match="not the head of a frame"):
            list(Frames().feed(head + b"\n"))


@pytest.mark.parametrize(
    ("pieces", "want"),
    [
        ([("a", b"one\ntwo\n")], b"[a] one\n[a] two\n"),
        ([("a", b"one\n"), ("b", b"two\n")], b"[a] one\n[b] two\n"),
        ([("a", b"on"), ("a", b"e\n")], b"[a] one\n"),
        ([("a", b"on"), ("b", b"two\n"), ("a", b"e\n")], b"[a] on\n[b] two\n[a] e\n"),
        ([("a", b"1%\r2%\rdone\n")], b"[a] 1%\r[a] 2%\r[a] done\n"),
        ([("a", b"1%\r"), ("a", b"2%\n")], b"[a] 1%\r[a] 2%\n"),
        ([("a", b"1%\r"), ("b", b"x\n")], b"[a] 1%\r\n[b] x\n"),
        ([("a", b"dos\r\nline\r\n")], b"[a] dos\r\n[a] line\r\n"),
        ([("a", b"dos\r"), ("a", b"\nline\r\n")], b"[a] dos\r\n[a] line\r\n"),
        ([("a", b"\n\n")], b"[a] \n[a] \n"),
        ([("a", b""), ("b", b"")], b""),
        ([("a", b"\x00\xff\n")], b"[a] \x00\xff\n"),
    ],
)
def test_every_line_tells_whose_it_is(pieces: list[tuple[str, bytes]], want: bytes) -> None:
    prefixes = Prefixes()
    assert b"".join(prefixes.add(worker, data) for worker, data in pieces) == want


def test_every_line_may_tell_its_time() -> None:
    both, alone = Prefixes(), Prefixes(named=False)
    assert both.add("a", b"1\n2", "10:00") == b"[a] 10:00 1\n[a] 10:00 2"
    assert both.add("a", b"3\n4\n", "10:01") == b"3\n[a] 10:01 4\n"
    assert alone.add("a", b"1\n2\r3\n", "10:00") == b"10:00 1\n10:00 2\r10:00 3\n"
    assert Prefixes(named=False).add("a", b"1\n2\n") == b"1\n2\n"
