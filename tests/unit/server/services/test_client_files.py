"""The client that a server gives out: the same bytes each time; it runs where it is unpacked."""

from __future__ import annotations

import csv
import hashlib
import io
import subprocess
import sys
import tarfile
import zipfile
from base64 import urlsafe_b64encode
from pathlib import Path

import pytest

from paddlecloud import __version__
from paddlecloud.server.services.client_files import packages

URL = "https://cloud.example:8443"


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("any where")
    subprocess.run(["tar", "-xzf", "-"], input=packages.archive(URL), cwd=target, check=True)
    return target / "paddlecloud"


def run(unpacked: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    """The command as a person runs it who has nothing but Python."""
    home = unpacked.parent / "home"
    environ = {"HOME": str(home), "PATH": "/usr/bin:/bin", "PADDLECLOUD_PYTHON": sys.executable}
    return subprocess.run(
        [unpacked / "paddlecloud", *words], env=environ | more, capture_output=True, text=True
    )


def test_the_archive_is_laid_out_as_documented_and_holds_the_client_alone(unpacked: Path) -> None:
    assert sorted(path.name for path in unpacked.iterdir()) == [
        "conf", "lib", "paddlecloud", "paddlecloud.bat",
    ]  # fmt: skip
    assert (unpacked / "conf" / "client.conf").stat().st_mode & 0o777 == 0o600
    package = unpacked / "lib" / "paddlecloud"
    assert (package / "client" / "sdk.py").is_file()
    assert not (package / "server").exists()
    batch = (unpacked / "paddlecloud.bat").read_bytes()
    assert batch.count(b"\r\n") == batch.count(b"\n") > 3


def test_it_runs_from_any_directory_and_finds_its_configuration(unpacked: Path) -> None:
    assert run(unpacked, "version").stdout == f"paddlecloud {__version__}\n"
    shown = run(unpacked, "config", "show", "--origin")
    rows = [line.split("\t") for line in shown.stdout.splitlines()]
    conf = f"{unpacked}/conf/client.conf"
    found = {name: (value, origin.rpartition(":")[0]) for name, value, origin in rows}
    assert found["openapi.host"] == ("cloud.example", conf)
    assert found["openapi.port"] == ("8443", conf)
    assert found["openapi.scheme"] == ("https", conf)


def test_the_file_of_the_home_comes_first(unpacked: Path, tmp_path: Path) -> None:
    (tmp_path / "client.conf").write_text("[openapi]\nhost = other.example\n")
    shown = run(unpacked, "config", "show", PADDLECLOUD_HOME=str(tmp_path))
    assert "openapi.host: other.example\n" in shown.stdout


def test_an_old_python_is_named(unpacked: Path, tmp_path: Path) -> None:
    """The text of the launcher, as an old version would read it."""
    text = (unpacked / "lib" / "run.py").read_text()
    (tmp_path / "run.py").write_text(text.replace("NEEDED = (3, 11)", "NEEDED = (9, 9)"))
    done = subprocess.run(
        [sys.executable, tmp_path / "run.py"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.startswith(
        f"paddlecloud needs Python 3.11 or newer, and {sys.executable} is"
    )


def test_files_are_the_same_each_time_and_differ_by_address_in_the_configuration_only() -> None:
    one = packages.archive(URL)
    packages._archive_without_conf.cache_clear()
    assert packages.archive(URL) == one
    first = packages.wheel()
    packages.wheel.cache_clear()
    assert packages.wheel() == first
    other = packages.archive("http://10.0.0.1:80")
    members = [members_of(data) for data in (one, other)]
    differ = {name for name in members[0] if members[0][name] != members[1][name]}
    assert differ == {"paddlecloud/conf/client.conf"}


def members_of(data: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        files = [(info.name, archive.extractfile(info)) for info in archive]
        return {name: file.read() for name, file in files if file is not None}


def test_the_wheel_is_a_wheel() -> None:
    with zipfile.ZipFile(io.BytesIO(packages.wheel())) as wheel:
        names = wheel.namelist()
        about = f"paddlecloud-{__version__}.dist-info"
        rows = list(csv.reader(io.StringIO(wheel.read(f"{about}/RECORD").decode())))
        for name, recorded, size in rows[:-1]:
            data = wheel.read(name)
            digest = urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            assert (recorded, int(size)) == (f"sha256={digest}", len(data)), name
        assert sorted(row[0] for row in rows) == sorted(names)
        metadata = wheel.read(f"{about}/METADATA").decode()
    assert f"\nVersion: {__version__}\n" in metadata
    assert "Provides-Extra: server" in metadata
    assert not [name for name in names if "__pycache__" in name]


def test_checksums_are_those_of_the_files() -> None:
    for name in (packages.WHEEL, packages.ARCHIVE, packages.SCRIPT):
        data, line = packages.content(name, URL), packages.content(f"{name}.sha256", URL)
        assert data is not None
        assert line == f"{hashlib.sha256(data).hexdigest()}  {name}\n".encode()
    for name in ("", ".sha256", "paddlecloud-9-py3-none-any.whl", "x.sha256.sha256", "__init__.py"):
        assert packages.content(name, URL) is None


def test_the_address_is_quoted_in_the_script() -> None:
    script = packages.install_script("http://x;$(touch y)").decode()
    assert "\nserver='http://x;$(touch y)'\n" in script
    checkout = Path(packages.__file__).with_name(packages.SCRIPT).read_text()
    assert "\nserver=\n" in checkout
    assert Path("scripts/install.sh").samefile(Path(packages.__file__).with_name("install.sh"))
