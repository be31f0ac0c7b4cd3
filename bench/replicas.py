"""Servers under traffic: what one and two of them accept and hand out on either database.

`replicas` is a measure like the others. `load` is the long one, for `python -m bench load`: 64
people at once for a while, then 2,000 jobs that end in the same second. The agent is played over
its real protocol; the real one of the server is stopped first, so no process is started.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench.limits import limited
from bench.row import Row
from bench.traffic import Keys, a_job, a_poll, began, channel, ended, in_processes, report
from paddlecloud.agent.server_link.channel import Channel
from scripts import postgres

ACCEPTED = 2_000
ROUNDS = 3
"""The better one counts: the machine is seldom alone."""
SHARE = 0.2
PEOPLE = 64
PAUSE = 1.0
"""Seconds between two calls of a person, at most."""
ENDS = 2_000
NODE = "bench"
ROOM = 1_024
"""CPUs that the machine is said to have: room for every job."""
SETTINGS = """
team = true
default_plan = "unlimited"
key = "{key}"
[http]
host = "127.0.0.1"
port = {port}
{database}
[store]
root = "{store}"
[replica]
node = "{node}"
agent = {agent}
[local_pool]
cpu = {room}
[[pools]]
name = "local"
users = ["admin"]
public = false
[running]
lost_after = "1h"
"""


@dataclass(frozen=True, kw_only=True)
class Servers:
    """Servers that run, and who may ask them."""

    urls: Sequence[str]
    admin: Keys
    agent: Keys
    snapshot: str
    pids: Sequence[int] = ()

    def person(self) -> Channel:
        return channel(self.urls[0], self.admin)


def replicas() -> Iterator[Row]:
    """Jobs accepted and handed out a second: SQLite, PostgreSQL, two servers on PostgreSQL."""
    for name, count in (("SQLite", 1), ("PostgreSQL", 1), ("PostgreSQL", 2)):
        with running(name, count) as servers:
            label = f"{name}, {count} server{'s' if count > 1 else ''}"
            yield from _accepted_and_claimed(servers, label)
    yield from _two_against_one()


def load(seconds: float) -> Iterator[Row]:
    """64 people for so long, then 2,000 ends at once, on either database."""
    for name, count in (("SQLite", 1), ("PostgreSQL", 2)):
        with running(name, count) as servers:
            yield from _mixed(servers, f"{name}, {count}", seconds)
            yield from _ends(servers, f"{name}, {count}")


def _accepted_and_claimed(servers: Servers, label: str) -> Iterator[Row]:
    orders = _Orders(servers)
    held = _fill(servers, orders)
    rate, errors = _accepted(servers, ACCEPTED, 4)
    yield Row(
        what=f"jobs accepted, {label}, 8 threads",
        measured=f"{rate:.0f} a second{errors}",
        goal="no error",
        reached=not errors,
    )
    start = time.perf_counter()
    report(orders.agent, NODE, [ended(held[0], held[1])])
    orders.until(ACCEPTED)
    rate = ACCEPTED / (time.perf_counter() - start)
    yield Row(
        what=f"jobs handed out to an agent, {label}",
        measured=f"{rate:.0f} a second",
        goal="-",
        reached=True,
    )


def _fill(servers: Servers, orders: _Orders) -> tuple[str, int]:
    """One job takes all there is, so that all others wait; its replica and fence."""
    servers.person().json("POST", "/jobs", a_job(servers.snapshot, cpu=ROOM))
    (held,) = orders.until(1)
    return held


def _two_against_one() -> Iterator[Row]:
    """Servers that have a small part of a CPU each, so that what they share has enough of it.

    On few cores two servers, their database and their callers would only take it from each other.
    """
    best = {1: 0.0, 2: 0.0}
    for _ in range(ROUNDS):
        for count in best:
            with running("PostgreSQL", count) as servers:
                _fill(servers, _Orders(servers))
                with limited(servers.pids, SHARE) as can:
                    if not can:
                        what = "two servers against one, PostgreSQL"
                        yield Row(what=what, measured="no cgroups", goal="1.5 x", reached=True)
                        return
                    best[count] = max(best[count], _accepted(servers, ACCEPTED // 2, 8)[0])
    ratio = best[2] / best[1]
    yield Row(
        what=f"PostgreSQL, 2 servers against 1, {SHARE} of a CPU each, 16 threads",
        measured=f"{best[2]:.0f}/{best[1]:.0f} = {ratio:.1f} x",
        goal="1.5 x",
        reached=ratio >= 1.5,
    )


def _accepted(servers: Servers, count: int, threads: int) -> tuple[float, str]:
    """Jobs accepted a second, by so many threads in each of two processes, and errors."""
    base = {"what": "submits", "urls": servers.urls, "keys": servers.admin, "threads": threads}
    task = base | {"snapshot": servers.snapshot, "count": count // 2}
    seen = in_processes([task, task | {"urls": servers.urls[::-1]}])
    return count / max(each["spent"] for each in seen), _errors(seen)


def _mixed(servers: Servers, label: str, seconds: float) -> Iterator[Row]:
    base = {"what": "mixed", "urls": servers.urls, "keys": servers.admin, "threads": PEOPLE // 4}
    task = base | {"snapshot": servers.snapshot, "seconds": seconds, "pause": PAUSE}
    agent: dict[str, object] = {
        "what": "obeys",
        "urls": servers.urls[-1:],
        "keys": servers.agent,
        "node": NODE,
    }
    agent |= {"seconds": seconds + 2, "cpu": ROOM}
    seen = in_processes([*[task] * 4, agent])
    times = {
        kind: sorted(t for each in seen for t in each["times"].get(kind, ()))
        for kind in ("submit", "kill", "query", "list")
    }
    writes = sorted(times["submit"] + times["kill"])
    calls = sum(map(len, times.values()))
    late = _percentile(writes, 0.99)
    yield Row(
        what=f"{PEOPLE} people, {seconds:.0f} s, {calls} calls, {label}: write p50, p99",
        measured=f"{statistics.median(writes) * 1000:.0f}, {late * 1000:.0f} ms{_errors(seen)}",
        goal="p99 500 ms",
        reached=late < 0.5 and not _errors(seen),
    )


def _ends(servers: Servers, label: str) -> Iterator[Row]:
    """Every job there is gets its place and begins; then all of them end at once."""
    person, orders = servers.person(), _Orders(servers)
    task = {"what": "submits", "urls": servers.urls, "keys": servers.admin, "threads": 8}
    in_processes([task | {"snapshot": servers.snapshot, "count": ENDS}])
    live = orders.until(ENDS)[:ENDS]
    for first in range(0, ENDS, 100):
        items = [began(replica, fence) for replica, fence in live[first : first + 100]]
        report(orders.agent, NODE, items)
    halves = (live[: ENDS // 2], live[ENDS // 2 :])
    base = {"what": "ends", "urls": servers.urls, "keys": servers.agent, "node": NODE}
    seen = in_processes([base | {"threads": 16, "replicas": half} for half in halves])
    times = sorted(t for each in seen for t in each["times"]["end"])
    spent = max(each["spent"] for each in seen)
    late = _percentile(times, 0.99)
    yield Row(
        what=f"{ENDS} ends in {spent:.1f} s, {label}: p50, p99 of a report",
        measured=f"{statistics.median(times) * 1000:.0f}, {late * 1000:.0f} ms{_errors(seen)}",
        goal="p99 500 ms",
        reached=late < 0.5 and not _errors(seen),
    )
    states = [_state(person, replica) for replica, _ in live[:: ENDS // 20]]
    done = set(states) == {"success"}
    yield Row(
        what=f"a sample of them afterwards, {label}",
        measured=", ".join(sorted(set(states))),
        goal="success",
        reached=done,
    )


def _state(person: Channel, replica: str) -> str:
    return str(person.json("GET", f"/jobs/{replica.split('.')[0]}")["job_status"])


class _Orders:
    """The agent's question for orders, played."""

    def __init__(self, servers: Servers) -> None:
        self.agent = channel(servers.urls[0], servers.agent)
        self._cursor = 0
        self._known: dict[str, tuple[str, int]] = {}

    def until(self, count: int) -> list[tuple[str, int]]:
        """Replica and fence of everything that is to run, once that many came since the last."""
        self._known.clear()
        deadline = time.monotonic() + 120
        while len(self._known) < count:
            assert time.monotonic() < deadline, f"{len(self._known)} of {count} orders came"
            question = a_poll(NODE, self._cursor, ROOM)
            answer = self.agent.json("POST", "/agent/poll", question)
            self._cursor = answer["cursor"]
            for order in answer["orders"]:
                if order["want"] == "run":
                    self._known[order["replica"]] = (order["replica"], order["fence"])
                else:
                    self._known.pop(order["replica"], None)
        return list(self._known.values())


@contextlib.contextmanager
def running(database: str, count: int) -> Iterator[Servers]:
    """So many servers on one new database; everything is ended and deleted afterwards."""
    top = Path(tempfile.mkdtemp(prefix="paddlecloud-bench-"))
    top.chmod(0o755)
    processes: list[subprocess.Popen[bytes]] = []
    stopped: list[int] = []
    try:
        url = postgres.start(top / "postgres") if database == "PostgreSQL" else ""
        homes = [top / f"home-{number}" for number in range(count)]
        for number, home in enumerate(homes):
            settings = _settings(top, home, url, node=NODE if number == 0 else "")
            processes.append(_started(home, settings))
        stopped += _stop_agent(homes[0])
        yield replace(_servers(homes), pids=[process.pid for process in processes])
    finally:
        for process in processes:
            process.kill()
            process.wait()
        for pid in stopped:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if (top / "postgres").exists():
            postgres.stop(top / "postgres", how="immediate")
        shutil.rmtree(top, ignore_errors=True)


def _settings(top: Path, home: Path, url: str, node: str) -> Path:
    home.mkdir()
    path = home / "server.toml"
    text = SETTINGS.format(
        key="0123456789abcdef" * 4,
        port=_free_port(),
        database=f'[database]\nurl = "{url}"' if url else "",
        store=top / "store",
        node=node,
        agent="true" if node else "false",
        room=ROOM,
    )
    path.write_text(text)
    path.chmod(0o600)
    return path


def _started(home: Path, settings: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "paddlecloud.server", "--home", str(home)]
    process = subprocess.Popen([*command, "--settings", str(settings)], stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 30
    while not (home / "server" / "server.json").exists():
        assert process.poll() is None, (home / "server" / "server.log").read_text()
        assert time.monotonic() < deadline, "the server does not start"
        time.sleep(0.02)
    return process


def _stop_agent(home: Path) -> list[int]:
    """Stop it where it is: it keeps its lock, so no other one starts."""
    config = os.fsencode(home / "agent" / "agent.json")
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        found = [pid for pid in _pids() if config in _command(pid)]
        if found and (home / "agent" / "agent.log").exists():
            for pid in found:
                os.kill(pid, signal.SIGSTOP)
            return found
        time.sleep(0.05)
    raise TimeoutError("the agent does not start")


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _command(pid: int) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def _servers(homes: Sequence[Path]) -> Servers:
    facts = [json.loads((home / "server" / "server.json").read_text()) for home in homes]
    urls = [fact["url"] for fact in facts]
    admin = json.loads((homes[0] / "server" / "credentials.json").read_text())
    agent = json.loads((homes[0] / "agent" / "agent.json").read_text())
    return Servers(urls=urls, admin=admin, agent=agent, snapshot=_upload(channel(urls[0], admin)))


def _upload(person: Channel) -> str:
    data = b"true\n"
    digest = hashlib.sha256(data)
    person.call("POST", "/blobs", digest.digest() + len(data).to_bytes(8, "big") + data)
    entries = [["run.sh", "file", len(data), digest.hexdigest(), 0, ""]]
    return str(person.json("POST", "/snapshots", {"entries": entries})["id"])


def _errors(seen: Sequence[dict[str, Any]]) -> str:
    found = sorted({name for each in seen for name in each["errors"]})
    return f" ERRORS {', '.join(found)}" if found else ""


def _percentile(times: Sequence[float], part: float) -> float:
    return times[min(len(times) - 1, int(len(times) * part))] if times else 0.0


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
