"""What the client takes for JSON in a response."""

from __future__ import annotations

import pytest

from paddlecloud.client.response_checks import parse


def test_json_is_parsed() -> None:
    assert parse(b' {"a": [1, 2.5, null]}\r\n') == {"a": [1, 2.5, None]}
    assert parse('"文"') == "文"


@pytest.mark.parametrize(
    "bad",
    [
        *(b"", b" ", b"{", b"\xff", b"{} x", b'"\n"', b"[1,]", b'{"a" 1}'),
        *(b"NaN", b"[-Infinity]", b"[" * 100_000),
    ],
)
def test_anything_else_is_a_value_error(bad: bytes) -> None:
    with pytest.raises(ValueError):
        parse(bad)
