"""Clients that are slow, silent, too many, too large or sent by others: none of them is in the way.

Real sockets against a real server process whose patience is set to a second.
"""

from __future__ import annotations

import contextlib
import json
import resource
import select
import signal
import socket
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from paddlecloud.server.http.connection_limits import MAX_HEAD, MAX_PIPELINED
from paddlecloud.server.route_table import ROUTES
from paddlecloud.testing import exchange
from tests.integration.server.process import ServerProcess, asked, ended
from tests.integration.server.world import eventually, packed

PATIENCE = 1.0
#: The sweep looks four times in that time; the rest is for a busy machine.
SOON = 60.0
MUCH = b"x" * 1_000_000
GET = b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    yield from a_server(tmp_path_factory.mktemp("bad"))


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[ServerProcess]:
    yield from a_server(tmp_path)


def a_server(folder: Path, patience: float = PATIENCE) -> Iterator[ServerProcess]:
    server = ServerProcess(folder / "home")
    server.home.mkdir()
    (server.home / "server.toml").write_text(
        f"[http]\nheader_timeout = {patience}\nbody_timeout = {patience}\nmax_json = '1Mi'\n"
    )
    try:
        server.start()
        yield server
    finally:
        server.close()


def connected(server: ServerProcess) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=SOON)


def is_cut(sock: socket.socket, drip: bytes = b"") -> bool:
    """Whether the server closes within SOON, however often we send one more byte of `drip`."""
    deadline = time.monotonic() + SOON
    rest = drip
    while time.monotonic() < deadline:
        readable, _, _ = select.select([sock], [], [], PATIENCE / 8)
        try:
            if readable and not sock.recv(65536):
                return True
            if rest:
                sock.sendall(rest[:1])
                rest = rest[1:] or drip
        except (ConnectionResetError, BrokenPipeError):
            return True
    return False


def answer(sock: socket.socket) -> bytes:
    """All that comes until the server closes."""
    found = b""
    with contextlib.suppress(ConnectionResetError):
        while data := sock.recv(65536):
            found += data
    return found


def is_well(server: ServerProcess) -> None:
    with connected(server) as sock:
        sock.sendall(GET)
        assert sock.recv(65536).startswith(b"HTTP/1.1 200 OK")


def head_of(server: ServerProcess, path: str, body: bytes, framing: str = "") -> bytes:
    """The head of a signed POST of this body."""
    headers = server.caller().headers("POST", path, "", body)
    lines = [f"{name}: {value}" for name, value in headers.items()]
    lines.append(framing or f"content-length: {len(body)}")
    return "\r\n".join([f"POST {path} HTTP/1.1", *lines, "", ""]).encode()


BEGINNINGS: dict[str, tuple[bytes, bytes]] = {
    "silence": (b"", b""),
    "a head that never ends": (b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n", b""),
    "a head that drips": (b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n", b"a: b\r\n"),
    "a second head that drips": (GET + b"GET /", b"healthz"),
}


@pytest.mark.parametrize(("begin", "drip"), BEGINNINGS.values(), ids=BEGINNINGS)
def test_a_head_has_to_come_in_time(server: ServerProcess, begin: bytes, drip: bytes) -> None:
    with connected(server) as sock:
        sock.sendall(begin)
        assert is_cut(sock, drip)
    is_well(server)


@pytest.mark.parametrize("drip", [b"", b"x"], ids=["silence", "a trickle"])
def test_a_body_has_to_come_in_time(server: ServerProcess, drip: bytes) -> None:
    with connected(server) as sock:
        sock.sendall(head_of(server, "/api/v1/blobs", MUCH) + b"x" * 1000)
        assert is_cut(sock, drip)
    is_well(server)


def test_a_body_that_goes_on_after_the_answer_is_not_read_for_ever(server: ServerProcess) -> None:
    with connected(server) as sock:
        sock.sendall(b"POST /nowhere HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 99999\r\n\r\nx")
        assert sock.recv(65536).startswith(b"HTTP/1.1 404")
        assert is_cut(sock, b"x")
    is_well(server)


@pytest.fixture
def patient(tmp_path: Path) -> Iterator[ServerProcess]:
    """For those who keep to its times: a pause of this machine must not look like theirs."""
    yield from a_server(tmp_path, 5.0)


@pytest.mark.slow
def test_a_slow_but_steady_upload_comes_through(patient: ServerProcess) -> None:
    """More than the patience in all, and no single piece of it missing for long."""
    body = packed(b"x" * 60_000)
    step = len(body) // 12 + 1
    with connected(patient) as sock:
        sock.sendall(head_of(patient, "/api/v1/blobs", body))
        for start in range(0, len(body), step):
            sock.sendall(body[start : start + step])
            early = select.select([sock], [], [], 0.5)[0]
            assert not early or start + step >= len(body)
        assert sock.recv(65536).startswith(b"HTTP/1.1 200")


@pytest.mark.slow
def test_whoever_waits_for_us_is_not_cut(server: ServerProcess) -> None:
    """A long poll and a followed log are silent because we are."""
    job = server.waiting_job()
    caller = server.caller()
    wait = PATIENCE * 5
    began = time.monotonic()
    with asked(caller, f"/api/v1/jobs/{job}", f"version=1000000&wait={wait:.0f}") as poll:
        with poll.getresponse() as reply:
            assert json.loads(reply.read())["job_id"] == job
        assert time.monotonic() - began > PATIENCE * 2


def test_a_client_that_does_not_read_is_cut(server: ServerProcess) -> None:
    """It asks for more than any buffer on the way holds, and looks at nothing of it."""
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.settimeout(SOON)
        sock.connect(("127.0.0.1", server.port))
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            for _ in range(100_000):
                sock.sendall(GET * 100)
    is_well(server)


@pytest.mark.parametrize("pieces", [1, 40], ids=["at once", "piece by piece"])
def test_a_head_that_is_too_large_is_refused(server: ServerProcess, pieces: int) -> None:
    head = b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\nx: " + b"y" * (4 * MAX_HEAD) + b"\r\n\r\n"
    step = len(head) // pieces + 1
    with connected(server) as sock:
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            for start in range(0, len(head), step):
                sock.sendall(head[start : start + step])
        found = answer(sock)
    assert found.startswith(b"HTTP/1.1 431") or found == b"", "reset before it could be read"
    is_well(server)


HEADS = {
    "one long header": (b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\nx: ", b"y", b"\r\n\r\n"),
    "many headers": (b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n", b"x: y\r\n", b"\r\n"),
    "a long request line": (b"GET /healthz?q=", b"y", b" HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"),
}


def head_of_size(kind: str, size: int) -> bytes:
    before, filler, after = HEADS[kind]
    times, rest = divmod(size - len(before) - len(after), len(filler))
    # The rest becomes blanks before a value, which are part of the head like anything else.
    return (before + filler * times + after).replace(b"host: ", b"host: " + b" " * rest)


@pytest.mark.parametrize("step", [10 * MAX_HEAD, 1500], ids=["at once", "in pieces"])
@pytest.mark.parametrize("kind", HEADS)
def test_the_limit_of_a_head_is_exact(server: ServerProcess, kind: str, step: int) -> None:
    with connected(server) as sock:
        send_slowly(sock, head_of_size(kind, MAX_HEAD), step)
        assert sock.recv(65536).startswith(b"HTTP/1.1 200 OK")
    with connected(server) as sock:
        # Without its last byte: what the server leaves unread would reset the connection.
        send_slowly(sock, head_of_size(kind, MAX_HEAD + 1)[:-1], step)
        refused = answer(sock)
    assert refused.startswith(b"HTTP/1.1 431")
    assert b"head_too_large" in refused


def test_requests_that_are_sent_ahead_are_counted_one_by_one(server: ServerProcess) -> None:
    """Together they are above what one head may have, and pieces end in the middle of heads."""
    one = head_of_size("one long header", 3000)
    with connected(server) as sock:
        sock.sendall(one * MAX_PIPELINED)
        found = b""
        while found.count(b"HTTP/1.1 ") < MAX_PIPELINED:
            piece = sock.recv(1 << 20)
            assert piece, found[-300:]
            found += piece
    assert len(one) * MAX_PIPELINED > 2 * MAX_HEAD
    assert found.count(b"HTTP/1.1 200 OK") == MAX_PIPELINED


def test_who_sends_too_many_requests_ahead_is_cut(server: ServerProcess) -> None:
    with connected(server) as sock:
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            sock.sendall(GET * 10 * MAX_PIPELINED)
        assert answer(sock).count(b"HTTP/1.1 ") < 10 * MAX_PIPELINED
    is_well(server)


def send_slowly(sock: socket.socket, data: bytes, step: int) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for start in range(0, len(data), step):
        sock.sendall(data[start : start + step])


@pytest.mark.parametrize("framing", ["", "transfer-encoding: chunked"])
def test_a_body_that_is_too_large_is_refused_before_it_is_here(
    server: ServerProcess, framing: str
) -> None:
    body = b"x" * (2 << 20)
    with connected(server) as sock:
        sock.sendall(head_of(server, "/api/v1/jobs", body, framing))
        if framing:
            with contextlib.suppress(ConnectionResetError, BrokenPipeError):  # it has enough
                sock.sendall(b"%x\r\n" % len(body) + body[: (1 << 20) + 70_000])
        assert sock.recv(65536).startswith(b"HTTP/1.1 413")
    is_well(server)


@pytest.mark.parametrize("how", ["closed", "half closed", "reset"])
def test_a_truncated_body_stores_nothing(server: ServerProcess, how: str) -> None:
    before = server.caller().get("/api/v1/jobs")["jobs"]
    body = json.dumps({"spec": {"start_cmd": "true"}, "idempotency_key": "k" * 32}).encode()
    with connected(server) as sock:
        sock.sendall(head_of(server, "/api/v1/jobs", body) + body[:-1])
        if how == "half closed":
            sock.shutdown(socket.SHUT_WR)
            assert is_cut(sock)
        elif how == "reset":
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    is_well(server)
    assert server.caller().get("/api/v1/jobs")["jobs"] == before


NONSENSE = [
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 100,
    b"GET\r\n\r\n",
    b"GET /healthz HTTP/9.9\r\n\r\n",
    b"CONNECT evil.example:443 HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n",
    b"OPTIONS * HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n",
    b"GET /\xff\xfe HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n",
    b"GET /healthz HTTP/1.1\r\nhost 127.0.0.1\r\n\r\n",
    b"POST /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: -1\r\n\r\n",
    b"POST /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
    b"POST /a HTTP/1.1\r\nhost: 127.0.0.1\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
    b"\0" * 5000,
]


@pytest.mark.parametrize("words", NONSENSE)
def test_nonsense_is_refused_and_forgotten(server: ServerProcess, words: bytes) -> None:
    with connected(server) as sock:
        sock.sendall(words)
        found = answer(sock)
    assert found == b"" or found.split(b" ", 2)[1] in (b"400", b"401", b"404", b"405")
    assert b"Traceback" not in found
    is_well(server)


OTHERS: list[tuple[dict[str, str], str]] = [
    ({"host": "evil.example"}, "auth_host"),
    ({"host": "127.0.0.1", "origin": "https://evil.example"}, "auth_cross_site"),
    ({"host": "127.0.0.1", "origin": "null"}, "auth_cross_site"),
    ({"host": "127.0.0.1", "sec-fetch-site": "cross-site"}, "auth_cross_site"),
]


@pytest.mark.parametrize(("headers", "want"), OTHERS)
def test_pages_of_others_are_refused_on_every_route(
    server: ServerProcess, headers: dict[str, str], want: str
) -> None:
    for route in ROUTES:
        path = route.path.replace("{", "").replace("}", "").replace(":path", "")
        reply = exchange("127.0.0.1", server.port, route.method, path, headers)
        assert (reply.status, reply.code) == (401, want), route
    reply = exchange("127.0.0.1", server.port, "GET", "/nowhere", headers)
    assert (reply.status, reply.code) == (401, want)


def test_clients_that_hang_do_not_hold_up_the_end(own_server: ServerProcess) -> None:
    with contextlib.ExitStack() as stack:
        for begin in (b"", b"GET / HT", GET, head_of(own_server, "/api/v1/blobs", MUCH)):
            stack.enter_context(connected(own_server)).sendall(begin)
        process = own_server._started[0]
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert ended(process)[0] == 0
        assert time.monotonic() - began < 20, "it waits for them"


def test_there_is_a_limit_to_connections(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path / "home")
    server.home.mkdir()
    (server.home / "server.toml").write_text("[http]\nmax_connections = 40\n")
    try:
        server.start()
        with contextlib.ExitStack() as stack:
            socks = [stack.enter_context(connected(server)) for _ in range(80)]

            def refused() -> int:
                return len(select.select(socks, [], [], 0)[0])

            eventually(lambda: refused() >= 40)
            assert refused() < 80
        eventually(lambda: reached(lambda: is_well(server)))
    finally:
        server.close()


def reached(act: Callable[[], object]) -> bool:
    try:
        act()
    except (OSError, AssertionError):
        return False
    return True


@pytest.mark.slow
def test_ten_thousand_idle_connections_are_borne(tmp_path: Path) -> None:
    """They cost memory, a little and with a bound, and others do not notice them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 11_000:
        pytest.skip(f"this machine allows {hard} open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (11_000, hard))
    server = ServerProcess(tmp_path / "home")
    try:
        process = server.start()
        before = resident(process.pid)
        with contextlib.ExitStack() as stack:
            for number in range(10_000):
                sock = stack.enter_context(connected(server))
                if number % 2:
                    sock.sendall(b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n")
            caller = server.caller()
            assert caller.get("/api/v1/whoami")["user_id"]
            grown = resident(process.pid) - before
            spent = [seconds_of(lambda: caller.get("/api/v1/whoami")) for _ in range(51)]
        assert grown < 200 * 2**20
        assert statistics.median(spent) < 0.1, "a pause of this machine makes one of them late"
        process.send_signal(signal.SIGTERM)
        assert ended(process)[0] == 0
    finally:
        server.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def seconds_of(act: Callable[[], object]) -> float:
    began = time.monotonic()
    act()
    return time.monotonic() - began


def resident(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmRSS")
