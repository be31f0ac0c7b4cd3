"""An exchange with whoever may stand at the server's address: no report is worse off for it."""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from paddlecloud.agent.config import AgentConfig
from paddlecloud.agent.server_link import report_stream as exchanges
from paddlecloud.agent.server_link.channel import OWN, SERVER_HEADER, Link
from paddlecloud.agent.server_link.report_stream import Exchange
from paddlecloud.model.errors import Unreachable
from paddlecloud.model.protocol.report_frames import LENGTH, LONGEST, SEAL

HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n%b\r\n"
OURS = HEAD % f"{SERVER_HEADER}: boot-1\r\n".encode()
MISSING = b"HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\n\r\n{}"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def answer(value: bytes) -> bytes:
    return chunk(len(value).to_bytes(4, "big") + value)


class Peer:
    """Listens at an address; the test says what it does, one connection after the other."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._listening.settimeout(20)
        self.port = self._listening.getsockname()[1]
        self.connection: socket.socket | None = None

    def accept(self) -> socket.socket:
        """The next connection, when the head of its request is here."""
        if self.connection is not None:
            self.connection.close()
        self.connection, _ = self._listening.accept()
        self.connection.settimeout(20)
        self.heard()
        return self.connection

    def heard(self) -> bytes:
        assert self.connection is not None
        return self.connection.recv(65536)

    def close(self) -> None:
        self._listening.close()
        if self.connection is not None:
            self.connection.close()


@pytest.fixture
def peer() -> Iterator[Peer]:
    made = Peer()
    yield made
    made.close()


@pytest.fixture
def link(peer: Peer, tmp_path: Path) -> Link:
    facts = {"url": f"http://127.0.0.1:{peer.port}", "boot": "boot-1"}
    file = tmp_path / "server.json"
    file.write_text(json.dumps(facts))
    path = tmp_path / "agent.json"
    return Link(AgentConfig(path=path, agent_id="a", ak="a", sk="s", endpoint_file=file))


@pytest.fixture
def exchange(link: Link) -> Iterator[Exchange]:
    made = Exchange(link)
    yield made
    made.close()


def begun(exchange: Exchange, at: float = 1.0) -> None:
    exchange.follow(at - 1.0)
    exchange.follow(at)


def opened(exchange: Exchange, peer: Peer) -> socket.socket:
    begun(exchange)
    connection = peer.accept()
    connection.sendall(OURS)
    answered(exchange)
    return connection


def answered(exchange: Exchange) -> None:
    """Once what the peer said is here."""
    assert exchange._open is not None
    deadline = time.monotonic() + 20
    while not exchange._open.talk.is_answered:
        assert time.monotonic() < deadline


def asked(exchange: Exchange, peer: Peer, reply: Callable[[socket.socket], object]) -> object:
    """What comes of a report to which the peer replies so."""

    def serve() -> None:
        peer.heard()
        assert peer.connection is not None
        reply(peer.connection)

    serving = threading.Thread(target=serve)
    serving.start()
    try:
        return exchange.ask(b"report", 1.0)
    finally:
        serving.join(20)


def _say(what: bytes, connection: socket.socket) -> None:
    connection.sendall(what)


def is_open(exchange: Exchange) -> bool:
    return exchange._open is not None


def test_a_single_report_now_and_then_opens_none(exchange: Exchange) -> None:
    for now in (0.0, 10.0, 20.0):
        assert exchange.ask(b"report", now) is None
        exchange.follow(now)
        assert not is_open(exchange)


def test_it_is_used_when_the_server_has_answered(exchange: Exchange, peer: Peer) -> None:
    opened(exchange, peer)
    for number in range(3):
        reply = partial(_say, answer(b'{"number": %d}' % number))
        assert asked(exchange, peer, reply) == {"number": number}


def test_an_answer_may_come_in_any_pieces(exchange: Exchange, peer: Peer) -> None:
    opened(exchange, peer)
    whole = b"\0\0\0\x08" + b'{"a": 1}'

    def dribble(connection: socket.socket) -> None:
        for byte in whole:
            connection.sendall(chunk(bytes([byte])))

    assert asked(exchange, peer, dribble) == {"a": 1}


def test_nobody_waits_for_it_to_open(exchange: Exchange, peer: Peer) -> None:
    """A proxy that passes on whole bodies only: it takes all, and never answers."""
    begun(exchange, 1.0)
    connection = peer.accept()
    assert exchange.ask(b"report", 1.1) is None
    assert is_open(exchange)
    assert exchange.ask(b"report", 20.0) is None
    assert not is_open(exchange), "it is not waited for without an end"
    assert connection.recv(10) == b"", "and left"
    begun(exchange, 24.0)
    assert not is_open(exchange), "nor tried again at once"
    begun(exchange, 26.0)
    assert is_open(exchange)


def test_it_is_tried_again_after_pauses_that_grow(exchange: Exchange, peer: Peer) -> None:
    now, pauses = 1.0, []
    for _ in range(9):
        begun(exchange, now)
        peer.accept().sendall(MISSING)
        answered(exchange)
        assert exchange.ask(b"report", now) is None
        pauses.append(exchange._not_before - now)
        begun(exchange, exchange._not_before - 0.5)
        assert not is_open(exchange)
        now = exchange._not_before + 1.0
    assert pauses == [5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 600.0, 600.0]
    begun(exchange, now)
    peer.accept().sendall(OURS)
    answered(exchange)
    asked(exchange, peer, partial(_say, answer(b"{}")))
    exchange.close()
    begun(exchange, now + 1)
    peer.accept().sendall(MISSING)
    answered(exchange)
    assert exchange.ask(b"report", now + 1) is None
    assert exchange._not_before == now + 1 + 5.0, "one that opened begins them anew"


@pytest.mark.parametrize(
    "head",
    [MISSING, HEAD % b"", HEAD % f"{SERVER_HEADER}: boot-2\r\n".encode(), b"SSH-2.0-x\r\n"],
    ids=["does not know it", "without a mark", "with another mark", "speaks another language"],
)
def test_a_server_that_has_none_is_not_asked_again_soon(
    exchange: Exchange, peer: Peer, head: bytes
) -> None:
    begun(exchange)
    peer.accept().sendall(head)
    answered(exchange)
    assert exchange.ask(b"report", 1.0) is None
    begun(exchange, 5.0)
    assert not is_open(exchange)


@pytest.mark.parametrize(
    "reply",
    [
        lambda c: c.shutdown(socket.SHUT_RDWR),
        lambda c: c.sendall(b"0\r\n\r\n"),
        lambda c: c.sendall(answer(b"{}")[:-4]) or c.shutdown(socket.SHUT_RDWR),
        lambda c: c.sendall(answer(b"no JSON")),
        lambda c: c.sendall(b"no chunk\r\n"),
    ],
    ids=["closes", "ends", "closes half way", "answers no JSON", "answers nonsense"],
)
def test_when_it_breaks_the_report_goes_another_way_and_the_next_one_is_opened(
    exchange: Exchange, peer: Peer, reply: Callable[[socket.socket], object]
) -> None:
    opened(exchange, peer)
    assert asked(exchange, peer, partial(_say, answer(b"{}"))) == {}
    assert asked(exchange, peer, reply) is None
    assert not is_open(exchange)
    begun(exchange, 3.0)
    assert is_open(exchange)


def test_a_server_that_is_silent_counts_as_gone(
    exchange: Exchange, peer: Peer, link: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchanges, "TIMEOUT", 0.05)
    opened(exchange, peer)
    with pytest.raises(Unreachable) as caught:
        asked(exchange, peer, lambda _: None)
    assert caught.value.code == "server_timeout"
    assert link.away_for(link._reached_at + 5) == 5
    assert not is_open(exchange)


def test_a_long_report_goes_by_a_request_of_its_own(exchange: Exchange, peer: Peer) -> None:
    opened(exchange, peer)
    assert asked(exchange, peer, partial(_say, answer(b"{}"))) == {}
    assert exchange.ask(b"x" * (LONGEST + 1), 1.0) is None
    assert is_open(exchange)


def test_it_is_left_when_the_agent_turns_to_another_server_or_gets_other_keys(
    exchange: Exchange, peer: Peer, link: Link
) -> None:
    opened(exchange, peer)
    link.route = "http://127.0.0.1:1"
    assert exchange.ask(b"report", 1.0) is None
    assert not is_open(exchange)
    link.route = OWN
    opened(exchange, peer)
    link.config = replace(link.config, sk="another")
    assert exchange.ask(b"report", 1.0) is None
    assert not is_open(exchange)


def test_a_peer_that_resets_the_connection_costs_no_report(exchange: Exchange, peer: Peer) -> None:
    begun(exchange)
    connection = peer.accept()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()
    answered(exchange)
    assert exchange.ask(b"report", 1.0) is None
    assert not is_open(exchange)


@pytest.mark.slow
def test_a_narrow_line_takes_a_report_in_pieces(exchange: Exchange, peer: Peer) -> None:
    connection = opened(exchange, peer)
    assert exchange._open is not None
    wire = exchange._open.talk._wire
    wire._sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    for _ in range(3):
        serving = threading.Thread(target=_take_one, args=(connection,))
        serving.start()
        assert exchange.ask(b"x" * LONGEST, 1.0) == {}
        serving.join(20)


def _take_one(connection: socket.socket) -> None:
    """A whole frame of the longest report, then its answer."""
    left = len(chunk(b"x" * (LENGTH + SEAL + LONGEST)))
    while left:
        left -= len(connection.recv(left))
    connection.sendall(answer(b"{}"))
