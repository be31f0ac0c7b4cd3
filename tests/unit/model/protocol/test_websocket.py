"""Frames of WebSockets: heads of every size, masks, the key of the handshake."""

from __future__ import annotations

import os

import pytest

from paddlecloud.model.protocol.websocket import (
    BINARY,
    MAX_FRAME,
    NO_MASK,
    TEXT,
    accept_key,
    frame_head,
    masked,
    read_head,
)


def test_the_example_of_the_rfc() -> None:
    assert accept_key("dGhlIHNhbXBsZSBub25jZQ==") == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
    hello = bytes.fromhex("818537fa213d7f9f4d5158")
    head = read_head(hello, 0)
    assert head is not None and head.key is not None
    assert (head.kind, head.last, head.size) == (TEXT, True, 5)
    assert masked(hello[head.end :], head.key) == b"Hello"


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65_535, 65_536, MAX_FRAME, MAX_FRAME + 1])
@pytest.mark.parametrize("key", [None, b"abcd"])
def test_a_head_is_read_as_it_was_written(size: int, key: bytes | None) -> None:
    written = frame_head(BINARY, size, key, last=size % 2 == 0)
    for short in range(len(written)):
        assert read_head(b"x" + written[:short], 1) is None
    head = read_head(b"x" + written + b"rest", 1)
    assert head is not None
    assert (head.kind, head.last, head.size, head.key) == (BINARY, size % 2 == 0, size, key)
    assert head.end == 1 + len(written)
    assert head.too_long == (size > MAX_FRAME)


@pytest.mark.parametrize("size", [0, 1, 3, 4, 5, 1001])
def test_a_mask_is_undone_by_itself(size: int) -> None:
    data, key = os.urandom(size), b"\x01\xff\x00\x80"
    hidden = masked(data, key)
    assert hidden == bytes(byte ^ key[at % 4] for at, byte in enumerate(data))
    assert masked(hidden, key) == data
    assert masked(data, NO_MASK) is data
