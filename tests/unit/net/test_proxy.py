"""Requests through a real little proxy, and which requests go through one at all."""

from __future__ import annotations

import socket
import ssl
import subprocess
import threading
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from paddlecloud.model.errors import ConfigError, PaddleCloudError, Unreachable
from paddlecloud.net.connection_pool import Pool
from paddlecloud.net.proxy import DIRECT, Proxies, from_environment, parse_proxy
from paddlecloud.net.retry import is_transient
from tests.ports import free_port
from tests.proxies import proxying

NAME = "cloud.example"


@contextmanager
def serving(certificate: Path | None = None) -> Iterator[tuple[int, list[bytes]]]:
    """A server, with TLS if it has a certificate: its port, and the requests that it got."""
    listener, got = socket.create_server(("127.0.0.1", 0)), list[bytes]()
    context = None
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)

    def serve(peer: socket.socket) -> None:
        with peer, suppress(OSError):
            sock = context.wrap_socket(peer, server_side=True) if context else peer
            with sock:
                while data := sock.recv(65536):
                    got.append(data)
                    sock.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")

    def accept() -> None:
        with suppress(OSError):
            while True:
                peer, _ = listener.accept()
                threads.append(threading.Thread(target=serve, args=(peer,)))
                threads[-1].start()

    threads = [threading.Thread(target=accept)]
    threads[0].start()
    try:
        yield listener.getsockname()[1], got
    finally:
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for thread in threads:
            thread.join(60)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate of cloud.example with its key."""
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
         "-nodes", "-keyout", str(path), "-out", f"{path}.crt", "-days", "2",
         "-subj", f"/CN={NAME}", "-addext", f"subjectAltName=DNS:{NAME}"],
        check=True, capture_output=True, timeout=30,
    )  # fmt: skip
    path.write_text(path.read_text() + Path(f"{path}.crt").read_text())
    return path


def test_plain_requests_go_to_the_proxy_in_absolute_form() -> None:
    with serving() as (port, got), proxying(port) as proxy, Pool(Proxies(proxy.url)) as pool:
        response = pool.request("POST", f"http://{NAME}:8000/a?b=c", {"x": "y"}, b"body")
        assert response.read() == b"ok"
        assert proxy.seen == [f"POST http://{NAME}:8000/a?b=c HTTP/1.1"]
        assert got[0].startswith(b"POST /a?b=c HTTP/1.1\r\nhost: cloud.example:8000\r\n")
        assert got[0].endswith(b"body")


def test_https_goes_through_a_tunnel_and_checks_the_name_of_the_server(certificate: Path) -> None:
    trust = f"{certificate}.crt"
    with (
        serving(certificate) as (port, got),
        proxying(port) as proxy,
        Pool(Proxies(https=proxy.url)) as pool,
    ):
        for _ in range(2):
            response = pool.request("GET", f"https://{NAME}/secret", tls=trust)
            assert response.read() == b"ok"
        assert proxy.seen == [f"CONNECT {NAME}:443 HTTP/1.1"]
        assert b"GET /secret HTTP/1.1" in got[0]
        assert b"secret" not in proxy.tunnelled
        with pytest.raises(Unreachable) as caught:
            pool.request("GET", "https://other.example/", tls=trust)
        assert caught.value.code == "server_cert_name"


def test_credentials_are_sent_to_the_proxy_only_and_never_shown(certificate: Path) -> None:
    wanted = "Basic " + b64encode("用户:p@ss:word".encode()).decode()
    secret = "http://%E7%94%A8%E6%88%B7:p%40ss%3Aword@"
    trust = f"{certificate}.crt"
    with serving(certificate) as (port, got), proxying(port, wanted) as proxy:
        with Pool(Proxies(https=secret + proxy.address)) as pool:
            assert pool.request("GET", f"https://{NAME}/", tls=trust).read() == b"ok"
        assert b"proxy-authorization" not in got[0]
    with serving() as (port, got), proxying(port, wanted) as proxy:
        with Pool(Proxies(secret + proxy.address)) as pool:
            assert pool.request("GET", f"http://{NAME}/").read() == b"ok"
        assert b"proxy-authorization" not in got[0]


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("given", ["", "name:wrong-password@"])
def test_a_proxy_that_wants_a_password(scheme: str, given: str) -> None:
    with proxying(1, "Basic eA==") as proxy:
        url = f"http://{given}{proxy.address}"
        with Pool(Proxies(url, url)) as pool, pytest.raises(Unreachable) as caught:
            pool.request("GET", f"{scheme}://{NAME}/")
        check_sentences(caught.value, "proxy_auth", proxy.address)
        assert not is_transient(caught.value)


@pytest.mark.parametrize(
    ("status", "code", "again"), [(403, "proxy_refused", False), (502, "proxy_failed", True)]
)
def test_a_proxy_that_refuses(status: int, code: str, again: bool) -> None:
    with proxying(1, refusal=status) as proxy, Pool(Proxies(https=proxy.url)) as pool:
        with pytest.raises(Unreachable) as caught:
            pool.request("GET", f"https://{NAME}/")
        check_sentences(caught.value, code, proxy.address, f"{NAME}:443", str(status))
        assert is_transient(caught.value) == again


def test_a_proxy_that_is_not_there() -> None:
    address = f"127.0.0.1:{free_port()}"
    with Pool(Proxies(https=f"http://me:secret@{address}")) as pool:
        with pytest.raises(Unreachable) as caught:
            pool.request("GET", f"https://{NAME}/")
        check_sentences(caught.value, "proxy_unreachable", address)
        assert "secret" not in str(caught.value) + caught.value.text("zh")


@pytest.mark.parametrize(
    "said",
    [
        b"SSH-2.0-x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\nearly",
        b"",
        b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 20_000,
    ],
    ids=["no proxy at all", "speaks out of turn", "closes", "a head without an end"],
)
def test_a_proxy_that_answers_oddly(said: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            peer, _ = listener.accept()
            with peer, suppress(OSError):
                peer.recv(65536)
                peer.sendall(said)

        thread = threading.Thread(target=answer)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with Pool(Proxies(https=url)) as pool, pytest.raises(Unreachable):
            pool.request("GET", f"https://{NAME}/")
        thread.join(60)


def test_a_silent_proxy_ends_in_a_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with Pool(Proxies(https=url)) as pool, pytest.raises(Unreachable) as caught:
            pool.request("GET", f"https://{NAME}/", timeout=(0.05, 30))
        assert caught.value.code == "server_timeout"


def test_loopback_never_uses_a_proxy() -> None:
    with serving() as (port, _), Pool(Proxies("http://127.0.0.1:1", "http://127.0.0.1:1")) as pool:
        for host in ("127.0.0.1", "localhost"):
            assert pool.request("GET", f"http://{host}:{port}/").read() == b"ok"


@pytest.mark.parametrize(
    ("no_proxy", "direct", "proxied"),
    [
        ("", ["127.8.9.1", "::1", "a.localhost", "::ffff:127.0.0.1"], ["127.0.0.1.example"]),
        ("*", [NAME, "10.0.0.1", "::2"], []),
        (NAME, [NAME, f"a.b.{NAME}", NAME.upper(), f"{NAME}."], [f"not{NAME}", "example"]),
        (f".{NAME}", [NAME, f"a.{NAME}"], [f"not{NAME}"]),
        ("a, b c,,d", ["a", "b", "c", "d", "x.d"], ["e", "da"]),
        ("10.0.0.0/8, 192.168.1.7", ["10.9.8.7", "192.168.1.7"], ["11.0.0.1", "192.168.1.8"]),
        ("10.1.2.3/8", ["10.9.8.7"], ["11.1.2.3"]),
        ("fd00::/8,[2001:db8::1]", ["fd12::1", "2001:db8::1", "2001:db8:0::1"], ["2001:db8::2"]),
        ("1,0.1", [], ["10.0.0.1"]),
        ("10.0.0.0/99, ., x/8", [], ["10.0.0.1", "x", "example"]),
        (f"{NAME}:443,10.0.0.1:443", [NAME, f"a.{NAME}", "10.0.0.1"], ["10.0.0.2"]),
        (f"{NAME}:8443, 10.0.0.1:8443, [fd00::1]:8443", [], [NAME, "10.0.0.1", "fd00::1"]),
        ("[fd00::1]:443", ["fd00::1"], ["fd00::2"]),
        ("10.0.0.0/8:443", ["10.1.1.1"], ["11.1.1.1"]),
    ],
)
def test_no_proxy(no_proxy: str, direct: list[str], proxied: list[str]) -> None:
    proxies = Proxies("http://p:1", "http://p:2", no_proxy)
    for scheme in ("http", "https"):
        assert [host for host in direct if proxies.proxy_for(scheme, host, 443)] == []
        assert [host for host in proxied if not proxies.proxy_for(scheme, host, 443)] == []


def test_each_scheme_has_its_proxy() -> None:
    proxies = from_environment({"HTTP_PROXY": "http://a:1", "https_proxy": "b:2"})
    found = [proxies.proxy_for(scheme, NAME, 443) for scheme in ("http", "https")]
    assert [proxy and proxy.address for proxy in found] == ["a:1", "b:2"]


@pytest.mark.parametrize(
    ("environ", "want"),
    [
        ({}, None),
        ({"HTTPS_PROXY": ""}, None),
        ({"HTTPS_PROXY": "http://upper:1", "https_proxy": "http://lower:1"}, "lower:1"),
        ({"HTTPS_PROXY": "http://upper:1", "https_proxy": ""}, "upper:1"),
        ({"HTTPS_PROXY": "http://upper:1", "no_proxy": NAME}, None),
        ({"HTTP_PROXY": "http://upper:1"}, None),
    ],
)
def test_the_environment(environ: dict[str, str], want: str | None) -> None:
    proxy = from_environment(environ).proxy_for("https", NAME, 443)
    assert (proxy and proxy.address) == want


def test_an_environment_without_proxies_is_direct() -> None:
    assert from_environment({"NO_PROXY": "x"}) is DIRECT


def test_a_header_of_a_cgi_request_is_no_proxy() -> None:
    environ = {"HTTP_PROXY": "http://evil:1", "REQUEST_METHOD": "GET"}
    assert from_environment(environ).proxy_for("http", NAME, 80) is None


@pytest.mark.parametrize(
    ("url", "want"),
    [
        ("http://proxy.corp:3128/", ("proxy.corp", 3128, "")),
        ("HTTP://proxy.corp", ("proxy.corp", 80, "")),
        ("proxy.corp:3128", ("proxy.corp", 3128, "")),
        ("http://[fd00::1]:3128", ("fd00::1", 3128, "")),
        ("http://[fd00::1]", ("fd00::1", 80, "")),
        ("http://a@b:c@proxy:1", ("proxy", 1, "Basic YUBiOmM=")),
        ("http://name@proxy:1", ("proxy", 1, "Basic bmFtZTo=")),
    ],
)
def test_urls_of_proxies(url: str, want: tuple[str, int, str]) -> None:
    proxy = parse_proxy(url, "HTTP_PROXY")
    assert (proxy.host, proxy.port, proxy.authorization) == want


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("socks5://me:secret@proxy:1080", "proxy_scheme"),
        ("https://me:secret@proxy:443", "proxy_scheme"),
        ("http://me:secret@proxy:port", "proxy_url"),
        ("http://me:secret@proxy:0", "proxy_url"),
        ("http://me:secret@proxy:70000", "proxy_url"),
        ("http://me:secret@:1", "proxy_url"),
        ("http://", "proxy_url"),
    ],
)
def test_a_url_that_is_none_is_named_by_its_variable(url: str, code: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Proxies(https=url).proxy_for("https", NAME, 443)
    check_sentences(caught.value, code, "HTTPS_PROXY")
    assert "secret" not in str(caught.value)


def test_what_is_shown_has_no_credentials() -> None:
    proxies = Proxies("http://me:secret@a:1", "b:2", "x,y")
    want = [("http_proxy", "http://********@a:1"), ("https_proxy", "b:2"), ("no_proxy", "x,y")]
    assert proxies.rows() == want
    assert DIRECT.rows() == []


def check_sentences(error: PaddleCloudError, code: str, *told: str) -> None:
    assert error.code == code
    for lang in ("en", "zh"):
        assert all(each in error.text(lang) for each in told), error.text(lang)
    assert error.text("en") != error.text("zh")
