"""Why a path is refused, and what a link means; that both stay inside is told of `snapshot`."""

from __future__ import annotations

import pytest

from paddlecloud.model.files.path_rules import fault_of, link_meaning


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
