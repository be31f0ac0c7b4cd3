"""What a prefix means among the files of a job."""

from __future__ import annotations

import pytest

from paddlecloud.model.files.path_rules import means

PATHS = ["out/", "out/rank-1/m", "out/rank-10/m", "out/rank-2", "out/rank-20", "run.sh"]


@pytest.mark.parametrize(
    ("prefix", "want"),
    [
        ("", PATHS),
        ("out", PATHS[:5]),
        ("out/", PATHS[:5]),
        ("ou", PATHS[:5]),
        ("out/rank-1", ["out/rank-1/m"]),
        ("out/rank-1/", ["out/rank-1/m"]),
        ("out/rank-1/m", ["out/rank-1/m"]),
        ("out/rank-2", ["out/rank-2"]),
        ("out/rank-2/", []),
        ("out/rank", PATHS[1:5]),
        ("run", ["run.sh"]),
        ("x", []),
    ],
)
def test_a_name_is_meant_before_names_that_begin_with_it(prefix: str, want: list[str]) -> None:
    assert list(filter(means(prefix, PATHS), PATHS)) == want
