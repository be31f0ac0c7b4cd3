"""Checks just before a replica starts: whether its PaddlePaddle has parameter servers.

A job in PSERVER mode needs a PaddlePaddle with parameter servers, which current wheels do not have:
they fail late, with an error that does not name the cause. So this module finds the package that
the job's `python` would import, and searches its native library for the class that is needed.
Nothing is run or imported, which would take seconds. What is not found in time is not reported. It
also prepares stack dumps (`stack_dump`).

PYTHONPATH, PATH and HOME are the job's, and so are the files there. The agent reads them only for a
job of its own user. For a job with a uid of its own the replica's process does, with its uid,
namespace and limits, right before exec (see `spawn_child`): root could read directories that are
closed to the job.
"""

from __future__ import annotations

import os
import re
import stat
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from paddlecloud.agent.supervisor import stack_dump
from paddlecloud.messages import render
from paddlecloud.model.diagnosis.exit_status import NO_PSERVER

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from paddlecloud.agent.replica.records import Launch
    from paddlecloud.agent.server_link.orders import Run

_NEEDED = b"DistFleetWrapper"
_LIBRARIES = ("base/libpaddle.so", "fluid/libpaddle.so", "fluid/core_avx.so", "fluid/core_noavx.so")
_PYTHONS = ("python3", "python")
_VERSION = re.compile(r"^full_version\s*=\s*['\"]([\w.+-]{1,40})['\"]", re.MULTILINE)
_SYSTEM = re.compile(r"include-system-site-packages\s*=\s*true", re.IGNORECASE)
_LARGEST = 4 * 2**30
_MAX_KNOWN = 64
_TIMEOUT = 10.0
_MAX_READ = 10_000
_BLOCK = 4 * 1024 * 1024
_known: dict[tuple[str, int, int], bool] = {}
"""Whether the class is in a library, by its path, time and size."""
_lock = threading.Lock()


def complete(launch: Launch, run: Run) -> Launch:
    """The order of a replica with the results of the checks. May raise OSError."""
    if run["stacks"]:
        env = stack_dump.prepare(Path(launch["root"]), launch["env"], owner=run["uid"])
        launch = {**launch, "env": env}
    if run["pserver_mode"]:
        if run["uid"] is not None:
            return {**launch, "pserver_mode": True}
        found = without_pserver(launch["env"])
        if found is not None:
            launch = {**launch, "preamble": preamble(*found), "hint": NO_PSERVER}
    return launch


def preamble(version: str, path: str) -> str:
    """The first lines of the log of a job without parameter servers, in both languages."""
    params = {"version": version, "path": path}
    lines = (render("preflight_no_pserver", params, lang) for lang in ("en", "zh"))
    return "".join(f"[paddlecloud] {line}\n" for line in lines)


def without_pserver(env: Mapping[str, str], *, seconds: float = _TIMEOUT) -> tuple[str, str] | None:
    """Version and path of the PaddlePaddle that this environment's Python would import, if it has
    no parameter servers; None if it has, or that is not known within `seconds`."""
    deadline = time.monotonic() + seconds
    with suppress(OSError, ValueError):
        for place in _search_path(env):
            package = Path(place) / "paddle"
            with suppress(OSError):
                if (package / "__init__.py").is_file():
                    break
        else:
            return None
        library = next((package / name for name in _LIBRARIES if (package / name).is_file()), None)
        if library is not None and not _has_pserver(library, deadline):
            version = _VERSION.search(_beginning(package / "version" / "__init__.py"))
            return version[1] if version else "?", str(package)
    return None


def _search_path(env: Mapping[str, str]) -> Iterator[str]:
    yield from (place for place in env.get("PYTHONPATH", "").split(":") if place)
    python = _python(env.get("PATH", ""))
    if python is None:
        return
    venv = python.parent.parent
    yield from _site_packages(venv, "site-packages")
    if (venv / "pyvenv.cfg").is_file() and not _SYSTEM.search(_beginning(venv / "pyvenv.cfg")):
        return
    home = env.get("HOME")
    if home:
        yield from _site_packages(Path(home) / ".local", "site-packages")
    prefix = python.resolve().parent.parent
    for directory in ("site-packages", "dist-packages"):
        yield from _site_packages(prefix, directory)
        yield from _site_packages(Path("/usr/local"), directory)
    yield "/usr/lib/python3/dist-packages"


def _python(path: str) -> Path | None:
    for name in _PYTHONS:
        for place in path.split(":"):
            found = Path(place) / name
            with suppress(OSError):
                if place and os.access(found, os.X_OK) and found.is_file():
                    return found
    return None


def _site_packages(prefix: Path, directory: str) -> Iterator[str]:
    with suppress(OSError):
        yield from (str(place) for place in sorted(prefix.glob(f"lib/python3.*/{directory}")))


def _has_pserver(library: Path, deadline: float) -> bool:
    """True also where that is not known, so that no warning is wrong."""
    try:
        fd = os.open(library, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return True
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or not 0 < found.st_size <= _LARGEST:
            return True
        key = (str(library), found.st_mtime_ns, found.st_size)
        with _lock:
            if key not in _known:
                if len(_known) >= _MAX_KNOWN:
                    _known.clear()
                _known[key] = _contains(fd, deadline)
            return _known[key]
    except OSError:
        return True
    finally:
        os.close(fd)


def _contains(fd: int, deadline: float) -> bool:
    """Reads the file and does not map it: a mapped file that is truncated would kill the agent.
    Raises TimeoutError."""
    rest = b""
    while block := os.read(fd, _BLOCK):
        if time.monotonic() > deadline:
            raise TimeoutError
        if _NEEDED in rest + block[: len(_NEEDED)] or _NEEDED in block:
            return True
        rest = block[-len(_NEEDED) :]
    return False


def _beginning(path: Path) -> str:
    """The beginning of a text file; empty where there is none. The file is the job's: a pipe, or an
    endless file, must not block the agent."""
    with suppress(OSError):
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if stat.S_ISREG(os.fstat(fd).st_mode):
                return os.read(fd, _MAX_READ).decode("utf-8", "replace")
        finally:
            os.close(fd)
    return ""
