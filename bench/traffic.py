"""Clients and agents for the measures of servers, in processes of their own so that they share
neither a lock nor an interpreter with what is measured.

`python -m bench.traffic` reads one JSON object from stdin (what to do) and prints one (what it
saw): the times of the calls by kind, and every error by its code.
"""

from __future__ import annotations

import json
import random
import secrets
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from paddlecloud import __version__
from paddlecloud.agent.config import AgentConfig
from paddlecloud.agent.server_link.channel import Channel, Link
from paddlecloud.model.errors import PaddleCloudError

Keys = Mapping[str, str]
"""ak and sk of a user or an agent."""
KINDS = ("submit", "query", "query", "list", "submit", "kill")


def channel(url: str, keys: Keys) -> Channel:
    """Signed calls of this user or agent to this server, over one connection."""
    config = AgentConfig(
        path=Path("/nonexistent/agent.json"), agent_id="", ak=keys["ak"], sk=keys["sk"], url=url
    )
    return Link(config).channel()


def a_job(snapshot: str, **spec: object) -> dict[str, object]:
    plain = {"start_cmd": "true", "snapshot": snapshot, "cpu": 0.1, "job_type": "cpu"}
    return {"spec": plain | spec, "idempotency_key": secrets.token_hex(16)}


def report(agent: Channel, node: str, items: Sequence[Mapping[str, object]]) -> Any:
    """One report of an agent, as it goes over the wire."""
    note = {"agent": node, "boot": "bench", "seq": 1, "items": items}
    head = json.dumps(note).encode()
    return json.loads(agent.call("POST", "/agent/report", len(head).to_bytes(4, "big") + head))


def in_processes(tasks: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What each of these tasks saw; they run at the same time, each in its own process."""
    command = [sys.executable, "-m", "bench.traffic"]
    started = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in tasks
    ]
    for process, task in zip(started, tasks, strict=True):
        assert process.stdin is not None
        process.stdin.write(json.dumps(task))
        process.stdin.close()
        process.stdin = None
    return [json.loads(process.communicate()[0]) for process in started]


class Seen:
    """What the threads of this process saw."""

    def __init__(self) -> None:
        self.times: dict[str, list[float]] = {}
        self.errors: Counter[str] = Counter()
        self._lock = threading.Lock()

    def timed(self, kind: str, call: Callable[[], Any]) -> Any:
        """The answer, or None for an error, which is counted."""
        began = time.perf_counter()
        try:
            return call()
        except PaddleCloudError as error:
            with self._lock:
                self.errors[f"{kind} {error.code}"] += 1
            return None
        finally:
            with self._lock:
                self.times.setdefault(kind, []).append(time.perf_counter() - began)


def submits(task: Mapping[str, Any], seen: Seen) -> None:
    """Submit until a number of jobs is there, or the time is over."""
    urls, left = task["urls"], iter(range(task["count"]))
    lock = threading.Lock()

    def work(number: int) -> None:
        server = channel(urls[number % len(urls)], task["keys"])
        while True:
            with lock:
                if next(left, None) is None:
                    return
            body = a_job(task["snapshot"])
            seen.timed("submit", partial(server.json, "POST", "/jobs", body))

    _in_threads(task["threads"], work)


def mixed(task: Mapping[str, Any], seen: Seen) -> None:
    """People who submit, look, list and kill, until the time is over."""
    deadline = time.monotonic() + task["seconds"]

    def work(number: int) -> None:
        server = channel(task["urls"][number % len(task["urls"])], task["keys"])
        rng = random.Random(number)
        own: list[str] = []
        while time.monotonic() < deadline:
            _act(server, rng.choice(KINDS) if own else "submit", own, task, seen)
            time.sleep(rng.uniform(0.0, task["pause"]))

    _in_threads(task["threads"], work)


def ends(task: Mapping[str, Any], seen: Seen) -> None:
    """Each of these replicas ends, by a report of its own, all as soon as possible."""
    replicas = list(task["replicas"])
    lock = threading.Lock()

    def work(number: int) -> None:
        agent = channel(task["urls"][number % len(task["urls"])], task["keys"])
        while True:
            with lock:
                if not replicas:
                    return
                replica, fence = replicas.pop()
            items = [ended(replica, fence)]
            seen.timed("end", partial(report, agent, task["node"], items))

    _in_threads(task["threads"], work)


def obeys(task: Mapping[str, Any], seen: Seen) -> None:
    """An agent: what is to run begins, what is to stop ends."""
    deadline = time.monotonic() + task["seconds"]
    agent = channel(task["urls"][0], task["keys"])
    cursor = 0
    while time.monotonic() < deadline:
        question = a_poll(task["node"], cursor, task["cpu"])
        answer = seen.timed("poll", partial(agent.json, "POST", "/agent/poll", question))
        if answer is None:
            continue
        cursor = answer["cursor"]
        items = [_obeyed(order) for order in answer["orders"] if order["want"] != "forget"]
        if items:
            seen.timed("report", partial(report, agent, task["node"], items))


def a_poll(node: str, cursor: int, cpu: float) -> dict[str, object]:
    return {
        "agent": node,
        "boot": "bench",
        "version": __version__,
        "cursor": cursor,
        "wait": 1,
        "capacity": {"cpu": cpu, "memory": 2**50, "gpu": 0},
        "enforces": {"uid": True},
    }


def _obeyed(order: Mapping[str, Any]) -> dict[str, object]:
    if order["want"] == "run":
        return began(order["replica"], order["fence"])
    return ended(order["replica"], order["fence"])


def began(replica: str, fence: int) -> dict[str, object]:
    return {"replica": replica, "fence": fence, "started": {"pid": 1, "at": time.time()}}


def ended(replica: str, fence: int) -> dict[str, object]:
    now = time.time()
    note = {"cause": "exit", "exit_code": 0, "log_size": 0, "started_at": now, "finished_at": now}
    return {"replica": replica, "fence": fence, "exited": note}


def _act(server: Channel, kind: str, own: list[str], task: Mapping[str, Any], seen: Seen) -> None:
    if kind == "submit":
        body = a_job(task["snapshot"])
        answer = seen.timed(kind, lambda: server.json("POST", "/jobs", body))
        own.extend([answer["job"]["job_id"]] if answer else [])
    elif kind == "kill":
        job_id = own.pop()
        seen.timed(kind, lambda: server.json("POST", f"/jobs/{job_id}/kill", {}))
    elif kind == "query":
        seen.timed(kind, lambda: server.json("GET", f"/jobs/{own[-1]}"))
    else:
        seen.timed(kind, lambda: server.json("GET", "/jobs", query={"limit": 20}))


def _in_threads(count: int, work: Callable[[int], None]) -> None:
    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


TASKS = {"submits": submits, "mixed": mixed, "ends": ends, "obeys": obeys}


def main() -> int:
    task = json.loads(sys.stdin.read())
    seen = Seen()
    began = time.perf_counter()
    TASKS[task["what"]](task, seen)
    spent = time.perf_counter() - began
    print(json.dumps({"times": seen.times, "errors": dict(seen.errors), "spent": spent}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
