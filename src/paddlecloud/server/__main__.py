"""Starts the server: one per home, ready when server.json names it, gone on SIGTERM.

Running jobs do not notice: they belong to the agent, which outlives this process. SIGHUP has it
read its certificate again, and nothing else.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import errno
import fcntl
import gc
import json
import logging
import logging.handlers
import os
import signal
import socket
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import uvicorn

from paddlecloud import __version__
from paddlecloud.backends.base import KeepsAgent
from paddlecloud.db.tables import attempts, servers
from paddlecloud.model.errors import PaddleCloudError, Refused
from paddlecloud.server.bootstrap import open_deps
from paddlecloud.server.deps import Deps
from paddlecloud.server.http.app import App
from paddlecloud.server.http.connection_limits import (
    SPARE_FILES,
    Sweeper,
    connection_class,
    raise_file_limit,
)
from paddlecloud.server.http.listeners import BACKLOG, Listeners, listen
from paddlecloud.server.http.routing import Cut
from paddlecloud.server.loops import (
    exec_idle,
    maintenance,
    outbox,
    reconcile,
    schedule,
    server_heartbeat,
)
from paddlecloud.server.loops.runner import Runner
from paddlecloud.server.services.accounts import embedded_accounts
from paddlecloud.server.settings import Settings, read_with_origins

if TYPE_CHECKING:
    import ssl

log = logging.getLogger("paddlecloud.server")
SETTINGS_FILE = "settings.json"
"""Of the directory of the server: names the settings file of the last start."""
_OF_THE_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM)
AGENT_SECONDS = 5.0
"""Seconds for an idle agent to end with the server."""
HOME_EVERY = 20
"""Ticks of uvicorn between two checks of the home."""


def main() -> int:
    args = _arguments()
    os.umask(0o077)
    home: Path = args.home.resolve()
    settings_file: Path | None = args.settings.resolve() if args.settings else _settings_of(home)
    if args.check:
        from paddlecloud.server.settings import check_command  # noqa: PLC0415 - a server that starts has no use for it

        return check_command.main(
            home, settings_file, os.environ, as_json=args.json, lang=args.lang
        )
    try:
        if args.verify:
            return _verify(home, settings_file, args)
        if args.backup:
            return _backup(home, settings_file, args)
        if args.restore:
            return _restore(home, settings_file, args)
        (home / "server").mkdir(parents=True, exist_ok=True, mode=0o700)
        _log_to(None if args.foreground else home / "server" / "server.log")
        _run(home, settings_file, fresh=args.fresh)
    except KeyboardInterrupt:  # of a command beside the server
        return 130
    except PaddleCloudError as error:
        return _refuse(error, args)
    except OSError as error:
        if error.errno not in _OF_THE_DISK:
            raise
        reason = f"{error.strerror}: {error.filename}" if error.filename else str(error)
        return _refuse(Refused("server_files_unusable", home=str(home), reason=reason), args)
    return 0


def _verify(home: Path, settings_file: Path | None, args: argparse.Namespace) -> int:
    from paddlecloud.server.services.files import verify  # noqa: PLC0415 - a server that starts has no use for it

    settings, _ = read_with_origins(home, settings_file, os.environ)
    os.nice(10)  # jobs and the server go first
    return verify.main(
        settings, user=args.user, repair=args.repair, as_json=args.json, lang=args.lang
    )


def _backup(home: Path, settings_file: Path | None, args: argparse.Namespace) -> int:
    from paddlecloud.server.services.admin import backup  # noqa: PLC0415 - a server that starts has no use for it

    settings, _ = read_with_origins(home, settings_file, os.environ)
    os.nice(10)
    return backup.main(
        settings,
        settings_file,
        os.environ,
        target=args.backup,
        blobs=not args.no_blobs,
        as_json=args.json,
        lang=args.lang,
    )


def _restore(home: Path, settings_file: Path | None, args: argparse.Namespace) -> int:
    from paddlecloud.server.services.admin import restore  # noqa: PLC0415 - the same

    return restore.main(
        home, settings_file, os.environ, backup=args.restore, as_json=args.json, lang=args.lang
    )


def _refuse(error: PaddleCloudError, args: argparse.Namespace) -> int:
    """Print and log why the server does not start. The last line is in the language of the person
    who started it, and is shown to them. On a full disk it may be lost."""
    text = error.text(args.lang)
    if args.foreground and log.hasHandlers():
        log.error("%s", text)
        return 1
    if log.hasHandlers():
        log.error("%s", error)
    with contextlib.suppress(OSError):
        # stderr may be a file or a terminal of any encoding.
        sys.stderr.buffer.write(f"{text}\n".encode(errors="backslashreplace"))
        sys.stderr.flush()
    return 1


def _settings_of(home: Path) -> Path | None:
    """The settings file of the last start of this home, if it had one from elsewhere."""
    try:
        kept = json.loads((home / "server" / SETTINGS_FILE).read_text("utf-8"))
        return Path(kept["path"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _run(home: Path, settings_file: Path | None, *, fresh: bool) -> None:
    held = _take_lock(home / "server" / "lock")
    if held is None:
        raise Refused("server_runs_already", home=str(home))
    settings, origins = read_with_origins(home, settings_file, os.environ)
    for origin in origins.values():
        # Secrets from the environment are not for the agent, which inherits it.
        kind, _, name = origin.partition(" ")
        if kind == "env":
            os.environ.pop(name, None)
    own = home / "server.toml"
    serve(settings, settings_file or (own if own.exists() else None), held, fresh=fresh)


def serve(
    settings: Settings, settings_file: Path | None, held: HeldLock, *, fresh: bool = False
) -> None:
    """Run until SIGTERM or SIGINT, or until the home is gone."""
    context = _tls_context(settings)
    listeners = listen(settings)
    deps = open_deps(settings, listeners.url_for_agents(settings), fresh=fresh)
    fixed = (reconcile.LOOP, *maintenance.LOOPS, outbox.LOOP)
    loops = (schedule.loop(), *fixed, exec_idle.loop(), *server_heartbeat.loop_for(deps))
    runner = Runner(deps, loops)
    try:
        server = _Server(App(deps), deps, runner, listeners, context, settings_file, held)
        server.run(sockets=[listeners.local])
    finally:
        runner.stop()
        _end_idle_agent(deps)
        if deps.server is not None:
            with contextlib.suppress(PaddleCloudError):
                deps.db.write(lambda tx: servers.leave(tx, deps.boot), durable=False)
        deps.logs.close()
        deps.db.close()


def _end_idle_agent(deps: Deps) -> None:
    """The agent of this machine ends with the server if nothing runs."""
    with contextlib.suppress(PaddleCloudError):
        if deps.server is None and not deps.db.read(attempts.live_attempts):
            for backend in deps.backends.values():
                if isinstance(backend, KeepsAgent):
                    backend.end_agent(AGENT_SECONDS)


class _Server(uvicorn.Server):
    """Announces itself when it listens, and lets the long polls go before it waits for them."""

    def __init__(
        self,
        app: App,
        deps: Deps,
        runner: Runner,
        listeners: Listeners,
        context: ssl.SSLContext | None,
        settings_file: Path | None,
        held: HeldLock,
    ) -> None:
        http = deps.settings.http
        files = raise_file_limit(http.max_connections + SPARE_FILES)
        config = uvicorn.Config(
            app,
            loop="uvloop",
            http=connection_class(http, files),
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            timeout_keep_alive=75,
            timeout_graceful_shutdown=3,
            server_header=False,
            date_header=False,
            backlog=BACKLOG,
        )
        super().__init__(config)
        self._app, self._deps, self._runner = app, deps, runner
        self._listeners, self._context = listeners, context
        self._settings_file, self._held = settings_file, held
        self._sweeper = Sweeper(self.server_state.connections, http)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        loop = asyncio.get_running_loop()
        self._deps.hub.attach(loop)
        await super().startup(sockets)
        await self._open_public()
        loop.add_signal_handler(signal.SIGHUP, self._reload)
        self._sweeper.start()
        self._runner.start()
        _announce(self._deps, self._listeners, self._settings_file)
        # Objects of the start stay, and a request leaves few cycles: collect less often.
        gc.collect()
        gc.freeze()
        gc.set_threshold(20_000, 20, 20)

    async def _open_public(self) -> None:
        """uvicorn knows one kind of socket only; this is the other one, with TLS or without."""
        if self._listeners.public is None:
            return
        config, http = self.config, self._deps.settings.http

        def connection() -> asyncio.Protocol:
            made = config.http_protocol_class
            return made(config=config, server_state=self.server_state, app_state={})  # type: ignore[call-arg]

        handshake = http.header_timeout.total_seconds() if self._context else None
        server = await asyncio.get_running_loop().create_server(
            connection,
            sock=self._listeners.public,
            ssl=self._context,
            backlog=BACKLOG,
            ssl_handshake_timeout=handshake,
        )
        self.servers.append(server)

    def _reload(self) -> None:
        """SIGHUP. Connections that are open keep the certificate that they were opened with."""
        if self._context is None:
            log.info("there is no certificate to read again; other settings need a restart")
            return
        from paddlecloud.server.http import tls  # noqa: PLC0415 - imported already, as there is a context

        try:
            found = tls.reload_tls(self._context, self._deps.settings.http, datetime.now(UTC))
        except PaddleCloudError as error:
            log.error("keeping the previous certificate: %s", error)
        else:
            log.info("serving with the certificate that ends on %s", found.ends)

    async def on_tick(self, counter: int) -> bool:
        """Ten times a second; every two seconds it checks that the home is still there."""
        if counter % HOME_EVERY == 0 and not self._held.is_there():
            log.warning("%s is gone or another one; this server ends", self._held.path.parent)
            self.should_exit = True
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        _withdraw(self._deps)
        log.info("shutting down; running jobs continue")
        self._sweeper.stop()
        self._deps.hub.close()
        await super().shutdown(sockets)
        self._app.close()

    def handle_exit(self, sig: int, frame: object) -> None:
        """Only flags: a handler interrupts anything, and a lock taken here could be held there.

        Not the one of the base class, which raises the signal again after an orderly end.
        """
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = True


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m paddlecloud.server")
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--settings", type=Path)
    parser.add_argument("--foreground", action="store_true", help="log to stderr")
    parser.add_argument("--check", action="store_true", help="check the settings and end")
    parser.add_argument("--verify", action="store_true", help="check the stored files and end")
    parser.add_argument("--repair", action="store_true", help="with --verify")
    parser.add_argument("--user", help="with --verify")
    parser.add_argument("--backup", type=Path, help="copy database, keys and files, and end")
    parser.add_argument("--no-blobs", action="store_true", help="with --backup")
    parser.add_argument("--restore", type=Path, help="fill the home from a backup, and end")
    parser.add_argument("--fresh", action="store_true", help="start without the lost database")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--lang", default="en")
    return parser.parse_args()


def _tls_context(settings: Settings) -> ssl.SSLContext | None:
    http = settings.http
    if not settings.tls:
        if http.insecure:
            log.warning("http.insecure: requests and answers can be read on the network")
        return None
    from paddlecloud.server.http import tls  # noqa: PLC0415 - a server without TLS has no use for it

    now = datetime.now(UTC)
    context, certificate = tls.load_tls(http, now)
    if certificate.ends_soon(now):
        log.warning("the certificate %s ends on %s", http.tls_cert, certificate.ends)
    return context


@dataclass(frozen=True, kw_only=True)
class HeldLock:
    """The lock of a home, as long as this process lives."""

    path: Path
    fd: int

    def is_there(self) -> bool:
        """Whether it still is what keeps another server from this home."""
        own = os.fstat(self.fd)
        try:
            found = self.path.stat()
        except FileNotFoundError:
            return False
        except OSError:
            return True
        return (found.st_dev, found.st_ino) == (own.st_dev, own.st_ino)


def _take_lock(path: Path) -> HeldLock | None:
    """Hold the lock until this process ends. Other processes test it for a moment: try again."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    for _ in range(40):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.025)
        else:
            return HeldLock(path=path, fd=lock)
    os.close(lock)
    return None


def _announce(deps: Deps, listeners: Listeners, settings_file: Path | None) -> None:
    public = listeners.public_url(deps.settings)
    facts = {
        "url": listeners.local_url(),
        "pid": os.getpid(),
        "version": __version__,
        "boot": deps.boot,
        "started_at": datetime.now(UTC).isoformat(),
    }
    facts |= {"public_url": public} if public else {}
    facts |= {"settings": str(settings_file)} if settings_file else {}
    _store_settings_path(deps.settings, settings_file)
    embedded_accounts.write_private(deps.settings.server_dir / "server.json", json.dumps(facts))
    log.info("ready at %s, version %s, boot %s", public or facts["url"], __version__, deps.boot)


def _store_settings_path(settings: Settings, settings_file: Path | None) -> None:
    """Store the path of a settings file outside of the home, for the next start."""
    kept = settings.server_dir / SETTINGS_FILE
    if settings_file is None or settings_file == settings.home / "server.toml":
        kept.unlink(missing_ok=True)
    elif _settings_of(settings.home) != settings_file:
        embedded_accounts.write_private(kept, json.dumps({"path": str(settings_file)}))


def _withdraw(deps: Deps) -> None:
    """Take server.json away, if it is ours: it may be that of a server of a new home."""
    path = deps.settings.server_dir / "server.json"
    with contextlib.suppress(OSError, ValueError):
        if json.loads(path.read_text("utf-8")).get("boot") == deps.boot:
            path.unlink()


def _log_to(path: Path | None) -> None:
    """None: stderr, for a server in the foreground."""
    handler: logging.Handler = logging.StreamHandler()
    if path is not None:
        handler = logging.handlers.RotatingFileHandler(path, maxBytes=10_000_000, backupCount=1)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    handler.addFilter(_is_news)
    logging.basicConfig(level=logging.INFO, handlers=[handler])


def _is_news(record: logging.LogRecord) -> bool:
    """False for what we raise ourselves to cut an answer."""
    return not (record.exc_info and isinstance(record.exc_info[1], Cut))


if __name__ == "__main__":
    sys.exit(main())
