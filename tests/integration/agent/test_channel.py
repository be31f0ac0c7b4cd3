"""Responses to an agent: of its server, of its server in trouble, of another one at its address."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from paddlecloud.agent.config import AgentConfig, read_config
from paddlecloud.agent.server_link.channel import SERVER_HEADER, Channel, Link, is_internal_error
from paddlecloud.model.errors import Internal, PaddleCloudError, Retry, Unreachable
from paddlecloud.net.proxy import from_environment
from tests.proxies import proxying

OURS = {SERVER_HEADER: "boot-1", "content-type": "application/json"}
Asked = Callable[..., Channel]


@pytest.fixture
def answered(tmp_path: Path) -> Iterator[Asked]:
    """A channel to a server that gives one answer to everything."""
    told: dict[str, Any] = {}
    opened: list[Channel] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.send_response(told["status"])
            for name, value in told["headers"].items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(told["body"])))
            self.end_headers()
            self.wfile.write(told["body"])

        def log_message(self, format: str, *args: object) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = False
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()

    def ask(status: int, headers: dict[str, str], body: bytes, boot: str = "") -> Channel:
        told.update(status=status, headers=headers, body=body)
        facts = {"url": f"http://127.0.0.1:{server.server_address[1]}", "boot": boot}
        (tmp_path / "server.json").write_text(json.dumps(facts))
        config = AgentConfig(
            path=tmp_path / "agent.json",
            agent_id="a",
            ak="a",
            sk="s",
            endpoint_file=tmp_path / "server.json",
        )
        opened.append(Link(config).channel())
        return opened[-1]

    yield ask
    for channel in opened:
        channel.close()
    server.shutdown()
    server.server_close()


def test_the_server_with_the_mark_that_is_expected_is_believed(answered: Asked) -> None:
    assert answered(200, OURS, b'{"a": 1}', "boot-1").json("GET", "/x") == {"a": 1}
    assert answered(200, OURS, b'{"a": 2}').json("GET", "/x") == {"a": 2}


@pytest.mark.parametrize(
    ("headers", "body", "boot"),
    [
        ({}, b'{"a": 1}', "boot-1"),
        (OURS, b'{"a": 1}', "boot-2"),
        ({"content-type": "text/html; charset=utf-8"}, b"<html>", ""),
        ({}, b"<html>", ""),
    ],
    ids=["without a mark", "with another mark", "a page", "no JSON"],
)
def test_a_stranger_is_nobody_to_be_believed(
    answered: Asked, headers: dict[str, str], body: bytes, boot: str
) -> None:
    with pytest.raises(Unreachable) as caught:
        answered(200, headers, body, boot).json("GET", "/x")
    assert caught.value.code == "server_malformed"


def test_a_page_is_no_content_either(answered: Asked) -> None:
    got: list[bytes] = []
    with pytest.raises(Unreachable):
        answered(200, {"content-type": "text/html"}, b"<html>").call("GET", "/x", sink=got.append)
    assert got == []


def test_what_nobody_foresaw_is_worth_another_try(answered: Asked) -> None:
    error = Internal("internal", request_id="r-1").to_wire("en")
    with pytest.raises(Retry) as caught:
        answered(500, OURS, json.dumps({"error": error}).encode(), "boot-1").json("GET", "/x")
    assert is_internal_error(caught.value)
    assert "request r-1" in str(caught.value)
    assert not isinstance(caught.value, Unreachable)


def test_what_the_server_knows_to_be_wrong_is_not(answered: Asked) -> None:
    error = Internal("vault_damaged").to_wire("en")
    with pytest.raises(Internal) as caught:
        answered(500, OURS, json.dumps({"error": error}).encode()).json("GET", "/x")
    assert not is_internal_error(caught.value)


def test_an_agent_behind_a_proxy(tmp_path: Path) -> None:
    """The name is known to the proxy alone; keys that are read again leave it as it is."""
    path = tmp_path / "agent.json"
    path.write_text(
        json.dumps({"agent_id": "a", "ak": "a", "sk": "s", "url": "http://cloud.example"})
    )
    with proxying(1, refusal=403) as proxy:
        link = Link(read_config(path, from_environment({"HTTP_PROXY": proxy.url})))
        for _ in range(2):
            with closing(link.channel()) as channel, pytest.raises(PaddleCloudError):
                channel.json("GET", "/x")
            link.renew_keys()
        assert proxy.seen == ["GET http://cloud.example/api/v1/x HTTP/1.1"] * 2
