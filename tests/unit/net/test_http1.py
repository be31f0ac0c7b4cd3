"""The small HTTP connection against real sockets: good peers, slow, rude and confused ones."""

from __future__ import annotations

import gzip
import io
import itertools
import socket
import ssl
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paddlecloud.model.errors import Invalid, Unreachable
from paddlecloud.net.http1 import Connection
from tests.ports import free_port

Script = Callable[[socket.socket], None]
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


def test_requests_share_one_connection() -> None:
    def twice(peer: socket.socket) -> None:
        for path in (b"/a", b"/b?x=1"):
            head, _ = receive(peer)
            assert head.startswith(b"GET " + path + b" HTTP/1.1\r\n")
            assert b"\r\nx-bce-nonce: 7\r\n" in head
            assert b"content-length" not in head
            peer.sendall(OK)

    with peer_of(twice) as connection:
        for path in ("/a", "/b?x=1"):
            answer = connection.request("GET", path, {"X-Bce-Nonce": "7"})
            assert (answer.status, answer.read()) == (200, b"ok")
            assert answer.finished


@pytest.mark.parametrize(
    ("raw", "want"),
    [
        pytest.param(b"1.1 200 OK\r\ncontent-length: 3\r\n\r\nabc", b"abc", id="length"),
        pytest.param(b"1.1 200 OK\r\nContent-Length:3 \r\n\r\nabcdef", b"abc", id="no more of it"),
        pytest.param(b"1.1 200 OK\r\n\r\nabc", b"abc", id="until close"),
        pytest.param(b"1.0 200 OK\r\n\r\n", b"", id="nothing until close"),
        pytest.param(b"1.1 204 \r\n\r\n", b"", id="no content"),
        pytest.param(b"1.1 200\r\ncontent-length: 0\r\n\r\n", b"", id="no reason"),
        pytest.param(
            b"1.1 200 OK\r\ntransfer-encoding: Chunked\r\n\r\n"
            b"2;x=y\r\nab\r\n1 \r\nc\r\n0\r\nt: 1\r\n\r\n",
            b"abc",
            id="chunks with extension and trailer",
        ),
        pytest.param(
            b"1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\na: b\r\n\r\n"
            b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nx",
            b"x",
            id="interim answers first",
        ),
        pytest.param(
            b"1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 1\r\n\r\nx", b"x", id="same twice"
        ),
    ],
)
@pytest.mark.parametrize("step", [1, 7, 10_000])
def test_bodies_are_read_whole_however_they_arrive(raw: bytes, want: bytes, step: int) -> None:
    def answer(peer: socket.socket) -> None:
        receive(peer)
        for begin in range(0, len(raw) + 5, step):
            peer.sendall((b"HTTP/" + raw)[begin : begin + step])

    with peer_of(answer) as connection:
        assert connection.request("GET", "/").read() == want


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        pytest.param(b"SSH-2.0-OpenSSH_9\r\n", "server_malformed", id="another protocol"),
        pytest.param(b"\x15\x03\x01\x00\x02\x02\x50", "server_wants_tls", id="TLS without asking"),
        pytest.param(b"HTTP/2 200 OK\r\n\r\n", "server_malformed", id="another version"),
        pytest.param(b"HTTP/1.1 20 OK\r\n\r\n", "server_malformed", id="a short status"),
        pytest.param(b"HTTP/1.1 099 OK\r\n\r\n", "server_malformed", id="a small status"),
        pytest.param(b"HTTP/1.1 200 OK\r\nnonsense\r\n\r\n", "server_malformed", id="no colon"),
        pytest.param(b"HTTP/1.1 200 OK\r\n a: folded\r\n\r\n", "server_malformed", id="folded"),
        pytest.param(
            b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nxx",
            "server_malformed",
            id="two lengths",
        ),
        pytest.param(
            b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n", "server_malformed", id="negative"
        ),
        pytest.param(
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\n\r\n", "server_malformed", id="coding"
        ),
        pytest.param(
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
            "server_malformed",
            id="a chunk size that is no number",
        ),
        pytest.param(
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nabc\r\n",
            "server_malformed",
            id="a chunk that is too long",
        ),
        pytest.param(
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nab",
            "server_closed",
            id="a chunk cut short",
        ),
        pytest.param(
            b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nab", "server_closed", id="cut short"
        ),
        pytest.param(b"HTTP/1.1 200 OK\r\nconte", "server_closed", id="head cut short"),
        pytest.param(b"", "server_closed", id="nothing"),
        pytest.param(b"HTTP/1.1 100 C\r\n\r\n" * 50, "server_malformed", id="only interim"),
        pytest.param(
            b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 20_000, "server_malformed", id="huge headers"
        ),
        pytest.param(
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n" + b"a: b\r\n" * 20_000,
            "server_malformed",
            id="huge trailers",
        ),
    ],
)
def test_wrong_answers_are_named(raw: bytes, code: str) -> None:
    def answer(peer: socket.socket) -> None:
        receive(peer)
        peer.sendall(raw)

    with peer_of(answer, answer) as connection:
        with pytest.raises(Unreachable) as caught:
            connection.request("GET", "/", idempotent=True).read()
        assert caught.value.code == code
        assert "127.0.0.1:" in str(caught.value)
        assert caught.value.text("zh") != str(caught.value)


@given(st.binary(max_size=60), st.booleans())
@settings(max_examples=60)
def test_no_answer_raises_anything_else(noise: bytes, plausible: bool) -> None:
    def answer(peer: socket.socket) -> None:
        receive(peer)
        peer.sendall((b"HTTP/1.1 200 OK\r\n" if plausible else b"") + noise)

    with peer_of(answer) as connection, suppress(Unreachable):
        answered = connection.request("GET", "/")
        assert plausible
        answered.read()


NAMES = st.text("abcdefghijklmnopqrstuvwxyz-0123456789", min_size=1, max_size=10).filter(
    lambda name: name.strip("-") not in ("", "host", "content-length", "transfer-encoding")
)
VALUES = st.text(
    st.characters(min_codepoint=33, exclude_categories=["Cs", "Cc", "Z"]), min_size=1, max_size=20
)


@given(
    st.dictionaries(NAMES, VALUES, max_size=5),
    st.binary(max_size=300),
    st.sampled_from(["bytes", "file", "chunks", "counted"]),
)
@settings(max_examples=60)
def test_headers_and_bodies_arrive_as_they_were_given(
    headers: dict[str, str], body: bytes, kind: str
) -> None:
    pieces = [body[begin : begin + 50] for begin in range(0, len(body), 50)]
    sent: dict[str, Any] = {
        "bytes": body,
        "file": io.BytesIO(body),
        "chunks": iter(pieces),
        "counted": pieces,
    }
    extra = {"Content-Length": str(len(body))} if kind == "counted" else {}

    def echo(peer: socket.socket) -> None:
        head, content = receive(peer)
        for name, value in headers.items():
            assert f"\r\n{name}: {value}\r\n".encode() in head
        assert (b"\r\ntransfer-encoding: chunked" in head) == (kind == "chunks")
        size = str(len(content)).encode()
        peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: " + size + b"\r\n\r\n" + content)

    with peer_of(echo) as connection:
        assert connection.request("POST", "/", {**headers, **extra}, sent[kind]).read() == body


def test_pieces_of_an_answer_come_as_soon_as_they_are_there() -> None:
    seen = threading.Event()

    def drip(peer: socket.socket) -> None:
        receive(peer)
        peer.sendall(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n")
        assert seen.wait(60)
        peer.sendall(b"2\r\ncd\r\n0\r\n\r\n")

    with peer_of(drip) as connection:
        chunks = connection.request("GET", "/").iter_chunks()
        assert next(chunks) == b"ab"
        seen.set()
        assert list(chunks) == [b"cd"]


def test_read_gives_at_most_what_was_asked_for() -> None:
    with peer_of(answering(OK), answering(OK)) as connection:
        answer = connection.request("GET", "/")
        assert [answer.read(0), answer.read(1), answer.read(5), answer.read(5)] == [
            b"",
            b"o",
            b"k",
            b"",
        ]
        assert connection.request("HEAD", "/").read() == b""


def test_an_idle_connection_that_was_closed_is_replaced_even_for_unidempotent_requests() -> None:
    closed = threading.Event()

    def hang_up(peer: socket.socket) -> None:
        receive(peer)
        peer.sendall(OK)
        peer.close()
        closed.set()

    with peer_of(hang_up, answering(OK)) as connection:
        assert connection.request("POST", "/", body=b"1").read() == b"ok"
        assert closed.wait(60)
        assert connection.request("POST", "/", body=b"2").read() == b"ok"


@pytest.mark.parametrize("kind", ["bytes", "file", "pieces"])
@pytest.mark.parametrize("idempotent", [True, False])
def test_a_request_lost_on_an_old_connection_is_repeated_once_if_that_is_safe(
    idempotent: bool, kind: str
) -> None:
    def drop_second(peer: socket.socket) -> None:
        receive(peer)
        peer.sendall(OK)
        assert receive(peer)[1] == b"data"

    def second(peer: socket.socket) -> None:
        assert receive(peer)[1] == b"data"
        peer.sendall(OK)

    bodies: dict[str, Any] = {"bytes": b"data", "file": io.BytesIO(b"data")}
    body = bodies.get(kind, iter([b"data"]))
    with peer_of(drop_second, second) as connection:
        connection.request("GET", "/").read()
        if idempotent and kind != "pieces":
            answer = connection.request("PUT", "/", body=body, idempotent=True)
            assert answer.read() == b"ok"
        else:
            with pytest.raises(Unreachable) as caught:
                connection.request("PUT", "/", body=body, idempotent=idempotent)
            assert caught.value.code == "server_closed"


def test_a_request_lost_after_the_answer_began_is_not_repeated() -> None:
    def half(peer: socket.socket) -> None:
        receive(peer)
        peer.sendall(OK)
        receive(peer)
        peer.sendall(b"HTTP/1.1 200")

    with peer_of(half, answering(OK)) as connection:
        connection.request("GET", "/").read()
        with pytest.raises(Unreachable):
            connection.request("GET", "/", idempotent=True)


def test_an_answer_left_unread_costs_the_connection_and_nothing_else() -> None:
    with peer_of(answering(OK), answering(OK)) as connection:
        first = connection.request("GET", "/")
        assert connection.request("GET", "/").read() == b"ok"
        first.close()
        assert connection.request("GET", "/", timeout=60).read() == b"ok"


@pytest.mark.parametrize(
    "stay", [pytest.param(True, id="and goes on reading"), pytest.param(False, id="and hangs up")]
)
@pytest.mark.parametrize("kind", ["bytes", "file", "pieces"])
def test_an_early_refusal_is_heard(tmp_path: Path, kind: str, stay: bool) -> None:
    size = 64 * 1024 * 1024
    done = threading.Event()

    def refuse(peer: socket.socket) -> None:
        peer.recv(1000)
        peer.sendall(b"HTTP/1.1 100 C\r\n\r\nHTTP/1.1 413 No\r\ncontent-length: 3\r\n\r\nbig")
        assert not stay or done.wait(60)

    sparse = tmp_path / "sparse"
    sparse.touch()
    with sparse.open("r+b") as file, peer_of(refuse) as connection:
        file.truncate(size)
        pieces = itertools.repeat(bytes(100_000), 1000)
        bodies: dict[str, Any] = {"bytes": bytes(size), "file": file, "pieces": pieces}
        answer = connection.request("PUT", "/", body=bodies[kind], timeout=60)
        assert (answer.status, answer.read()) == (413, b"big")
        done.set()


def test_a_silent_peer_ends_in_a_timeout() -> None:
    done = threading.Event()

    def nothing(peer: socket.socket) -> None:
        receive(peer)
        assert done.wait(60)

    with peer_of(nothing) as connection:
        with pytest.raises(Unreachable) as caught:
            connection.request("GET", "/", timeout=0.05, idempotent=True)
        done.set()
    assert caught.value.code == "server_timeout"
    assert "0.05 s" in str(caught.value)


def test_a_head_that_drips_ends_in_a_timeout_too() -> None:
    done = threading.Event()

    def drip(peer: socket.socket) -> None:
        receive(peer)
        with suppress(OSError):
            peer.sendall(b"HTTP/1.1 200 OK\r\n")
            while not done.wait(0.01):
                peer.sendall(b"a: b\r\n")

    with peer_of(drip) as connection:
        with pytest.raises(Unreachable) as caught:
            connection.request("GET", "/", timeout=0.2)
        done.set()
    assert caught.value.code == "server_timeout"


def test_a_peer_that_stops_reading_ends_in_a_timeout() -> None:
    done = threading.Event()

    def deaf(peer: socket.socket) -> None:
        assert done.wait(60)

    with peer_of(deaf) as connection:
        with pytest.raises(Unreachable) as caught:
            connection.request("PUT", "/", body=bytes(64 << 20), timeout=0.05)
        done.set()
    assert caught.value.code == "server_timeout"


def test_a_port_where_nobody_listens() -> None:
    port = free_port()
    with pytest.raises(Unreachable) as caught:
        Connection("127.0.0.1", port).request("GET", "/")
    assert caught.value.code == "server_unreachable"
    assert f"127.0.0.1:{port}" in str(caught.value)


@pytest.mark.parametrize("host", ["a..b", "ü" * 80 + ".example", "x" * 300])
def test_a_name_that_cannot_be_one(host: str) -> None:
    with pytest.raises(Unreachable) as caught:
        Connection(host, 80).request("GET", "/")
    assert caught.value.code == "server_unreachable"


def test_a_large_file_passes_by_without_filling_the_memory(tmp_path: Path) -> None:
    size = (256 << 20) + 12_345

    def count(peer: socket.socket) -> None:
        buffer = bytearray(1 << 20)
        head = peer.recv(65536, socket.MSG_PEEK)
        left = head.index(b"\r\n\r\n") + 4 + size
        while left:
            left -= peer.recv_into(buffer)
        peer.sendall(OK)

    path = tmp_path / "sparse"
    path.touch()
    with path.open("r+b") as file, peer_of(count) as connection:
        file.truncate(size + 5)
        file.seek(5)
        tracemalloc.start()
        try:
            assert connection.request("PUT", "/", body=file, timeout=30).read() == b"ok"
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert file.tell() == size + 5
        assert peak < 4 << 20


def test_sizes_beyond_32_bits(tmp_path: Path) -> None:
    size = 5 << 30

    def refuse(peer: socket.socket) -> None:
        assert b"content-length: 5368709120\r\n" in peer.recv(1000)
        peer.sendall(b"HTTP/1.1 507 Full\r\ncontent-length: 5368709120\r\n\r\nfull")

    path = tmp_path / "sparse"
    path.touch()
    with path.open("r+b") as file, peer_of(refuse) as connection:
        file.truncate(size)
        answer = connection.request("PUT", "/", body=file)
        assert (answer.status, answer.read(4)) == (507, b"full")


@pytest.mark.parametrize("kind", ["sendfile", "reading", "pieces"])
def test_a_file_that_shrinks_is_named(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "short"
    path.write_bytes(b"12345")
    with path.open("rb") as file, peer_of(receive_quietly) as connection:
        bodies: dict[str, Any] = {"sendfile": file, "reading": io.BytesIO(b"12345")}
        body = bodies.get(kind, [b"123", b"45"])
        with pytest.raises(Invalid) as caught:
            connection.request("PUT", "/", {"content-length": "8"}, body)
    assert (caught.value.code, caught.value.params) == ("body_shrank", {"sent": 5, "size": 8})


def test_only_what_content_length_says_is_sent(tmp_path: Path) -> None:
    path = tmp_path / "grown"
    path.write_bytes(b"0123456789")

    def check(peer: socket.socket) -> None:
        for _ in range(2):
            assert receive(peer)[1] == b"2345"
            peer.sendall(OK)

    with path.open("rb") as file, peer_of(check) as connection:
        for body in (file, io.BytesIO(path.read_bytes())):
            body.seek(2)
            assert connection.request("PUT", "/", {"content-length": "4"}, body).read() == b"ok"


def test_a_file_that_is_not_what_its_descriptor_holds_is_read(tmp_path: Path) -> None:
    path = tmp_path / "packed.gz"
    path.write_bytes(gzip.compress(b"plain text"))

    def check(peer: socket.socket) -> None:
        assert receive(peer)[1] == b"plain text"
        peer.sendall(OK)

    with gzip.open(path) as file, peer_of(check) as connection:
        assert connection.request("PUT", "/", body=file).read() == b"ok"


@pytest.mark.parametrize(
    ("method", "target", "headers"),
    [
        ("GET /", "/", {}),
        ("GET", "no-slash", {}),
        ("GET", "/a b", {}),
        ("GET", "/a\r\nx: y", {}),
        ("GET", "/ü", {}),
        ("GET", "/", {"a b": "c"}),
        ("GET", "/", {"": "c"}),
        ("GET", "/", {"a": "b\r\nc: d"}),
        ("GET", "/", {"host": "b\nc: d"}),
    ],
)
def test_nothing_can_be_smuggled_into_a_request(
    method: str, target: str, headers: dict[str, str]
) -> None:
    with pytest.raises(ValueError, match=r"not a|blank|line end"):
        Connection("127.0.0.1", 1).request(method, target, headers)


def test_the_host_header_names_a_port_only_if_it_is_unusual() -> None:
    want = {
        ("h", 80, False): "h",
        ("h", 443, False): "h:443",
        ("h", 443, True): "h",
        ("::1", 8080, False): "[::1]:8080",
    }
    assert {key: Connection(*key).authority for key in want} == want


def test_https_checks_the_certificate(tmp_path: Path) -> None:
    pem = tmp_path / "localhost.pem"
    pem.write_text(LOCALHOST_PEM)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(pem)

    def secured(peer: socket.socket) -> None:
        with suppress(OSError), server.wrap_socket(peer, server_side=True) as tls:
            for _ in range(2):
                _, content = receive(tls)
                size = str(len(content)).encode()
                tls.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: " + size + b"\r\n\r\n" + content)

    trusting = ssl.create_default_context(cafile=str(pem))
    big = bytes(range(256)) * 20_000
    path = tmp_path / "big"
    path.write_bytes(big)
    with peer_of(secured, tls=trusting) as connection, path.open("rb") as file:
        assert connection.request("PUT", "/", body=file).read() == big
        assert connection.request("PUT", "/", body=big).read() == big
    with peer_of(secured, tls=True) as doubting, pytest.raises(Unreachable) as caught:
        doubting.request("GET", "/")
    assert "certificate" in str(caught.value).lower()


@contextmanager
def peer_of(*scripts: Script, tls: bool | ssl.SSLContext = False) -> Iterator[Connection]:
    """A connection to a server that plays one script for each connection it accepts."""
    failures: list[BaseException] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def play() -> None:
            for script in scripts:
                try:
                    peer, _ = listener.accept()
                except OSError:
                    return
                with peer:
                    peer.settimeout(20)
                    try:
                        script(peer)
                    except ConnectionError:
                        pass  # the client may hang up as soon as it has seen enough
                    except (AssertionError, OSError, EOFError) as error:
                        failures.append(error)

        thread = threading.Thread(target=play)
        thread.start()
        try:
            with Connection("127.0.0.1", listener.getsockname()[1], tls, timeout=20) as connection:
                yield connection
        finally:
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            thread.join(90)
    assert not thread.is_alive()
    assert failures == []


def answering(raw: bytes) -> Script:
    """A peer that gives the same answer to every request of a connection."""

    def play(peer: socket.socket) -> None:
        with suppress(EOFError, ConnectionError):
            while True:
                head, _ = receive(peer)
                peer.sendall(
                    raw.partition(b"\r\n\r\n")[0] + b"\r\n\r\n" if b"HEAD" in head else raw
                )

    return play


def receive_quietly(peer: socket.socket) -> None:
    with suppress(EOFError):
        receive(peer)


def receive(peer: socket.socket) -> tuple[bytes, bytes]:
    """One request: its head and its body, without the framing."""
    with peer.makefile("rb") as stream:
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            line = stream.readline()
            if not line:
                raise EOFError
            head += line
        if b"\r\ntransfer-encoding: chunked" in head:
            return head, b"".join(iter(lambda: chunk(stream), b""))
        _, found, rest = head.partition(b"\r\ncontent-length: ")
        size = int(rest.partition(b"\r")[0]) if found else 0
        return head, stream.read(size)


def chunk(stream: io.BufferedReader) -> bytes:
    data = stream.read(int(stream.readline(), 16))
    assert stream.readline() == b"\r\n"
    return data


#: Made for these tests: openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes
#: -days 36500 -subj /CN=localhost -addext subjectAltName=DNS:localhost,IP:127.0.0.1
LOCALHOST_PEM = """\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgV2qaoi8s5GOiT8rd
pD2SQXn4q4DGTZI6g37wnUH0UuOhRANCAAQpt89nhEW4L6VQ5Xu6A5A84JTkfj8b
FDedndT4v4FRYgsWKQF5JBZC9QrpX9tfZl9CRs5WLBEqIEffKWPvIAjk
-----END PRIVATE KEY-----
-----BEGIN CERTIFICATE-----
MIIBmjCCAUGgAwIBAgIUQsu4fjbDj8N1cUqtY1GkT7rvutUwCgYIKoZIzj0EAwIw
FDESMBAGA1UEAwwJbG9jYWxob3N0MCAXDTI2MTExNTIyMTUyMVoYDzIxMjYxMDIy
MjIxNTIxWjAUMRIwEAYDVQQDDAlsb2NhbGhvc3QwWTATBgcqhkjOPQIBBggqhkjO
PQMBBwNCAAQpt89nhEW4L6VQ5Xu6A5A84JTkfj8bFDedndT4v4FRYgsWKQF5JBZC
9QrpX9tfZl9CRs5WLBEqIEffKWPvIAjko28wbTAdBgNVHQ4EFgQUdQJ0BF2H3Y/y
IJLKiMaDbOK2h6wwHwYDVR0jBBgwFoAUdQJ0BF2H3Y/yIJLKiMaDbOK2h6wwDwYD
VR0TAQH/BAUwAwEB/zAaBgNVHREEEzARgglsb2NhbGhvc3SHBH8AAAEwCgYIKoZI
zj0EAwIDRwAwRAIgWgJhg/G6VSdnzXXTEGF+BxTFRjSLx/Dj3Fu+490UsMUCID6a
b0CBsmeMzoXjoVkWEBjX6TF/pNk5Q7Dx+SW1lJ0j
-----END CERTIFICATE-----
"""
