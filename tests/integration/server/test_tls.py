"""TLS from both sides: what the server serves with and refuses, what clients accept and say."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from paddlecloud import Client
from paddlecloud.agent.config import read_config
from paddlecloud.agent.server_link.channel import Link
from paddlecloud.model.errors import ConfigError, Unauthenticated, Unreachable
from paddlecloud.net.http1 import Connection
from paddlecloud.server.http.tls import load_tls
from paddlecloud.server.settings import Http
from tests.integration.server.certificates import Issuer, an_issuer, issue
from tests.integration.server.process import ServerProcess, ended
from tests.integration.server.smtp import SmtpServer
from tests.integration.server.world import eventually
from tests.ports import free_port

pytestmark = pytest.mark.slow


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    server = ServerProcess(tmp_path / "home")
    server.home.mkdir()
    yield server
    server.close()


@pytest.fixture
def issuer(tmp_path: Path) -> Issuer:
    return an_issuer(tmp_path / "tls")


def a_team_server(server: ServerProcess, issuer: Issuer) -> int:
    """Starts it with a certificate of this issuer; the port where it speaks TLS."""
    cert, key = issue(issuer, server.home / "tls")
    port = free_port()
    (server.home / "server.toml").write_text(
        f"team = true\n[http]\nhost = '0.0.0.0'\nport = {port}\n"
        f"tls_cert = '{cert}'\ntls_key = '{key}'\nallowed_hosts = ['localhost']\n"
    )
    server.start()
    return port


def keys_of(server: ServerProcess) -> dict[str, str]:
    found: dict[str, str] = json.loads((server.home / "server" / "credentials.json").read_text())
    return found


def test_people_come_by_tls_and_the_machine_itself_does_not_need_it(
    server: ServerProcess, issuer: Issuer, tmp_path: Path
) -> None:
    port = a_team_server(server, issuer)
    keys = keys_of(server)
    conf = tmp_path / "client.conf"
    conf.write_text(
        f"[main]\nuser_id = admin\nak = {keys['ak']}\nsk = {keys['sk']}\n"
        f"[openapi]\nhost = https://localhost:{port}\nca_file = tls/issuer.pem\n"
    )
    conf.chmod(0o600)
    with Client(str(conf)) as client:
        assert client.whoami()["user_id"] == "admin"
    assert server.facts()["url"].startswith("http://127.0.0.1:")
    assert server.facts()["public_url"] == f"https://0.0.0.0:{port}"
    assert server.port != port
    assert server.caller().get("/api/v1/whoami")["role"] == "admin"


def test_an_agent_elsewhere_trusts_the_issuer_it_was_told(
    server: ServerProcess, issuer: Issuer, tmp_path: Path
) -> None:
    port = a_team_server(server, issuer)
    local: dict[str, Any] = json.loads((server.home / "agent" / "agent.json").read_text())
    del local["endpoint_file"]
    config = tmp_path / "agent.json"

    def ask(**more: str) -> None:
        config.write_text(json.dumps(local | {"url": f"https://localhost:{port}"} | more))
        channel = Link(read_config(config)).channel()
        with contextlib.closing(channel):
            channel.json("GET", "/whoami")

    with pytest.raises(Unauthenticated) as refused:  # an agent is no user, but it got that far
        ask(ca_file=str(issuer.path))
    assert refused.value.code == "auth_role"
    with pytest.raises(Unreachable) as unknown:
        ask()
    assert unknown.value.code == "server_cert_issuer"


def serial_at(port: int, issuer: Issuer) -> str:
    context = ssl.create_default_context(cafile=str(issuer.path))
    with (
        socket.create_connection(("127.0.0.1", port), timeout=60) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as secured,
    ):
        found = secured.getpeercert()
    assert found is not None
    return str(found["serialNumber"])


def test_sighup_reads_the_certificate_again_unless_it_is_no_good(
    server: ServerProcess, issuer: Issuer
) -> None:
    port = a_team_server(server, issuer)
    pid = int(server.facts()["pid"])
    log = server.home / "server" / "server.log"
    first = serial_at(port, issuer)
    issue(issuer, server.home / "tls", days=(-2, -1))
    signal_and_wait(pid, log, "keeping the previous certificate")
    assert serial_at(port, issuer) == first
    issue(issuer, server.home / "tls")
    signal_and_wait(pid, log, "serving with the certificate that ends on")
    assert serial_at(port, issuer) != first
    assert server.facts()["pid"] == pid


def signal_and_wait(pid: int, log: Path, words: str) -> None:
    os.kill(pid, signal.SIGHUP)
    eventually(lambda: words in log.read_text())


@contextlib.contextmanager
def served_with(cert: Path, key: Path) -> Iterator[int]:
    """A port where somebody greets with this certificate, whatever is wrong with it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def greet() -> None:
            with contextlib.suppress(OSError):
                client, _ = listener.accept()
                with client, contextlib.suppress(OSError):
                    context.wrap_socket(client, server_side=True).close()

        thread = threading.Thread(target=greet)
        thread.start()
        try:
            yield int(listener.getsockname()[1])
        finally:
            thread.join(10)


@pytest.mark.parametrize(
    ("wrong", "trusted", "want"),
    [
        ({"days": (-9, -1)}, True, "server_cert_expired"),
        ({"days": (1, 9)}, True, "server_cert_expired"),
        ({"names": ("other.example",)}, True, "server_cert_name"),
        ({"names": ("192.0.2.1",)}, True, "server_cert_name"),
        ({}, False, "server_cert_issuer"),
    ],
    ids=["expired", "not yet", "another name", "another address", "unknown issuer"],
)
@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_a_client_tells_what_is_wrong_with_a_certificate(
    tmp_path: Path, issuer: Issuer, wrong: dict[str, Any], trusted: bool, want: str, host: str
) -> None:
    known = issuer if trusted else an_issuer(tmp_path / "other", "other")
    with (
        served_with(*issue(issuer, tmp_path / "cert", **wrong)) as port,
        pytest.raises(Unreachable) as caught,
        Connection(host, port, str(known.path), timeout=60) as connection,
    ):
        connection.request("GET", "/healthz")
    assert caught.value.code == want
    assert f"{host}:{port}" in str(caught.value)


def test_a_file_of_issuers_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("not a certificate")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        for name in ("ca.pem", "missing.pem"):
            with pytest.raises(ConfigError) as caught:
                Connection("localhost", port, str(tmp_path / name)).request("GET", "/")
            assert caught.value.code == "ca_file_unusable"
            assert name in str(caught.value)


def test_https_to_a_server_without_tls_is_told(server: ServerProcess, issuer: Issuer) -> None:
    server.start()
    with pytest.raises(Unreachable) as caught:
        Connection("127.0.0.1", server.port, str(issuer.path), timeout=60).request("GET", "/")
    assert caught.value.code == "server_plain"
    assert "http://" in str(caught.value)


def test_http_to_a_server_with_tls_is_refused_with_the_reason(
    server: ServerProcess, issuer: Issuer
) -> None:
    port = a_team_server(server, issuer)
    began = time.monotonic()
    with pytest.raises(Unreachable) as caught:
        Client(host=f"http://localhost:{port}", ak="a" * 32, sk="s" * 32).whoami()
    assert caught.value.code == "server_wants_tls"
    assert f"localhost:{port} expects TLS" in str(caught.value)
    assert "https://" in caught.value.text("zh")
    assert time.monotonic() - began < 10, "it was tried again"


@pytest.mark.parametrize(
    ("wrong", "want"),
    [
        ({"days": (-9, -1)}, "tls_expired"),
        ({"days": (1, 9)}, "tls_not_yet"),
        ({"passphrase": b"open"}, "tls_passphrase"),
    ],
)
def test_a_server_does_not_start_with_it(
    tmp_path: Path, issuer: Issuer, wrong: dict[str, Any], want: str
) -> None:
    cert, key = issue(issuer, tmp_path, **wrong)
    with pytest.raises(ConfigError) as caught:
        load_tls(Http(tls_cert=str(cert), tls_key=str(key)), datetime.now(UTC))
    assert caught.value.code == want


def test_a_key_of_another_certificate_or_none_is_refused(tmp_path: Path, issuer: Issuer) -> None:
    cert, _ = issue(issuer, tmp_path / "a")
    _, key = issue(issuer, tmp_path / "b")
    now = datetime.now(UTC)
    for tls_cert, tls_key, want in (
        (cert, key, "tls_mismatch"),
        (cert, tmp_path / "missing", "tls_unusable"),
        (tmp_path / "missing", key, "tls_unusable"),
        (key, key, "tls_unusable"),
    ):
        with pytest.raises(ConfigError) as caught:
            load_tls(Http(tls_cert=str(tls_cert), tls_key=str(tls_key)), now)
        assert caught.value.code == want


def test_a_team_server_has_its_port_or_none(server: ServerProcess) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        (server.home / "server.toml").write_text(f"team = true\n[http]\nport = {port}\n")
        code, text = ended(server.spawn())
    assert code == 1
    assert f"cannot listen on 127.0.0.1 port {port}" in text


def test_listening_without_tls_is_said_aloud(server: ServerProcess) -> None:
    port = free_port()
    (server.home / "server.toml").write_text(
        f"[http]\nhost = '::'\nport = {port}\ninsecure = true\n"
    )
    server.start()
    assert "http.insecure" in (server.home / "server" / "server.log").read_text()
    for host in ("127.0.0.1", "::1"):
        with Connection(host, port, timeout=60) as connection:
            assert connection.request("GET", "/healthz").status == 200


def checked(home: Path, *more: str, **environ: str) -> tuple[int, dict[str, Any]]:
    """Exit code and answer of `server check --json`."""
    words = [sys.executable, "-P", "-m", "paddlecloud", "server", "check", "--json", *more]
    env = {"PATH": "/usr/bin:/bin", "HOME": str(home), "PADDLECLOUD_HOME": str(home), **environ}
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr == ""
    found: dict[str, Any] = json.loads(done.stdout)
    return done.returncode, found


def test_check_says_what_would_be_used_and_what_works(tmp_path: Path, issuer: Issuer) -> None:
    cert, key = issue(issuer, tmp_path / "tls", days=(-1, 5))
    file = tmp_path / "team.toml"
    file.write_text(
        f"team = true\nkey = {{ env = 'KEY' }}\n"
        f"[http]\nhost = '::'\ntls_cert = '{cert}'\ntls_key = '{key}'\n"
    )
    key.chmod(0o600)
    home = tmp_path / "home"
    home.mkdir()
    code, found = checked(home, "--config", str(file), KEY="canary" * 10)
    assert (code, found["ok"]) == (0, True)
    levels = {each["subject"]: each["level"] for each in found["checks"]}
    assert levels == {
        "settings": "ok",
        "http": "warning",  # it ends within two weeks
        "names": "warning",
        "key": "ok",
        "time zone": "ok",
        "database": "ok",
        "store": "ok",
        "mail": "warning",
    }
    rows = {row["key"]: (row["value"], row["origin"]) for row in found["settings"]}
    assert rows["key"] == ("set", "env KEY")
    assert rows["team"] == ("true", "file")
    assert rows["plans.free.running_jobs"] == ("2", "default")
    assert "canary" not in json.dumps(found)
    assert list(home.iterdir()) == []


def test_check_warns_of_secrets_that_others_may_read_and_of_a_plain_address(
    tmp_path: Path, issuer: Issuer
) -> None:
    cert, key = issue(issuer, tmp_path / "tls")
    secret = tmp_path / "secret"
    secret.write_text("k" * 32)
    (tmp_path / "server.toml").write_text(
        "team = true\nkey = { file = 'secret' }\n[http]\nport = 8443\n"
        f"tls_cert = '{cert}'\ntls_key = '{key}'\npublic_url = 'http://localhost:8443'\n"
    )
    for mode, want in (
        (0o644, ["http.tls_key", "key", "mail", "names"]),
        (0o600, ["mail", "names"]),
    ):
        key.chmod(mode)
        secret.chmod(mode)
        code, found = checked(tmp_path)
        warned = [each["subject"] for each in found["checks"] if each["level"] == "warning"]
        assert (code, sorted(warned)) == (0, want)


def test_run_stays_in_the_foreground_and_logs_to_stderr(server: ServerProcess) -> None:
    file = server.home / "team.toml"
    file.write_text(f"team = true\n[http]\nport = {free_port()}\n")
    words = [sys.executable, "-P", "-m", "paddlecloud", "server", "run", "--config", str(file)]
    env = {"PATH": "/usr/bin:/bin", "HOME": str(server.home), "PADDLECLOUD_HOME": str(server.home)}
    process = subprocess.Popen(words, env=env, stderr=subprocess.PIPE, cwd="/")
    try:
        eventually(server.ready_file.exists, 60)
        assert server.facts()["pid"] == process.pid
        assert server.facts()["settings"] == str(file)
        process.terminate()
        code, text = ended(process)
    finally:
        process.kill()
    assert code == 0
    assert "ready at http://127.0.0.1" in text
    assert "Traceback" not in text


def test_a_team_server_on_postgresql_with_mail(
    server: ServerProcess, tmp_path: Path, postgres_url: str
) -> None:
    with SmtpServer(tmp_path / "smtp") as smtp:
        file = server.home / "server.toml"
        file.write_text(
            f"team = true\ntime_zone = 'UTC'\nkey = '{'k' * 32}'\n[http]\nport = {free_port()}\n"
            f"[database]\nurl = '{postgres_url}'\n"
            f"[mail]\nhost = '127.0.0.1'\nport = {smtp.port}\nsecurity = 'none'\n"
            "sender = 'cloud@example.com'\n"
        )
        file.chmod(0o600)
        code, found = checked(server.home)
        assert (code, {each["level"] for each in found["checks"]}) == (0, {"ok"})
        assert postgres_url not in json.dumps(found)
        assert smtp.mails() == []
    server.start()
    assert server.caller().get("/api/v1/whoami")["user_id"] == "admin"
    assert not list((server.home / "server").glob("*.db"))
    assert postgres_url not in (server.home / "server" / "server.log").read_text()


def test_check_fails_where_the_server_would_and_keeps_secrets(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    port = free_port()
    file = tmp_path / "server.toml"
    file.write_text(
        f"team = true\n[database]\nurl = 'postgresql://me:canary@127.0.0.1:{port}/x'\n"
        f"[store]\nroot = '{tmp_path}/file/store'\n"
        f"[mail]\nhost = '127.0.0.1'\nport = {port}\nsecurity = 'none'\n"
        "user = 'a@b.example'\npassword = 'canary'\n"
    )
    file.chmod(0o600)
    code, found = checked(tmp_path)
    assert (code, found["ok"]) == (1, False)
    levels = {each["subject"]: each["level"] for each in found["checks"]}
    assert levels == {
        "settings": "ok",
        "http": "ok",
        "key": "warning",
        "time zone": "warning",
        "database": "failed",
        "store": "failed",
        "mail": "failed",
    }
    assert "canary" not in json.dumps(found)


def test_check_names_a_wrong_setting(tmp_path: Path) -> None:
    (tmp_path / "server.toml").write_text("[htpp]\nport = 1")
    code, found = checked(tmp_path, PADDLECLOUD_LANG="zh")
    assert code == 1
    assert [each["code"] for each in found["checks"]] == ["settings_unknown"]
    assert "是否指 http" in found["checks"][0]["message"]
