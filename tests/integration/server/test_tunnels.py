"""Tunnels in the server: who may open one, how the two ends are joined, and how they end."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from paddlecloud.db.tables import audit, tokens
from paddlecloud.db.tables.tokens import Scope
from paddlecloud.db.tables.users import UserRole
from paddlecloud.model.errors import (
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    PaddleCloudError,
    Refused,
    Retry,
    TooMany,
    Unauthenticated,
    from_wire,
)
from paddlecloud.model.protocol.websocket import BINARY, TEXT
from paddlecloud.net import websocket
from paddlecloud.net.endpoint import Endpoint, target_of
from paddlecloud.net.proxy import Proxy
from paddlecloud.net.websocket import MESSAGE, WebSocket
from paddlecloud.server.http import tunnel_relay
from paddlecloud.server.services.exec import pending_tunnels, tunnels
from paddlecloud.testing import SignedCaller
from tests.integration.server.world import World, eventually
from tests.proxies import LittleProxy

PORT = 8888


@pytest.fixture
def job_id(world: World) -> str:
    """A job that runs."""
    job_id, order = world.placed()
    world.agent.start(order)
    return job_id


def opened(world: World, caller: SignedCaller, path: str, **query: object) -> WebSocket:
    """A WebSocket of this caller; raises what the server answers instead."""
    endpoint = Endpoint(f"http://127.0.0.1:{world.stage.port}", caller.ak, caller.sk)
    response = websocket.connect(endpoint, target_of(path, query), proxy=None, timeout=30)
    if response.status == 101:
        return WebSocket(response, endpoint)
    with response:
        raise from_wire(response.status, json.loads(response.read())["error"])


def polled(world: World, *known: str) -> list[dict[str, Any]]:
    """The tunnels that the agent is offered."""
    body = {
        "agent": world.agent.name,
        "boot": world.agent.boot,
        "version": world.agent.version,
        "cursor": world.agent.cursor,
        "wait": 0.0,
        "capacity": {"cpu": 4.0, "memory": 2**33, "gpu": 0},
        "tunnels": list(known),
    }
    found: list[dict[str, Any]] = world.agent.caller.post("/api/v1/agent/poll", body)["tunnels"]
    return found


class Asking:
    """A client that asks for a tunnel, in a thread, because it waits for the agent."""

    def __init__(
        self, world: World, job_id: str, caller: SignedCaller | None = None, **query: object
    ) -> None:
        self.result: WebSocket | PaddleCloudError | None = None
        path = f"/jobs/{job_id}/tunnel"

        def ask() -> None:
            try:
                self.result = opened(world, caller or world.user, path, port=PORT, **query)
            except PaddleCloudError as error:
                self.result = error

        self._thread = threading.Thread(target=ask, daemon=True)
        self._thread.start()

    def answered(self) -> WebSocket | PaddleCloudError:
        self._thread.join(30)
        assert self.result is not None
        return self.result


def offer(world: World, *known: str) -> dict[str, Any]:
    found: list[dict[str, Any]] = []

    def is_there() -> bool:
        found[:] = polled(world, *known)
        return bool(found)

    eventually(is_there)
    return found[0]


@contextmanager
def joined(
    world: World, job_id: str, caller: SignedCaller | None = None
) -> Iterator[tuple[WebSocket, WebSocket]]:
    """Both ends of an open tunnel, the client's and the agent's."""
    asking = Asking(world, job_id, caller)
    order = offer(world)
    agent = opened(world, world.agent.caller, f"/agent/tunnels/{order['id']}")
    client = asking.answered()
    assert isinstance(client, WebSocket), client
    yield client, agent
    client.close()
    agent.close()
    eventually(lambda: not world.deps.tunnels._open)


def received(end: WebSocket, enough: Callable[[bytes], bool]) -> bytes:
    """Bytes that arrive until there are enough, or the tunnel has ended."""
    data, deadline = b"", time.monotonic() + 30
    while not enough(data) and not end.ended:
        assert time.monotonic() < deadline
        data += b"".join(payload for kind, payload in end.receive() if kind == BINARY)
        time.sleep(0.001)
    return data


def test_two_ends_are_joined_and_end_together(world: World, job_id: str) -> None:
    with joined(world, job_id) as (client, agent):
        client.send(b"to the job")
        assert received(agent, lambda data: len(data) >= 10) == b"to the job"
        agent.send(b"from the job")
        assert received(client, lambda data: len(data) >= 12) == b"from the job"
        agent.send(b'{"end": true}', TEXT)
        while not (found := client.receive()):
            time.sleep(0.001)
        assert found == [(TEXT, b'{"end": true}')]
        agent.send(b"the last bytes")
        agent.close()
        assert received(client, lambda _: False) == b"the last bytes"
        assert client.ended_in_order


def test_through_a_proxy_it_is_a_tunnel_in_a_tunnel(world: World, job_id: str) -> None:
    """Plain HTTP too: no proxy passes a WebSocket on in any other way."""
    with LittleProxy(world.stage.port) as little:
        host = Endpoint("http://cloud.example.com", world.agent.caller.ak, world.agent.caller.sk)
        asking = Asking(world, job_id)
        target = target_of(f"/agent/tunnels/{offer(world)['id']}")
        proxy = Proxy("127.0.0.1", little.port)
        response = websocket.connect(host, target, proxy=proxy, timeout=30)
        assert response.status == 401  # it got there: the server has another name
        response.close()
        local = Endpoint(
            f"http://127.0.0.1:{world.stage.port}", world.agent.caller.ak, world.agent.caller.sk
        )
        agent = WebSocket(websocket.connect(local, target, proxy=proxy, timeout=30), local)
        client = asking.answered()
        assert isinstance(client, WebSocket)
        agent.send(b"through")
        assert received(client, lambda data: len(data) >= 7) == b"through"
        client.close()
        agent.close()


def test_an_order_names_the_worker_the_port_and_the_server(world: World, job_id: str) -> None:
    asking = Asking(world, job_id, worker="trainer-0")
    order = offer(world)
    assert (order["replica"], order["port"]) == (f"{job_id}.1.trainer-0", PORT)
    assert order["boot"] == world.deps.boot
    assert polled(world, order["id"]) == []  # the agent knows it
    assert polled(world) == [order]  # or does not: it is repeated
    refuse(world, order, "closed")
    error = asking.answered()
    assert isinstance(error, Conflict)
    assert str(error).startswith(f"nothing listens on port {PORT} of trainer-0")
    assert polled(world) == []
    assert not world.deps.tunnels._open


def refuse(world: World, order: dict[str, Any], cause: str, **more: str) -> None:
    path = f"/api/v1/agent/tunnels/{order['id']}/refuse"
    world.agent.caller.post(path, {"cause": cause, **more})


@pytest.mark.parametrize(
    ("cause", "kind", "words"),
    [
        ("foreign", Refused, "does not belong to a program of"),
        ("over", Conflict, "is not running any more"),
        ("failed", Retry, "cannot connect to trainer-0: no pty"),
    ],
)
def test_an_agent_says_why_not(
    world: World, job_id: str, cause: str, kind: type[PaddleCloudError], words: str
) -> None:
    asking = Asking(world, job_id)
    refuse(world, offer(world), cause, message="no pty")
    error = asking.answered()
    assert type(error) is kind
    assert words in str(error)


def test_who_may_open_one(world: World, job_id: str) -> None:
    path = f"/jobs/{job_id}/tunnel"
    with pytest.raises(NotFound):
        opened(world, world.caller("another"), path, port=PORT)
    reader = world.caller("someone-who-reads", UserRole.READONLY)
    with pytest.raises(Forbidden):
        opened(world, reader, path, port=PORT)
    narrow = world.caller("someone")
    world.deps.db.write(
        lambda tx: tx.execute(
            "update tokens set scope = ? where ak = ?", (Scope.READ.value, narrow.ak)
        )
    )
    with pytest.raises(Forbidden):
        opened(world, narrow, path, port=PORT)
    with pytest.raises(Unauthenticated):
        opened(world, world.agent.caller, path, port=PORT)
    with joined(world, job_id, world.caller("boss", UserRole.ADMIN)) as (client, agent):
        client.send(b"x")
        assert received(agent, bool) == b"x"


def test_only_the_agent_of_the_worker_may_serve_it(world: World, job_id: str) -> None:
    asking = Asking(world, job_id)
    order = offer(world)
    stranger = world.agent_caller("node-9")
    for path in (f"/agent/tunnels/{order['id']}", "/agent/tunnels/nothing"):
        with pytest.raises(NotFound):
            opened(world, stranger, path)
    with pytest.raises(Unauthenticated):
        opened(world, world.user, f"/agent/tunnels/{order['id']}")
    refuse(world, order, "over")
    assert isinstance(asking.answered(), Conflict)


def test_what_is_wrong_is_said_before_an_agent_is_asked(world: World, job_id: str) -> None:
    waiting = world.submit()
    with pytest.raises(Conflict, match="is not running"):
        opened(world, world.user, f"/jobs/{waiting}/tunnel", port=PORT)
    with pytest.raises(Invalid, match="trainer-7"):
        opened(world, world.user, f"/jobs/{job_id}/tunnel", port=PORT, worker="trainer-7")
    with pytest.raises(Invalid):
        opened(world, world.user, f"/jobs/{job_id}/tunnel", port=65536)
    with pytest.raises(Invalid, match="needs a port"):
        opened(world, world.user, f"/jobs/{job_id}/tunnel")
    with pytest.raises(Invalid, match="WebSocket connections only"):
        world.user.get(f"/api/v1/jobs/{job_id}/tunnel", port=PORT)
    assert not world.deps.tunnels._open


def test_an_agent_that_does_not_come_is_not_waited_for_long(
    world: World, job_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tunnels, "OFFER_SECONDS", 0.05)
    error = Asking(world, job_id).answered()
    assert isinstance(error, Retry)
    assert "node-0" in str(error) and "did not connect" in str(error)
    assert polled(world) == []
    assert not world.deps.tunnels._open


def test_there_is_a_limit_for_each_user(
    world: World, job_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pending_tunnels, "MOST_OF_USER", 1)
    with joined(world, job_id):
        error = Asking(world, job_id).answered()
        assert isinstance(error, TooMany)
        assert "1 connections" in str(error)
    with joined(world, job_id):
        pass


def test_a_revoked_key_ends_it_at_once(world: World, job_id: str) -> None:
    keys = world.caller("someone")
    with joined(world, job_id, keys) as (client, agent):
        client.send(b"before")
        received(agent, bool)
        world.deps.db.write(lambda tx: tokens.revoke_token(tx, keys.ak, world.clock()))
        assert received(client, lambda _: False) == b""
        assert not client.ended_in_order
        assert received(agent, lambda _: False) == b""
    with pytest.raises(Unauthenticated):
        opened(world, keys, f"/jobs/{job_id}/tunnel", port=PORT)


def test_a_slow_reader_stops_the_sender_and_loses_nothing(world: World, job_id: str) -> None:
    size = 0
    with joined(world, job_id) as (client, agent):
        quiet_since = time.monotonic()
        while time.monotonic() - quiet_since < 0.2:
            if agent.unsent < 4 * MESSAGE:
                agent.send(bytes([size // MESSAGE % 251]) * MESSAGE)
                size += MESSAGE
                quiet_since = time.monotonic()
            agent.flush()
            assert size < 64 * 2**20, "the server takes it all"
        data = b""
        while len(data) < size:
            data += received(client, bool)
            agent.flush()
        chunks = [data[at : at + MESSAGE] for at in range(0, size, MESSAGE)]
        assert all(chunk == bytes([n % 251]) * MESSAGE for n, chunk in enumerate(chunks))


def test_an_end_that_is_gone_without_a_word_is_noticed(
    world: World, job_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tunnel_relay, "BEAT", 0.02)
    monkeypatch.setattr(tunnel_relay, "SILENCE", 0.1)
    with joined(world, job_id) as (client, agent):
        # The agent answers no ping, and the client does.
        received(client, lambda _: False)
        assert client.ended and not client.ended_in_order
        assert received(agent, lambda _: False) == b""


def test_it_is_recorded_once_and_not_for_each_connection(world: World, job_id: str) -> None:
    for _ in range(2):
        with joined(world, job_id):
            pass
    rows = world.deps.db.read(lambda tx: audit.listed(tx, limit=100))
    (row,) = [row for row in rows if row.action == "job.port_forward"]
    assert (row.actor, row.target) == ("someone", job_id)
    assert row.detail == {"owner": "someone", "worker": "trainer-0", "port": PORT}


def test_a_client_that_leaves_before_the_agent_comes_costs_nothing(
    world: World, job_id: str
) -> None:
    endpoint = Endpoint(f"http://127.0.0.1:{world.stage.port}", world.user.ak, world.user.sk)
    target = target_of(f"/jobs/{job_id}/tunnel", {"port": PORT})
    with pytest.raises(PaddleCloudError):
        websocket.connect(endpoint, target, proxy=None, timeout=0.1)
    eventually(lambda: not world.deps.tunnels._open)


def test_the_terminal_of_a_command(world: World, job_id: str) -> None:
    path = f"/api/v1/jobs/{job_id}/commands"
    plain = world.user.post(path, {"argv": ["ls"]})
    with pytest.raises(Invalid, match="without a terminal"):
        opened(world, world.user, f"/jobs/{job_id}/commands/{plain['id']}/terminal")
    terminal = {"term": "xterm", "rows": 24, "columns": 80}
    command = world.user.post(path, {"argv": ["bash"], "terminal": terminal})
    with pytest.raises(NotFound):
        opened(world, world.caller("another"), f"/jobs/{job_id}/commands/{command['id']}/terminal")
    found: list[WebSocket] = []

    def attach() -> None:
        found.append(opened(world, world.user, f"/jobs/{job_id}/commands/{command['id']}/terminal"))

    thread = threading.Thread(target=attach, daemon=True)
    thread.start()
    order = offer(world)
    assert (order["command"], order["port"]) == (command["id"], 0)
    agent = opened(world, world.agent.caller, f"/agent/tunnels/{order['id']}")
    thread.join(30)
    # It has a reader, so it is not ended for want of one.
    assert world.deps.hub.awaits("command", command["id"])
    found[0].close()
    agent.close()
    eventually(lambda: not world.deps.hub.awaits("command", command["id"]))
    world.agent.caller.post(f"/api/v1/agent/commands/{command['id']}/end", {"cause": "exit"})
    with pytest.raises(Conflict, match="has ended"):
        opened(world, world.user, f"/jobs/{job_id}/commands/{command['id']}/terminal")
