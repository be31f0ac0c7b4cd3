"""Reports over one request that stays open, by the real agent's side of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from paddlecloud.agent.config import AgentConfig
from paddlecloud.agent.server_link.channel import Link
from paddlecloud.agent.server_link.report_stream import Exchange
from paddlecloud.db.tables import tokens
from paddlecloud.model.errors import Invalid, PaddleCloudError
from paddlecloud.testing import ScriptedAgent, item
from tests.integration.server.world import World, eventually

MakeLink = Callable[[], Link]


@pytest.fixture
def link(world: World, tmp_path: Path) -> Link:
    caller = world.agent.caller
    url = f"http://127.0.0.1:{world.stage.port}"
    path = tmp_path / "agent.json"
    return Link(
        AgentConfig(path=path, agent_id=world.agent.name, ak=caller.ak, sk=caller.sk, url=url)
    )


@pytest.fixture
def exchange(link: Link) -> Iterator[Exchange]:
    made = Exchange(link)
    yield made
    made.close()


def opened(exchange: Exchange) -> Exchange:
    """Two reports have gone by requests of their own, and the server has answered."""
    exchange.follow(0.0)
    exchange.follow(1.0)
    eventually(lambda: exchange._open is not None and exchange._open.talk.is_answered)
    return exchange


def body(agent: ScriptedAgent, *items: Mapping[str, Any], log: bytes = b"") -> bytes:
    agent.seq += 1
    note = {"agent": agent.name, "boot": agent.boot, "seq": agent.seq, "items": items}
    head = json.dumps(note).encode()
    return len(head).to_bytes(4, "big") + head + log


def piece(order: Mapping[str, Any], offset: int, data: bytes) -> dict[str, Any]:
    return item(order, log={"offset": offset, "length": len(data)})


def test_a_whole_life_is_told_over_an_exchange(world: World, exchange: Exchange) -> None:
    job_id, order = world.placed()
    opened(exchange)
    now = world.clock().timestamp()
    for n in range(20):
        line = b"%02d\n" % n
        started = {"started": {"pid": 1, "at": now}} if n == 0 else {}
        told = body(world.agent, piece(order, n * 3, line) | started, log=line)
        answer = exchange.ask(told, 1.0)
        assert answer is not None
        assert answer["acks"][0]["log_size"] == 3 * (n + 1)
    assert world.state(job_id) == "running"
    plain = {"cause": "exit", "log_size": 60, "started_at": now, "finished_at": now}
    ended = item(order, exited=plain | {"exit_code": 0})
    answer = exchange.ask(body(world.agent, ended), 1.0)
    assert answer is not None and answer["acks"][0]["exited"]
    assert world.log(job_id) == b"".join(b"%02d\n" % n for n in range(20))
    assert world.state(job_id) == "success"


def test_a_report_that_is_refused_does_not_end_it(world: World, exchange: Exchange) -> None:
    _, order = world.placed()
    opened(exchange)
    with pytest.raises(Invalid) as refused:
        exchange.ask(b"\0\0\0\x09{}", 1.0)
    assert refused.value.code == "body_invalid"
    answer = exchange.ask(body(world.agent, piece(order, 0, b"x"), log=b"x"), 1.0)
    assert answer is not None and answer["acks"][0]["log_size"] == 1


def test_a_mistake_of_the_server_is_told_and_does_not_end_it(
    world: World, exchange: Exchange, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, order = world.placed()
    opened(exchange)
    told = body(world.agent, piece(order, 0, b"x"), log=b"x")
    with monkeypatch.context() as patched:
        patched.setattr("paddlecloud.server.services.agents.orders.note", lambda *_: 1 / 0)
        with pytest.raises(PaddleCloudError) as caught:
            exchange.ask(told, 1.0)
    assert caught.value.code == "internal"
    answer = exchange.ask(told, 1.0)
    assert answer is not None and answer["acks"][0]["log_size"] == 1


def test_somebody_on_the_way_can_add_nothing(world: World, exchange: Exchange) -> None:
    job_id, order = world.placed()
    opened(exchange)
    told = body(world.agent, piece(order, 0, b"x"), log=b"x")
    assert exchange.ask(told, 1.0) is not None
    assert exchange._open is not None
    exchange._open._number = 0  # the same once more
    with pytest.raises(PaddleCloudError) as caught:
        exchange.ask(body(world.agent, piece(order, 1, b"y"), log=b"y"), 1.0)
    assert caught.value.code == "auth_body_hash"
    assert exchange.ask(told, 1.0) is None, "the server takes nothing that comes behind it"
    assert world.log(job_id) == b"x"


def test_it_ends_with_the_key(world: World, exchange: Exchange) -> None:
    _, order = world.placed()
    opened(exchange)
    told = body(world.agent, piece(order, 0, b"x"), log=b"x")
    assert exchange.ask(told, 1.0) is not None
    ak = world.agent.caller.ak
    world.deps.db.write(lambda tx: tokens.revoke_token(tx, ak, world.clock()))
    eventually(lambda: ("token", ak) not in world.deps.hub._waiters)
    assert exchange.ask(told, 1.0) is None


def test_a_key_that_went_before_anybody_listened_is_not_good_either(
    world: World, exchange: Exchange, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between its admission and the exchange: the note is gone, the database knows."""
    _, order = world.placed()
    monkeypatch.setattr(
        "paddlecloud.server.http.report_stream.Exchange._is_known", lambda self, tx: False
    )
    opened(exchange)
    told = body(world.agent, piece(order, 0, b"x"), log=b"x")
    assert exchange._open is not None
    assert exchange._open.talk.response.status == 200
    assert exchange.ask(told, 1.0) is None


def test_it_ends_when_the_server_goes_down(world: World, exchange: Exchange) -> None:
    _, order = world.placed()
    opened(exchange)
    told = body(world.agent, piece(order, 0, b"x"), log=b"x")
    assert exchange.ask(told, 1.0) is not None
    world.deps.hub.close()
    eventually(lambda: not world.deps.hub._waiters)
    assert exchange.ask(told, 1.0) is None


def test_a_head_without_sealed_frames_is_no_exchange(world: World) -> None:
    reply = world.agent.caller.call("POST", "/api/v1/agent/reports", body=b"x")
    assert (reply.status, reply.code) == (400, "body_invalid")
