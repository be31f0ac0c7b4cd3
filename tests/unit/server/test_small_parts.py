"""The small pure parts of the server: the Host check, metrics text, times as people read them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from paddlecloud.model.errors import Unauthenticated
from paddlecloud.server.http.auth import secret_of
from paddlecloud.server.http.origin_check import OriginCheck
from paddlecloud.server.services.jobs.views import hours, iso
from paddlecloud.server.services.transfer.output_uploads import good_for
from paddlecloud.server.settings import Http, Settings


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "127.0.0.1:80",
        "localhost:1",
        "[::1]:80",
        "[::1]",
        "own.example",
        "own.example:1",
    ],
)
def test_our_own_names_are_let_in(host: str) -> None:
    check = OriginCheck(Settings(home=Path("home"), http=Http(allowed_hosts=("own.example",))))
    check.check({"host": host})


@pytest.mark.parametrize(
    "host",
    [
        "",
        ":80",
        "evil.example",
        "evil.example:80",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "localhost:80:80",
        "user@localhost",
        "127.0.0.2",
        "::1",
        "localhost\udcff",
    ],
)
def test_other_names_are_not(host: str) -> None:
    with pytest.raises(Unauthenticated) as caught:
        OriginCheck(Settings(home=Path("home"))).check({"host": host})
    assert str(caught.value).isascii()


TEAM = Settings(home=Path("home"), http=Http(host="::", public_url="https://cloud.example"))


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "cloud.example", "origin": "https://cloud.example"},
        {"host": "cloud.example:8443", "origin": "https://cloud.example:8443"},
        {"host": "127.0.0.1:80", "origin": "https://cloud.example"},
        {"host": "cloud.example", "sec-fetch-site": "same-origin"},
        {"host": "cloud.example", "sec-fetch-site": "none"},
    ],
)
def test_our_own_pages_are_let_in(headers: dict[str, str]) -> None:
    OriginCheck(TEAM).check(headers)


@pytest.mark.parametrize(
    ("headers", "want"),
    [
        ({"host": "::"}, "auth_host"),
        ({"host": "[::]:80"}, "auth_host"),
        ({"host": "cloud.example", "origin": "https://evil.example"}, "auth_cross_site"),
        ({"host": "cloud.example", "origin": "null"}, "auth_cross_site"),
        ({"host": "cloud.example", "origin": ""}, "auth_cross_site"),
        ({"host": "cloud.example", "origin": "file://cloud.example"}, "auth_cross_site"),
        ({"host": "cloud.example", "origin": "https://cloud.example.evil"}, "auth_cross_site"),
        ({"host": "cloud.example", "sec-fetch-site": "cross-site"}, "auth_cross_site"),
        ({"host": "cloud.example", "sec-fetch-site": "same-site"}, "auth_cross_site"),
    ],
)
def test_pages_of_others_are_not(headers: dict[str, str], want: str) -> None:
    with pytest.raises(Unauthenticated) as caught:
        OriginCheck(TEAM).check(headers)
    assert caught.value.code == want


def test_a_secret_belongs_to_one_key_and_one_server() -> None:
    secrets = {secret_of(key, ak) for key in (b"1", b"2") for ak in ("a", "b")}
    assert len(secrets) == 4
    assert secret_of(b"1", "a") in secrets


@pytest.mark.parametrize(
    ("duration", "want"),
    [
        (None, ""),
        (timedelta(seconds=59), "00:00:59"),
        (timedelta(hours=1, minutes=2, seconds=3), "01:02:03"),
        (timedelta(days=5), "120:00:00"),
    ],
)
def test_a_duration_has_hours_minutes_and_seconds(duration: timedelta | None, want: str) -> None:
    assert hours(duration) == want


def test_a_time_is_told_in_utc() -> None:
    shanghai = timezone(timedelta(hours=8))
    assert iso(datetime(2020, 5, 17, 18, 16, 9, tzinfo=shanghai)) == "2020-05-17T10:16:09Z"
    assert iso(datetime(2020, 5, 17, 10, 16, 9, 999, tzinfo=UTC)) == "2020-05-17T10:16:09Z"


def test_addresses_of_a_huge_output_are_good_for_as_long_as_it_may_take() -> None:
    assert good_for(0) == timedelta(hours=1)
    assert good_for(100 * 2**30) > timedelta(hours=28)
