"""The server as a process: ready when it says so, one per home, gone on SIGTERM, back after -9."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import sqlite3
import stat
import subprocess
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from paddlecloud import __version__
from paddlecloud.db.engine.sqlite import open_sqlite
from paddlecloud.testing import exchange
from tests.integration.server.process import ServerProcess, asked, ended

pytestmark = pytest.mark.slow


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    server = ServerProcess(tmp_path / "home")
    yield server
    server.close()


def terminate(process: subprocess.Popen[bytes]) -> None:
    """SIGTERM must end it well, soon and without a word."""
    began = time.monotonic()
    process.send_signal(signal.SIGTERM)
    assert ended(process) == (0, "")
    assert time.monotonic() - began < 18, "it waits for its long polls"


def test_it_says_where_it_is_and_keeps_its_secrets(server: ServerProcess) -> None:
    process = server.start()
    facts = server.facts()
    assert (facts["pid"], facts["version"]) == (process.pid, __version__)
    reply = exchange("127.0.0.1", server.port, "GET", "/healthz", {"host": "127.0.0.1"})
    answer = reply.json()
    assert answer.pop("time") > 1.7e9
    assert answer == {"ok": True, "version": __version__, "boot": facts["boot"]}
    assert server.caller().get("/api/v1/whoami")["role"] == "admin"
    folder = server.home / "server"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    names = ("server.key", "credentials.json", "server.json", "paddlecloud.db", "server.log")
    for path in (*(folder / name for name in names), server.home / "agent" / "agent.json"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    log = (folder / "server.log").read_text()
    assert json.loads((folder / "credentials.json").read_text())["sk"] not in log


def test_a_second_one_on_the_same_home_goes_away(server: ServerProcess) -> None:
    server.ready_file.parent.mkdir(parents=True)
    server.ready_file.write_text('{"url": "http://127.0.0.1:1", "pid": 1, "boot": "stale"}')
    first = server.start()
    code, told = ended(server.spawn())
    assert (code, "is already running" in told) == (1, True)
    assert first.poll() is None
    assert server.facts()["pid"] == first.pid
    assert server.caller().get("/api/v1/whoami")["user_id"]


def test_sigterm_lets_the_waiting_go_and_cuts_the_followers(server: ServerProcess) -> None:
    """An orderly end of a log would tell its follower that the job is over."""
    process = server.start()
    path = f"/api/v1/jobs/{server.waiting_job()}"
    caller = server.caller()
    with (
        asked(caller, f"{path}/logs", "follow=1") as follower,
        asked(caller, path, "version=1000000&wait=60") as waiter,
        follower.getresponse() as log,
    ):
        terminate(process)
        with waiter.getresponse() as answer:
            assert json.loads(answer.read())["job_status"] in ("schedule", "queue")
        with pytest.raises((http.client.IncompleteRead, ConnectionResetError)):
            log.read()
    assert not server.ready_file.exists()
    assert "Traceback" not in (server.home / "server" / "server.log").read_text()


def test_restarts_keep_the_port_and_remember_what_was_used(server: ServerProcess) -> None:
    first = server.start()
    port, boot = server.port, server.facts()["boot"]
    headers = server.caller().headers("GET", "/api/v1/whoami", "", b"")
    request = ("127.0.0.1", port, "GET", "/api/v1/whoami", headers)
    assert exchange(*request).status == 200
    terminate(first)
    second = server.start()
    assert server.port == port
    assert exchange(*request).code == "auth_replay"
    second.kill()
    second.wait(20)
    assert server.facts()["pid"] == second.pid, "a stale file is what it leaves behind"
    with socket.create_server(("127.0.0.1", port)):
        server.start()
        assert server.port != port
    assert server.facts()["boot"] != boot
    assert server.caller().get("/api/v1/whoami")["user_id"]


def test_the_configured_port_is_used_when_it_is_free(server: ServerProcess) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        server.home.mkdir()
        (server.home / "server.toml").write_text(f"[http]\nport = {port}\n")
        process = server.start()
        assert server.port != port
        terminate(process)
    server.start()
    assert server.port == port


def test_a_database_of_a_newer_version_is_refused_in_words(server: ServerProcess) -> None:
    path = server.home / "server" / "paddlecloud.db"
    path.parent.mkdir(parents=True)
    open_sqlite(path, now=datetime.now(UTC)).close()
    database = sqlite3.connect(path)
    with database:
        database.execute("insert into schema_migrations values (999, '0999_later', 'x', 0, 999)")
    database.close()
    code, text = ended(server.spawn())
    assert code == 1
    assert "the database has version 999" in text
    assert "install a newer program" in text
    assert not server.ready_file.exists()


def test_wrong_settings_are_told_and_nothing_starts(server: ServerProcess) -> None:
    server.home.mkdir()
    (server.home / "server.toml").write_text("[http]\nprot = 1")
    code, text = ended(server.spawn())
    assert code == 1
    assert "unknown setting http.prot; did you mean http.port?" in text
    assert "Traceback" not in text
    assert sorted(path.name for path in (server.home / "server").iterdir()) == [
        "lock",
        "server.log",
    ]
