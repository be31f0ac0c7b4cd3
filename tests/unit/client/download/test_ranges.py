"""How a download is cut, and how much of it is under way at once."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddlecloud.client.download.ranges import FEW, LEAST, MANY, PIECE, File, at_once, piece_of

MB = 1000 * 1000


def rows(*sizes: int, way: str = "") -> list[dict[str, Any]]:
    return [{"path": str(n), "size": size, "time": "", "way": way} for n, size in enumerate(sizes)]


@pytest.mark.parametrize(
    ("found", "threads"),
    [
        (rows(150 * MB), FEW),
        (rows(*[4096] * 10_000), MANY),
        (rows(*[100] * 2500), MANY),
        (rows(*[4096] * 10_000, way="/store/x"), FEW),
        (rows(*[4096] * 10_000, way="https://bucket"), MANY),
        (rows(*[10] * 1000, 9 * MB), 6),
        (rows(), MANY),
    ],
)
def test_of_small_files_from_elsewhere_more_are_under_way(
    found: list[dict[str, Any]], threads: int
) -> None:
    assert at_once(found) == threads


@given(st.lists(st.integers(0, 200 * MB), min_size=1, max_size=20), st.integers(0, 5000))
def test_what_is_under_way_is_a_twentieth_at_most(sizes: list[int], small: int) -> None:
    found = rows(*sizes, *[100] * small)
    piece = piece_of(found)
    if (total := sum(row["size"] for row in found)) >= 10 * MB:
        assert LEAST <= piece <= PIECE
        assert 20 * at_once(found) * piece <= total


def test_only_the_gaps_are_cut() -> None:
    file = File(rows(1000)[0], "0", "", piece=300)
    file.done = {0: 100, 350: 50, 900: 100}
    assert file.missing() == [(100, 250), (400, 300), (700, 200)]
