"""Limits under attack: many at once, at midnight, by numbers that are none, in others' names."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any
from zlib import crc32

import msgspec
import pytest

from paddlecloud.db.engine.base import Tx
from paddlecloud.db.engine.sqlite import open_sqlite
from paddlecloud.db.tables import jobs
from paddlecloud.db.tables.users import UserRole
from paddlecloud.model.errors import Conflict
from paddlecloud.model.jobs.states import FINAL
from paddlecloud.model.protocol import bce_auth
from paddlecloud.server.deps import Deps
from paddlecloud.server.http.app import App
from paddlecloud.server.http.auth import Caller
from paddlecloud.server.http.routing import Access
from paddlecloud.server.loops.reconcile import Watch
from paddlecloud.server.route_table import ROUTES
from paddlecloud.server.schemas.jobs import SubmitRequest
from paddlecloud.server.services.jobs import submit as submit_service
from paddlecloud.server.services.jobs.kill import kill
from paddlecloud.server.services.transfer import output_uploads
from paddlecloud.testing import Reply, encode_query, exchange
from tests.integration.server.conftest import MakeWorld
from tests.integration.server.test_quota import MakeTeam, limit, runs, team
from tests.integration.server.test_quota_race import (
    _finish_until,
    _make_user,
    _plan_until,
    _until,
    servers,
    submit,
)
from tests.integration.server.test_users import a_team, gen_token, mailed
from tests.integration.server.world import World, a_submit

__all__ = ["team"]
TABLES = ("users", "tokens", "audit", "outbox", "rate_marks")


def together(count: int, call: Any) -> list[Any]:
    """What `call` answers to each of so many who ask at the same moment."""
    line = threading.Barrier(count)

    def one(number: int) -> Any:
        line.wait(30)
        return call(number)

    with ThreadPoolExecutor(count) as threads:
        return list(threads.map(one, range(count)))


# -- gen_token ------------------------------------------------------------------------------------


def test_of_many_requests_at_once_exactly_so_many_are_mailed(make_world: MakeWorld) -> None:
    world = make_world(change=a_team(per_address=3, per_source=20))
    ann = together(50, lambda _: gen_token(world, "ann@example.com").status)
    assert sorted(ann) == [202] * 3 + [429] * 47
    others = together(50, lambda number: gen_token(world, f"user{number}@example.com").status)
    assert sorted(others) == [202] * 17 + [429] * 33
    assert len(mailed(world)) == 20
    assert world.count("tokens") == 21, "twenty and the one of this test"


def test_known_and_unknown_addresses_cost_nearly_the_same(make_world: MakeWorld) -> None:
    """Time is noise; the work is what it is made of: one transaction, one mail, a few rows."""
    world = make_world(change=a_team())
    db, counted = world.deps.db, [0, 0]

    class Counting:
        def __init__(self, tx: Tx) -> None:
            self._tx = tx

        def __getattr__(self, name: str) -> Any:
            if name in ("execute", "one", "all", "run"):
                counted[1] += 1
            return getattr(self._tx, name)

    original = db.write

    def write(work: Any, **options: Any) -> Any:
        counted[0] += 1
        return original(lambda tx: work(Counting(tx)), **options)

    def cost(email: str) -> tuple[Reply, list[int], int]:
        counted[:] = [0, 0]
        before = world.count("outbox")
        reply = gen_token(world, email)
        return reply, list(counted), world.count("outbox") - before

    db.write = write  # type: ignore[method-assign]
    unknown, made, mails = cost("ann@example.com")
    known, found, again = cost("ann@example.com")
    assert (unknown.status, unknown.body) == (known.status, known.body)
    drop = {"x-request-id", "date"}
    heads = [{k: v for k, v in r.headers.items() if k not in drop} for r in (unknown, known)]
    assert heads[0] == heads[1]
    assert (mails, again) == (1, 1)
    assert made[0] == found[0] == 1
    assert 0 <= made[1] - found[1] <= 6


@pytest.mark.parametrize(
    "address",
    [
        "a@b.example\r\nBcc: c@d.example", "a@b.example\nSubject: x", "a\r@b.example",
        "a@b.example\0", "a@b.example,c@d.example", "<a@b.example>", "a@b.example>\r\nRCPT TO:<c",
        "a\u2028@b.example", "a@b.example\x85Bcc: c", '"a b"@b.example', "a@[127.0.0.1]",
        "@b.example", "a@b..example", "a@-b.example", "a@" + "b" * 64 + ".example",
    ],
)  # fmt: skip
def test_no_address_smuggles_a_line_into_a_mail(world_of_a_team: World, address: str) -> None:
    world = world_of_a_team
    before = [world.count(table) for table in TABLES]
    assert gen_token(world, address).status == 400
    assert [world.count(table) for table in TABLES] == before


def test_who_asks_for_keys_in_my_name_does_not_keep_me_from_mine(make_world: MakeWorld) -> None:
    world = make_world(change=a_team(per_address=1000, per_source=1000))
    for _ in range(101):
        assert gen_token(world, "ann@example.com").status == 202
    user = str(mailed(world)[0].params["user_id"])
    assert world.caller(user).call("POST", "/api/v1/tokens", body={}).status == 200


@pytest.fixture
def world_of_a_team(make_world: MakeWorld) -> World:
    return make_world(change=a_team())


# -- places and queues ----------------------------------------------------------------------------


def test_of_a_thousand_waiting_jobs_none_is_too_many(team: MakeTeam) -> None:
    world = team(waiting_jobs=1000)
    spec = world.spec()
    body = json.dumps(a_submit(spec)).encode()
    assert world.user.call("POST", "/api/v1/jobs", body=body).status == 200
    deps = world.deps

    def more(tx: Tx) -> None:
        for _ in range(969):
            request = msgspec.convert(a_submit(spec), SubmitRequest)
            admitted, _notes = submit_service.admit(deps, "someone", request)
            submit_service.accept(tx, deps, "someone", request, admitted)

    deps.db.write(more)
    replies = together(
        60, lambda _: world.user.call("POST", "/api/v1/jobs", body=a_submit(spec)).status
    )
    assert sorted(replies) == [200] * 30 + [429] * 30
    assert world.deps.db.read(lambda tx: jobs.count_waiting(tx, "someone")) == 1000


def test_submits_and_kills_at_once_never_run_a_job_too_many(tmp_path: Path) -> None:
    opened = partial(open_sqlite, tmp_path / "paddlecloud.db", now=datetime.now(UTC))
    with servers(opened, tmp_path) as each, ThreadPoolExecutor(3) as loops:
        each[0].db.write(partial(_make_user, "ann"))
        done = threading.Event()
        work = [loops.submit(_plan_until, done, deps) for deps in each[:2]]
        work.append(loops.submit(_finish_until, done, each[0]))
        try:
            together(50, lambda number: churn(each[number % len(each)], number))
        finally:
            _until(lambda: each[0].db.read(_unfinished) == 0, done)
        for one in work:
            one.result()
        assert max(deps.db.most for deps in each) <= 2  # type: ignore[attr-defined]
        running = each[0].db.read(lambda tx: tx.all("select 1 from usage where ended_at is null"))
        assert running == []


def churn(deps: Deps, number: int) -> None:
    """One more job, and the end of a third of all."""
    ann = Caller(ak="", user_id="ann", kind="user", role=UserRole.USER.value)
    assert submit(deps, "ann")
    found = deps.db.read(lambda tx: jobs.list_jobs(tx, "ann", limit=50))
    for job in found[number % 3 :: 3]:
        with suppress(Conflict):  # it has ended meanwhile
            kill(deps, ann, job.id)


def _unfinished(tx: Tx) -> int:
    counts = jobs.count_by_state(tx)
    return sum(count for state, count in counts.items() if state not in FINAL)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("running_jobs", -1), ("running_jobs", 1.5), ("running_jobs", "nan"), ("running_jobs", ""),
        ("running_jobs", "1_0"), ("running_jobs", 10**40), ("running_jobs", " "), ("cpu", "inf"),
        ("cpu", -0.1), ("cpu", "1e999"), ("cpu", "nan"), ("memory", "-1"), ("memory", "9" * 400),
        ("storage", "1e999"), ("minutes_a_day", 2**53 + 1), ("max_priority", "\0"),
        ("max_priority", 5), ("no such", 1),
    ],
)  # fmt: skip
def test_what_is_no_limit_changes_nothing(team: MakeTeam, name: str, value: object) -> None:
    world = team()
    admin = world.caller("chief", role=UserRole.ADMIN)
    before = world.user.get("/api/v1/quota")
    reply = admin.call("POST", "/api/v1/admin/users/someone/quota", body={"limits": {name: value}})
    assert reply.status == 400
    assert world.user.get("/api/v1/quota") == before
    assert world.count("audit") == 0


def test_a_huge_limit_of_minutes_is_no_mistake_of_ours(team: MakeTeam) -> None:
    """Whoever means `unlimited` and writes a large number must not end all planning."""
    world = team()
    admin = world.caller("chief", role=UserRole.ADMIN)
    limits = {"minutes_a_day": 2**53, "minutes_a_job": 2**53}
    admin.post("/api/v1/admin/users/someone/quota", {"limits": limits})
    job_id, order = runs(world)
    Watch().tick(world.deps, world.clock.move(minutes=5))
    world.agent.exit(order, ran=300.0)
    assert world.state(job_id) == "success"
    assert limit(world.user.get("/api/v1/quota"), "minutes_a_day") == (5.0, 2**53)


def test_a_machine_has_no_quota(team: MakeTeam) -> None:
    world = team()
    admin = world.caller("chief", role=UserRole.ADMIN)
    body = {"limits": {"cpu": 1}}
    place = f"/api/v1/admin/users/{world.agent.name}/quota"
    assert admin.call("POST", place, body=body).code == "user_unknown"


# -- days -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("zone", "begins", "hours", "want"),
    [
        # 23:30 to 01:30 in Shanghai.
        ("Asia/Shanghai", datetime(2026, 3, 1, 15, 30, tzinfo=UTC), 2, [30.0, 90.0]),
        # The night in which New York's clocks skip from 02:00 to 03:00: a day of 23 hours.
        ("America/New_York", datetime(2026, 3, 8, 4, 0, tzinfo=UTC), 25, [60.0, 1380.0, 60.0]),
        # And the one in which they say 01:00 twice: 25 hours.
        ("America/New_York", datetime(2026, 11, 1, 3, 0, tzinfo=UTC), 27, [60.0, 1500.0, 60.0]),
    ],
)
def test_minutes_lie_in_their_day_whatever_the_clocks_of_the_zone_do(
    team: MakeTeam, zone: str, begins: datetime, hours: int, want: list[float]
) -> None:
    world = team(minutes_a_day=10_000, minutes_a_job=None)
    settings = replace(world.deps.settings, time_zone=zone)
    world.app.close()
    world.deps = replace(world.deps, settings=settings)
    world.app = App(world.deps)
    world.enter()
    world.clock.now = begins
    _, order = runs(world)
    world.clock.move(hours=hours)
    today = limit(world.user.get("/api/v1/quota"), "minutes_a_day")[0]
    world.agent.exit(order, ran=hours * 3600.0)
    days = world.user.get("/api/v1/quota/history")["days"]
    found = [day["minutes"] for day in reversed(days)]
    assert found == want
    assert today == want[-1]


def test_a_machine_that_lies_about_the_time_makes_no_endless_history(team: MakeTeam) -> None:
    world = team()
    _, order = runs(world)
    world.agent.exit(order, ran=1e10)
    days = world.user.get("/api/v1/quota/history", days=400)["days"]
    assert [day["date"] for day in days] == ["2026-01-05"]


# -- routes that a matrix by path would not see ---------------------------------------------------


def test_nobody_but_an_admin_names_another_user() -> None:
    """Whose thing it is comes from the signature. A name in a query or a body would be a second
    way, which the matrix of rights, that goes by paths, does not try."""
    names = {"owner", "user", "user_id", "username", "email"}
    for route in ROUTES:
        if route.access is Access.USER and not route.admin:
            for shape in (route.query, route.body):
                fields = set(getattr(shape, "__struct_fields__", ()))
                assert not fields & names, f"{route.method} {route.path}"
            assert "{user_id}" not in route.path


def test_a_route_that_reads_its_own_body_checks_it(world: World) -> None:
    """For these the entry of all routes leaves it to them: one that forgot would take anything."""
    own = [r for r in ROUTES if r.streaming and r.body is None and r.method != "GET"]
    assert own
    for route in own:
        agent = route.access is Access.AGENT
        caller = world.agent.caller if agent else world.user
        _, order = world.placed()
        body = len(b"{}").to_bytes(4, "big") + b"{}"
        values = {"replica": order["replica"], "area": "output", "path": "x"} | PART
        values["command_id"] = "0" * 32
        begin_upload(world, len(body) + 1)
        path = route.path.replace(":path", "").format(**values)
        known = {"fence": order["fence"], "offset": 0, "stream": "out"}
        known |= begin_output(world, order, len(body) + 1)
        fields = getattr(route.query, "__struct_fields__", ())
        query = encode_query({name: known[name] for name in known if name in fields})
        headers = caller.headers(route.method, path, query, body)
        target = f"{path}?{query}" if query else path
        reply = exchange(caller.host, caller.port, route.method, target, headers, body + b"x")
        refusals = ("auth_body_hash", "pack_malformed")
        assert reply.code in refusals, f"{route.path}: {reply.body!r}"
        assert begin_upload(world, len(body) + 1)["parts"] == []
        assert begin_output(world, order, len(body) + 1)["parts"] == []
        world.agent.exit(order)
        world.release()


PART = {"sha256": "0" * 64, "number": "1"}
"""Of an upload that these tests begin."""


def begin_output(world: World, order: dict[str, Any], size: int) -> dict[str, Any]:
    """An output in parts of which the last has this size: it, its number, and what is there."""
    path = f"/api/v1/agent/replicas/{order['replica']}/parts/output/x"
    asked = json.dumps({"size": output_uploads.LEAST + size, "mtime": 0.0}).encode()
    reply = world.agent.caller.call("POST", path, {"fence": order["fence"]}, asked)
    begun = reply.json()
    last = -(-(output_uploads.LEAST + size) // begun["part_size"])
    return {"upload": begun["upload"], "number": last, "parts": begun["parts"]}


def begin_upload(world: World, size: int) -> Any:
    return world.user.post("/api/v1/uploads", {"sha256": PART["sha256"], "size": size})


@pytest.mark.parametrize(
    ("changes", "sent", "code"),
    [
        ({}, b"three", "auth_body_hash"),
        ({bce_auth.CONTENT_CRC32: f"{crc32(b'three'):08x}"}, b"three", "auth_body_hash"),
        ({bce_auth.CONTENT_CRC32: f"{crc32(b'other'):08x}"}, b"seven", "upload_damaged"),
        ({bce_auth.CONTENT_SHA256: "unsigned-payload"}, b"seven", "auth_body_hash"),
        ({bce_auth.CONTENT_SHA256: bce_auth.UNSIGNED}, b"seven", "auth_header_unsigned"),
        (
            {
                bce_auth.CONTENT_SHA256: bce_auth.UNSIGNED,
                bce_auth.CONTENT_CRC32: f"{crc32(b'seven'):08x}",
            },
            b"three",
            "upload_damaged",
        ),
    ],
)
def test_a_part_is_what_was_signed(
    world: World, changes: dict[str, str], sent: bytes, code: str
) -> None:
    """By its digest, or by its CRC-32: whichever is said has to be right."""
    begin_upload(world, len(sent))
    reply = send_part(world, changes, sent)
    assert reply.code == code
    assert begin_upload(world, len(sent))["parts"] == []


def test_the_checksum_of_a_part_is_covered_by_the_signature(world: World) -> None:
    begin_upload(world, 5)
    added = {bce_auth.CONTENT_CRC32: f"{crc32(b'three'):08x}"}
    unsigned = {bce_auth.CONTENT_SHA256: bce_auth.UNSIGNED}
    assert send_part(world, unsigned, b"three", added).code == "auth_header_unsigned"
    assert begin_upload(world, 5)["parts"] == []
    assert send_part(world, unsigned | added, b"three").status == 200
    assert begin_upload(world, 5)["parts"] == [1]


def test_a_digest_alone_is_enough_for_a_part(world: World) -> None:
    begin_upload(world, 5)
    assert send_part(world, {}, b"seven").status == 200
    assert begin_upload(world, 5)["parts"] == [1]


def send_part(
    world: World, changes: dict[str, str], sent: bytes, added: dict[str, str] | None = None
) -> Reply:
    """A part that is signed as b"seven", with `changes` signed and `added` not, and `sent`."""
    caller, path = world.user, "/api/v1/uploads/{sha256}/{number}".format(**PART)
    headers = caller.headers("PUT", path, "", b"seven") | changes
    del headers["authorization"]
    now = int(caller.clock())
    signed = bce_auth.sign(caller.ak, caller.sk, "PUT", path, "", headers, now)
    headers |= {"authorization": signed} | (added or {})
    return exchange(caller.host, caller.port, "PUT", path, headers, sent)
