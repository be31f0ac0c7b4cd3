"""Starts and stops a private PostgreSQL for tests and trials, from whatever is installed here.

`start DIR` makes a database cluster in DIR and prints its address; `stop DIR` ends it; `keep DIR`
runs one until no process holds a lock on DIR/users, also if it was killed. The server
listens on a unix socket inside DIR only. It syncs to the disk as a real one does, but for one that
is kept: that is gone before any power could fail, and a fresh database takes half the time.
PostgreSQL refuses to run as root, so for root it runs as another user, who has to be able to reach
DIR.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import quote

USER = "paddlecloud"
PATIENCE = 60.0
CONFIG = """
listen_addresses = ''
unix_socket_directories = '{sockets}'
unix_socket_permissions = 0777
max_connections = 200
shared_buffers = 64MB
fsync = on
"""


class Missing(Exception):
    """No PostgreSQL can be had here; the message names what is missing."""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("what", choices=("start", "stop", "keep", "restart", "url"))
    parser.add_argument("dir", type=Path)
    parser.add_argument(
        "--install", action="store_true", help="where it is missing, install it with apt-get"
    )
    args = parser.parse_args()
    try:
        if args.install:
            install()
        return _run(args.what, args.dir.resolve())
    except Missing as error:
        print(error, file=sys.stderr)
        return 3


def install() -> None:
    """Have apt-get install PostgreSQL where none is found; needs root."""
    try:
        find_programs()
    except Missing:
        if os.getuid() != 0 or shutil.which("apt-get") is None:
            raise
        subprocess.run(["apt-get", "install", "-y", "-q", "postgresql"], check=True)


def find_programs() -> Path:
    """The directory that has initdb, pg_ctl and postgres, the newest where there are several."""
    for folder in _candidates():
        if all((folder / name).exists() for name in ("initdb", "pg_ctl", "postgres")):
            return folder
    raise Missing("no PostgreSQL server programs (initdb, pg_ctl, postgres) are installed")


def start(place: Path, *, sync: bool = True) -> str:
    """Make a cluster in `place` if there is none, run it, and say its address."""
    programs = find_programs()
    account = _account()
    if not (place / "data" / "PG_VERSION").exists():
        _create(programs, place, account, sync=sync)
    options = () if sync else ("-o", "-F")
    command = (programs / "pg_ctl", "-D", place / "data", "-l", place / "log", "-w", "start")
    _as(account, [*command, *options])
    return url(place)


def stop(place: Path, *, how: str = "fast") -> None:
    """End the server of `place`; "immediate" is as abrupt as a crash."""
    programs = find_programs()
    command: list[str | Path] = [programs / "pg_ctl", "-D", place / "data", "-m", how, "stop"]
    if (place / "data" / "postmaster.pid").exists():
        _as(_account(), command)


def kill(place: Path) -> None:
    """Kill the server of `place` as a crash of the machine would, every process of it."""
    note = place / "data" / "postmaster.pid"
    os.kill(int(note.read_text("ascii").split()[0]), signal.SIGKILL)
    deadline = time.monotonic() + PATIENCE
    while _working_in(place) and time.monotonic() < deadline:
        time.sleep(0.02)
    # As after a restart of the machine: no process has that number.
    for path in (note, *(place / "sockets").iterdir()):
        path.unlink()


def url(place: Path, database: str = "postgres") -> str:
    password = (place / "password").read_text("ascii").strip()
    return f"postgresql://{USER}:{password}@/{database}?host={quote(str(place / 'sockets'))}"


def keep(place: Path) -> None:
    """Run a server until no process holds a shared lock on `place`/users, then remove it all."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    start(place, sync=False)
    (place / "ready").touch()
    with (place / "users").open("w") as users:
        fcntl.flock(users, fcntl.LOCK_EX)
    stop(place, how="immediate")
    shutil.rmtree(place, ignore_errors=True)


def _run(what: str, place: Path) -> int:
    if what == "keep":
        keep(place)
        return 0
    if what in ("stop", "restart"):
        stop(place)
    if what in ("start", "restart"):
        start(place)
    if what != "stop":
        print(url(place))
    return 0


def _candidates() -> list[Path]:
    found = []
    if shutil.which("pg_config"):
        asked = subprocess.run(
            ["pg_config", "--bindir"], capture_output=True, text=True, check=False
        )
        found.append(Path(asked.stdout.strip()))
    packaged = Path("/usr/lib/postgresql").glob("*/bin")
    found += sorted(packaged, key=lambda path: float(path.parent.name), reverse=True)
    return found + [Path(part) for part in os.get_exec_path()]


def _account() -> str | None:
    """Who the server has to run as; None for ourselves."""
    if os.getuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name).pw_name
        except KeyError:
            continue
    raise Missing("PostgreSQL refuses to run as root, and there is no user postgres or nobody")


def _create(programs: Path, place: Path, account: str | None, *, sync: bool) -> None:
    for folder in (place, place / "sockets"):
        folder.mkdir(parents=True, exist_ok=True, mode=0o755)
    secret = place / "password"
    secret.touch(mode=0o600)
    secret.write_text(secrets.token_hex(16) + "\n", "ascii")
    if account is not None:
        owner = pwd.getpwnam(account)
        for path in (place, place / "sockets", secret):
            os.chown(path, owner.pw_uid, owner.pw_gid)
    init: list[str | Path] = [programs / "initdb", "-D", place / "data", "-U", USER]
    init += ["-A", "scram-sha-256", "--locale=C", "--no-instructions", f"--pwfile={secret}"]
    _as(account, [*init, "-E", "UTF8", *([] if sync else ["--no-sync"])])
    with (place / "data" / "postgresql.conf").open("a", encoding="utf-8") as config:
        config.write(CONFIG.format(sockets=place / "sockets"))


def _as(account: str | None, command: list[str | Path]) -> None:
    """Run a program as `account`; its words are an error's text if it fails."""
    words = [str(word) for word in command]
    if account is not None:
        user = pwd.getpwnam(account)
        ids = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": [user.pw_gid]}
    else:
        ids = {}
    log = Path(words[words.index("-D") + 1]).parent / f"{Path(words[0]).name}.out"
    with log.open("w", encoding="utf-8") as out:  # a pipe would stay open as long as the server
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd="/", check=False, **ids
        )  # type: ignore[call-overload]
    if done.returncode != 0:
        raise Missing(f"{words[0]} failed: {log.read_text('utf-8')[-400:].strip()}")


def _working_in(place: Path) -> list[int]:
    """Processes that still work in the data directory; they end when their parent is gone."""
    data = str((place / "data").resolve())
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if str((folder / "cwd").readlink()) == data:
                found.append(int(folder.name))
        except OSError:
            continue
    return found


if __name__ == "__main__":
    sys.exit(main())
