"""Runs one install of `--requirements` like a replica, and records its result.

An installer runs the code of the packages, so it is started as a replica is: with control groups,
process limit, uid, mount namespace and wall time, under a supervisor that ends all of its processes
and outlives the agent. An agent that was restarted finds the install by its records and waits for
it.

`KEY.NAME` is the environment and `KEY.NAME.tmp` the root of its install, both in the directory of
one user. The environment is created where it stays, because its scripts contain their own path.
`KEY.json`, written last and in one step, is what makes it exist.
"""

from __future__ import annotations

import os
import shlex
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from paddlecloud.agent.python_env import _uv
from paddlecloud.agent.replica import inspect, records
from paddlecloud.agent.replica.inspect import Phase
from paddlecloud.agent.sandbox import workspace
from paddlecloud.model.jobs.environment import FALLBACK_PATH
from paddlecloud.net.proxy import without_credentials

if TYPE_CHECKING:
    import threading
    from collections.abc import Mapping

    from paddlecloud.agent.replica.records import ExitRecord, Launch
    from paddlecloud.agent.server_link.orders import Run
    from paddlecloud.agent.supervisor.zygote import Spawner

_FILE = "requirements.txt"
_ROOT = ".tmp"
_LOG_BYTES = 1024 * 1024
_POLL_SECONDS = 0.1
#: A supervisor that did not start within this time does not start any more.
_SUPERVISOR_SECONDS = 30.0
#: They would make the environment use another interpreter.
_UNWANTED = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "__PYVENV_LAUNCHER__")


def prepare(
    run: Run, target: Path, python: str, environ: Mapping[str, str], *, seconds: float
) -> Launch:
    """Create the directories of one more install of `target` and its order, with the limits of
    `run` and `seconds` as its wall time."""
    home = Path(f"{target}.{os.urandom(4).hex()}")
    root = Path(f"{home}{_ROOT}")
    uid = run["uid"]
    _lay_out(root, home, run["requirements"], uid)
    venv = shlex.join([python, "-m", "venv", str(home)])
    pip = [f"{home}/bin/python", "-m", "pip", "install", "--no-input"]
    pip += ["--disable-pip-version-check", "-r", _FILE]
    install = f"exec {shlex.join(pip)}"
    command = f"{venv} && {install}"
    env = installer_environment(run, environ, home=str(home), root=str(root))
    uv = _uv.find(run, environ)
    options = _uv.options(env, run["requirements"], own=uid is None) if uv else None
    if uv is not None and options is not None:
        env, flags = options
        has_pip = f"test -x {shlex.quote(f'{home}/bin/pip')}"
        by_uv = _uv.command(uv, python, home, _FILE, flags)
        command = f"{by_uv} || {{ {{ {has_pip} || {venv}; }} && {install}; }}"
    return {
        "replica_id": home.name,
        "root": str(root),
        "command": command,
        "env": env,
        "grace": 0.0,
        "max_seconds": seconds,
        "cpu_request": run["cpu_request"],
        "cpu_limit": run["cpu_limit"],
        "memory_limit": run["memory_limit"],
        "pids_limit": run["pids_limit"],
        "log_limit": _LOG_BYTES,
        "uid": uid,
        "hide": list(run["hide"]),
        "user_namespaces": run["user_namespaces"],
        "writable": [str(home)],
    }


def installer_environment(
    run: Run, environ: Mapping[str, str], *, home: str, root: str
) -> dict[str, str]:
    """The environment variables of the installer. An install of the agent's own user gets those of
    the agent (`environ`), so that it uses the same proxy and index as the user's shell; another
    user gets the proxies only, if they need no password."""
    if run["uid"] is None:
        env = {**environ, **run["env"]}
    else:
        proxies = without_credentials(environ)
        env = {**proxies, **run["env"], "HOME": f"{root}/{workspace.HOME}"}
    own = {name: text for name, text in env.items() if name not in _UNWANTED}
    path = f"{home}/bin:{run['env'].get('PATH', FALLBACK_PATH)}"
    temporary = f"{root}/{workspace.TEMPORARY}"
    return own | {"TMPDIR": temporary, "PATH": path, "PYTHONUNBUFFERED": "1"}


def carry_out(spawner: Spawner, launch: Launch, cancelled: threading.Event) -> ExitRecord | None:
    """Start the install, or join it if it runs, and wait until none of its processes is left. How
    it ended; None if its supervisor was killed or never started. Raises Retry if the machine has no
    process for it."""
    root = Path(launch["root"])
    spawner.spawn(launch)
    deadline = time.monotonic() + _SUPERVISOR_SECONDS
    stopped = False
    while True:
        observed = inspect.inspect(root)
        if observed.phase is Phase.EXITED:
            return observed.exit
        missing = observed.phase is Phase.NOT_STARTED and time.monotonic() > deadline
        if (cancelled.is_set() or missing) and not stopped:
            with suppress(OSError):
                stopped = inspect.request_stop(root, grace=0.0, now=time.time())
        if missing or observed.phase is Phase.LOST:
            break
        if cancelled.is_set():
            time.sleep(_POLL_SECONDS)
        else:
            cancelled.wait(_POLL_SECONDS)
    while observed.phase is Phase.LOST and inspect.reap_leftovers(root, spawner).left:
        pass
    return None


def running(target: Path) -> Launch | None:
    """The order of the install of `target` that runs, started by an earlier agent."""
    for root in roots(target):
        if inspect.inspect(root).phase is Phase.RUNNING:
            found: Launch | None = records.read(root / records.ORDER)
            return found
    return None


def roots(target: Path) -> list[Path]:
    """The root of every install of `target`, running or over."""
    found = target.parent.glob(f"{target.name}.*{_ROOT}")
    return sorted(path for path in found if path.is_dir())


def home_of(root: Path) -> Path:
    """The environment that the install in `root` creates."""
    return root.with_name(root.name.removesuffix(_ROOT))


def succeeded(ended: ExitRecord | None) -> bool:
    return ended is not None and ended["exit_code"] == 0 and ended["cause"] == records.CAUSE_EXIT


def complete(target: Path, root: Path) -> int:
    """Write the record of the environment that the install in `root` created; its size."""
    home = home_of(root)
    size = size_of(str(home))
    records.write(target.with_name(f"{target.name}.json"), {"name": home.name, "size": size})
    with suppress(OSError):
        workspace.remove(str(root))
    return size


def remove(root: Path) -> None:
    """Delete an install that failed, and what it created."""
    for path in (home_of(root), root):
        with suppress(OSError):
            workspace.remove(str(path))


def size_of(top: str) -> int:
    """Bytes on the disk, of everything in there."""
    total = 0
    for folder, _, files in os.walk(top):
        for name in files:
            with suppress(OSError):
                total += os.lstat(f"{folder}/{name}").st_blocks * 512
    return total


def _lay_out(root: Path, home: Path, requirements: str, uid: int | None) -> None:
    root.mkdir(mode=0o700)
    own = [root / name for name in (workspace.WORK, workspace.TEMPORARY, workspace.HOME)]
    for path in (home, *own):
        path.mkdir(mode=0o700)
    file = root / workspace.WORK / _FILE
    file.write_text(requirements, encoding="utf-8")
    if uid is not None:
        for path in (home, *own, file):
            os.chown(path, uid, uid)
