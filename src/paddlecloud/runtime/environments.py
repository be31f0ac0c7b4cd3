"""Python environments of `--requirements`: made once, by content, and shared by jobs and replicas.

An environment is known by what goes into it: the text of the file, the interpreter, and what the
job tells pip. It is made by a process of its own (`installing`) that a thread of ours waits for, so
a long install holds up nobody else; whoever needs it is told to come again, and is hurried when it
is there. One exists as soon as its record does; what has no record is rubbish, unless somebody
holds its lock. Each user has environments of their own: a package may do anything while installed.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import platform
import shutil
import signal
import sys
import threading
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from paddlecloud.model.env import FALLBACK_PATH
from paddlecloud.model.errors import PaddleCloudError, Refused, Retry
from paddlecloud.runtime import installing, lastwords, record, workspace
from paddlecloud.runtime.book import Stage

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator, Mapping

    from paddlecloud.runtime.book import Tracked
    from paddlecloud.runtime.materials import Kept
    from paddlecloud.runtime.orders import Run
    from paddlecloud.runtime.site import Site

_FORMAT = 1
_SHOWN_LINES = 20
_TOLD_LINES = 3
_TAIL_BYTES = 64 * 1024
#: A package index that cannot be reached is asked so often, with these pauses in seconds.
_PAUSES = (5.0, 20.0)
_LONGEST_SECONDS = 3600.0
#: So many are made at once.
_AT_ONCE = 4
_PROBE_SECONDS = 20.0
_LOOK_SECONDS = 0.1
_OWN = "own"
_NETWORK = (
    b"Max retries exceeded",
    b"NewConnectionError",
    b"Failed to establish a new connection",
    b"Temporary failure in name resolution",
    b"Connection reset by peer",
    b"Connection refused",
    b"Read timed out",
    b"ConnectTimeoutError",
    b"ReadTimeoutError",
    b"ProxyError",
    b"IncompleteRead",
)
_PROBE = "import sys; print(sys.executable, sys.version)"
_BOOT = (
    "import os, sys; sys.path.insert(0, sys.argv[1]); from paddlecloud.runtime import installing; "
    "installing.main(os.environ)"
)


class _Making:
    """One environment on its way. `waiting` and `over` are guarded by the lock of all."""

    def __init__(self) -> None:
        self.waiting: dict[str, Tracked] = {}
        self.cancelled = threading.Event()
        """Nobody waits for it any more."""
        self.process: subprocess.Popen[bytes] | None = None
        self.over = False
        self.error: Exception | None = None
        self.tail = b""
        self.took = 0.0


class Environments:
    """Safe for several threads. `hurry` is told who need not wait any more, `grew` how many bytes
    were added to the cache."""

    def __init__(
        self, site: Site, hurry: Callable[[Tracked], object], grew: Callable[[int], object]
    ) -> None:
        self._site = site
        self._directory = site.directory / "cache" / "envs"
        self._hurry = hurry
        self._grew = grew
        self._lock = threading.Lock()
        self._makings: dict[Path, _Making] = {}
        self._room = threading.Semaphore(_AT_ONCE)

    def ready(self, tracked: Tracked) -> str:
        """Where the environment of this replica is. Retry while it is made, Refused when it cannot
        be; the log of the replica says what goes on."""
        run = tracked.ordered
        python = find_python(run["env"])
        key = key_of(run["requirements"], identity(python, uid=run["uid"]), run["env"])
        folder = self._directory / str(_OWN if run["uid"] is None else run["uid"])
        target = folder / key
        if _say_first(tracked, key):
            self._site.wake_reporter()
        found = self._look_after(target, tracked)
        if found is not None:
            tracked.environment = found
            return found
        raise self._make(target, python, tracked)

    def leave(self, tracked: Tracked) -> bool:
        """It does not need its environment any more; whether nothing runs on its behalf."""
        with self._lock:
            mine = [(t, m) for t, m in self._makings.items() if tracked.id in m.waiting]
            for target, making in mine:
                if making.over or len(making.waiting) > 1:
                    del making.waiting[tracked.id]
                else:
                    making.cancelled.set()
                    _terminate(making)
                if making.over and not making.waiting:
                    del self._makings[target]
            return not any(making.cancelled.is_set() for _, making in mine)

    def kept(self) -> Iterator[Kept]:
        """Every environment that no replica uses: when it was used last, its size, how to delete
        it. Rubbish of installs that were killed is deleted on the way."""
        if not self._directory.is_dir():
            return
        used = self._used()
        for found in sorted(self._directory.glob("*/*.json")):
            made = record.read(found)
            home = found.parent / str((made or {}).get("name", ""))
            if made is None or str(home) in used:
                continue
            used_at = found.stat().st_mtime_ns
            yield used_at, int(made.get("size", 0)), partial(self._remove, found, home, used_at)
        for folder in self._directory.glob("*"):
            self._sweep(folder)

    def _look_after(self, target: Path, tracked: Tracked) -> str | None:
        """The environment if it is there; raises what became of the making that it waited for."""
        mine = None
        with self._lock:
            making = self._makings.get(target)
            if making is not None and making.over:
                mine = making.waiting.pop(tracked.id, None)
                if not making.waiting:
                    del self._makings[target]
            found = use(target)
        if making is not None and mine is not None:
            _say(tracked, _words(making))
            if making.error is not None:
                raise making.error
        return found

    def _make(self, target: Path, python: str, tracked: Tracked) -> Retry:
        """See to it that it is made, and that this replica is told when it is over."""
        run = tracked.ordered
        with self._lock:
            making = self._makings.get(target)
            if making is None or making.over:
                making = self._makings[target] = _Making()
                plan = _plan(target, python, run)
                body = threading.Thread(
                    target=self._work, args=(target, making, plan), name="installer", daemon=True
                )
                body.start()
            if not making.cancelled.is_set():
                making.waiting[tracked.id] = tracked
        return Retry("environment_making", key=target.name)

    def _work(self, target: Path, making: _Making, plan: installing.Plan) -> None:
        try:
            with self._room:
                self._install(target, making, plan)
        except (OSError, PaddleCloudError) as error:
            making.error = error
        except Exception as error:  # noqa: BLE001 - whoever waits has to hear of it
            self._site.journal.failure("an environment could not be made")
            making.error = Refused("environment_failed", python=plan["python"], lines=repr(error))
        with self._lock:
            making.over = True
            making.cancelled.clear()
            waiting = list(making.waiting.values())
            if not waiting:
                self._makings.pop(target, None)
        for tracked in waiting:
            self._hurry(tracked)

    def _install(self, target: Path, making: _Making, plan: installing.Plan) -> None:
        folder = target.parent
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = os.open(f"{target}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if _take(lock, making):
                _remove_rubbish(target)
                self._try(target, making, plan, lock)
        finally:
            os.close(lock)

    def _try(self, target: Path, making: _Making, plan: installing.Plan, lock: int) -> None:
        began = time.monotonic()
        for pause in (*_PAUSES, None):
            if making.cancelled.is_set() or use(target) is not None:
                return
            code = self._run(making, plan, lock)
            making.took = time.monotonic() - began
            if code == 0:
                self._made(target, making)
                return
            making.error = _trouble(code, making.tail, plan["python"], tries=len(_PAUSES) + 1)
            if not isinstance(making.error, Retry):
                return
            if pause is None:
                making.error = Refused(making.error.code, **making.error.params)
            else:
                making.cancelled.wait(pause)

    def _made(self, target: Path, making: _Making) -> None:
        making.error = None
        made = record.read(target.with_name(f"{target.name}.json")) or {}
        self._grew(int(made.get("size", 0)))
        self._site.journal.info(f"environment {target.name} made in {making.took:.1f} s")

    def _run(self, making: _Making, plan: installing.Plan, lock: int) -> int:
        """One try; its exit code. The words of the installer are in `making.tail`."""
        import subprocess  # noqa: PLC0415 - 1 MB that an agent without such jobs never needs

        plan["name"] = f"{plan['key']}.{os.urandom(4).hex()}"
        here = str(Path(__file__).parents[2])
        log = Path(plan["directory"], f"{plan['name']}.log")
        try:
            with log.open("xb") as out, self._lock:
                if making.cancelled.is_set():
                    return installing.STOPPED
                making.process = subprocess.Popen(
                    [sys.executable, "-I", "-c", _BOOT, here, f"{plan['directory']}/"],
                    stdin=subprocess.PIPE,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    pass_fds=[lock],
                    start_new_session=True,
                )
            making.process.communicate(json.dumps(plan).encode())
            making.tail = _tail(log)
        finally:
            log.unlink(missing_ok=True)
        return making.process.returncode

    def _remove(self, found: Path, home: Path, used_at: int) -> None:
        """Delete an environment, unless somebody began to use it after it was listed."""
        with self._lock:
            if found.stat().st_mtime_ns != used_at:
                return
            found.unlink()
        workspace.remove(str(home))

    def _used(self) -> set[str]:
        """The environments that replicas on this machine were given."""
        # The order of one that is being made ready may not be written yet.
        waiting = (one for one in self._site.book.all() if one.stage is Stage.ORDERED)
        found = {one.environment for one in waiting if one.environment and not one.forget}
        for order in (self._site.directory / "replicas").glob(f"*/{record.ORDER}"):
            found.update((record.read(order) or {}).get("show") or ())
        return found

    def _sweep(self, folder: Path) -> None:
        for lock in folder.glob("*.lock"):
            with suppress(OSError):
                fd = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
                try:
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    _remove_rubbish(lock.with_suffix(""))
                finally:
                    os.close(fd)


def use(target: Path) -> str | None:
    """The whole environment known as `target`, marked as used now; None when there is none."""
    path = target.with_name(f"{target.name}.json")
    made = record.read(path)
    home = target.parent / str((made or {}).get("name", ""))
    if made is None or not (home / "bin" / "python").exists():
        return None
    with suppress(OSError):
        os.utime(path)
    return str(home)


def key_of(requirements: str, python: str, env: Mapping[str, str]) -> str:
    """What an environment is known by: everything that decides what is in it."""
    told = sorted((name, text) for name, text in env.items() if name.startswith("PIP_"))
    facts = [_FORMAT, requirements, python, platform.machine(), told]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]


def find_python(env: Mapping[str, str]) -> str:
    """The interpreter that the job itself would find, else our own."""
    path = env.get("PATH") or FALLBACK_PATH
    found = shutil.which("python3", path=path) or shutil.which("python", path=path)
    return found or sys.executable


def identity(python: str, *, uid: int | None) -> str:
    """Tells one interpreter from another without starting it, for it may be anybody's program. Only
    one's own script that chooses among several is asked."""
    real = Path(python).resolve()
    found = real.stat()
    known = f"{real} {found.st_size} {found.st_mtime_ns}"
    return f"{known} {_asked(python)}" if uid is None and _is_script(real) else known


def with_environment(env: Mapping[str, str], home: str) -> dict[str, str]:
    """The environment variables of a job that runs in the Python environment at `home`."""
    rest = {name: text for name, text in env.items() if name != "PYTHONHOME"}
    path = f"{home}/bin:{env.get('PATH') or FALLBACK_PATH}"
    return rest | {"PATH": path, "VIRTUAL_ENV": home}


def _is_script(program: Path) -> bool:
    if not program.is_file():
        return False
    with program.open("rb") as file:
        return file.read(2) == b"#!"


def _asked(python: str) -> str:
    import subprocess  # noqa: PLC0415 - see `_run`

    command = [python, "-c", _PROBE]
    with suppress(OSError, subprocess.SubprocessError):
        ran = subprocess.run(command, capture_output=True, timeout=_PROBE_SECONDS, cwd="/")
        return ran.stdout.decode("utf-8", "replace")
    return ""


def _plan(target: Path, python: str, run: Run) -> installing.Plan:
    return {
        "directory": str(target.parent),
        "key": target.name,
        "name": "",
        "python": python,
        "requirements": run["requirements"],
        "env": {"PATH": FALLBACK_PATH, **run["env"]},
        "uid": run["uid"],
        "hide": list(run["hide"]),
        "user_namespaces": run["user_namespaces"],
        "seconds": _LONGEST_SECONDS,
    }


def _take(lock: int, making: _Making) -> bool:
    """Wait for the lock: a process that an earlier agent began may still be at it. False if nobody
    wants the environment any more."""
    while True:
        with suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        if making.cancelled.wait(_LOOK_SECONDS):
            return False


def _terminate(making: _Making) -> None:
    process = making.process
    if process is not None and process.poll() is None:
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)


def _trouble(code: int, tail: bytes, python: str, *, tries: int) -> PaddleCloudError:
    """What is to be told of a failed install; Retry where the network is the cause."""
    lines = last_lines(tail, _TOLD_LINES)
    if code == installing.TOO_SLOW:
        return Refused("environment_slow", minutes=int(_LONGEST_SECONDS // 60), lines=lines)
    if any(sign in tail for sign in _NETWORK):
        return Retry("environment_network", tries=tries, lines=lines)
    return Refused("environment_failed", python=python, lines=lines)


def last_lines(tail: bytes, most: int) -> str:
    """The end of what an installer said, on one line; its errors if it named any."""
    lines = _lines(tail)
    errors = [line for line in lines if line.startswith("ERROR:")]
    return " | ".join((errors or lines)[-most:])


def _lines(tail: bytes) -> list[str]:
    text = tail.decode("utf-8", "replace").replace("\r", "\n")
    return [line.rstrip() for line in text.split("\n") if line.strip()]


def _tail(path: Path) -> bytes:
    with path.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
        return file.read()


def _words(making: _Making) -> str:
    if making.error is None:
        # Nobody knows how long it took a process of an earlier agent.
        if not making.took:
            return lastwords.lines("environment_installed", {})
        return lastwords.lines("environment_installed_in", {"seconds": f"{making.took:.1f}"})
    shown = "".join(f"{line}\n" for line in _lines(making.tail)[-_SHOWN_LINES:])
    return lastwords.lines("environment_said", {}) + shown


def _say_first(tracked: Tracked, key: str) -> bool:
    """Say the first lines of its log, unless they were said. They are always the same: after a
    restart of the agent the server may have them, and whatever else comes begins behind them."""
    tracked.root.mkdir(parents=True, exist_ok=True, mode=0o700)
    log = tracked.root / record.STDOUT
    new = not log.exists() or not log.stat().st_size
    if new:
        _say(tracked, lastwords.lines("environment_key", {"key": key[:16]}))
    return new


def _say(tracked: Tracked, text: str) -> None:
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
    fd = os.open(tracked.root / record.STDOUT, flags, 0o600)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)
    tracked.dirty = True


def _remove_rubbish(target: Path) -> None:
    """Everything of the environment that its record does not name. To be called with its lock."""
    made = record.read(target.with_name(f"{target.name}.json")) or {}
    spared = {f"{target.name}.json", f"{target.name}.lock", made.get("name")}
    for left in target.parent.glob(f"{target.name}.*"):
        if left.name not in spared:
            with suppress(OSError):
                workspace.remove(str(left))
