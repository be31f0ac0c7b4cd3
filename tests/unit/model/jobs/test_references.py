"""What can be the id of a job, the beginning of one, or any name."""

from __future__ import annotations

import pytest

from paddlecloud.model.jobs.references import id_range, is_job_id, is_reference

ID = "job-" + "0123456789abcdef" * 2


@pytest.mark.parametrize("text", [ID[4:], ID[:-1], ID + "0", ID.upper(), "job-" + "g" * 32, ""])
def test_only_a_whole_id_is_an_id(text: str) -> None:
    assert is_job_id(ID)
    assert not is_job_id(text)


@pytest.mark.parametrize("text", ["job-0123", "0123", ID, ID[4:], "job-0123456789"])
def test_the_beginning_of_an_id_spans_the_ids_that_begin_so(text: str) -> None:
    ids = id_range(text)
    assert ids is not None
    low, high = ids
    assert low <= ID <= high
    assert is_job_id(low) and is_job_id(high)
    before, after = "job-0122" + "f" * 28, "job-0124" + "0" * 28
    assert before < low and high < after


@pytest.mark.parametrize(
    "text", ["", "job-", "012", "job-012", "last", "resnet", "DEAD", "job-0123x", ID + "0"]
)
def test_what_cannot_be_the_beginning_of_an_id(text: str) -> None:
    assert id_range(text) is None


@pytest.mark.parametrize(
    ("text", "want"),
    [
        (ID, True), ("last", True), ("一号 (2)", True), ("a" * 128, True),
        ("", False), (" ", False), (" a", False), ("a/b", False), ("a\\b", False), (".", False),
        ("..", False), ("a\nb", False), ("a" * 129, False),
    ],
)  # fmt: skip
def test_what_a_job_can_be_named_by(text: str, want: bool) -> None:
    assert is_reference(text) is want
