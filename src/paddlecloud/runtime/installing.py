"""Makes one Python environment: a process of its own, begun by the agent (see `environments`).

An installer runs whatever a package tells it to, so it runs as the job's own user in a view without
the others, where a job would; the agent has threads and cannot fork into that. This process can: it
has none. It outlives an agent that is killed, and holds the lock of the environment for its life.

The environment is made where it will stay, for its scripts name their own place, under a name that
nobody looks for. The record beside it, written last and in one step, is what makes it exist.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

from paddlecloud.runtime import isolation, orphans, processes, record, workspace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import NoReturn, TypedDict

    class Plan(TypedDict):
        """What the agent asks for."""

        directory: str
        """Where the environments of one user lie."""
        key: str
        name: str
        """The name of the environment's own directory in there."""
        python: str
        requirements: str
        env: dict[str, str]
        uid: int | None
        hide: list[str]
        seconds: float

else:
    Plan = dict

FAILED = 1
TOO_SLOW = 3
STOPPED = 4
_NOT_STARTED = 127
_POLL_SECONDS = 0.02
_FILE = "requirements.txt"
#: They would make the new interpreter somebody else's.
_UNWANTED = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "__PYVENV_LAUNCHER__")


class Trouble(Exception):
    """Why there is no environment: the exit code that says it to the agent."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def main(environ: Mapping[str, str]) -> NoReturn:
    """Read the plan from stdin and carry it out; what is printed is the installer's own words."""
    plan: Plan = json.load(sys.stdin)
    code = FAILED
    signal.signal(signal.SIGTERM, _stop)
    processes.set_name(orphans.INSTALL)
    processes.become_subreaper()
    try:
        # The threads of the agent leave it to another one, and whom they start inherits that.
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        make(plan, environ)
        code = 0
    except Trouble as trouble:
        code = trouble.code
    except OSError as error:
        sys.stdout.write(f"{error}\n")
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        sys.stdout.flush()
        _end_all()
        _clean(plan, failed=code != 0)
        os._exit(code)


def make(plan: Plan, environ: Mapping[str, str]) -> None:
    """The environment of `plan`, whole, with its record; Trouble or OSError if it cannot be."""
    deadline = time.monotonic() + plan["seconds"]
    home = f"{plan['directory']}/{plan['name']}"
    scratch = _scratch(plan)
    _lay_out(plan, home, scratch)
    env = installer_environment(plan, environ, home=home, scratch=scratch)
    requirements = f"{scratch}/{record.WORK}/{_FILE}"
    pip = ("-m", "pip", "install", "--no-input", "--disable-pip-version-check", "-r", requirements)
    for argv in ((plan["python"], "-m", "venv", home), (f"{home}/bin/python", *pip)):
        _run(plan, argv, env, deadline)
    made = {"name": plan["name"], "size": size_of(home), "python": plan["python"]}
    record.write(Path(plan["directory"]) / f"{plan['key']}.json", made)


def installer_environment(
    plan: Plan, environ: Mapping[str, str], *, home: str, scratch: str
) -> dict[str, str]:
    """What the installer is told. One's own installs go the way they go in one's own shell, through
    the same proxy and index; another user learns nothing of the agent's environment."""
    if plan["uid"] is None:
        env = {**environ, **plan["env"]}
    else:
        env = {**plan["env"], "HOME": f"{scratch}/home"}
    own = {name: text for name, text in env.items() if name not in _UNWANTED}
    path = plan["env"].get("PATH", "")
    return own | {"TMPDIR": f"{scratch}/tmp", "PATH": f"{home}/bin:{path}", "PYTHONUNBUFFERED": "1"}


def size_of(top: str) -> int:
    """Bytes on the disk, of everything in there."""
    total = 0
    for folder, _, files in os.walk(top):
        for name in files:
            with suppress(OSError):
                total += os.lstat(f"{folder}/{name}").st_blocks * 512
    return total


def _scratch(plan: Plan) -> str:
    return f"{plan['directory']}/{plan['name']}.tmp"


def _lay_out(plan: Plan, home: str, scratch: str) -> None:
    uid = plan["uid"]
    own = (workspace.WORK, workspace.TEMPORARY, workspace.HOME)
    for path in (home, scratch, *(f"{scratch}/{name}" for name in own)):
        Path(path).mkdir(mode=0o700)
        if uid is not None and path != scratch:
            os.chown(path, uid, uid)
    file = Path(scratch, record.WORK, _FILE)
    file.write_text(plan["requirements"], encoding="utf-8")
    if uid is not None:
        os.chown(file, uid, uid)


def _run(plan: Plan, argv: Sequence[str], env: Mapping[str, str], deadline: float) -> None:
    """One command to its end; Trouble when it failed or took too long."""
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        _become(plan, argv, env)
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            break
        if time.monotonic() > deadline:
            raise Trouble(TOO_SLOW)
        time.sleep(_POLL_SECONDS)
    if status:
        raise Trouble(FAILED)


def _become(plan: Plan, argv: Sequence[str], env: Mapping[str, str]) -> NoReturn:
    scratch = _scratch(plan)
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.setsid()
        if plan["uid"] is not None:
            home = f"{plan['directory']}/{plan['name']}"
            isolation.enter(scratch, plan["hide"], also={home: True})
            isolation.become(plan["uid"])
        os.chdir(f"{scratch}/{record.WORK}")
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        os.execve(argv[0], tuple(argv), dict(env))
    except OSError as error:
        os.write(1, f"{argv[0]}: {error.strerror}\n".encode())
    finally:
        os._exit(_NOT_STARTED)


def _stop(*_: object) -> NoReturn:
    raise Trouble(STOPPED)


def _end_all() -> None:
    """Nothing that the installer began goes on."""
    with suppress(ChildProcessError):
        while True:
            processes.kill_groups(os.getpid())
            processes.kill_trees(processes.descendants(os.getpid()))
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                time.sleep(_POLL_SECONDS)


def _clean(plan: Plan, *, failed: bool) -> None:
    paths = [_scratch(plan), f"{plan['directory']}/{plan['name']}"] if failed else [_scratch(plan)]
    for path in paths:
        with suppress(OSError):
            workspace.remove(path)
