"""Agents of the previous version, which try to send reports over one request that stays open."""

from __future__ import annotations

import socket

from paddlecloud.model.protocol.bce_auth import CONTENT_SHA256
from paddlecloud.net.endpoint import Endpoint, sign_request, target_of
from paddlecloud.testing import item
from tests.integration.server.world import World


def test_the_open_request_is_refused_at_once_and_plain_reports_work(world: World) -> None:
    """The previous agent falls back on any status but 200; it must not have to wait for it."""
    _, order = world.placed()
    caller, authority = world.agent.caller, f"127.0.0.1:{world.stage.port}"
    target, headers = target_of("/agent/reports"), {CONTENT_SHA256: "SEALED-FRAMES"}
    endpoint = Endpoint(f"http://{authority}", caller.ak, caller.sk)
    sign_request(endpoint, authority, "POST", target, headers)
    lines = [f"POST {target} HTTP/1.1", "transfer-encoding: chunked"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    with socket.create_connection(("127.0.0.1", world.stage.port), timeout=20) as open_request:
        open_request.sendall("\r\n".join([*lines, "", ""]).encode())
        status = open_request.recv(65536).split()[1]
    assert status == b"404"
    log = {"offset": 0, "length": 1}
    answer = world.agent.report(item(order, log=log), log=b"x")
    assert answer["acks"][0]["log_size"] == 1
