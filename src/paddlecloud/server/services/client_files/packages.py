"""Builds the client's wheel, archive and install script from the files of the running server.

All are the same byte for byte on every server of one version. The wheel holds the whole package,
so that its extras work. The archive holds the client's part and needs no installation: it is laid
out as the documents of 2020 show, with the address of this server in its client.conf.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import shlex
import tarfile
import zipfile
from base64 import urlsafe_b64encode
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import paddlecloud
from paddlecloud import __version__
from paddlecloud.client.config.template import file_for_server

WHEEL = f"paddlecloud-{__version__}-py3-none-any.whl"
ARCHIVE = "paddlecloud_stable.tar.gz"
SCRIPT = "install.sh"
_HERE = Path(__file__).parent
_PACKAGE = Path(paddlecloud.__file__).parent
_EPOCH = (1980, 1, 1, 0, 0, 0)
_SERVER_ONLY = frozenset(("agent", "backends", "db", "scheduler", "server", "stores"))
_FIRST_TIME = 1_577_836_800
"""2020-01-01; times of files in the archive are in the five years from then on."""
_TIMES = 5 * 365 * 86400
_WHEEL_TAGS = (
    "Wheel-Version: 1.0\nGenerator: paddlecloud\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
)
_NO_METADATA = f"Metadata-Version: 2.1\nName: paddlecloud\nVersion: {__version__}\n"
_ENTRY_POINTS = "[console_scripts]\npaddlecloud = paddlecloud.cli.main:main\n"


def content(name: str, url: str) -> bytes | None:
    """A file by its name, for users who reach this server at `url`; None: there is no such file.
    NAME.sha256 is the checksum of NAME, as sha256sum prints it."""
    whole = name.removesuffix(".sha256")
    if whole == WHEEL:
        data = wheel()
    elif whole == ARCHIVE:
        data = archive(url)
    elif whole == SCRIPT:
        data = install_script(url)
    else:
        return None
    return data if whole == name else f"{hashlib.sha256(data).hexdigest()}  {whole}\n".encode()


@cache
def wheel() -> bytes:
    try:
        metadata = distribution("paddlecloud").read_text("METADATA") or _NO_METADATA
    except PackageNotFoundError:  # the package was found on PYTHONPATH
        metadata = _NO_METADATA
    about = f"paddlecloud-{__version__}.dist-info"
    files = {f"paddlecloud/{name}": data for name, data in _package_files().items()} | {
        f"{about}/METADATA": metadata.encode(),
        f"{about}/WHEEL": _WHEEL_TAGS.encode(),
        f"{about}/entry_points.txt": _ENTRY_POINTS.encode(),
    }
    record = [f"{name},{_record_hash(data)},{len(data)}\n" for name, data in files.items()]
    files[f"{about}/RECORD"] = "".join([*record, f"{about}/RECORD,,\n"]).encode()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as target:
        for name, data in files.items():
            info = zipfile.ZipInfo(name, _EPOCH)
            info.external_attr = 0o644 << 16
            target.writestr(info, data, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def archive(url: str) -> bytes:
    """Only client.conf depends on the address. It is compressed by itself: gzip reads two streams
    one after the other as one."""
    conf = {"conf/client.conf": (file_for_server(url).encode(), 0o600)}
    end = bytes(2 * tarfile.BLOCKSIZE)
    return _archive_without_conf() + gzip.compress(_tar_members(conf) + end, mtime=0)


@cache
def _archive_without_conf() -> bytes:
    files = {
        "paddlecloud": ((_HERE / "paddlecloud.sh").read_bytes(), 0o755),
        "paddlecloud.bat": ((_HERE / "paddlecloud.bat").read_bytes(), 0o755),
        "lib/run.py": ((_PACKAGE / "cli" / "launcher.py").read_bytes(), 0o644),
    }
    for name, data in _package_files().items():
        if name.partition("/")[0] not in _SERVER_ONLY:
            files[f"lib/paddlecloud/{name}"] = (data, 0o644)
    return gzip.compress(_tar_members(files), compresslevel=6, mtime=0)


def install_script(url: str) -> bytes:
    """The script that installs the archive of the server at `url`."""
    text = (_HERE / SCRIPT).read_text(encoding="utf-8")
    return text.replace("\nserver=\n", f"\nserver={shlex.quote(url)}\n", 1).encode()


def _package_files() -> dict[str, bytes]:
    """The files of the package by their names in it, sorted."""
    paths = sorted(path for path in _PACKAGE.rglob("*") if path.is_file())
    names = {path: path.relative_to(_PACKAGE).as_posix() for path in paths}
    return {
        name: path.read_bytes() for path, name in names.items() if "__pycache__" not in path.parts
    }


def _record_hash(data: bytes) -> str:
    digest = urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f"sha256={digest}"


def _tar_members(files: dict[str, tuple[bytes, int]]) -> bytes:
    """Members of a tar archive below `paddlecloud/`, without the mark at its end.

    The time of a file comes from its content: Python uses compiled code again if time and size of
    the source are the same, and a newer version may be unpacked over an older one.
    """
    members = []
    for name, (data, mode) in files.items():
        info = tarfile.TarInfo(f"paddlecloud/{name}")
        info.size, info.mode = len(data), mode
        info.mtime = _FIRST_TIME + int.from_bytes(hashlib.sha256(data).digest()[:4]) % _TIMES
        padding = bytes(-len(data) % tarfile.BLOCKSIZE)
        members.append(info.tobuf(tarfile.PAX_FORMAT) + data + padding)
    return b"".join(members)
