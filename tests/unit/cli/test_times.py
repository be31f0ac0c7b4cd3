"""Times of the server, for readers in the same and in other time zones."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddlecloud.cli import times
from paddlecloud.cli.main import main
from tests.unit.cli.scripted import ID, JOB, VIEW, Captured
from tests.unit.cli.test_output import on_terminal
from tests.unit.client.fake_server import FakeServer, ok

SetZone = Callable[[str], None]


@pytest.fixture
def reader_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[SetZone]:
    """Sets the zone of this machine."""

    def change(zone: str) -> None:
        monkeypatch.setenv("TZ", zone)
        time.tzset()

    yield change
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("zone", "want"),
    [
        ("Asia/Shanghai", "2026-07-01 14:00:00"),
        ("Asia/Singapore", "2026-07-01 14:00:00"),  # another name, the same clock
        ("UTC", "2026-07-01 14:00:00 +08:00"),
        ("America/New_York", "2026-07-01 14:00:00 +08:00"),
    ],
)
def test_a_time_carries_the_zone_where_it_is_not_the_readers(
    reader_in: SetZone, zone: str, want: str
) -> None:
    reader_in(zone)
    assert times.with_zone("2026-07-01 14:00:00", "2026-07-01T06:00:00Z") == want


@pytest.mark.parametrize(
    ("server", "offset"),
    [
        ("America/New_York", "-05:00"),
        ("America/St_Johns", "-03:30"),
        ("Asia/Kathmandu", "+05:45"),
        ("UTC", "+00:00"),
    ],
)
def test_the_offset_is_the_servers(reader_in: SetZone, server: str, offset: str) -> None:
    reader_in("Asia/Shanghai")
    at = datetime(2026, 1, 1, 3, 4, 5, tzinfo=UTC)
    shown = at.astimezone(ZoneInfo(server)).strftime("%Y-%m-%d %H:%M:%S")
    assert times.with_zone(shown, "2026-01-01T03:04:05Z") == f"{shown} {offset}"


def test_two_zones_may_agree_in_winter_only(reader_in: SetZone) -> None:
    """New York has summer time, and Bogota has not."""
    reader_in("America/Bogota")  # always five hours behind
    winter = times.with_zone("2026-01-01 07:00:00", "2026-01-01T12:00:00Z")
    summer = times.with_zone("2026-07-01 08:00:00", "2026-07-01T12:00:00Z")
    assert (winter, summer) == ("2026-01-01 07:00:00", "2026-07-01 08:00:00 -04:00")


def test_both_hours_of_a_clock_set_back_are_the_readers(reader_in: SetZone) -> None:
    reader_in("America/New_York")
    for instant in ("2026-11-01T05:30:00Z", "2026-11-01T06:30:00Z"):
        assert times.with_zone("2026-11-01 01:30:00", instant) == "2026-11-01 01:30:00"


@pytest.mark.parametrize("text", ["", "soon", "2026-01-01", "2026-xx-01 00:00:00"])
def test_what_is_no_time_stays_as_it_is(text: str) -> None:
    assert times.with_zone(text, "2026-01-01T00:00:00Z") == text
    assert times.with_zone("2026-01-01 00:00:00", text) == "2026-01-01 00:00:00"


def test_all_times_of_a_job_are_treated_and_nothing_else(reader_in: SetZone) -> None:
    reader_in("UTC")
    view = {
        "create_time": "2026-01-01 08:00:00",
        "created_at": "2026-01-01T00:00:00Z",
        "start_time": "",
        "started_at": None,
        "job_name": "2026-01-01 08:00:00",
    }
    assert times.with_zones(view) == view | {"create_time": "2026-01-01 08:00:00 +08:00"}


@given(st.datetimes(min_value=datetime(1970, 1, 1), max_value=datetime(2300, 1, 1)))  # noqa: DTZ001 - hypothesis wants it naive
def test_seconds_are_those_of_datetime(at: datetime) -> None:
    at = at.replace(microsecond=0, tzinfo=UTC)
    assert times._seconds(at.strftime("%Y-%m-%dT%H:%M:%SZ")) == at.timestamp()


def test_a_terminal_shows_the_zone_and_a_pipe_does_not(
    server: FakeServer, reader_in: SetZone, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    reader_in("America/New_York")
    job = VIEW | {"created_at": "2020-05-17T10:15:28Z"}
    server.routes[f"GET {JOB}"] = [ok(job)]
    server.routes["GET /api/v1/jobs"] = [ok({"jobs": [job | {"number": 1}], "next": None})]
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["query_job", ID]) == main(["list_jobs"]) == 0
    piped = capsys.readouterr().out
    assert (piped.count("2020-05-17 18:15:28"), piped.count("+08:00")) == (2, 0)
    out, _ = on_terminal(monkeypatch)
    assert main(["query_job", ID]) == main(["list_jobs"]) == 0
    assert out.getvalue().count("2020-05-17 18:15:28 +08:00") == 2
