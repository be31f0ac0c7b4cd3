"""Requests that offer another protocol, as Java's HttpClient and `curl --http2` do: they are
answered in HTTP/1.1, with their body, and the connection goes on."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
from http.client import HTTPResponse

import pytest

from tests.integration.server.world import World

H2C = (
    "connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\n"
    "http2-settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA\r\n"
)
TLS = "connection: upgrade\r\nupgrade: tls/1.3\r\n"
PATH = "/api/v1/tokens"


def request(world: World, name: str, framing: str, offer: str = H2C) -> tuple[bytes, bytes]:
    """Head and body of a signed POST that names a key."""
    body = json.dumps({"name": name}).encode()
    lines = [f"{key}: {value}\r\n" for key, value in _signed(world, "POST", body).items()]
    if framing == "chunked":
        lines.append("transfer-encoding: chunked\r\n")
        half = len(body) // 2
        pieces = [b"%x\r\n%b\r\n" % (len(part), part) for part in (body[:half], body[half:], b"")]
        sent = b"".join(pieces)
    else:
        lines.append(f"content-length: {len(body)}\r\n")
        sent = body
    return f"POST {PATH} HTTP/1.1\r\n{offer}{''.join(lines)}\r\n".encode(), sent


def _signed(world: World, method: str, body: bytes) -> dict[str, str]:
    return world.user.headers(method, PATH, "", body)


def connected(world: World) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", world.stage.port), timeout=30)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def answered(sock: socket.socket) -> tuple[int, dict[str, object]]:
    response = HTTPResponse(sock)
    response.begin()
    return response.status, json.loads(response.read())


@pytest.mark.parametrize("offer", [H2C, TLS], ids=["h2c", "tls"])
@pytest.mark.parametrize("framing", ["length", "chunked"])
@pytest.mark.parametrize("step", [1 << 20, 7], ids=["at once", "in pieces"])
def test_the_body_is_kept_and_the_connection_goes_on(
    world: World, framing: str, offer: str, step: int
) -> None:
    with connected(world) as sock:
        for number in range(3):
            data = b"".join(request(world, f"key {number}", framing, offer))
            for start in range(0, len(data), step):
                sock.sendall(data[start : start + step])
            status, made = answered(sock)
            assert (status, made["name"]) == (200, f"key {number}"), made
        sock.sendall(b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
        assert answered(sock)[0] == 200


@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_a_body_that_comes_later_than_its_head_is_waited_for(world: World, framing: str) -> None:
    head, body = request(world, "late", framing, H2C + "expect: 100-continue\r\n")
    with connected(world) as sock:
        sock.sendall(head)
        assert sock.recv(4096) == b"HTTP/1.1 100 Continue\r\n\r\n"
        sock.sendall(body)
        status, made = answered(sock)
    assert (status, made["name"]) == (200, "late")


def test_requests_without_a_body_are_answered(world: World) -> None:
    lines = "".join(f"{k}: {v}\r\n" for k, v in _signed(world, "GET", b"").items())
    with connected(world) as sock:
        for _ in range(2):
            sock.sendall(f"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n{H2C}\r\n".encode())
            assert answered(sock)[0] == 200
        sock.sendall(f"GET {PATH} HTTP/1.1\r\n{H2C}{lines}\r\n".encode())
        assert answered(sock)[0] == 200


def test_requests_sent_ahead_are_told_apart(world: World) -> None:
    sent = [b"".join(request(world, name, "length")) for name in ("one", "two", "three")]
    with connected(world) as sock:
        sock.sendall(b"".join(sent))
        found = b""
        while found.count(b'"name"') < 3:
            piece = sock.recv(65536)
            assert piece, found
            found += piece
    assert [found.find(b'"name":"%b"' % name) > 0 for name in (b"one", b"two", b"three")] == [
        True
    ] * 3


def test_a_connection_is_closed_when_asked_to(world: World) -> None:
    offer = "connection: upgrade, close\r\nupgrade: h2c\r\n"
    with connected(world) as sock:
        sock.sendall(b"".join(request(world, "last", "length", offer)))
        found = b""
        while piece := sock.recv(65536):
            found += piece
    assert found.startswith(b"HTTP/1.1 200 ")


def test_a_large_body_that_a_thread_reads_is_kept(world: World) -> None:
    """Output files are read from the socket itself, and the parser is replaced once more."""
    data = bytes(range(256)) * 8192
    job = world.submit()
    world.plan()
    order = world.agent.order(job)
    world.agent.start(order)
    path = f"/api/v1/agent/replicas/{order['replica']}/files/output/model.bin"
    query = f"fence={order['fence']}"
    signed = world.agent.caller.headers("PUT", path, query, data)
    lines = "".join(f"{k}: {v}\r\n" for k, v in signed.items())
    head = f"PUT {path}?{query} HTTP/1.1\r\n{H2C}{lines}content-length: {len(data)}\r\n\r\n"
    with connected(world) as sock:
        sock.sendall(head.encode() + data)
        assert answered(sock)[0] == 200
        sock.sendall(b"".join(request(world, "after", "length")))
        assert answered(sock)[1]["name"] == "after"


def test_curl_that_offers_http2_sends_its_body(world: World) -> None:
    curl = shutil.which("curl")
    if curl is None:
        pytest.skip("curl is not installed")
    body = json.dumps({"name": "curl"})
    headers = _signed(world, "POST", body.encode())
    args = [part for key, value in headers.items() for part in ("-H", f"{key}: {value}")]
    url = f"http://127.0.0.1:{world.stage.port}{PATH}"
    done = subprocess.run(
        [curl, "-sS", "--noproxy", "*", "--http2", "--data-binary", body, *args, url],
        capture_output=True,
        timeout=60,
        check=True,
    )
    assert json.loads(done.stdout)["name"] == "curl"
