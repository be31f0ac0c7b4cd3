"""Who is answered for long and loses the key meanwhile: the answer ends, as a new one would."""

from __future__ import annotations

import http.client
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from paddlecloud.db.engine.base import EVERYTHING, Tx
from paddlecloud.db.tables import tokens, users
from paddlecloud.db.tables.tokens import Token
from paddlecloud.db.tables.users import UserRole
from paddlecloud.server.services.logs import read
from paddlecloud.server.services.logs.read import LogChunk
from paddlecloud.testing import SignedCaller, encode_query
from tests.integration.server.process import asked
from tests.integration.server.world import World, eventually

Order = Mapping[str, Any]
Loss = Callable[[Tx, str, datetime], object]
FOLLOWED = {"one log": {"follow": 1}, "all logs": {"follow": 1, "merge": 1}}


def disable(tx: Tx, ak: str, now: datetime) -> None:
    row = tokens.get_token(tx, ak)
    user = users.get_user(tx, row.user_id) if row else None
    assert user is not None
    users.save_user(tx, replace(user, disabled_at=now))


def quietly_revoke(tx: Tx, ak: str, now: datetime) -> None:
    """As if the note had been lost with its connection."""
    tx.execute("update tokens set revoked_at = 1 where ak = ?", (ak,))


def lose(
    world: World, loss: Loss = tokens.revoke_token, caller: SignedCaller | None = None
) -> None:
    ak = (caller or world.user).ak
    world.deps.db.write(lambda tx: loss(tx, ak, world.clock()))


def begun(world: World) -> tuple[str, Order]:
    job_id, order = world.placed()
    world.agent.start(order)
    world.agent.log(order, 0, b"one\n")
    return job_id, order


@contextmanager
def waiting(
    world: World, path: str, caller: SignedCaller | None = None, **query: object
) -> Iterator[http.client.HTTPConnection]:
    """A request whose answer has come to where it waits for something to happen."""
    caller = caller or world.user
    with asked(caller, path, encode_query(query)) as connection:
        topic = ("token", caller.ak)
        waiters = world.deps.hub._waiters
        eventually(lambda: any(w._sleep is not None for w in tuple(waiters.get(topic, ()))))
        yield connection


def cut(connection: http.client.HTTPConnection) -> bytes:
    """What had come of an answer that was not brought to its end."""
    with pytest.raises(http.client.IncompleteRead) as broken:
        connection.getresponse().read()
    return broken.value.partial


def refusal(world: World, path: str) -> tuple[int, str]:
    reply = world.user.call("GET", path)
    return reply.status, reply.code


@pytest.mark.parametrize("loss", [tokens.revoke_token, disable], ids=["revoked", "disabled"])
@pytest.mark.parametrize("query", FOLLOWED.values(), ids=FOLLOWED)
def test_a_followed_log_ends_with_the_key(world: World, loss: Loss, query: dict[str, Any]) -> None:
    job_id, _ = begun(world)
    path = f"/api/v1/jobs/{job_id}/logs"
    with waiting(world, path, **query) as connection:
        lose(world, loss)
        assert cut(connection).endswith(b"one\n")
    assert refusal(world, path) == (401, "auth_unknown_key")


def test_what_is_waited_for_is_refused_when_the_key_is_lost(world: World) -> None:
    job_id, _ = begun(world)
    path = f"/api/v1/jobs/{job_id}"
    with waiting(world, path, wait=15, version=1000) as connection:
        lose(world)
        answer = connection.getresponse()
        assert (answer.status, b"auth_unknown_key" in answer.read()) == (401, True)


def test_the_output_of_a_command_ends_with_the_key(world: World) -> None:
    job_id, _ = begun(world)
    made = world.user.post(f"/api/v1/jobs/{job_id}/commands", {"argv": ["ls"]})
    with waiting(world, f"/api/v1/jobs/{job_id}/commands/{made['id']}/output", follow=1) as got:
        lose(world)
        assert cut(got) == b""


def test_nobody_stays_who_lost_the_key_on_the_way_in(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id, _ = begun(world)
    begin = read.begin

    def late(*args: Any) -> read.Reading:
        reading = begin(*args)
        lose(world)
        return reading

    monkeypatch.setattr(read, "begin", late)
    path, query = f"/api/v1/jobs/{job_id}/logs", "follow=1"
    connection = http.client.HTTPConnection("127.0.0.1", world.stage.port, timeout=20)
    headers = world.user.headers("GET", path, query, b"")
    connection.request("GET", f"{path}?{query}", headers=headers)
    assert cut(connection) == b""
    connection.close()


def test_a_log_that_never_pauses_ends_too(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    job_id, _ = begun(world)
    endless = LogChunk(data=b"x" * 1000, over=False)
    monkeypatch.setattr(read, "chunk", lambda *args: endless)
    with asked(world.user, f"/api/v1/jobs/{job_id}/logs", "follow=1") as connection:
        answer = connection.getresponse()
        assert answer.read(1000) == endless.data
        lose(world)
        with pytest.raises(http.client.IncompleteRead):
            while answer.read(65536):
                pass


def test_a_lost_note_is_made_up_for(world: World) -> None:
    """After a broken line to the database it is told that anything may have happened."""
    job_id, _ = begun(world)
    with waiting(world, f"/api/v1/jobs/{job_id}/logs", follow=1) as connection:
        lose(world, quietly_revoke)
        world.deps.hub.notify(EVERYTHING, "")
        assert cut(connection) == b"one\n"


def test_who_is_no_admin_any_more_stops_to_see_the_logs_of_others(world: World) -> None:
    job_id, _ = begun(world)
    boss = world.caller("boss", role=UserRole.ADMIN)
    with waiting(world, f"/api/v1/jobs/{job_id}/logs", boss, follow=1) as connection:
        demoted = users.User(id="boss")
        world.deps.db.write(lambda tx: users.save_user(tx, demoted))
        assert cut(connection) == b"one\n"
    assert boss.call("GET", f"/api/v1/jobs/{job_id}/logs").status == 404


def test_lines_cost_no_look_at_the_key_and_another_plan_ends_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id, order = begun(world)
    find, looks = tokens.find_token, []

    def noting(tx: Tx, ak: str) -> Token | None:
        if ak == world.user.ak:
            looks.append(ak)
        return find(tx, ak)

    with waiting(world, f"/api/v1/jobs/{job_id}/logs", follow=1) as connection:
        monkeypatch.setattr(tokens, "find_token", noting)
        for number in range(20):
            world.agent.log(order, 4 + 5 * number, b"%04d\n" % number)
        assert len(looks) <= 1, "one is the note of the key's first use, if it comes late"
        looks.clear()
        planned = users.User(id="someone", plan="unlimited")
        world.deps.db.write(lambda tx: users.save_user(tx, planned))
        eventually(lambda: bool(looks))
        world.agent.exit(order, 0, log_size=104)
        body = connection.getresponse().read()
    assert body == b"one\n" + b"".join(b"%04d\n" % number for number in range(20))
