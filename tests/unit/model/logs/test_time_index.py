"""What `--since` means: a span before now, a time of a day, a time of today or yesterday."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from paddlecloud.model.errors import Invalid
from paddlecloud.model.logs.time_index import since

NOW = datetime(2026, 3, 1, 2, 30, tzinfo=UTC)
ZONE = timezone(timedelta(hours=8))


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("30s", "2026-03-01T02:29:30Z"),
        ("10m", "2026-03-01T02:20:00Z"),
        ("2h", "2026-03-01T00:30:00Z"),
        ("1d", "2026-02-28T02:30:00Z"),
        ("0s", "2026-03-01T02:30:00Z"),
        ("10:00", "2026-03-01T02:00:00Z"),
        ("10:29:59", "2026-03-01T02:29:59Z"),
        ("10:31", "2026-02-28T02:31:00Z"),
        ("2026-02-28", "2026-02-27T16:00:00Z"),
        ("2026-02-28 08:00", "2026-02-28T00:00:00Z"),
        ("2026-02-28T08:00:00Z", "2026-02-28T08:00:00Z"),
        ("2026-02-28T08:00:00+02:00", "2026-02-28T06:00:00Z"),
    ],
)
def test_a_span_or_a_time(text: str, want: str) -> None:
    assert since(text, now=NOW, zone=ZONE) == datetime.fromisoformat(want)


@pytest.mark.parametrize(
    "text", ["", "m", "10", "-5m", "1.5h", "10x", "25:00", "soon", "9" * 30 + "d"]
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(Invalid) as caught:
        since(text, now=NOW, zone=ZONE)
    assert caught.value.code == "since_invalid"


def test_without_a_zone_a_time_is_one_of_this_machine() -> None:
    want = datetime(2026, 2, 28, 8, 0).astimezone()
    assert since("2026-02-28 08:00", now=NOW, zone=None) == want
