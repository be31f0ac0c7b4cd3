"""Installing the client that a server gives out, in an empty home, without a package index."""

from __future__ import annotations

import hashlib
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from paddlecloud import __version__
from paddlecloud.server.services.client_files import packages
from paddlecloud.server.settings import Settings
from tests.integration.server.certificates import an_issuer, issue
from tests.integration.server.conftest import MakeWorld
from tests.integration.server.process import ServerProcess
from tests.integration.server.world import World
from tests.ports import free_port

NAMES = (packages.SCRIPT, packages.ARCHIVE, packages.WHEEL)


def fetch(port: int, path: str, host: str = "127.0.0.1") -> tuple[int, bytes]:
    """Status and body, without a signature, as curl asks."""
    with socket.create_connection(("127.0.0.1", port)) as link:
        head = f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
        link.sendall(head.encode())
        with link.makefile("rb") as answer:
            head_lines, _, body = answer.read().partition(b"\r\n\r\n")
    return int(head_lines.split()[1]), body


@pytest.mark.parametrize("name", NAMES)
def test_anyone_gets_the_files_with_their_checksums(world: World, name: str) -> None:
    port = world.stage.port
    status, data = fetch(port, f"/{name}", f"127.0.0.1:{port}")
    _, line = fetch(port, f"/{name}.sha256", f"127.0.0.1:{port}")
    assert (status, line.decode().split()) == (200, [hashlib.sha256(data).hexdigest(), name])


@pytest.mark.parametrize(
    "path", ["/paddlecloud-9.9.9-py3-none-any.whl", "/run.py.sha256", "/..%2fserver.toml.sha256"]
)
def test_there_is_nothing_else(world: World, path: str) -> None:
    assert fetch(world.stage.port, path)[0] == 404


def test_the_address_is_the_one_that_was_asked_or_the_public_one(make_world: MakeWorld) -> None:
    world = make_world()
    port = world.stage.port
    asked = fetch(port, "/install.sh", f"localhost:{port}")[1]
    assert f"\nserver=http://localhost:{port}\n".encode() in asked
    for host in ("127.0.0.1:$(id)", "localhost:1'2", "localhost:80/x"):
        assert fetch(port, "/install.sh", host)[0] in (401, 404), host

    def with_public_url(settings: Settings) -> Settings:
        return replace(settings, http=replace(settings.http, public_url="https://cloud.example/"))

    make_world(change=with_public_url)
    asked = fetch(port, "/install.sh", f"127.0.0.1:{port}")[1]
    assert b"\nserver=https://cloud.example\n" in asked


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    server = ServerProcess(tmp_path / "home")
    server.home.mkdir()
    yield server
    server.close()


class NewUser:
    """A person with an empty home, Python and nothing else."""

    def __init__(self, home: Path) -> None:
        home.mkdir()
        self.home = home
        self.target = home / "bin" / "paddlecloud"

    def runs(self, script: str, **more: str) -> subprocess.CompletedProcess[str]:
        environ = {"HOME": str(self.home), "PATH": "/usr/bin:/bin", "PYTHON": sys.executable}
        return subprocess.run(
            ["sh", "-c", script], env=environ | more, capture_output=True, text=True, timeout=60
        )

    def installs(self, url: str, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
        """As `curl URL/install.sh | sh`; what curl does is done here."""
        script = self.home / "script"
        script.write_bytes(packages.install_script(url))
        return self.runs(f"sh -s -- {' '.join(words)} <script", **more)

    def runs_the_command(self, words: str) -> str:
        return self.runs(f". ./.bashrc; cd /; paddlecloud {words}").stdout


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NewUser:
    user = NewUser(tmp_path / "a user")
    monkeypatch.chdir(user.home)
    return user


@pytest.mark.slow(seconds=4)
def test_install_use_upgrade_and_uninstall(server: ServerProcess, user: NewUser) -> None:
    (server.home / "server.toml").write_text(
        f"team = true\n[http]\nport = {free_port()}\n[replica]\nagent = false\n"
    )
    server.start()
    url = f"http://127.0.0.1:{server.port}"
    (user.home / ".bashrc").write_text("alias ll='ls -l'\n")

    done = user.installs(url)
    assert done.returncode == 0, done.stderr
    assert "paddlecloud gen_token --email=" in done.stdout
    names = sorted(path.name for path in user.target.iterdir())
    assert names == ["conf", "lib", "paddlecloud", "paddlecloud.bat"]
    assert user.runs_the_command("version") == f"paddlecloud {__version__}\n"
    conf = user.target / "conf" / "client.conf"
    assert f"host = 127.0.0.1\nport = {server.port}\n" in conf.read_text()
    assert conf.stat().st_mode & 0o777 == 0o600
    size = sum(path.stat().st_size for path in user.target.rglob("*"))
    assert size < 6e6

    conf.write_text(conf.read_text().replace("user_id =", "user_id = ann"))
    (user.target / "lib" / "stale.py").touch()
    assert user.installs(url).returncode == 0
    assert "user_id = ann" in conf.read_text()
    assert not (user.target / "lib" / "stale.py").exists()
    assert (user.home / ".bashrc").read_text().count("bin/paddlecloud") == 1

    assert user.installs(url, "--uninstall").stdout.startswith("removed")
    assert (user.home / ".bashrc").read_text() == "alias ll='ls -l'\n"
    assert [path.name for path in user.target.iterdir()] == ["conf"]


@pytest.mark.slow(seconds=4)
def test_a_certificate_that_the_machine_does_not_know(
    server: ServerProcess, user: NewUser, tmp_path: Path
) -> None:
    cert, key = issue(an_issuer(tmp_path / "tls"), server.home / "tls")
    port = free_port()
    (server.home / "server.toml").write_text(
        f"team = true\n[http]\nhost = '127.0.0.1'\nport = {port}\n"
        f"tls_cert = '{cert}'\ntls_key = '{key}'\nallowed_hosts = ['localhost']\n"
    )
    server.start()
    url = f"https://localhost:{port}"
    refused = user.installs(url)
    assert refused.returncode == 1
    assert f"the certificate of {url} is not trusted" in refused.stderr
    assert "set PADDLECLOUD_CA_FILE" in refused.stderr
    assert not user.target.exists()

    done = user.installs(url, PADDLECLOUD_CA_FILE=str(tmp_path / "tls" / "issuer.pem"))
    assert done.returncode == 0, done.stderr
    (tmp_path / "tls" / "issuer.pem").unlink()
    assert "server: ok" in user.runs_the_command("doctor")


@pytest.mark.slow(seconds=2)
def test_what_cannot_be_fetched_or_arrives_damaged_changes_nothing(user: NewUser) -> None:
    gone = user.installs(f"http://127.0.0.1:{free_port()}")
    assert (gone.returncode, user.target.exists()) == (1, False)
    assert "cannot be fetched: [Errno 111] Connection refused" in gone.stderr
    assert gone.stderr.count("\n") == 1
    served = user.home / "served"
    served.mkdir()
    (served / packages.ARCHIVE).write_bytes(packages.archive("http://x")[:-10])
    (served / f"{packages.ARCHIVE}.sha256").write_text(f"{'0' * 64}  {packages.ARCHIVE}\n")
    port = free_port()
    with subprocess.Popen(
        [sys.executable, "-m", "http.server", str(port), "--bind", "127.0.0.1"],
        cwd=served, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
    ) as web:  # fmt: skip
        try:
            script = f"until (: </dev/tcp/127.0.0.1/{port}) 2>/dev/null; do :; done"
            subprocess.run(["bash", "-c", script], check=True, timeout=30)
            damaged = user.installs(f"http://127.0.0.1:{port}")
        finally:
            web.terminate()
    assert (damaged.returncode, user.target.exists()) == (1, False)
    assert "arrived damaged" in damaged.stderr


@pytest.mark.slow(seconds=3)
def test_the_wheel_installs_without_an_index(user: NewUser) -> None:
    (user.home / packages.WHEEL).write_bytes(packages.wheel())
    env = user.home / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", env], check=True)
    pip = f"{sys.executable} -m pip --python env/bin/python --disable-pip-version-check"
    done = user.runs(f"{pip} install --quiet --no-index --no-compile ./{packages.WHEEL}")
    assert done.returncode == 0, done.stderr
    assert user.runs("env/bin/paddlecloud version").stdout == f"paddlecloud {__version__}\n"
