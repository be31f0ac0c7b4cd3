"""Python environments of `--requirements`: made once, by content, and shared by jobs and replicas.

An environment is known by what goes into it: the text of the file, the interpreter, and what the
job tells pip. It is installed under a monitor of its own (`installing`) that a thread of ours waits
for, so a long install blocks no other replica; those that need it are tried again, at once when it
is there. One exists as soon as its record does; what has no record is rubbish, unless its install
runs. Each user has environments of their own: a package may do anything while installed.

An install runs under the limits of the replica that started it, also when that one is killed and
another one waits for it. A failure by such a limit ends only the replicas that have no more of it
themselves; for the others it is installed again, under their limits.
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

from paddlecloud.agent.python_env import install
from paddlecloud.agent.registry import Stage
from paddlecloud.agent.replica import inspect, notices, records
from paddlecloud.agent.replica.inspect import Phase
from paddlecloud.agent.sandbox import workspace
from paddlecloud.model.errors import PaddleCloudError, Refused, Retry
from paddlecloud.model.jobs.environment import FALLBACK_PATH
from paddlecloud.model.units import format_size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from paddlecloud.agent.context import Site
    from paddlecloud.agent.inputs.cache import Kept
    from paddlecloud.agent.registry import Tracked
    from paddlecloud.agent.replica.records import ExitRecord, Launch
    from paddlecloud.agent.server_link.orders import Run
    from paddlecloud.agent.supervisor.zygote import Spawner

_FORMAT = 1
_SHOWN_LINES = 20
_TOLD_LINES = 3
_TAIL_BYTES = 64 * 1024
#: A package index that cannot be reached is asked so often, with these pauses in seconds.
_PAUSES = (5.0, 20.0)
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
#: What programs print when no process or thread is left for them.
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


class _Making:
    """One environment on its way. `waiting` is guarded by the lock of all."""

    def __init__(self) -> None:
        self.waiting: dict[str, Tracked] = {}
        self.cancelled = threading.Event()
        """No replica waits for it any more."""
        self.launch: Launch | None = None
        """The order of the install, whose limits hold."""
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
        self._over: dict[str, _Making] = {}
        """What became of it, for each replica that waited and did not ask again yet."""
        self._room = threading.Semaphore(_AT_ONCE)

    def ready(self, tracked: Tracked) -> str:
        """Where the environment of this replica is. Retry while it is made, Refused when it cannot
        be; the log of the replica says what goes on."""
        python, target = self._target(tracked.ordered)
        if _say_first(tracked, target.name):
            self._site.wake_reporter()
        found = self._look_after(target, tracked)
        if found is not None:
            tracked.environment = found
            return found
        raise self._make(target, python, tracked)

    def leave(self, tracked: Tracked) -> bool:
        """It does not need its environment any more; whether nothing runs on its behalf."""
        if not self._end_left_behind(tracked):
            return False
        with self._lock:
            self._over.pop(tracked.id, None)
            mine = [making for making in self._makings.values() if tracked.id in making.waiting]
            for making in mine:
                if len(making.waiting) > 1:
                    del making.waiting[tracked.id]
                else:
                    making.cancelled.set()
            return not any(making.cancelled.is_set() for making in mine)

    def kept(self) -> Iterator[Kept]:
        """Every environment that no replica uses: when it was used last, its size, how to delete
        it. Rubbish of installs that were killed is deleted on the way."""
        if not self._directory.is_dir():
            return
        used = self._used()
        for found in sorted(self._directory.glob("*/*.json")):
            made = records.read(found)
            home = found.parent / str((made or {}).get("name", ""))
            if made is None or str(home) in used:
                continue
            used_at = found.stat().st_mtime_ns
            yield used_at, int(made.get("size", 0)), partial(self._remove, found, home, used_at)
        for folder in self._directory.glob("*"):
            self._sweep(folder)

    def _target(self, run: Run) -> tuple[str, Path]:
        """The interpreter for this run, and what the environment is known as."""
        python = find_python(run["env"])
        key = key_of(run["requirements"], identity(python, uid=run["uid"]), run["env"])
        return python, self._directory / str(_OWN if run["uid"] is None else run["uid"]) / key

    def _end_left_behind(self, tracked: Tracked) -> bool:
        """End the install that an earlier agent started for this replica, unless another replica
        waits for it by now; whether none runs."""
        try:
            _, target = self._target(tracked.ordered)
        except OSError:
            return True
        launch = None if target in self._makings else install.running(target)
        if launch is None:
            return True
        with suppress(OSError):
            inspect.request_stop(Path(launch["root"]), grace=0.0, now=time.time())
        return False

    def _look_after(self, target: Path, tracked: Tracked) -> str | None:
        """The environment if it is there; raises what became of the making that it waited for."""
        with self._lock:
            making = self._over.pop(tracked.id, None)
            found = use(target)
        if making is not None and not _has_more(tracked.ordered, making):
            _say(tracked, _words(making))
            if making.error is not None:
                raise making.error
        return found

    def _make(self, target: Path, python: str, tracked: Tracked) -> Retry:
        """See to it that it is made, and that this replica is told when it is over."""
        with self._lock:
            making = self._makings.get(target)
            if making is None:
                making = self._makings[target] = _Making()
                body = threading.Thread(
                    target=self._work,
                    args=(target, making, tracked.ordered, python),
                    name="installer",
                    daemon=True,
                )
                body.start()
            if not making.cancelled.is_set():
                making.waiting[tracked.id] = tracked
        return Retry("environment_making", key=target.name)

    def _work(self, target: Path, making: _Making, run: Run, python: str) -> None:
        try:
            if self._enter(making):
                try:
                    self._install(target, making, run, python)
                finally:
                    self._room.release()
        except (OSError, PaddleCloudError) as error:
            making.error = error
        except Exception as error:  # noqa: BLE001 - the replicas that wait have to fail
            self._site.journal.failure("an environment could not be made")
            making.error = Refused("environment_failed", python=python, lines=repr(error))
        with self._lock:
            del self._makings[target]
            self._over |= dict.fromkeys(making.waiting, making)
            waiting, making.waiting = making.waiting, {}
        for tracked in waiting.values():
            self._hurry(tracked)

    def _enter(self, making: _Making) -> bool:
        """Wait for its turn; False if no replica wants the environment any more."""
        while not self._room.acquire(timeout=_LOOK_SECONDS):
            if making.cancelled.is_set():
                return False
        return True

    def _install(self, target: Path, making: _Making, run: Run, python: str) -> None:
        folder = target.parent
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = os.open(f"{target}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if _take(lock, making):
                _remove_rubbish(target, self._site.spawner)
                self._try(target, making, run, python)
        finally:
            os.close(lock)

    def _try(self, target: Path, making: _Making, run: Run, python: str) -> None:
        began = time.monotonic()
        for pause in (*_PAUSES, None):
            if making.cancelled.is_set() or use(target) is not None:
                return
            left = max(1.0, run["install_seconds"] - (time.monotonic() - began))
            making.launch = install.running(target) or install.prepare(
                run, target, python, self._site.environ, seconds=left
            )
            ended = install.carry_out(self._site.spawner, making.launch, making.cancelled)
            root = Path(making.launch["root"])
            if ended is not None and install.succeeded(ended):
                making.took = ended.get("ran") or 0.0
                self._made(target, making, root)
                return
            making.tail = _tail(root / records.STDOUT)
            install.remove(root)
            making.error = _trouble(ended, making.tail, making.launch, python, run)
            if not isinstance(making.error, Retry):
                return
            if pause is None:
                making.error = Refused(making.error.code, **making.error.params)
            else:
                making.cancelled.wait(pause)

    def _made(self, target: Path, making: _Making, root: Path) -> None:
        making.error = None
        self._grew(install.complete(target, root))
        self._site.journal.info(f"environment {target.name} made in {making.took:.1f} s")

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
        for order in (self._site.directory / "replicas").glob(f"*/{records.ORDER}"):
            found.update((records.read(order) or {}).get("show") or ())
        return found

    def _sweep(self, folder: Path) -> None:
        for lock in folder.glob("*.lock"):
            with suppress(OSError):
                fd = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
                try:
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    _remove_rubbish(lock.with_suffix(""), self._site.spawner)
                finally:
                    os.close(fd)


def use(target: Path) -> str | None:
    """The whole environment known as `target`, marked as used now; None when there is none."""
    path = target.with_name(f"{target.name}.json")
    made = records.read(path)
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


def _take(lock: int, making: _Making) -> bool:
    """Wait for the lock: the tidier, or an installer of an earlier version, may hold it. False if
    no replica wants the environment any more."""
    while True:
        with suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        if making.cancelled.wait(_LOOK_SECONDS):
            return False


def _trouble(
    ended: ExitRecord | None, tail: bytes, launch: Launch, python: str, run: Run
) -> PaddleCloudError:
    """Why an install failed; Retry where another try may help."""
    tries = len(_PAUSES) + 1
    if ended is None or ended["cause"] == records.CAUSE_STOPPED:
        return Retry("environment_lost", tries=tries)
    lines = last_lines(tail, _TOLD_LINES) or ended["message"]
    if ended["cause"] == records.CAUSE_WALL_TIME:
        minutes = f"{round(run['install_seconds'] / 60, 2):g}"
        return Refused("environment_slow", minutes=minutes, lines=lines)
    memory = launch.get("memory_limit")
    if ended["oom"] and ended["enforced"]["memory"] and memory is not None:
        return Refused("environment_memory", limit=format_size(memory))
    if ended["oom"]:
        return Refused("environment_host_memory")
    if _lacked_processes(ended, tail, launch):
        return Refused("environment_processes", limit=launch.get("pids_limit"))
    if any(sign in tail for sign in _NETWORK):
        return Retry("environment_network", tries=tries, lines=lines)
    return Refused("environment_failed", python=python, lines=lines)


def _lacked_processes(ended: ExitRecord, tail: bytes, launch: Launch) -> bool:
    """Whether the process limit was reached. A control group counts it; where the user is limited
    instead (see `monitor`), only the words of the programs tell."""
    if launch.get("pids_limit") is None:
        return False
    if ended["enforced"]["pids"]:
        return bool(ended.get("forks_refused"))
    said = tail + ended["message"].encode()
    return launch.get("uid") is not None and any(sign in said for sign in _NO_PROCESS)


def _has_more(run: Run, making: _Making) -> bool:
    """Whether the install failed by a limit that this replica, which waited for it, is above."""
    code = making.error.code if isinstance(making.error, PaddleCloudError) else ""
    limit = _LIMITED_BY.get(code)
    if limit is None or making.launch is None:
        return False
    theirs: Any = making.launch.get(limit)
    own: Any = run.get(limit)
    return theirs is not None and (own is None or own > theirs)


def last_lines(tail: bytes, most: int) -> str:
    """The end of what an installer said, on one line; its errors if it named any."""
    lines = _lines(tail)
    errors = [line for line in lines if line.startswith("ERROR:")]
    return " | ".join((errors or lines)[-most:])


def _lines(tail: bytes) -> list[str]:
    text = tail.decode("utf-8", "replace").replace("\r", "\n")
    return [line.rstrip() for line in text.split("\n") if line.strip()]


def _tail(path: Path) -> bytes:
    with suppress(FileNotFoundError), path.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
        return file.read()
    return b""


def _words(making: _Making) -> str:
    if making.error is None:
        # Nobody knows how long it took a process of an earlier agent.
        if not making.took:
            return notices.lines("environment_installed", {})
        return notices.lines("environment_installed_in", {"seconds": f"{making.took:.1f}"})
    shown = "".join(f"{line}\n" for line in _lines(making.tail)[-_SHOWN_LINES:])
    return notices.lines("environment_said", {}) + shown


def _say_first(tracked: Tracked, key: str) -> bool:
    """Say the first lines of its log, unless they were said. They are always the same: after a
    restart of the agent the server may have them, and whatever else comes begins behind them."""
    tracked.root.mkdir(parents=True, exist_ok=True, mode=0o700)
    log = tracked.root / records.STDOUT
    new = not log.exists() or not log.stat().st_size
    if new:
        _say(tracked, notices.lines("environment_key", {"key": key[:16]}))
    return new


def _say(tracked: Tracked, text: str) -> None:
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
    fd = os.open(tracked.root / records.STDOUT, flags, 0o600)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)
    tracked.dirty = True


def _remove_rubbish(target: Path, spawner: Spawner) -> None:
    """Delete everything of the environment that its record does not name, unless its install runs.
    One that ended well while no agent ran gets its record. To be called with its lock."""
    running = set()
    for root in install.roots(target):
        seen = inspect.inspect(root)
        if seen.phase is Phase.LOST:
            is_over = not inspect.reap_leftovers(root, spawner.kill_orphans).left
        else:
            is_over = seen.phase is not Phase.RUNNING
        if not is_over:
            running |= {root.name, install.home_of(root).name}
        elif install.succeeded(seen.exit) and use(target) is None:
            install.complete(target, root)
    made = records.read(target.with_name(f"{target.name}.json")) or {}
    spared = {f"{target.name}.json", f"{target.name}.lock", made.get("name"), *running}
    for left in target.parent.glob(f"{target.name}.*"):
        if left.name not in spared:
            with suppress(OSError):
                workspace.remove(str(left))
