"""Cached Python environments of `--requirements`, shared by jobs and replicas with the same
content.

The key of an environment is what goes into it: the text of the file, the interpreter, and the pip
settings of the job. It is installed under a supervisor of its own (`install`) that a thread waits
for, so a long install blocks no other replica; the replicas that need it are started when it is
done. An environment exists when its record does; what has no record is deleted, unless its install
runs. Each user has environments of their own, because a package may do anything during its install.

An install runs under the limits of the replica that started it, also when that one is killed and
another one waits for it. If it fails by such a limit, only the replicas without a higher limit
fail; for the others it is installed again, under their limits.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import platform
import shutil
import sys
import threading
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paddlecloud.agent.inputs.cache import Evictable
from paddlecloud.agent.python_env import _install
from paddlecloud.agent.registry import Stage
from paddlecloud.agent.replica import inspect, notices, records
from paddlecloud.agent.replica.inspect import Phase
from paddlecloud.agent.sandbox import workspace
from paddlecloud.model.errors import PaddleCloudError, Refused, Retry
from paddlecloud.model.jobs.environment import FALLBACK_PATH
from paddlecloud.model.units import format_size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from paddlecloud.agent.context import Context
    from paddlecloud.agent.registry import Tracked
    from paddlecloud.agent.replica.records import ExitRecord, Launch
    from paddlecloud.agent.server_link.orders import Run
    from paddlecloud.agent.supervisor.zygote import Spawner

_FORMAT = 1
_SHOWN_LINES = 20
_ERROR_LINES = 3
_TAIL_BYTES = 64 * 1024
#: Pauses in seconds between tries when the package index cannot be reached.
_PAUSES = (5.0, 20.0)
#: Installs that run at the same time.
_PARALLEL = 4
_PROBE_SECONDS = 20.0
_POLL_SECONDS = 0.1
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
#: What programs print when they cannot create a process or thread.
_NO_PROCESS = (
    b"Resource temporarily unavailable",
    b"can't start new thread",
    b"pthread_create failed",
)
#: The limit of a replica that each of these failures is about.
_LIMITED_BY = {
    "environment_memory": "memory_limit",
    "environment_processes": "pids_limit",
    "environment_slow": "cpu_limit",
}
_PROBE = "import sys; print(sys.executable, sys.version)"


class _Install:
    """One environment that is being installed. `waiting` is guarded by the lock of
    `Environments`."""

    def __init__(self) -> None:
        self.waiting: dict[str, Tracked] = {}
        self.cancelled = threading.Event()
        """No replica needs it any more."""
        self.launch: Launch | None = None
        """The order of the install, with its limits."""
        self.error: Exception | None = None
        self.tail = b""
        self.took = 0.0


class Environments:
    """Thread-safe. `hurry` is called for each replica whose install is over, `grew` with the bytes
    that were added to the cache."""

    def __init__(
        self, context: Context, hurry: Callable[[Tracked], object], grew: Callable[[int], object]
    ) -> None:
        self._context = context
        self._directory = context.directory / "cache" / "envs"
        self._hurry = hurry
        self._grew = grew
        self._lock = threading.Lock()
        self._installs: dict[Path, _Install] = {}
        self._finished: dict[str, _Install] = {}
        """The finished install of each replica that waited for it and was not tried again yet."""
        self._slots = threading.Semaphore(_PARALLEL)

    def ready(self, tracked: Tracked) -> str:
        """The directory of the environment of this replica. Retry while it is installed, Refused
        when that fails; the log of the replica shows the progress."""
        python, target = self._target(tracked.ordered)
        log = tracked.root / records.STDOUT
        if not log.exists() or not log.stat().st_size:
            # Always the same first lines: after a restart of the agent the server may have them.
            tracked.root.mkdir(parents=True, exist_ok=True, mode=0o700)
            _log(tracked, notices.log_lines("environment_key", {"key": target.name[:16]}))
            self._context.wake_reporter()
        with self._lock:
            finished = self._finished.pop(tracked.id, None)
            found = use(target)
        if finished is not None and not _has_higher_limit(tracked.ordered, finished):
            if finished.error is not None:
                shown = "".join(f"{line}\n" for line in _lines(finished.tail)[-_SHOWN_LINES:])
                _log(tracked, notices.log_lines("environment_said", {}) + shown)
                raise finished.error
            # How long an install of an earlier agent took is not known.
            code = "environment_installed"
            params: dict[str, object] = {}
            if finished.took:
                code, params = "environment_installed_in", {"seconds": f"{finished.took:.1f}"}
            _log(tracked, notices.log_lines(code, params))
        if found is not None:
            tracked.environment = found
            return found
        self._start_install(target, python, tracked)
        raise Retry("environment_making", key=target.name)

    def leave(self, tracked: Tracked) -> bool:
        """It does not need its environment any more; whether no install runs for it."""
        with suppress(OSError):
            _, target = self._target(tracked.ordered)
            launch = None if target in self._installs else _install.running(target)
            if launch is not None:  # an earlier agent started it
                with suppress(OSError):
                    inspect.request_stop(Path(launch["root"]), grace=0.0, now=time.time())
                return False
        with self._lock:
            self._finished.pop(tracked.id, None)
            mine = [each for each in self._installs.values() if tracked.id in each.waiting]
            for each in mine:
                if len(each.waiting) > 1:
                    del each.waiting[tracked.id]
                else:
                    each.cancelled.set()
            return not any(each.cancelled.is_set() for each in mine)

    def evictable(self) -> Iterator[Evictable]:
        """Every environment that no replica uses: when it was used last, its size, how to delete
        it. Deletes what killed installs left."""
        if not self._directory.is_dir():
            return
        # The order of a replica that is being prepared may not be written yet.
        waiting = (one for one in self._context.registry.all() if one.stage is Stage.ORDERED)
        used = {one.environment for one in waiting if one.environment and not one.released}
        for order in (self._context.directory / "replicas").glob(f"*/{records.ORDER}"):
            used.update((records.read(order) or {}).get("show") or ())
        for found in sorted(self._directory.glob("*/*.json")):
            made = records.read(found)
            home = found.parent / str((made or {}).get("name", ""))
            if made is None or str(home) in used:
                continue
            used_at = found.stat().st_mtime_ns
            delete = partial(self._remove, found, home, used_at)
            yield Evictable(used_at, int(made.get("size", 0)), delete)
        for lock in self._directory.glob("*/*.lock"):
            with suppress(OSError):
                fd = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
                try:
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    _remove_leftovers(lock.with_suffix(""), self._context.spawner)
                finally:
                    os.close(fd)

    def _target(self, run: Run) -> tuple[str, Path]:
        """The interpreter for this run, and the path of the environment without its suffix."""
        python = find_python(run["env"])
        key = key_of(run["requirements"], identity(python, uid=run["uid"]), run["env"])
        return python, self._directory / str(_OWN if run["uid"] is None else run["uid"]) / key

    def _start_install(self, target: Path, python: str, tracked: Tracked) -> None:
        """Start the install, unless it runs, and let this replica wait for it."""
        with self._lock:
            current = self._installs.get(target)
            if current is None:
                current = self._installs[target] = _Install()
                args = (target, current, tracked.ordered, python)
                thread = threading.Thread(
                    target=self._work, args=args, name="installer", daemon=True
                )
                thread.start()
            if not current.cancelled.is_set():
                current.waiting[tracked.id] = tracked

    def _work(self, target: Path, current: _Install, run: Run, python: str) -> None:
        try:
            while not self._slots.acquire(timeout=_POLL_SECONDS):
                if current.cancelled.is_set():
                    break
            else:
                try:
                    self._install(target, current, run, python)
                finally:
                    self._slots.release()
        except (OSError, PaddleCloudError) as error:
            current.error = error
        except Exception as error:  # noqa: BLE001 - the replicas that wait have to fail
            self._context.log.failure("an environment could not be installed")
            current.error = Refused("environment_failed", python=python, lines=repr(error))
        with self._lock:
            del self._installs[target]
            self._finished |= dict.fromkeys(current.waiting, current)
            waiting, current.waiting = current.waiting, {}
        for tracked in waiting.values():
            self._hurry(tracked)

    def _install(self, target: Path, current: _Install, run: Run, python: str) -> None:
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = os.open(f"{target}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if _lock(lock, current):
                _remove_leftovers(target, self._context.spawner)
                self._install_with_retries(target, current, run, python)
        finally:
            os.close(lock)

    def _install_with_retries(self, target: Path, current: _Install, run: Run, python: str) -> None:
        began = time.monotonic()
        for pause in (*_PAUSES, None):
            if current.cancelled.is_set() or use(target) is not None:
                return
            left = max(1.0, run["install_seconds"] - (time.monotonic() - began))
            current.launch = _install.running(target) or _install.prepare(
                run, target, python, self._context.environ, seconds=left
            )
            ended = _install.carry_out(self._context.spawner, current.launch, current.cancelled)
            root = Path(current.launch["root"])
            if ended is not None and _install.succeeded(ended):
                current.error, current.took = None, ended.get("ran") or 0.0
                self._grew(_install.complete(target, root))
                text = f"environment {target.name} installed in {current.took:.1f} s"
                self._context.log.info(text)
                return
            with suppress(FileNotFoundError), (root / records.STDOUT).open("rb") as log:
                log.seek(max(0, log.seek(0, os.SEEK_END) - _TAIL_BYTES))
                current.tail = log.read()
            _install.remove(root)
            current.error = _failure(ended, current.tail, current.launch, python, run)
            if not isinstance(current.error, Retry):
                return
            if pause is None:
                current.error = Refused(current.error.code, **current.error.params)
            else:
                current.cancelled.wait(pause)

    def _remove(self, found: Path, home: Path, used_at: int) -> None:
        """Delete an environment, unless it was used after it was listed."""
        with self._lock:
            if found.stat().st_mtime_ns != used_at:
                return
            found.unlink()
        workspace.remove(str(home))


def use(target: Path) -> str | None:
    """The directory of the environment `target`, marked as used now; None when there is none."""
    path = target.with_name(f"{target.name}.json")
    made = records.read(path)
    home = target.parent / str((made or {}).get("name", ""))
    if made is None or not (home / "bin" / "python").exists():
        return None
    with suppress(OSError):
        os.utime(path)
    return str(home)


def key_of(requirements: str, python: str, env: Mapping[str, str]) -> str:
    """The cache key of an environment: everything that decides what is in it."""
    pip = sorted((name, text) for name, text in env.items() if name.startswith("PIP_"))
    facts = [_FORMAT, requirements, python, platform.machine(), pip]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]


def find_python(env: Mapping[str, str]) -> str:
    """The interpreter that the job itself would find, else our own."""
    path = env.get("PATH") or FALLBACK_PATH
    found = shutil.which("python3", path=path) or shutil.which("python", path=path)
    return found or sys.executable


def identity(python: str, *, uid: int | None) -> str:
    """Identifies an interpreter without starting it, because it may be a program of another user.
    Only a script of the agent's own user that chooses among several is run."""
    real = Path(python).resolve()
    found = real.stat()
    known = f"{real} {found.st_size} {found.st_mtime_ns}"
    if uid is None and real.is_file():
        with real.open("rb") as file:
            if file.read(2) == b"#!":
                return f"{known} {_probe(python)}"
    return known


def with_environment(env: Mapping[str, str], home: str) -> dict[str, str]:
    """The environment variables of a job that runs in the Python environment at `home`."""
    rest = {name: text for name, text in env.items() if name != "PYTHONHOME"}
    path = f"{home}/bin:{env.get('PATH') or FALLBACK_PATH}"
    return rest | {"PATH": path, "VIRTUAL_ENV": home}


def _probe(python: str) -> str:
    import subprocess  # noqa: PLC0415 - 1 MB that few agents need

    command = [python, "-c", _PROBE]
    with suppress(OSError, subprocess.SubprocessError):
        ran = subprocess.run(command, capture_output=True, timeout=_PROBE_SECONDS, cwd="/")
        return ran.stdout.decode("utf-8", "replace")
    return ""


def _lock(fd: int, current: _Install) -> bool:
    """Wait for the lock, which the pruning thread or an installer of an earlier version may hold.
    False if no replica needs the environment any more."""
    while True:
        with suppress(BlockingIOError):
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        if current.cancelled.wait(_POLL_SECONDS):
            return False


def _failure(
    ended: ExitRecord | None, tail: bytes, launch: Launch, python: str, run: Run
) -> PaddleCloudError:
    """Why an install failed; Retry where another try may help."""
    tries = len(_PAUSES) + 1
    if ended is None or ended["cause"] == records.CAUSE_STOPPED:
        return Retry("environment_lost", tries=tries)
    lines = last_lines(tail, _ERROR_LINES) or ended["message"]
    if ended["cause"] == records.CAUSE_WALL_TIME:
        minutes = f"{round(run['install_seconds'] / 60, 2):g}"
        return Refused("environment_slow", minutes=minutes, lines=lines)
    memory = launch.get("memory_limit")
    if ended["oom"] and ended["enforced"]["memory"] and memory is not None:
        return Refused("environment_memory", limit=format_size(memory))
    if ended["oom"]:
        return Refused("environment_host_memory")
    if _reached_process_limit(ended, tail, launch):
        return Refused("environment_processes", limit=launch.get("pids_limit"))
    if any(sign in tail for sign in _NETWORK):
        return Retry("environment_network", tries=tries, lines=lines)
    return Refused("environment_failed", python=python, lines=lines)


def _reached_process_limit(ended: ExitRecord, tail: bytes, launch: Launch) -> bool:
    """Whether the process limit was reached. A control group counts that; where the user is limited
    instead (see `supervisor`), only the output of the programs shows it."""
    if launch.get("pids_limit") is None:
        return False
    if ended["enforced"]["pids"]:
        return bool(ended.get("forks_refused"))
    said = tail + ended["message"].encode()
    return launch.get("uid") is not None and any(sign in said for sign in _NO_PROCESS)


def _has_higher_limit(run: Run, finished: _Install) -> bool:
    """Whether the install failed by a limit that is higher for this replica, which waited for
    it."""
    code = finished.error.code if isinstance(finished.error, PaddleCloudError) else ""
    limit = _LIMITED_BY.get(code)
    if limit is None or finished.launch is None:
        return False
    theirs: Any = finished.launch.get(limit)
    own: Any = run.get(limit)
    return theirs is not None and (own is None or own > theirs)


def last_lines(tail: bytes, most: int) -> str:
    """The end of an installer's output on one line; its errors if it printed any."""
    lines = _lines(tail)
    errors = [line for line in lines if line.startswith("ERROR:")]
    return " | ".join((errors or lines)[-most:])


def _lines(tail: bytes) -> list[str]:
    text = tail.decode("utf-8", "replace").replace("\r", "\n")
    return [line.rstrip() for line in text.split("\n") if line.strip()]


def _log(tracked: Tracked, text: str) -> None:
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
    fd = os.open(tracked.root / records.STDOUT, flags, 0o600)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)
    tracked.dirty = True


def _remove_leftovers(target: Path, spawner: Spawner) -> None:
    """Delete everything of the environment that its record does not name, unless its install runs.
    An install that succeeded while no agent ran gets its record. The caller holds the lock."""
    running = set()
    for root in _install.roots(target):
        observed = inspect.inspect(root)
        if observed.phase is Phase.LOST:
            is_over = not inspect.reap_leftovers(root, spawner).left
        else:
            is_over = observed.phase is not Phase.RUNNING
        if not is_over:
            running |= {root.name, _install.home_of(root).name}
        elif _install.succeeded(observed.exit) and use(target) is None:
            _install.complete(target, root)
    made = records.read(target.with_name(f"{target.name}.json")) or {}
    spared = {f"{target.name}.json", f"{target.name}.lock", made.get("name"), *running}
    for left in target.parent.glob(f"{target.name}.*"):
        if left.name not in spared:
            with suppress(OSError):
                workspace.remove(str(left))
