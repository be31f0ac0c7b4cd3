"""`machine join` on a machine that something is wrong with, and over TLS."""

from __future__ import annotations

import hashlib
import json
import os
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.server.certificates import an_issuer, issue
from tests.integration.server.process import ServerProcess, end_agents
from tests.integration.server.world import eventually
from tests.ports import free_port

pytestmark = pytest.mark.slow
AGENT = [sys.executable, "-P", "-m", "paddlecloud.agent"]
POOLS = "\n[pools.lab]\nkind = 'machines'\n[pools.other]\nkind = 'machines'\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A team server whose certificate no system trusts."""
    home = tmp_path_factory.mktemp("home")
    cert, key = issue(an_issuer(home / "issuer"), home / "tls")
    port = free_port()
    (home / "server.toml").write_text(
        f"team = true\n[http]\nhost = '127.0.0.1'\nport = {port}\n"
        f"tls_cert = '{cert}'\ntls_key = '{key}'\npublic_url = 'https://localhost:{port}'\n"
        "[replica]\nagent = false\n" + POOLS
    )
    one = ServerProcess(home)
    one.start()
    yield one
    one.close()


def invite(server: ServerProcess, **more: Any) -> dict[str, Any]:
    asked = {"pool": "lab", **more}
    found: dict[str, Any] = server.caller().post("/api/v1/admin/invites", asked)
    return found


def join(directory: Path, *words: str, **environ: str) -> tuple[int, str]:
    """The exit code of `join`, and what it said; one that succeeds would go on as the agent."""
    done = subprocess.run(
        [*AGENT, "join", *words, f"--directory={directory}"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={"PATH": os.environ["PATH"], "PADDLECLOUD_LANG": "en"} | environ,
    )
    return done.returncode, done.stderr


@pytest.fixture
def joined(server: ServerProcess, tmp_path: Path) -> Iterator[Path]:
    """The directory of a machine that joined as `first`, and runs."""
    directory = tmp_path / "first"
    answer = invite(server)
    pin = ["--tls_sha256", answer["tls_sha256"]]
    words = ["join", answer["url"], "--token", answer["token"], *pin, "--name", "first"]
    program = [*AGENT, *words, f"--directory={directory}"]
    process = subprocess.Popen(program, stderr=subprocess.PIPE)
    try:
        eventually(lambda: state(server, "first") == "ready", 30)
        yield directory
    finally:
        end_agents(directory / "agent.json")
        process.wait(60)
        assert process.stderr is not None
        process.stderr.close()
        server.caller().call("POST", "/api/v1/admin/machines/first/remove", body={})


def state(server: ServerProcess, name: str) -> str:
    reply = server.caller().call("GET", f"/api/v1/admin/machines/{name}")
    return str(reply.json()["state"]) if reply.status == 200 else ""


def test_a_certificate_that_no_system_trusts_is_pinned(server: ServerProcess, joined: Path) -> None:
    kept = (joined / "server.pem").read_text()
    assert (
        hashlib.sha256(ssl.PEM_cert_to_DER_cert(kept)).hexdigest() == invite(server)["tls_sha256"]
    )
    config = json.loads((joined / "agent.json").read_text())
    assert config["ca_file"] == str(joined / "server.pem")
    assert (joined / "agent.json").stat().st_mode & 0o777 == 0o600
    assert "token" not in config


def test_another_certificate_is_refused(server: ServerProcess, tmp_path: Path) -> None:
    answer = invite(server)
    code, said = join(
        tmp_path, answer["url"], f"--token={answer['token']}", "--tls_sha256=" + "0" * 64
    )
    assert code == 1
    assert "expected 0000" in said
    code, said = join(tmp_path, answer["url"], f"--token={answer['token']}")
    assert code == 1
    assert "issuer" in said or "certificate" in said
    assert not (tmp_path / "agent.json").exists()


def test_wrong_used_and_expired_tokens_are_refused(server: ServerProcess, tmp_path: Path) -> None:
    used, short = invite(server), invite(server, ttl=1)
    taken = {"token": used["token"], "instance": "0" * 16, "node": "elsewhere"}
    assert server.caller().post("/api/v1/agent/join", taken)["node"] == "elsewhere"
    pin = f"--tls_sha256={used['tls_sha256']}"
    time.sleep(1.1)  # the server's clock decides
    for number, token in enumerate(("0" * 64, used["token"], short["token"])):
        code, said = join(tmp_path / str(number), used["url"], f"--token={token}", pin)
        assert (code, "Traceback" in said) == (1, False)
        assert "token" in said
        assert not (tmp_path / str(number) / "agent.json").exists()


def test_two_machines_of_one_name_and_one_in_two_pools(
    server: ServerProcess, joined: Path, tmp_path: Path
) -> None:
    for pool in ("lab", "other"):
        answer = invite(server, pool=pool)
        pin = f"--tls_sha256={answer['tls_sha256']}"
        words = (answer["url"], f"--token={answer['token']}", pin, "--name=first")
        code, said = join(tmp_path / pool, *words)
        assert (code, "first" in said) == (1, True), said
    code, said = join(joined, *words)
    assert code == 1
    assert "already serves" in said


def test_a_wrong_clock_is_named(server: ServerProcess, tmp_path: Path) -> None:
    """Python's own clock an hour ahead, as `time.time` of this process."""
    shift = tmp_path / "sitecustomize.py"
    shift.write_text("import time\n_real = time.time\ntime.time = lambda: _real() + 3600\n")
    answer = invite(server)
    pin = f"--tls_sha256={answer['tls_sha256']}"
    words = (answer["url"], f"--token={answer['token']}", pin)
    code, said = join(tmp_path / "m", *words, PYTHONPATH=str(tmp_path))
    assert code == 1
    assert "3600 s ahead" in said


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["ftp://server", "--token=x"], "not a server URL"),
        (["https://localhost:1", "--token=x"], "localhost:1"),
        (["https://localhost:1", "--token=x", "--label=gpu"], "has no value"),
        (["https://localhost:1", "--colour=red"], "--colour"),
        ([], "has not joined yet"),
    ],
)
def test_wrong_words_get_one_sentence(tmp_path: Path, words: list[str], part: str) -> None:
    code, said = join(tmp_path, *words)
    assert code in (1, 2)
    assert part in said
    assert "Traceback" not in said
