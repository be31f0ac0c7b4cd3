"""Names and numbers of the priority classes."""

from __future__ import annotations

import pytest

from paddlecloud.model.errors import Refused
from paddlecloud.model.policy.priority import CLASSES, aged, check_allowed, class_name, rank


@pytest.mark.parametrize(
    ("number", "name"),
    [(-100, "low"), (-1, "low"), (0, "normal"), (99, "normal"), (100, "high"), (200, "urgent")],
)
def test_every_number_has_its_class(number: int, name: str) -> None:
    assert class_name(number) == name


def test_the_classes_are_ranked_as_they_are_listed() -> None:
    assert [rank(number) for number in CLASSES.values()] == [0, 1, 2, 3]


def test_waiting_lends_a_class_at_a_time_and_no_more_than_the_highest() -> None:
    assert [aged(-100, steps) for steps in range(5)] == [-100, 0, 100, 200, 200]
    assert aged(200, 3) == 200


def test_a_plan_allows_its_class_and_what_is_below() -> None:
    check_allowed(99, "normal")
    check_allowed(-100, "low")
    with pytest.raises(Refused, match="high"):
        check_allowed(100, "normal")
