"""Finds, starts, replaces and stops the embedded server of a user.

The state is in `<home>/server`: a running server holds `lock` for its life (a pid may be reused, a
lock may not), `server.json` has its URL and the id of its start, and a client that starts a server
holds `start.lock`, so two commands at once start one. `settings.json` outlives a stop: it names the
settings file of the last start, because a team server that was restarted without its settings would
run the jobs of all users with the rights of its owner. Usually two small files are read; everything
else is imported when it is needed. The server is started as a process, never imported.
"""
# Every command comes through here, and importing pathlib costs 8 ms.
# ruff: noqa: PTH103, PTH108, PTH110, PTH115, PTH116, PTH118, PTH123, PTH208

from __future__ import annotations

import json
import os
import sys
from time import monotonic, sleep

from paddlecloud import __version__
from paddlecloud.model.errors import PaddleCloudError, Refused, Unreachable
from paddlecloud.net.endpoint import Endpoint, split_url
from paddlecloud.net.http1 import Connection

TYPE_CHECKING = False
if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Mapping
    from typing import Any

    Note = Callable[..., None]

#: What `paddlecloud[server]` brings, by the names that are imported.
SERVER_PACKAGES = (
    "uvicorn", "starlette", "msgspec", "httptools", "uvloop", "prometheus_client", "re2",
    "cryptography",
)  # fmt: skip
#: Seconds until a started server has to answer; it needs less than one.
START_DEADLINE = 15.0
#: A server that was killed while it started is started again, so many times in all.
START_TRIES = 3
#: Seconds that a server gets to end after SIGTERM.
STOP_DEADLINE = 10.0
#: A healthy server on loopback answers within milliseconds.
HEALTH_TIMEOUT = 2.0
#: Bytes that fit on a disk with any space at all, and those that a start needs about.
_PAGE, _START_SPACE = 4096, 1 << 20
#: Settings of the client; the server and the jobs below it must not see them: what a process was
#: started with can be read for as long as it lives.
_KEYS = ("AK", "SK", "BOS_AK", "BOS_SK", "BOS_SESSION_TOKEN")
_CLIENT_ONLY = frozenset(
    f"PADDLECLOUD_{name}" for name in (*_KEYS, "CONFIG", "HOST", "PORT", "CA_FILE", "DEBUG")
)

#: Servers that this process started, so that one that ended does not stay as a zombie.
_children: list[subprocess.Popen[bytes]] = []


def find(home: str) -> Endpoint | None:
    """The endpoint in server.json, if the server holds its lock.

    Only the first request shows whether it answers: after a crash any program may listen there.
    """
    info = read_info(home)
    if not info or info["version"] != __version__ or not is_alive(home):
        return None
    return _endpoint(home, info)


def read_info(home: str) -> dict[str, Any]:
    """server.json; empty when there is none or it is not whole."""
    info = _read_json(_file(home, "server.json"))
    whole = all(isinstance(info.get(key), str) for key in ("url", "boot", "version"))
    return info if whole and isinstance(info.get("pid"), int) else {}


def ensure(
    home: str,
    environ: Mapping[str, str],
    note: Note | None = None,
    *,
    wake: bool = True,
    settings: str = "",
    lang: str = "en",
    fresh: bool = False,
) -> Endpoint:
    """The endpoint of a server that answers; one is started if none does.

    `settings` is the file it is started with; without one it is that of the last start. A server
    that runs with another one is refused. `fresh`: it is to start without the database that its
    home lost; refused if one runs.

    `note(code, **params)` is called for what takes long; `lang` is the language of the reason why a
    server cannot start. A server older than this program is replaced; a newer one is kept, because
    an older one cannot open its database. Without `wake` a server that was stopped stays stopped,
    and only one that crashed is started again.
    """
    _reap()
    try:
        # One by one: the mode is for the last directory of a path only.
        for path in (home, os.path.join(home, "server")):
            os.makedirs(path, mode=0o700, exist_ok=True)
    except OSError as error:
        raise _unusable(home, error) from error
    with _Held(_file(home, "start.lock")):
        known = read_info(home)
        gone = known.get("boot", "")
        old = None
        if is_alive(home):
            old = _outdated(home)
            found = _wait_for(home, None) if old is None else None
            if found is not None:
                if fresh:
                    raise Refused("server_runs_already", home=home)
                _check_settings(home, settings)
                return found
        _check_start(home, environ, wake)
        settings = settings or _settings_before(home, known)
        if old is not None:
            _notify(note, "server_replaced", old=old, new=__version__)
            stop(home)
        if path := settings or _team_settings(home):  # mostly a team server
            _notify(note, "server_starting_with", path=path)
        else:
            _notify(note, "server_starting")
        words = command(home, settings, "--lang", lang, *(["--fresh"] if fresh else []))
        return _start(home, server_environ(environ), gone, words)


def is_alive(home: str) -> bool:
    """Whether a server holds its lock, ready or not."""
    return _is_held(_file(home, "lock"))


def has_agent(home: str) -> bool:
    """Whether the agent of this machine runs: without a server only as long as jobs do."""
    return _is_held(os.path.join(home, "agent", "lock"))


def _is_held(path: str) -> bool:
    fcntl = _fcntl()
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise _unusable(path, error) from error
    try:
        # Shared: two clients that only check must not take each other for a server.
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(fd)


def answers(info: Mapping[str, Any]) -> bool:
    """Whether the very start that server.json names answers at its address."""
    _, host, port = split_url(info["url"])
    try:
        with Connection(host, port, timeout=HEALTH_TIMEOUT) as connection:
            response = connection.request("GET", "/healthz")
            return response.headers.get("x-paddlecloud-server", "") == str(info["boot"])
    except PaddleCloudError:
        return False


def stop(home: str, deadline: float = STOP_DEADLINE) -> bool:
    """End the server if one runs, and return whether one did; its jobs go on."""
    from signal import SIGTERM  # noqa: PLC0415 - it loads enum; only stopping needs it

    until = monotonic() + deadline
    if not is_alive(home):
        _bury(read_info(home), until)
        return False
    info = read_info(home)
    signalled = False
    while is_alive(home):
        if signalled and read_info(home).get("boot") not in (None, info["boot"]):
            break  # another client has started the next one
        if monotonic() > until:
            raise Unreachable("server_does_not_stop", home=home, seconds=f"{deadline:g}")
        if not signalled:
            # While it starts or stops there is no valid server.json: read it again.
            info = read_info(home)
            if info and _holds_lock(info, home):
                try:
                    os.kill(info["pid"], SIGTERM)
                    signalled = True
                except ProcessLookupError:
                    pass
        _reap()
        sleep(0.01)
    _bury(info, until)
    return True


def status(home: str) -> dict[str, object]:
    """What `server status` prints; starts nothing."""
    info = read_info(home) if is_alive(home) else {}
    ready = bool(info) and answers(info)
    return {"ready": ready, **{key: info.get(key) for key in ("url", "pid", "version")}}


def log_path(home: str) -> str:
    return _file(home, "server.log")


def _read_json(path: str) -> dict[str, Any]:
    try:
        with open(path, encoding="utf-8") as file:
            value = json.loads(file.read())
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _file(home: str, name: str) -> str:
    return os.path.join(home, "server", name)


def _unusable(path: str, error: OSError) -> Refused:
    return Refused("home_unusable", home=path, reason=error.strerror or str(error))


class _Held:
    """Holds an flock; waits for the one who has it, but not for ever."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> None:
        fcntl = _fcntl()
        try:
            self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise _unusable(self._path, error) from error
        until = monotonic() + 2 * START_DEADLINE
        while True:
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if monotonic() > until:
                    os.close(self._fd)
                    raise Unreachable("server_start_blocked", path=self._path) from None
                sleep(0.005)
            else:
                return

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)


def _fcntl() -> Any:
    try:
        import fcntl  # noqa: PLC0415 - there is none on Windows
    except ImportError:
        raise Refused("embedded_unsupported", system=sys.platform) from None
    return fcntl


def _check_start(home: str, environ: Mapping[str, str], wake: bool) -> None:
    """Whether this process may start a server. A job may not: the server would be one of its
    processes, and end with it. A crash leaves server.json behind, an orderly stop does not."""
    if not wake and not os.path.exists(_file(home, "server.json")):
        raise Unreachable("server_was_stopped")
    replica = environ.get("PADDLECLOUD_REPLICA")
    if replica:
        raise Refused("server_start_in_job", replica=replica)


def _check_settings(home: str, settings: str) -> None:
    """Refused if the running server has other settings than these."""
    if not settings or os.path.realpath(settings) == (own := read_info(home).get("settings", "")):
        return
    if own:
        raise Refused("server_runs_with", own=own, path=settings)
    raise Refused("server_runs_without", path=settings)


def _settings_before(home: str, known: Mapping[str, Any]) -> str:
    """The settings file of the last start, if it had one; never none in place of a lost one."""
    kept = _read_json(_file(home, "settings.json"))
    path = str(kept.get("path") or known.get("settings") or "")
    if path and not os.path.exists(path):
        raise Refused("server_settings_gone", home=home, path=path)
    return path


def command(home: str, settings: str = "", *more: str) -> list[str]:
    """The words that run a server of this home."""
    # -P: a json.py in some directory must not become part of the server.
    words = [sys.executable, "-P", "-m", "paddlecloud.server", "--home", home, *more]
    return [*words, "--settings", settings] if settings else words


def _team_settings(home: str) -> str:
    """The settings file in the home that a server reads by default, if it makes it a team server;
    else empty. The server validates it."""
    path = os.path.join(home, "server.toml")
    try:
        with open(path, encoding="utf-8") as file:
            lines = ["".join(line.split()) for line in file]
    except (OSError, ValueError):
        return ""
    return path if "team=true" in lines else ""


def server_environ(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environ.items() if name not in _CLIENT_ONLY}


def check_installed() -> None:
    """Refused if the packages of the server are not there."""
    from importlib.util import find_spec  # noqa: PLC0415 - only a start needs it

    for package in ("paddlecloud.server", *SERVER_PACKAGES):
        if find_spec(package) is None:
            raise Refused("server_not_installed", package=package)


def _start(home: str, environ: Mapping[str, str], gone: str, words: list[str]) -> Endpoint:
    """Start a server. One that was ended by a signal logged no reason: it is started again."""
    log_size = os.stat(log_path(home)).st_size if os.path.exists(log_path(home)) else 0
    for _ in range(START_TRIES):
        process = _spawn(home, environ, words)
        found = _wait_for(home, process, gone)
        if found is not None:
            return found
        code = process.wait()
        if code >= 0:
            break
    raise _died(home, code, log_size)


def _outdated(home: str) -> str | None:
    """The version of the running server if it is older than this program."""
    info = read_info(home)
    if not info or _numbers(info["version"]) >= _numbers(__version__):
        return None
    return str(info["version"]) if _holds_lock(info, home) else None


def _notify(note: Note | None, code: str, **params: object) -> None:
    if note is not None:
        note(code, **params)


def _numbers(version: str) -> list[int]:
    numbers = []
    for part in version.split("."):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        numbers.append(int(digits or 0))
    return numbers


def _spawn(home: str, environ: Mapping[str, str], words: list[str]) -> subprocess.Popen[bytes]:
    """Start a server in a session of its own, which inherits nothing but its log."""
    import subprocess  # noqa: PLC0415 - 13 ms that only a start needs

    check_installed()
    try:
        log = os.open(log_path(home), os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise _unusable(log_path(home), error) from error
    try:
        process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            env=environ,
            start_new_session=True,
        )
    finally:
        os.close(log)
    _children.append(process)
    return process


def _wait_for(
    home: str, process: subprocess.Popen[bytes] | None, gone: str = ""
) -> Endpoint | None:
    """The endpoint as soon as a server answers; None if there is none to wait for any more.

    `gone` is the id of a start that has ended: another program may listen at its URL now.
    """
    until = monotonic() + START_DEADLINE
    while True:
        info = read_info(home)
        if info and info["boot"] != gone and answers(info):
            endpoint = _endpoint(home, info)
            if endpoint is not None:
                return endpoint
        if (process is None or process.poll() is not None) and not is_alive(home):
            return None
        if monotonic() > until:
            raise Unreachable("server_not_ready", seconds=f"{START_DEADLINE:g}", log=log_path(home))
        sleep(0.005)


def _endpoint(home: str, info: Mapping[str, Any]) -> Endpoint | None:
    """That start of the server, with the keys of its owner; None where those are not whole."""
    keys = _read_json(_file(home, "credentials.json"))
    if "ak" not in keys or "sk" not in keys:
        return None
    return Endpoint(info["url"], keys["ak"], keys["sk"], info["boot"])


def _died(home: str, code: int, log_size: int) -> Refused:
    """Why it ended, by the last line of its log.

    On a full disk it could not log the reason, so the disk is checked first.
    """
    from contextlib import suppress  # noqa: PLC0415 - only a failed start needs it

    last = "".join(last_lines(log_path(home), 1, log_size)).strip()
    scratch = _file(home, "probe.new")
    try:
        with open(scratch, "wb") as file:
            file.write(bytes(_PAGE if last else _START_SPACE))
    except OSError as error:
        reason = error.strerror or str(error)
        return Refused("server_files_unusable", home=home, reason=reason)
    finally:
        with suppress(OSError):
            os.unlink(scratch)
    if not last:
        return Refused("server_died_silently", code=code, log=log_path(home))
    return Refused("server_died", code=code, last=last, log=log_path(home))


def last_lines(path: str, count: int, begin: int = 0, size: int | None = None) -> list[str]:
    """The last lines of a text file that have something in them, from byte `begin` on, of its
    first `size` bytes if that is given."""
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size if size is None else size
            start = max(begin if begin <= size else 0, size - 64 * 1024)
            file.seek(start)
            text = file.read(size - start).decode("utf-8", "replace")
    except OSError:
        return []
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-count:] if count else []


def _holds_lock(info: Mapping[str, Any], home: str) -> bool:
    """Whether that pid is the server: it has the lock file open, or answers with its own boot id.

    A crash leaves server.json behind, and the pid in it may be that of another process by now.
    """
    wanted = os.path.realpath(_file(home, "lock"))
    folder = f"/proc/{info['pid']}/fd"
    try:
        names = os.listdir(folder)
    except OSError:
        return answers(info)
    return any(_link(f"{folder}/{name}") == wanted for name in names)


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


def _bury(info: Mapping[str, Any], until: float) -> None:
    """Wait for the rest of a server of ours: it lets go of its lock a moment before it is gone."""
    pid = info.get("pid")
    while any(child.pid == pid and child.poll() is None for child in _children):
        if monotonic() > until:
            break
        sleep(0.005)
    _reap()


def _reap() -> None:
    _children[:] = [child for child in _children if child.poll() is None]
