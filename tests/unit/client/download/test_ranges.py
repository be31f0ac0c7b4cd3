"""The byte ranges of a download, and how many requests are under way at once."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddlecloud.client.download._ranges import (
    FEW,
    MANY,
    MAX_RANGE,
    MIN_RANGE,
    File,
    concurrency,
    range_size,
)

MB = 1000 * 1000


def rows(*sizes: int) -> list[dict[str, Any]]:
    return [{"path": str(n), "size": size, "time": ""} for n, size in enumerate(sizes)]


@pytest.mark.parametrize(
    ("found", "local", "threads"),
    [
        (rows(150 * MB), False, FEW),
        (rows(*[4096] * 10_000), False, MANY),
        (rows(*[100] * 2500), False, MANY),
        (rows(*[4096] * 10_000), True, FEW),
        (rows(*[10] * 1000, 9 * MB), False, 6),
        (rows(), False, MANY),
    ],
)
def test_more_requests_are_under_way_for_small_remote_files(
    found: list[dict[str, Any]], local: bool, threads: int
) -> None:
    assert concurrency(found, local=local) == threads


@given(st.lists(st.integers(0, 200 * MB), min_size=1, max_size=20), st.integers(0, 5000))
def test_a_twentieth_at_most_is_under_way(sizes: list[int], small: int) -> None:
    found = rows(*sizes, *[100] * small)
    at_once = concurrency(found, local=False)
    size = range_size(found, at_once)
    if (total := sum(row["size"] for row in found)) >= 10 * MB:
        assert MIN_RANGE <= size <= MAX_RANGE
        assert 20 * at_once * size <= total


def test_only_the_gaps_are_divided() -> None:
    file = File(rows(1000)[0], "0", "", 300, "")
    file.done = {0: 100, 350: 50, 900: 100}
    assert file.missing() == [(100, 250), (400, 300), (700, 200)]
