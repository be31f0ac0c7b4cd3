"""Tunnels through real servers: with TLS, and on several servers that share one database."""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from paddlecloud import Client
from paddlecloud.client._port_forward import PortForward
from paddlecloud.model.errors import PaddleCloudError
from paddlecloud.net.tunnel_end import FileEnd, Relay
from paddlecloud.testing import SignedCaller
from tests.integration.server.certificates import an_issuer
from tests.integration.server.process import ServerProcess
from tests.integration.server.several_servers import replicas, submit
from tests.integration.server.test_tls import a_team_server, keys_of
from tests.integration.server.world import eventually

pytestmark = pytest.mark.slow(seconds=8)

ECHO = """exec python3 -c '
import socket
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
while True:
    with listener.accept()[0] as connection:
        data = b"".join(iter(lambda: connection.recv(65536), b""))
        connection.sendall(data)
'
"""


def a_client(folder: Path, keys: dict[str, str], url: str, more: str = "") -> Client:
    conf = folder / f"client-{url.rpartition(':')[2]}.conf"
    conf.write_text(
        f"[main]\nuser_id = admin\nak = {keys['ak']}\nsk = {keys['sk']}\n"
        f"[openapi]\nhost = {url}\n{more}"
    )
    conf.chmod(0o600)
    return Client(str(conf))


def echoing(caller: SignedCaller) -> tuple[str, int]:
    """A job that gives back what it gets, and its port."""
    job_id = submit(caller, ECHO)
    found: list[bytes] = []

    def is_there() -> bool:
        found[:] = caller.call("GET", f"/api/v1/jobs/{job_id}/logs", {}).body.split()
        return bool(found)

    eventually(is_there)
    return job_id, int(found[0])


def returned(forward: PortForward, data: bytes) -> bytes:
    ((local, _),) = forward.ports
    with socket.create_connection(("127.0.0.1", local), timeout=30) as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        with connection.makefile("rb") as file:
            return file.read()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    server = ServerProcess(tmp_path / "home")
    server.home.mkdir()
    yield server
    server.close()


def test_with_tls(server: ServerProcess, tmp_path: Path) -> None:
    issuer = an_issuer(tmp_path / "tls")
    port = a_team_server(server, issuer)
    job_id, remote = echoing(server.caller())
    more = "ca_file = tls/issuer.pem\n"
    with a_client(tmp_path, keys_of(server), f"https://localhost:{port}", more) as client:
        errors: list[PaddleCloudError] = []
        with client.port_forward(job_id, f"0:{remote}", on_error=errors.append) as forward:
            data = os.urandom(4 * 2**20)
            back = returned(forward, data)
        assert errors == []
        assert hashlib.sha256(back).digest() == hashlib.sha256(data).digest()
        client.kill_job(job_id)
        client.wait(job_id, timeout=60)


def test_client_and_agent_at_different_servers(tmp_path: Path, postgres_url: str) -> None:
    with replicas(tmp_path, postgres_url, ["", "node-1"]) as (front, back):
        back.start()
        front.start()
        job_id, remote = echoing(front.caller())
        keys = {"ak": front.caller().ak, "sk": front.caller().sk}
        with a_client(tmp_path, keys, f"http://127.0.0.1:{front.own_port}") as client:
            errors: list[PaddleCloudError] = []
            with client.port_forward(job_id, f"0:{remote}", on_error=errors.append) as forward:
                data = os.urandom(2**20)
                assert returned(forward, data) == data, errors
            command = client.exec(
                job_id, ["tty"], terminal={"term": "dumb", "rows": 24, "columns": 80}
            )
            output, printed = os.pipe()
            keyboard, typed = os.pipe()
            tunnel = command.open_terminal()
            assert Relay(tunnel, FileEnd(keyboard, printed)).run()
            assert os.read(output, 100).startswith(b"/dev/pts/")
            assert list(command.output()) == []
            assert command.exit_code == 0
            for fd in (output, printed, keyboard, typed):
                os.close(fd)
            client.kill_job(job_id)
            client.wait(job_id, timeout=60)
