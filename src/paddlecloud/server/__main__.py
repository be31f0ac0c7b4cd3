"""Starts the server: one per home, ready when server.json names it, gone on SIGTERM.

Running jobs do not notice: they belong to the agent, which outlives this process.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import fcntl
import gc
import json
import logging
import logging.handlers
import os
import secrets
import signal
import socket
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import uvicorn

from paddlecloud import __version__
from paddlecloud.backends.base import create as create_backend
from paddlecloud.backends.local import Local
from paddlecloud.db import coordination, open_sqlite
from paddlecloud.model.errors import ConfigError, PaddleCloudError
from paddlecloud.model.job import JobType
from paddlecloud.model.pool import Pool
from paddlecloud.server.app import App
from paddlecloud.server.deps import Deps
from paddlecloud.server.http import GoingDown
from paddlecloud.server.loops import clean, schedule, watch
from paddlecloud.server.loops.runner import Runner
from paddlecloud.server.services import accounts
from paddlecloud.server.settings import Settings, read_settings
from paddlecloud.stores import create as create_store
from paddlecloud.stores.logs import LogStore

log = logging.getLogger("paddlecloud.server")
NODE = "local"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m paddlecloud.server")
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--settings", type=Path)
    args = parser.parse_args()
    os.umask(0o077)
    home: Path = args.home.resolve()
    (home / "server").mkdir(parents=True, exist_ok=True, mode=0o700)
    _log_to(home / "server" / "server.log")
    lock = _take_lock(home / "server" / "lock")
    if lock is None:
        log.warning("another server of %s is running; this one ends", home)
        return 3
    try:
        serve(read_settings(home, args.settings))
    except PaddleCloudError as error:
        log.error("%s", error)
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def serve(settings: Settings) -> None:
    """Run until SIGTERM or SIGINT."""
    deps = open_deps(settings)
    listener = _listen(settings)
    runner = Runner(deps, (schedule.LOOP, watch.LOOP, clean.LOOP))
    try:
        _Server(App(deps), deps, runner, listener).run(sockets=[listener])
    finally:
        runner.stop()
        deps.logs.close()
        deps.db.close()


class _Server(uvicorn.Server):
    """Announces itself when it listens, and lets the long polls go before it waits for them."""

    def __init__(self, app: App, deps: Deps, runner: Runner, listener: socket.socket) -> None:
        config = uvicorn.Config(
            app,
            loop="uvloop",
            http="httptools",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            timeout_keep_alive=75,
            timeout_graceful_shutdown=3,
            server_header=False,
            date_header=False,
        )
        super().__init__(config)
        self._app, self._deps, self._runner, self._listener = app, deps, runner, listener

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._deps.hub.attach(asyncio.get_running_loop())
        await super().startup(sockets)
        self._runner.start()
        _announce(self._deps, self._listener)
        # What is here now stays, and a request leaves few cycles: look for them less often.
        gc.collect()
        gc.freeze()
        gc.set_threshold(20_000, 20, 20)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        with contextlib.suppress(FileNotFoundError):
            (self._deps.settings.server_dir / "server.json").unlink()
        log.info("going down, jobs go on")
        self._deps.hub.close()
        await super().shutdown(sockets)
        self._app.close()

    def handle_exit(self, sig: int, frame: object) -> None:
        """Only flags: a handler interrupts anything, and a lock taken here could be held there.

        Not the one of the base class, which raises the signal again after an orderly end.
        """
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = True


def open_deps(settings: Settings) -> Deps:
    """Open everything that the services need; makes what is missing."""
    server_dir = settings.server_dir
    now = datetime.now(UTC)
    db = open_sqlite(server_dir / "paddlecloud.db", now=now)
    # The lock of the home is ours, so whoever held a lease is dead.
    db.write(coordination.break_leases, durable=False)
    key = accounts.server_key(server_dir / "server.key")
    accounts.embedded_user(db, key, server_dir / "credentials.json", now)
    agent_config = settings.agent_dir / "agent.json"
    accounts.embedded_agent(db, key, agent_config, NODE, server_dir / "server.json", now)
    backend = create_backend("local", _local_settings(settings, agent_config))
    deps = Deps(
        settings=settings,
        db=db,
        store=create_store("directory", {"root": settings.store_dir}),
        logs=LogStore(settings.store_dir),
        pools={NODE: _local_pool(backend.capacity()[0].total.gpu)},
        backends={NODE: backend},
        server_key=key,
        boot=secrets.token_hex(8),
    )
    db.subscribe(deps.hub.tell)
    if isinstance(backend, Local):
        backend.ensure_agent()
    return deps


def _local_settings(settings: Settings, agent_config: Path) -> dict[str, str]:
    pool = settings.local_pool
    return {
        "node": NODE,
        "agent_config": str(agent_config),
        "cpu": "" if pool.cpu is None else str(pool.cpu),
        "memory": "" if pool.memory is None else str(pool.memory),
        "gpu": str(pool.gpu),
    }


def _local_pool(gpus: int) -> Pool:
    types = {JobType.CPU, JobType.GPU} if gpus else {JobType.CPU}
    return Pool(name=NODE, backend="local", private=True, remote=False, job_types=frozenset(types))


def _take_lock(path: Path) -> int | None:
    """Hold the lock for our life. Whoever only tests it holds it for a moment: try a while."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    for _ in range(40):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.025)
        else:
            return lock
    os.close(lock)
    return None


def _listen(settings: Settings) -> socket.socket:
    """Our port of last time if it is free: what runs meanwhile finds us again sooner."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    remembered = settings.server_dir / "port"
    wishes = [port for port in (settings.http.port, _remembered_port(remembered)) if port]
    for port in wishes:
        try:
            listener.bind((settings.http.host, port))
            break
        except OSError as error:
            log.warning("port %d is taken (%s); another one will do", port, error)
    else:
        _bind_any(listener, settings.http.host)
    accounts.write_private(remembered, str(listener.getsockname()[1]))
    listener.listen(512)
    return listener


def _bind_any(listener: socket.socket, host: str) -> None:
    """Any free port of this host; listening without a bind would be listening on every address."""
    try:
        listener.bind((host, 0))
    except OSError as error:
        raise ConfigError("listen_failed", host=host, reason=str(error)) from error


def _remembered_port(path: Path) -> int:
    with contextlib.suppress(OSError, ValueError):
        return int(path.read_text("ascii"))
    return 0


def _announce(deps: Deps, listener: socket.socket) -> None:
    host, port = listener.getsockname()[:2]
    facts = {
        "url": f"http://{host}:{port}",
        "pid": os.getpid(),
        "version": __version__,
        "boot": deps.boot,
        "started_at": datetime.now(UTC).isoformat(),
    }
    accounts.write_private(deps.settings.server_dir / "server.json", json.dumps(facts))
    log.info("ready at %s, version %s, boot %s", facts["url"], __version__, deps.boot)


def _log_to(path: Path) -> None:
    handler = logging.handlers.RotatingFileHandler(path, maxBytes=10_000_000, backupCount=1)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    handler.addFilter(_is_news)
    logging.basicConfig(level=logging.INFO, handlers=[handler])


def _is_news(record: logging.LogRecord) -> bool:
    """False for what we raise ourselves to cut the answers that are open while we go down."""
    return not (record.exc_info and isinstance(record.exc_info[1], GoingDown))


if __name__ == "__main__":
    sys.exit(main())
