"""Path rules: which paths are refused, where a link points, what a prefix selects."""

from __future__ import annotations

import pytest

from paddlecloud.model.files.path_rules import fault_of, link_meaning, means


@pytest.mark.parametrize(
    ("path", "want"),
    [
        ("a/b", ""),
        ("训练/é", ""),
        ("a\udcb0", ""),
        ("x" * 255, ""),
        ("", "name_unsafe"),
        ("/a", "name_unsafe"),
        ("a/../b", "name_unsafe"),
        ("a\\b", "name_letters"),
        ("a\0", "name_letters"),
        ("c:/a", "name_drive"),
        ("x" * 256, "name_long"),
        ("训" * 86, "name_long"),
        ("a/" * 2048 + "a", "name_long"),
        ("x\ud800", "name_long"),
    ],
)
def test_a_fault_is_named(path: str, want: str) -> None:
    assert fault_of(path) == want


def test_below_another_path_a_drive_is_a_name() -> None:
    assert fault_of("c:/a", below=True) == ""


@pytest.mark.parametrize(
    ("path", "target", "want"),
    [
        ("d/a", "../b/./c", "b/c"),
        ("a", "b\\c", "b\\c"),
        ("d/a", "../../b", ""),
        ("d/a", "..", ""),
        ("a", "/etc", ""),
        ("a", "", ""),
    ],
)
def test_what_a_link_means(path: str, target: str, want: str) -> None:
    assert link_meaning(path, target) == want


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
