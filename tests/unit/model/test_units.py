"""Durations and sizes: text to numbers and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddlecloud.model.units import (
    format_duration,
    format_resources,
    format_size,
    parse_duration,
    parse_size,
)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("00:30:00", 1800),
        ("1:2:3", 3723),
        ("100:00:00", 360_000),
        ("00:00:00", 0),
        (" 00:00:10 ", 10),
        ("00:60:00", None),
        ("00:00:60", None),
        ("30:00", None),
        ("1:2:3:4", None),
        ("-1:00:00", None),
        ("１:00:00", None),
        ("::", None),
        ("", None),
        ("1h", None),
        ("9999999:00:00", None),
    ],
)
def test_a_duration_is_hours_minutes_seconds(text: str, want: int | None) -> None:
    assert parse_duration(text) == want


@given(st.integers(min_value=0, max_value=999_999 * 3600))
def test_a_duration_survives_the_way_through_text(seconds: int) -> None:
    assert parse_duration(format_duration(seconds)) == seconds


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("4G", 4 * 10**9),
        ("4g", 4 * 10**9),
        ("4GB", 4 * 10**9),
        ("512Mi", 512 * 2**20),
        ("1.5GiB", 3 * 2**29),
        ("1 Gi", 2**30),
        ("1024", 1024),
        ("2Ki", 2048),
        ("1T", 10**12),
        ("", None),
        ("G", None),
        ("-4G", None),
        ("4X", None),
        ("4 G B", None),
        (".5G", None),
        ("1.2.3G", None),
        ("1e9", None),
        ("inf", None),
        ("４G", None),
    ],
)
def test_a_size_has_the_units_of_kubernetes(text: str, want: int | None) -> None:
    assert parse_size(text) == want


@given(st.text(max_size=20))
def test_no_text_at_all_makes_them_raise(text: str) -> None:
    for value in (parse_duration(text), parse_size(text)):
        assert value is None or value >= 0


@pytest.mark.parametrize(
    ("size", "want"),
    [
        (0, "0 B"),
        (17, "17 B"),
        (1024, "1 KiB"),
        (1536, "1.5 KiB"),
        (4 * 2**30, "4 GiB"),
        (5 * 2**50, "5120 TiB"),
    ],
)
def test_a_size_is_shown_in_the_largest_unit(size: int, want: str) -> None:
    assert format_size(size) == want


def test_resources_are_shown_without_what_is_not_asked() -> None:
    assert format_resources(1.0, 0, 0) == "1 CPU"
    assert format_resources(0.5, 2**30, 2) == "0.5 CPU, 1 GiB, 2 GPU"
