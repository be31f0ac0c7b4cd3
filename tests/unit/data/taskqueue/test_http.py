"""Calls of a job to its server: through a proxy, and never through one to this machine."""

from __future__ import annotations

from base64 import b64encode
from contextlib import closing

import pytest

from paddlecloud.data.taskqueue import _http as http
from paddlecloud.data.taskqueue._http import Caller
from tests.proxies import proxying
from tests.unit.client.fake_server import AK, SK, FakeServer, ok, serving


def caller_of(url: str) -> Caller:
    return Caller({"job_id": "job-1", "ak": AK, "sk": SK, "url": url})


def ask(server: FakeServer, url: str) -> None:
    server.routes["POST /api/v1/x"] = [ok({"a": 1})]
    with closing(caller_of(url)) as caller:
        for _ in range(2):
            assert caller.call("POST", "/api/v1/x", {}, wait=False) == {"a": 1}


def test_a_job_behind_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The name is known to the proxy alone; the server checks the signature."""
    secret = b64encode(b"me:p@ss").decode()
    with serving() as server, proxying(server.server_address[1], f"Basic {secret}") as proxy:
        monkeypatch.setenv("http_proxy", f"http://me:p%40ss@{proxy.address}")
        ask(server, "http://cloud.example:8000")
        assert proxy.seen[0] == "POST http://cloud.example:8000/api/v1/x HTTP/1.1"
        assert server.seen[0].headers["host"] == "cloud.example:8000"


def test_this_machine_is_asked_without_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    with serving() as server:
        ask(server, server.url)


def test_https_is_asked_for_a_tunnel(monkeypatch: pytest.MonkeyPatch) -> None:
    with proxying(1, refusal=403) as proxy:
        monkeypatch.setenv("https_proxy", proxy.url)
        with closing(caller_of("https://cloud.example")) as caller, pytest.raises(OSError):
            caller.call("GET", "/api/v1/x", wait=False)
        assert proxy.seen[0].startswith("CONNECT cloud.example:443 HTTP/1.")
        monkeypatch.setenv("no_proxy", "cloud.example")
        assert http._proxy_for("https", "cloud.example") is None
