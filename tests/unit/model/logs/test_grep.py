"""Which lines match: the quick ways find exactly what the expression finds line by line."""

from __future__ import annotations

import random
import re

import pytest

from paddlecloud.model.errors import Invalid
from paddlecloud.model.logs.grep import MAX_PATTERN, compiled

LOG = b"epoch 1 loss 0.5\nERROR: disk\n\nepoch 2 loss 0.25\n\xff\xfe\x00 raw\nlast \r10%\r20%\n"
PARTS = (
    *("a", "b", "ab", ".", r"\d", "[ab]", "[^a]", r"\s", "^", "$", "(a|b)", "(ab|c)", "a*", "b?"),
    *("(?:ab)+", r"\b", "x", "(?i:A)", "(?=a)", r"\Z", r"\A", "c{1,2}", "(?s:.)", "中", "(?:中|b)"),
)


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
        (r"10%\r20%$", [b"last \r10%\r20%\n"]),
        (r"disk\s+epoch", []),
        ("disk\\n", []),
        ("[^x]+raw", [b"\xff\xfe\x00 raw\n"]),
    ],
)
def test_lines_that_match(pattern: str, want: list[bytes]) -> None:
    assert list(compiled(pattern).lines(LOG)) == want


def test_a_letter_of_several_bytes_is_one() -> None:
    found = compiled("^中+$")
    assert [found.matches(line.encode()) for line in ("中", "中中", "丯")] == [True, True, False]


def test_every_way_of_searching_agrees_with_line_by_line() -> None:
    rng = random.Random(4)
    tried = 0
    for _ in range(3000):
        text = "".join(rng.choice(PARTS) for _ in range(rng.randint(1, 4)))
        text = rng.choice(("", "", "", "(?i)")) + text + rng.choice(("", "", "|xb", "|c 1"))
        lines = [
            "".join(rng.choices("abcx 1\r中A", k=rng.randint(0, 6))).encode() for _ in "12345678"
        ]
        try:
            pattern = compiled(text)
        except Invalid:
            continue
        plain = re.compile(re.sub("中", "(?:中)", text).encode(), re.MULTILINE)
        want = [line + b"\n" for line in lines if plain.search(line)]
        assert list(pattern.lines(b"".join(line + b"\n" for line in lines))) == want, text
        assert [line + b"\n" for line in lines if pattern.matches(line)] == want, text
        tried += 1
    assert tried > 2000


@pytest.mark.parametrize(
    ("pattern", "code"),
    [
        ("(", "grep_invalid"),
        ("*", "grep_invalid"),
        ("(" * 900, "grep_invalid"),
        ("a{99999999999999999999}", "grep_invalid"),
        ("[中文]", "grep_set_letter"),
        ("a" * (MAX_PATTERN + 1), "grep_too_long"),
    ],
)
def test_what_is_no_pattern_is_said_so(pattern: str, code: str) -> None:
    with pytest.raises(Invalid) as caught:
        compiled(pattern)
    assert caught.value.code == code
    assert caught.value.text("zh") and caught.value.text("en")
