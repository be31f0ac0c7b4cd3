"""Names in a bucket: every path has its own, they sort as paths do, and none is too long."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddlecloud.model.errors import Invalid
from paddlecloud.stores.s3._keys import name_of, path_of, stem

ODD = "a\udc80\udcff\ue000\ue001\ud7ff\uffff\U0001f600/-.\n \ue0ff\ue100"
PATHS = st.text(alphabet=st.sampled_from(ODD) | st.characters(codec="utf-8"))


@given(PATHS)
def test_a_name_leads_back_to_its_path(path: str) -> None:
    name = name_of(path)
    name.encode()
    assert path_of(name) == path


@given(PATHS, PATHS)
def test_names_sort_as_paths_do(one: str, other: str) -> None:
    assert (name_of(one).encode() < name_of(other).encode()) == (one < other)


def test_usual_names_are_as_they_are() -> None:
    assert name_of("users/张三/output/模型 1.pt") == "users/张三/output/模型 1.pt"


def test_a_name_that_is_too_long() -> None:
    name_of("x" * 1024)
    with pytest.raises(Invalid, match="1024 bytes"):
        name_of("é" * 513)


@given(st.lists(st.text(alphabet="ab-/. ", min_size=1, max_size=5), max_size=30))
def test_files_of_one_stem_are_together_in_either_order(paths: list[str]) -> None:
    for order in (sorted(set(paths)), sorted(set(paths), key=lambda path: path.split("/"))):
        stems = [stem(path) for path in order]
        runs = [one for one, before in zip(stems, ["", *stems], strict=False) if one != before]
        assert len(runs) == len(set(runs))
