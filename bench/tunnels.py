"""Tunnels: bytes, connections and keys through `port-forward` and `exec -it`."""

from __future__ import annotations

import os
import pty
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from bench.home import COMMAND, cli, fresh_home
from bench.row import Row
from paddlecloud import Client

SIZE = 256 * 2**20
PARALLEL = 20
# Sends as many bytes as it is asked for.
SOURCE = """
import socket, threading
def serve(connection):
    with connection:
        left = int(connection.makefile().readline())
        block = bytes(1 << 20)
        while left:
            connection.sendall(block[:left])
            left -= min(left, len(block))
listener = socket.create_server(("127.0.0.1", 0), backlog=100)
print(listener.getsockname()[1], flush=True)
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],)).start()
"""


def tunnels() -> Iterator[Row]:
    with fresh_home(), tempfile.TemporaryDirectory() as directory, Client() as client:
        (Path(directory) / "source.py").write_text(SOURCE)
        job = client.submit_job(files=directory, start_cmd="python3 source.py", job_type="cpu")
        remote = int(b"".join(_first_line(client, job.id)))
        forwarding = subprocess.Popen(
            [COMMAND, "port-forward", job.id, f"0:{remote}"], stdout=subprocess.PIPE, text=True
        )
        assert forwarding.stdout is not None
        local = int(forwarding.stdout.readline().split()[0].rpartition(":")[2])
        direct, through = _best(_fetch, remote), _best(_fetch, local)
        speed = f"{SIZE / through / 1e6:.0f} MB/s"
        yield Row(
            what="port-forward: 256 MiB, times a direct copy over loopback",
            goal="<= 15",
            measured=f"{through / direct:.1f} ({speed})",
            reached=through <= 15 * direct,
        )
        many, alone = _best(_fetch_many, local), _best(_fetch_many, remote)
        yield Row(
            what=f"port-forward: {PARALLEL} connections at once, 64 KiB each (direct)",
            goal="<= 1 s",
            measured=f"{many * 1000:.0f} ms ({alone * 1000:.0f})",
            reached=many <= 1.0,
        )
        key = _key_echo(job.id)
        yield Row(
            what="exec -it: a key until its echo, median of 200",
            goal="<= 10 ms",
            measured=f"{key * 1000:.2f} ms",
            reached=key <= 0.010,
        )
        forwarding.terminate()
        forwarding.wait()
        cli("kill_job", job.id)
        client.wait(job.id, timeout=60)


def _first_line(client: Client, job_id: str) -> Iterator[bytes]:
    for chunk in client.logs(job_id, follow=True):
        line, end, _ = chunk.partition(b"\n")
        yield line
        if end:
            return


def _best(measure: Callable[[int], float], port: int) -> float:
    return min(measure(port) for _ in range(3))


def _fetch(port: int, size: int = SIZE) -> float:
    began = time.perf_counter()
    left = size
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(b"%d\n" % size)
        while data := connection.recv(1 << 20):
            left -= len(data)
    assert not left, f"{left} bytes are missing"
    return time.perf_counter() - began


def _fetch_many(port: int) -> float:
    began = time.perf_counter()
    threads = [threading.Thread(target=_fetch, args=(port, 65536)) for _ in range(PARALLEL)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - began


def _key_echo(job_id: str) -> float:
    """Seconds from a key to its echo by the terminal of the command."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(COMMAND, [COMMAND, "exec", "-it", job_id, "--", "cat"])
    times = []
    try:
        time.sleep(2.0)  # until the command runs: what is typed before is echoed here
        for _ in range(200):
            began = time.perf_counter()
            os.write(terminal, b"x")
            assert os.read(terminal, 100).endswith(b"x")
            times.append(time.perf_counter() - began)
        os.write(terminal, b"\r\x04\x04")
    finally:
        os.waitpid(pid, 0)
    return statistics.median(times)


if __name__ == "__main__":
    for row in tunnels():
        sys.stdout.write(f"{row.what}: {row.measured} (goal {row.goal})\n")
