"""`python -m paddlecloud.agent join|status|leave`: this machine in a pool of a server.

`join` checks the machine, exchanges a join token for a key, writes `agent.json` and runs the agent
in the foreground, or leaves that to systemd (`--install`). It installs nothing else. A machine that
joined before keeps its key: `join` without a token runs it again.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
import socket
import ssl
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paddlecloud import __version__
from paddlecloud.agent.config import read_config
from paddlecloud.agent.server_link.channel import Link
from paddlecloud.agent.upgrade import LINK, keep_program
from paddlecloud.agent.usage import gpu
from paddlecloud.messages import render
from paddlecloud.model.errors import (
    ConfigError,
    Invalid,
    PaddleCloudError,
    Refused,
    Unreachable,
    from_wire,
)
from paddlecloud.net.endpoint import PREFIX, Endpoint
from paddlecloud.net.http1 import Connection
from paddlecloud.net.proxy import from_environment
from paddlecloud.net.tls import explained

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from paddlecloud.net.proxy import Proxy

UNIT = "paddlecloud-machine.service"
_CONFIG, _CERTIFICATE = "agent.json", "server.pem"
_FLAGS = ("install", "force")
_VALUES = ("token", "name", "label", "address", "gpu", "tls_sha256", "directory")
_CLOCK_LIMIT = 300
"""Seconds by which the clocks may differ; signatures carry the time."""
_LEAST_DISK = 2 * 2**30
_TIMEOUT = 10.0
_NOT_TRUSTED = ("server_cert_issuer", "server_cert_name")


@dataclass(frozen=True, kw_only=True)
class Arguments:
    command: str
    url: str = ""
    token: str = ""
    name: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    address: str = ""
    gpu: int | None = None
    tls_sha256: str = ""
    directory: Path = Path()
    install: bool = False
    force: bool = False


class Reporter:
    """Prints results of checks, in the language of the person."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        lang = environ.get("PADDLECLOUD_LANG") or environ.get("LC_ALL") or environ.get("LANG", "")
        self._lang = "zh" if lang.lower().startswith("zh") else "en"

    def say(self, code: str, **params: object) -> None:
        sys.stderr.write(render(code, params, self._lang) + "\n")

    def error(self, error: PaddleCloudError) -> None:
        self.say(error.code, **error.params)


def run(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    """The exit code of one of the commands; `join` goes on as the agent."""
    reporter = Reporter(environ)
    try:
        given = parse(arguments, environ)
        if given.command == "join":
            return join(given, environ, reporter)
        link = Link(read_config(given.directory / _CONFIG, from_environment(environ)))
        if given.command == "status":
            sys.stdout.write(json.dumps(_status(given.directory, link), indent=2) + "\n")
            return 0
        link.channel().json("POST", "/agent/leave", {"force": given.force})
        _uninstall(reporter)
        (given.directory / _CONFIG).unlink()
        reporter.say("machine_left", url=link.config.url)
    except PaddleCloudError as error:
        reporter.error(error)
        return error.exit_code
    return 0


def parse(arguments: Sequence[str], environ: Mapping[str, str]) -> Arguments:
    values: dict[str, Any] = {"command": arguments[0], "labels": {}}
    waiting = list(arguments[1:])
    while waiting:
        word = waiting.pop(0)
        key, equals, value = word.removeprefix("--").partition("=")
        key = key.replace("-", "_")
        if not word.startswith("--"):
            if values.setdefault("url", word) != word:
                raise Invalid("machine_usage", word=word)
            continue
        if key in _FLAGS and not equals:
            values[key] = True
            continue
        if key not in _VALUES or not (equals or waiting):
            raise Invalid("machine_usage", word=word)
        value = value if equals else waiting.pop(0)
        if key == "label":
            name, found, content = value.partition("=")
            if not found or not name or not content:
                raise Invalid("machine_label", label=value)
            values["labels"][name] = content
        elif key == "gpu":
            if not value.isdigit():
                raise Invalid("machine_usage", word=word)
            values[key] = int(value)
        else:
            values[key] = value
    home = environ.get("PADDLECLOUD_HOME") or str(Path.home() / ".paddlecloud")
    values["directory"] = Path(values.get("directory") or f"{home}/machine").absolute()
    return Arguments(**values)


def join(given: Arguments, environ: Mapping[str, str], reporter: Reporter) -> int:
    """Join, and go on as the agent."""
    config = given.directory / _CONFIG
    if given.token:
        values = _joined(given, environ, reporter)
        _write_private(config, json.dumps(values))
        reporter.say("machine_joined", name=values["node"], pool=values["pool"], url=given.url)
    elif not config.exists():
        raise Invalid("machine_no_token", directory=str(given.directory))
    program = _own_program(given.directory)
    if given.install:
        _install(given.directory, program, reporter)
    else:
        reporter.say("machine_runs", directory=str(given.directory))
        os.execv(sys.executable, [*program, "--config", str(config)])
    return 0


def _joined(given: Arguments, environ: Mapping[str, str], reporter: Reporter) -> dict[str, Any]:
    """Check the machine, exchange the token for a key; the content of agent.json."""
    if not given.url.startswith(("http://", "https://")):
        raise ConfigError("agent_url", url=given.url)
    given.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    known = _read(given.directory / _CONFIG)
    if known and _is_running(given.directory):
        raise Refused("machine_runs_already", name=known.get("node"), url=known.get("url"))
    endpoint = Endpoint(given.url, "", "")
    scheme = given.url.partition(":")[0]
    proxy = from_environment(environ).proxy_for(scheme, endpoint.host, endpoint.port)
    ca_file = _trusted(given, proxy)
    endpoint = Endpoint(given.url, "", "", "", ca_file)
    connection = Connection(endpoint.host, endpoint.port, endpoint.tls, _TIMEOUT, proxy=proxy)
    try:
        _check_clock(connection)
    except Unreachable as error:
        if endpoint.tls or proxy:
            raise
        raise explained(error, endpoint.host, endpoint.port) from error
    cards = gpu.count() if given.gpu is None else given.gpu
    _describe(given, reporter, cards)
    # The same instance for a repeated request: a lost response does not use the token up.
    instance_file = given.directory / "instance"
    digest = hashlib.sha256(given.token.encode()).hexdigest()
    stored = _read(instance_file)
    instance = stored.get("instance") if stored.get("token") == digest else secrets.token_hex(16)
    _write_private(instance_file, json.dumps({"token": digest, "instance": instance}))
    asked = {
        "token": given.token,
        "instance": instance,
        "node": given.name or socket.gethostname(),
        "labels": dict(given.labels),
    }
    answer = _post(connection, "/agent/join", asked)
    if answer.get("store_url"):
        _check_store(str(answer["store_url"]), environ, reporter)
    address = given.address or _own_address(endpoint)
    values = {
        "agent_id": answer["agent_id"],
        "ak": answer["ak"],
        "sk": answer["sk"],
        "node": answer["node"],
        "pool": answer["pool"],
        "url": endpoint.url,
        "host": address,
        "capacity": {"gpu": cards},
    }
    return values | ({"ca_file": ca_file} if ca_file else {})


def _trusted(given: Arguments, proxy: Proxy | None) -> str:
    """The file with the certificate to trust; empty: those of the system are enough. A server that
    these do not know is trusted if its certificate has the digest of the invitation."""
    if not given.url.startswith("https:"):
        return ""
    endpoint = Endpoint(given.url, "", "")
    try:
        with Connection(endpoint.host, endpoint.port, True, _TIMEOUT, proxy=proxy) as connection:
            connection.open()
    except Unreachable as error:
        if not given.tls_sha256 or error.code not in _NOT_TRUSTED:
            raise
    else:
        return ""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with Connection(endpoint.host, endpoint.port, context, _TIMEOUT, proxy=proxy) as connection:
        certificate = connection.certificate()
    found = hashlib.sha256(certificate).hexdigest()
    if found != given.tls_sha256.lower():
        raise Refused("machine_certificate", url=given.url, found=found, expected=given.tls_sha256)
    path = given.directory / _CERTIFICATE
    _write_private(path, ssl.DER_cert_to_PEM_cert(certificate))
    with Connection(endpoint.host, endpoint.port, str(path), _TIMEOUT, proxy=proxy) as connection:
        connection.open()
    return str(path)


def _check_clock(connection: Connection) -> None:
    response = connection.request("GET", "/healthz", {"host": connection.authority}, b"")
    with suppress(ValueError, KeyError, TypeError):
        ahead = round(time.time() - float(json.loads(response.read())["time"]))
        if abs(ahead) > _CLOCK_LIMIT:
            raise Refused("machine_clock", seconds=ahead, limit=_CLOCK_LIMIT)


def _describe(given: Arguments, reporter: Reporter, cards: int) -> None:
    """What jobs will find here, and what they will not."""
    version = ".".join(map(str, sys.version_info[:3]))
    reporter.say("machine_python", version=version, agent=__version__)
    reporter.say("machine_gpus" if cards else "machine_no_gpus", count=cards)
    reporter.say("machine_separates" if os.geteuid() == 0 else "machine_one_user")
    groups = Path("/sys/fs/cgroup")
    limits = any(os.access(path, os.W_OK) for path in (groups, groups / "memory"))
    reporter.say("machine_limits" if limits else "machine_no_limits")
    free = shutil.disk_usage(given.directory).free
    code = "machine_disk" if free >= _LEAST_DISK else "machine_disk_low"
    reporter.say(code, free=f"{free / 2**30:.1f} GiB", directory=str(given.directory))
    if given.url.startswith("http:"):
        reporter.say("machine_insecure", url=given.url)


def _check_store(url: str, environ: Mapping[str, str], reporter: Reporter) -> None:
    """Whether presigned URLs can be used: any response will do."""
    try:
        endpoint = Endpoint(url, "", "")
        scheme = url.partition(":")[0]
        proxy = from_environment(environ).proxy_for(scheme, endpoint.host, endpoint.port)
        connection = Connection(endpoint.host, endpoint.port, endpoint.tls, _TIMEOUT, proxy=proxy)
        connection.request("GET", "/", {"host": connection.authority}, b"").read()
    except (PaddleCloudError, ValueError) as error:
        reporter.say("machine_store_unreachable", url=url, reason=str(error))
    else:
        reporter.say("machine_store", url=url)


def _own_address(endpoint: Endpoint) -> str:
    """The address from which this machine reaches the server: others reach it there."""
    family, kind, _, _, address = socket.getaddrinfo(
        endpoint.host, endpoint.port, type=socket.SOCK_DGRAM
    )[0]
    with socket.socket(family, kind) as probe:
        probe.connect(address)
        return str(probe.getsockname()[0])


def _post(connection: Connection, path: str, body: Mapping[str, object]) -> dict[str, Any]:
    headers = {"host": connection.authority, "content-type": "application/json"}
    response = connection.request("POST", PREFIX + path, headers, json.dumps(body).encode())
    try:
        answer = json.loads(response.read() or b"{}")
        if response.status == 200:
            return dict(answer)
        error = answer["error"]
    except (ValueError, KeyError, TypeError):
        detail = f"status {response.status}"
        raise Unreachable("server_malformed", address=connection.authority, detail=detail) from None
    raise from_wire(response.status, error)


def _own_program(directory: Path) -> list[str]:
    """The words that run the agent. A packed one is copied into the directory, where it stays."""
    started = Path(sys.argv[0])
    if started.suffix == ".py" or not started.is_file():
        return [sys.executable, "-P", "-m", "paddlecloud.agent"]
    return [sys.executable, str(keep_program(directory, started.read_bytes()))]


def _install(directory: Path, program: Sequence[str], reporter: Reporter) -> None:
    """Run the agent by a systemd unit."""
    if shutil.which("systemctl") is None:
        raise Refused("machine_no_systemd", command=" ".join(program))
    unit, systemctl = _unit()
    packed = directory / LINK
    words = [sys.executable, str(packed)] if packed.exists() else list(program)
    command = " ".join([*words, "--config", str(directory / _CONFIG)])
    target = "multi-user" if os.geteuid() == 0 else "default"
    text = (
        "[Unit]\nDescription=PaddleCloud machine\nAfter=network-online.target\n"
        "Wants=network-online.target\n\n"
        # Jobs go on while the agent is restarted or upgraded.
        f"[Service]\nExecStart={command}\nRestart=always\nRestartSec=5\nKillMode=process\n"
        f"Delegate=yes\n\n[Install]\nWantedBy={target}.target\n"
    )
    unit.parent.mkdir(parents=True, exist_ok=True)
    unit.write_text(text)
    for words in (["daemon-reload"], ["enable", "--now", UNIT]):
        done = subprocess.run([*systemctl, *words], capture_output=True, text=True, check=False)
        if done.returncode:
            raise Refused("machine_systemd", unit=str(unit), reason=done.stderr.strip())
    reporter.say("machine_installed", unit=str(unit))


def _uninstall(reporter: Reporter) -> None:
    unit, systemctl = _unit()
    if unit.exists():
        subprocess.run([*systemctl, "disable", "--now", UNIT], capture_output=True, check=False)
        unit.unlink(missing_ok=True)
        reporter.say("machine_uninstalled", unit=str(unit))


def _unit() -> tuple[Path, list[str]]:
    """The file of the unit and the command for it: of the system for root, else of the user."""
    if os.geteuid() == 0:
        return Path("/etc/systemd/system") / UNIT, ["systemctl"]
    return Path.home() / ".config/systemd/user" / UNIT, ["systemctl", "--user"]


def _status(directory: Path, link: Link) -> dict[str, Any]:
    shown = link.channel().json("GET", "/agent/machine")
    return {**shown, "agent_running": _is_running(directory), "server": link.config.url}


def _is_running(directory: Path) -> bool:
    """Whether an agent holds the lock of the directory."""
    import fcntl  # noqa: PLC0415 - not on Windows

    try:
        fd = os.open(directory / "lock", os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def _read(path: Path) -> dict[str, Any]:
    with suppress(OSError, ValueError):
        found = json.loads(path.read_bytes())
        return found if isinstance(found, dict) else {}
    return {}


def _write_private(path: Path, text: str) -> None:
    """A file of mode 0600, written as a whole."""
    aside = path.with_name(path.name + ".new")
    with os.fdopen(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)
