"""What old scripts use of `paddle.v2.dataset.common` to fetch a data set: a file once, by md5."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from urllib.request import urlopen

from paddlecloud.data.recordio.atomic_file import SafeFile

SECONDS = 60.0
_TRIES = 3


def data_home() -> str:
    """Where data sets are kept; scripts overwrite `DATA_HOME` with a path of their own."""
    return str(Path("~/.cache/paddle/dataset").expanduser())


def md5file(path: str) -> str:
    """The md5 of a file, in hex."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "md5").hexdigest()


def download(url: str, module_name: str, md5sum: str, save_name: str | None = None) -> str:
    """The path of the file behind an address, fetched unless it is there and right."""
    import sys  # noqa: PLC0415 - only here: the module exists only when an old script imported it

    # A script may have changed the `DATA_HOME` of the old module.
    home = getattr(sys.modules.get("paddle.v2.dataset.common"), "DATA_HOME", None)
    directory = Path(home or data_home()) / module_name
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / (save_name or url.rsplit("/", 1)[-1])
    for _ in range(_TRIES):
        if path.exists() and md5file(str(path)) == md5sum:
            return str(path)
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"not an http address: {url}")
        with SafeFile(path) as file, urlopen(url, timeout=SECONDS) as response:
            shutil.copyfileobj(response, file)
    if md5file(str(path)) == md5sum:
        return str(path)
    raise RuntimeError(f"{url} was fetched {_TRIES} times and never had the md5 {md5sum}")
