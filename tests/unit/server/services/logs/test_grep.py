"""Regular expressions over logs: every line is matched alone, and long lines in parts."""

from __future__ import annotations

import random
import re

import pytest

from paddlecloud.model.errors import Invalid
from paddlecloud.server.services.logs._grep import MAX_LINE, MAX_PATTERN, Pattern, SearchedSource

LOG = b"epoch 1 loss 0.5\nERROR: disk\n\nepoch 2 loss 0.25\n\xff\xfe\x00 raw\nlast \r10%\r20%\n"
PARTS = (
    *("a", "b", "ab", ".", r"\d", "[ab]", "[^a]", r"\s", "^", "$", "(a|b)", "(ab|c)", "a*", "b?"),
    *("(?:ab)+", r"\b", "x", "(?i:A)", r"\Z", r"\A", "c{1,2}", "(?s:.)"),
)


def lines(pattern: str, block: bytes) -> list[bytes]:
    return [block[start:end] for start, end in Pattern(pattern).spans(block, len(block))]


def matches(pattern: str, line: str) -> bool:
    return bool(lines(pattern, line.encode()))


@pytest.mark.parametrize(
    ("pattern", "want"),
    [
        ("loss", [b"epoch 1 loss 0.5\n", b"epoch 2 loss 0.25\n"]),
        (r"loss 0\.2", [b"epoch 2 loss 0.25\n"]),
        ("disk|raw", [b"ERROR: disk\n", b"\xff\xfe\x00 raw\n"]),
        ("(?i)error", [b"ERROR: disk\n"]),
        ("^$", [b"\n"]),
        (r"^epoch \d .*5$", [b"epoch 1 loss 0.5\n", b"epoch 2 loss 0.25\n"]),
        (r"\xff", [b"\xff\xfe\x00 raw\n"]),
        ("^.* raw", [b"\xff\xfe\x00 raw\n"]),
        (r"10%\r20%$", [b"last \r10%\r20%\n"]),
        (r"disk\s+epoch", []),
        ("disk\\n", []),
        ("[^x]+raw", [b"\xff\xfe\x00 raw\n"]),
    ],
)
def test_lines_that_match(pattern: str, want: list[bytes]) -> None:
    assert lines(pattern, LOG) == want


def test_a_character_of_several_bytes_is_one() -> None:
    assert [matches("^中+$", line) for line in ("中", "中中", "丯")] == [True, True, False]
    assert [matches("^[错误]{2}$", line) for line in ("错误", "误错", "错", "丯丯")] == [
        *(True, True),
        *(False, False),
    ]


def test_a_block_gives_the_same_as_line_by_line() -> None:
    rng = random.Random(4)
    for _ in range(2000):
        text = "".join(rng.choice(PARTS) for _ in range(rng.randint(1, 4)))
        text = rng.choice(("", "", "", "(?i)")) + text + rng.choice(("", "", "|xb", "|c 1"))
        if re.search(r"[*+?}][*+?{]", text):
            continue
        block = [
            "".join(rng.choices("abcx 1\rA", k=rng.randint(0, 6))).encode() for _ in "12345678"
        ]
        plain = re.compile(text.encode(), re.MULTILINE)
        want = [line + b"\n" for line in block if plain.search(line)]
        assert lines(text, b"".join(line + b"\n" for line in block)) == want, text


@pytest.mark.parametrize(
    ("pattern", "code"),
    [
        ("(", "grep_invalid"),
        ("*", "grep_invalid"),
        ("(" * 900, "grep_invalid"),
        ("((a{100}){100}){100}", "grep_invalid"),
        ("(?=a)", "grep_invalid"),
        (r"(a)\1", "grep_invalid"),
        ("\udcff", "grep_invalid"),
        ("a" * (MAX_PATTERN + 1), "grep_too_long"),
    ],
)
def test_an_invalid_pattern_is_refused(pattern: str, code: str) -> None:
    with pytest.raises(Invalid) as caught:
        Pattern(pattern)
    assert caught.value.code == code
    assert caught.value.text("zh") and caught.value.text("en")


def searched(data: bytes, pattern: str, size: int) -> bytes:
    def read(offset: int, limit: int) -> bytes:
        return data[offset : offset + limit]

    source = SearchedSource(
        Pattern(pattern), read, lambda first, count: [], offset=0, end=len(data), modified=0.0
    )
    found = b"".join(source.chunks(len(data), size))
    assert source.offset == len(data)
    return found


@pytest.mark.parametrize("size", [1, 3, 16, 1000])
def test_lines_are_found_wherever_a_block_ends(size: int) -> None:
    found = searched(LOG + b"raw end", "loss|raw", size)
    assert found == b"epoch 1 loss 0.5\nepoch 2 loss 0.25\n\xff\xfe\x00 raw\nraw end\n"


def test_a_line_that_is_too_long_is_searched_in_parts() -> None:
    part = b"x" * MAX_LINE
    line = part + part + b"yy\n"
    assert searched(line + b"yes y\n", "y", 64 * 1024) == b"yy\nyes y\n"
    assert searched(line + b"no\n", "x{9}", 64 * 1024) == part + part + b"\n"
    assert searched(line + b"no\n", "x|y", 64 * 1024) == line
    assert searched(part + b"y" * MAX_LINE, "x", 64 * 1024) == part + b"\n"
    assert searched(b"z" + part + part + b"\nz\n", "z", 64 * 1024) == b"z" + part[:-1] + b"\nz\n"


def test_a_log_that_is_shorter_than_its_end_ends_the_search() -> None:
    source = SearchedSource(
        Pattern("x"), lambda *_: b"", lambda *_: [], offset=0, end=9, modified=0.0
    )
    assert list(source.chunks(9, 10)) == []
