"""Logs by lines: merged and matching ones; resumed where each worker was left."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import unquote
from zoneinfo import ZoneInfo

import pytest

from paddlecloud import Client
from paddlecloud.client._follow import moment
from paddlecloud.model.errors import Invalid
from paddlecloud.model.logs.frames import framed
from tests.unit.client.fake_server import Answer, FakeServer, Seen, ok

ID = "job-" + "0123456789abcdef" * 2
LOGS = f"GET /api/v1/jobs/{ID}/logs"
JOB = f"GET /api/v1/jobs/{ID}"


def answer(data: bytes, attempt: int = 1, worker: str = "", **more: Any) -> Answer:
    headers = {"x-log-attempt": str(attempt)} | ({"x-log-worker": worker} if worker else {})
    return Answer(data, 200, headers, **more)


def ended(attempts: int = 1) -> Answer:
    return ok({"job_id": ID, "job_status": "success", "version": 9, "attempts": attempts})


def asked(server: FakeServer, *keys: str) -> list[tuple[str | None, ...]]:
    found = [seen.query for seen in server.seen if seen.path.endswith("/logs")]
    return [tuple(query.get(key) and unquote(query[key]) for key in keys) for query in found]


def test_lines_of_all_workers_are_taken_up_where_each_was_left(
    server: FakeServer, client: Client
) -> None:
    first = framed("trainer-0", 3, b"a1\n") + framed("trainer-1", 6, b"b1\nb2\n")
    cut = first + framed("trainer-0", 6, b"a2\n")[:-1]
    server.routes[LOGS] = [
        answer(cut + b"never", drop=len(cut)),
        answer(framed("trainer-0", 6, b"a2\n")),
    ]
    server.routes[JOB] = [ended()]
    got = b"".join(client.logs(ID, follow=True, merge=True, tail=5))
    assert got == b"[trainer-0] a1\n[trainer-1] b1\n[trainer-1] b2\n[trainer-0] a2\n"
    assert asked(server, "merge", "frames", "attempt", "at") == [
        ("1", "1", None, None),
        ("1", "1", "1", "trainer-0:3,trainer-1:6"),
    ]


def test_a_search_that_follows_is_resumed_where_it_was_left(
    server: FakeServer, client: Client
) -> None:
    first = framed("trainer-2", 100, b"loss 1\n")
    server.routes[LOGS] = [
        answer(first + b"never", worker="trainer-2", drop=len(first)),
        answer(framed("trainer-2", 108, b"loss 2\n"), worker="trainer-2"),
    ]
    server.routes[JOB] = [ended()]
    got = b"".join(client.logs(ID, follow=True, grep="loss", failed=True))
    assert got == b"loss 1\nloss 2\n"
    keys = ("grep", "follow", "failed", "worker", "at")
    assert asked(server, *keys) == [
        ("loss", "1", "1", None, None),
        ("loss", "1", None, "trainer-2", "trainer-2:100"),
    ]


def test_a_search_goes_through_the_next_attempt_too(server: FakeServer, client: Client) -> None:
    def serve(seen: Seen) -> Answer:
        attempt = int(seen.query.get("attempt", 1))
        return answer(framed("trainer-0", 50, b"hit %d\n" % attempt), attempt, "trainer-0")

    server.routes[LOGS] = serve
    server.routes[JOB] = [ended(attempts=2)]
    assert b"".join(client.logs(ID, follow=True, grep="hit", since="1h")) == b"hit 1\nhit 2\n"
    assert asked(server, "attempt", "grep", "at", "since") == [
        (None, "hit", None, "1h"),
        ("2", "hit", None, None),
    ]


def test_a_search_that_does_not_follow_asks_once(server: FakeServer, client: Client) -> None:
    server.routes[LOGS] = [answer(framed("trainer-0", 9, b"\x00 hit\n"), worker="trainer-0")]
    assert b"".join(client.logs(ID, grep="hit", worker="trainer-0")) == b"\x00 hit\n"
    assert len(asked(server)) == 1


def test_a_time_without_a_zone_is_that_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Shanghai")
    time.tzset()
    try:
        assert moment("2026-01-31 14:00") == "2026-01-31T06:00:00+00:00"
        assert moment("2026-01-31T14:00:00Z") == "2026-01-31T14:00:00+00:00"
        of_day = datetime.fromisoformat(str(moment("14:00"))).astimezone(ZoneInfo("Asia/Shanghai"))
        assert (of_day.hour, of_day.minute) == (14, 0)
        assert timedelta(0) <= datetime.now(UTC) - of_day < timedelta(days=1, minutes=1)
        assert [moment(span) for span in ("10m", "2h", None)] == ["10m", "2h", None]
        with pytest.raises(Invalid, match="neither a duration"):
            moment("noon")
    finally:
        monkeypatch.undo()
        time.tzset()
