"""kill -9 of either of two servers and of the agent, and a restart of PostgreSQL, all at random.

Whatever is killed when: a job that was acknowledged exists once, ran once, ends as it must and has
its whole log; never does a third job of a plan of two hold a place; and every run is in the book of
used minutes once. `PADDLECLOUD_CHAOS_SEED` chooses other moments.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest

from paddlecloud.testing import Reply, SignedCaller
from scripts import postgres
from tests.integration.faults.home import Home
from tests.integration.server.several_servers import Replica, replicas
from tests.integration.server.world import a_submit, packed

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(400)]

SEED = int(os.environ.get("PADDLECLOUD_CHAOS_SEED", "20200517"))
SUBMISSIONS = 200
SUBMITTERS = 4
PAUSES = (0.2, 1.2)
MOST_BLOWS = 60
PLAN = 2
SETTLED = 150.0
BLOWS = ("first", "second", "agent", "first", "second", "both", "first and agent")
SCRIPT = """\
for n in 1 2 3 4 5; do echo "$2 line $n"; done
test "$1" = sleeps && sleep 0.3
test "$1" = fails && exit 3
exit 0
"""
KINDS = ("lines", "lines", "sleeps", "fails")


class Clients:
    """People with retries: whoever answers will do, and the same key makes repeats one job."""

    def __init__(self, servers: list[Replica]) -> None:
        self._callers = [server.caller() for server in servers]

    def call(self, method: str, path: str, body: object = b"", **query: object) -> Any:
        return self._asked(lambda caller: caller.call(method, path, query, body)).json()

    def text(self, path: str) -> bytes:
        return self._asked(lambda caller: caller.call("GET", path)).body

    def submit(self, number: int, kind: str, files: str) -> str:
        spec = {"start_cmd": f"sh run.sh {kind} {marker(number)}", "snapshot": files, "cpu": 0.1}
        body = a_submit(spec, key=f"key-{marker(number)}")
        return str(self.call("POST", "/api/v1/jobs", body)["job"]["job_id"])

    def upload(self) -> str:
        data = SCRIPT.encode()
        self.call("POST", "/api/v1/blobs", packed(data))
        entry = ["run.sh", "file", len(data), packed(data)[:32].hex(), 0, ""]
        return str(self.call("POST", "/api/v1/snapshots", {"entries": [entry]})["id"])

    def ended(self, job_id: str, deadline: float) -> dict[str, Any]:
        view: dict[str, Any] = self.call("GET", f"/api/v1/jobs/{job_id}")
        while not view["finished_at"]:
            assert time.monotonic() < deadline, f"{job_id} is still {view['job_status']}: {view}"
            view = self.call("GET", f"/api/v1/jobs/{job_id}", wait=5, version=view["version"])
        return view

    def _asked(self, ask: Callable[[SignedCaller], Reply]) -> Reply:
        deadline = time.monotonic() + 60
        while True:
            for caller in random.sample(self._callers, len(self._callers)):
                with contextlib.suppress(OSError, http.client.HTTPException):
                    reply = ask(caller)
                    if reply.status not in (429, 500, 502, 503):
                        return reply
            assert time.monotonic() < deadline, "no server answered for a minute"
            time.sleep(0.05)


class Killer(threading.Thread):
    def __init__(self, servers: list[Replica], place: Path, rng: random.Random) -> None:
        super().__init__(name="killer")
        self._servers, self._place, self._rng = servers, place, rng
        self._over = threading.Event()
        self.hits: Counter[str] = Counter()
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            for number in range(MOST_BLOWS):
                if self._over.wait(self._rng.uniform(*PAUSES)):
                    return
                self._strike("database" if number == 5 else self._rng.choice(BLOWS))
        except BaseException as error:  # noqa: BLE001 - shown by `finish`, in the test's own thread
            self.failure = error

    def finish(self) -> None:
        self._over.set()
        self.join()
        if self.failure is not None:
            raise self.failure

    def _strike(self, blow: str) -> None:
        self.hits[blow] += 1
        first, second = self._servers
        if "agent" in blow:
            Home(first.home).kill("agent", "zygote")
        struck = [first] if "first" in blow else [second] if blow == "second" else []
        struck = [first, second] if blow == "both" else struck
        for server in struck:
            server.process.kill()
            server.process.wait(20)
        for server in struck:
            server.start()
        if blow == "database":
            postgres.stop(self._place, how="fast")
            postgres.start(self._place)


class Counting(threading.Thread):
    """Counts, again and again, how many jobs hold a place."""

    def __init__(self, url: str) -> None:
        super().__init__(name="counting")
        self._url = url
        self._over = threading.Event()
        self.most = 0
        self.looks = 0

    def run(self) -> None:
        while not self._over.wait(0.02):
            with (
                contextlib.suppress(psycopg.Error),
                psycopg.connect(self._url, autocommit=True) as database,
            ):
                while not self._over.wait(0.02):
                    self.most = max(self.most, count_placed(database))
                    self.looks += 1

    def finish(self) -> None:
        self._over.set()
        self.join()


def count_placed(database: psycopg.Connection[Any]) -> int:
    question = "select count(*) from jobs where finished_at is null and pool is not null"
    row = database.execute(question).fetchone()
    assert row is not None
    return int(row[0])


def marker(number: int) -> str:
    return f"m{number:03}"


def test_servers_that_die_lose_nothing_and_do_nothing_twice(
    tmp_path: Path, postgres_place: Path
) -> None:
    rng = random.Random(SEED)
    url = postgres.url(postgres_place)
    kinds = [rng.choice(KINDS) for _ in range(SUBMISSIONS)]
    pauses = [rng.uniform(0.0, 1.0) for _ in range(SUBMISSIONS)]
    with replicas(tmp_path, url, ["machine-a", ""], running_jobs=PLAN) as servers:
        for server in servers:
            server.start()
        clients = Clients(servers)
        files = clients.upload()
        killer, counting = Killer(servers, postgres_place, rng), Counting(url)
        say(f"PADDLECLOUD_CHAOS_SEED={SEED}")
        began = time.monotonic()
        killer.start()
        counting.start()
        try:

            def submit(number: int) -> str:
                time.sleep(pauses[number])  # people come one by one, so that there is time to kill
                return clients.submit(number, kinds[number], files)

            with ThreadPoolExecutor(SUBMITTERS) as pool:
                ids = list(pool.map(submit, range(SUBMISSIONS)))
            spent = time.monotonic() - began
        finally:
            killer.finish()
        deadline = time.monotonic() + SETTLED
        views = [clients.ended(job_id, deadline) for job_id in ids]
        counting.finish()
        say(f"submitted in {spent:.0f} s, ended after {time.monotonic() - began:.0f} s")
        say(f"killed: {dict(killer.hits)}, most places {counting.most} in {counting.looks} looks")
        for number, view in enumerate(views):
            check_end(clients, number, kinds[number], view)
        check_books(url, ids)
        assert counting.most == PLAN, "of a plan of two, exactly two ran at once"
        assert killer.hits["database"] == 1, "this was no test"
        assert killer.hits.total() >= 8, "this was no test"


def say(text: str) -> None:
    """Shown when the test fails, and with -s."""
    sys.stdout.write(f"{text}\n")


def check_end(clients: Clients, number: int, kind: str, view: dict[str, Any]) -> None:
    want = ("failed", 3) if kind == "fails" else ("success", 0)
    assert (view["job_status"], view["exit_code"]) == want, view
    assert view["attempts"] == 1, view
    log = clients.text(f"/api/v1/jobs/{view['job_id']}/logs").decode()
    assert log == "".join(f"{marker(number)} line {n}\n" for n in range(1, 6)), view


def check_books(url: str, ids: list[str]) -> None:
    """Every job is there once, and so is its run; no three runs overlap."""
    with psycopg.connect(url) as database:
        jobs = [row[0] for row in database.execute("select id from jobs").fetchall()]
        runs = database.execute(
            "select job_id, attempt, started_at, ended_at from usage order by started_at"
        ).fetchall()
    assert sorted(jobs) == sorted(ids)
    assert sorted(run[0] for run in runs) == sorted(ids)
    assert all(run[1] == 1 and run[3] is not None and run[3] >= run[2] for run in runs)
