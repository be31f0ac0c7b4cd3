"""Several servers on one PostgreSQL: any of them serves anything, and any of them may go."""

from __future__ import annotations

import json
import os
import signal
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from http.client import IncompleteRead
from pathlib import Path

import psycopg
import pytest

from paddlecloud.db.engine.notify import Notifier
from paddlecloud.db.engine.postgres import open_postgres
from paddlecloud.db.tables import agent_keys, agents, servers
from paddlecloud.db.tables.servers import Server
from paddlecloud.model.errors import ConfigError
from paddlecloud.model.jobs.job import Resources
from paddlecloud.server.services.accounts.embedded_accounts import embedded_agent
from paddlecloud.testing import SignedCaller, exchange
from tests.integration.server.process import agents_of, asked, ended
from tests.integration.server.several_servers import Replica, holders, replicas, submit
from tests.integration.server.world import eventually

pytestmark = pytest.mark.slow

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)


def a_server(boot: str = "boot", *, at: datetime = NOW, **changes: str) -> Server:
    plain = {"place": boot, "url": f"http://{boot}", "node": boot, "key_mark": "mark"}
    return Server(boot=boot, version="1", started_at=at, seen_at=at, **(plain | changes))


def end_of(caller: SignedCaller, job_id: str, seconds: float = 40.0) -> str:
    """The state in which the job ended; asked by long polls."""
    deadline = time.monotonic() + seconds
    view = caller.get(f"/api/v1/jobs/{job_id}")
    while not view["finished_at"] and time.monotonic() < deadline:
        view = caller.get(f"/api/v1/jobs/{job_id}", wait=10, version=view["version"])
    return str(view["job_status"])


def test_servers_are_known_while_they_say_so(postgres_url: str) -> None:
    db = open_postgres(postgres_url, now=NOW)
    marks = frozenset({"mark"})
    db.write(lambda tx: servers.join(tx, a_server("one"), marks))
    db.write(lambda tx: servers.join(tx, a_server("two", url="http://one"), marks))
    db.write(lambda tx: servers.join(tx, a_server("deaf", url=""), marks))
    later = NOW + timedelta(seconds=15)
    db.write(lambda tx: servers.heartbeat(tx, a_server("two", at=later)))
    assert db.read(lambda tx: servers.urls(tx, NOW)) == ("http://one",)
    assert [s.boot for s in db.read(lambda tx: servers.live(tx, NOW))] == ["deaf", "one", "two"]
    gone = NOW + timedelta(seconds=25)
    assert [s.boot for s in db.read(lambda tx: servers.live(tx, gone))] == ["two"]
    db.write(lambda tx: servers.leave(tx, "two"))
    assert db.read(lambda tx: servers.live(tx, gone)) == []
    next_week = NOW + timedelta(days=7)
    db.write(lambda tx: servers.join(tx, a_server("late", at=next_week), marks))
    assert db.read(lambda tx: tx.all("select boot from servers")) == [("late",)]
    db.close()


def test_a_server_that_does_not_fit_is_refused(postgres_url: str) -> None:
    db = open_postgres(postgres_url, now=NOW)
    marks = frozenset({"mark", "old"})
    db.write(lambda tx: servers.join(tx, a_server("one"), marks))
    with pytest.raises(ConfigError, match="also uses the node name one") as refused:
        db.write(lambda tx: servers.join(tx, a_server("two", node="one"), marks))
    assert refused.value.code == "replica_node_taken"
    other = a_server("two", key_mark="other")
    with pytest.raises(ConfigError, match="the same `key`"):
        db.write(lambda tx: servers.join(tx, other, frozenset({"other"})))
    # A key that is being exchanged: the one of the others is among our old ones.
    db.write(lambda tx: servers.join(tx, other, frozenset({"other", "mark"})))
    # The same home again, after a kill.
    db.write(
        lambda tx: servers.join(tx, a_server("again", place="one", node="one"), marks | {"other"})
    )
    assert {s.boot for s in db.read(lambda tx: servers.live(tx, NOW))} == {"two", "again"}
    db.close()


def test_a_log_that_grows_here_wakes_who_follows_it_there(postgres_url: str) -> None:
    here, there = (open_postgres(postgres_url, now=NOW) for _ in range(2))
    heard: list[tuple[str, str]] = []
    there.subscribe(lambda channel, payload: heard.append((channel, payload)))
    bell = Notifier(here, "log")
    ids = {f"job-{number}" for number in range(250)}
    for _ in range(4):
        for job_id in ids:
            bell.notify(job_id)
    try:
        eventually(lambda: {payload for channel, payload in heard if channel == "log"} == ids)
        assert len(heard) < 4 * len(ids), "each of many pieces was told by itself"
    finally:
        here.close()
        there.close()


def test_a_machine_with_another_home_has_one_agent(tmp_path: Path, postgres_url: str) -> None:
    """The agent of the home before may still run: it must not obey the same orders."""
    db = open_postgres(postgres_url, now=NOW)
    paths = [tmp_path / "old" / "agent.json", tmp_path / "new" / "agent.json"]
    for path in paths:
        embedded_agent(db, b"k" * 32, path, "machine-a", "local", tmp_path / "server.json", NOW)
    old, new = (json.loads(path.read_text())["ak"] for path in paths)
    assert db.read(lambda tx: agent_keys.find_key(tx, old)) is None
    assert db.read(lambda tx: agent_keys.find_key(tx, new)) is not None
    db.close()


def test_two_servers_that_do_not_fit_say_so_and_end(tmp_path: Path, postgres_url: str) -> None:
    with replicas(tmp_path, postgres_url, ["here", "here"]) as (first, second):
        first.start()
        code, told = ended(second.spawn())
        assert code == 1
        assert "also uses the node name here" in told
    other = tmp_path / "other"
    with replicas(other, postgres_url, [""], key="f" * 64) as (third,):
        servers_gone = _forget_places(postgres_url, first)
        assert servers_gone
        code, told = ended(third.spawn())
        assert (code, "the same `key`" in told) == (1, True)


def _forget_places(url: str, replica: Replica) -> bool:
    """Let the killed server look alive: it was, a moment ago."""
    with psycopg.connect(url) as connection:
        rows = connection.execute("update servers set node = '' returning place").fetchall()
    return rows == [((replica.home / "server" / "place").read_text(),)]


def test_any_server_serves_any_request(tmp_path: Path, postgres_url: str) -> None:
    """Submitted here, run by the agent of there, followed and awaited here."""
    with replicas(tmp_path, postgres_url, ["machine-a", ""]) as (first, second):
        first.start()
        second.start()
        here = second.caller()
        assert agents_of(second.home / "agent" / "agent.json") == []
        job_id = submit(here, "echo one; sleep 0.5; echo two; exit 3")
        with asked(here, f"/api/v1/jobs/{job_id}/logs", "follow=1") as connection:
            answer = connection.getresponse()
            assert answer.read(4) == b"one\n"
            assert answer.read() == b"two\n"
        for caller in (here, first.caller()):
            assert end_of(caller, job_id) == "failed"
            view = caller.get(f"/api/v1/jobs/{job_id}")
            assert (view["exit_code"], view["attempts"]) == (3, 1)
        (pool,) = here.get("/api/v1/admin/pools")["pools"]
        assert [node["id"] for node in pool["nodes"]] == ["machine-a"]


def test_a_wait_here_is_ended_by_a_change_there(tmp_path: Path, postgres_url: str) -> None:
    with replicas(tmp_path, postgres_url, ["", ""]) as (first, second):
        first.start()
        second.start()
        job_id = submit(first.caller(), "echo hi")  # nobody has a machine for it
        state = {"view": second.caller().get(f"/api/v1/jobs/{job_id}")}
        eventually(lambda: _is_still(second.caller(), job_id, state))
        took = _answer_time(second.caller(), job_id, state["view"]["version"], first)
        assert took < 15, "it came by itself, when the wait was over"


def _is_still(caller: SignedCaller, job_id: str, state: dict[str, dict[str, object]]) -> bool:
    """Whether the job waits in the queue, where nothing more happens to it."""
    state["view"] = caller.get(f"/api/v1/jobs/{job_id}")
    return state["view"]["job_status"] == "queue"


def _answer_time(caller: SignedCaller, job_id: str, version: object, other: Replica) -> float:
    """Seconds from a kill at the other server to the answer of a long poll at this one."""
    with asked(caller, f"/api/v1/jobs/{job_id}", f"version={version}&wait=30") as connection:
        began = time.monotonic()
        other.caller().post(f"/api/v1/jobs/{job_id}/kill")
        assert b"killed" in connection.getresponse().read()
        return time.monotonic() - began


def test_a_key_taken_away_there_is_refused_here(tmp_path: Path, postgres_url: str) -> None:
    with replicas(tmp_path, postgres_url, ["", ""]) as (first, second):
        first.start()
        second.start()
        admin = first.caller()
        admin.post("/api/v1/admin/users", {"user_id": "bob"})
        made = admin.post("/api/v1/admin/users/bob/tokens", {"name": "laptop"})
        bob = SignedCaller(host="127.0.0.1", port=second.own_port, ak=made["ak"], sk=made["sk"])
        assert bob.get("/api/v1/whoami")["user_id"] == "bob"
        admin.post(f"/api/v1/admin/tokens/{made['ak']}/revoke")
        eventually(lambda: bob.call("GET", "/api/v1/whoami").status == 401)


def test_what_is_followed_here_ends_with_the_key_taken_away_there(
    tmp_path: Path, postgres_url: str
) -> None:
    with replicas(tmp_path, postgres_url, ["", ""]) as (first, second):
        first.start()
        second.start()
        admin = first.caller()
        job_id = submit(admin, "echo hi")  # nobody has a machine for it
        made = admin.post("/api/v1/admin/users/admin/tokens", {"name": "laptop"})
        here = SignedCaller(host="127.0.0.1", port=second.own_port, ak=made["ak"], sk=made["sk"])
        with asked(here, f"/api/v1/jobs/{job_id}/logs", "follow=1") as connection:
            answer = connection.getresponse()
            assert answer.status == 200
            admin.post(f"/api/v1/admin/tokens/{made['ak']}/revoke")
            with pytest.raises(IncompleteRead):
                answer.read()
        eventually(lambda: here.call("GET", "/api/v1/whoami").status == 401)


def test_one_request_is_good_at_one_server_once(tmp_path: Path, postgres_url: str) -> None:
    """Both have the same name for whoever stands in the middle: the nonce is spent for all."""
    with replicas(tmp_path, postgres_url, ["", ""]) as (first, second):
        first.start()
        second.start()
        caller = first.caller()
        headers = caller.headers("GET", "/api/v1/whoami", "", b"")
        assert (_sent(first, headers), _sent(second, headers)) == (200, 401)


def _sent(replica: Replica, headers: dict[str, str]) -> int:
    return exchange("127.0.0.1", replica.own_port, "GET", "/api/v1/whoami", headers).status


@pytest.mark.slow
def test_when_a_server_dies_its_agent_and_its_loops_go_on_elsewhere(
    tmp_path: Path, postgres_url: str
) -> None:
    with replicas(tmp_path, postgres_url, ["machine-a", ""]) as (first, second):
        first.start()
        second.start()
        config = first.home / "agent" / "agent.json"
        eventually(lambda: _has_learned(first, second), 60)
        before = agents_of(config)
        job_id = submit(second.caller(), "echo one; sleep 3; echo two")
        eventually(lambda: _state(second.caller(), job_id) == "running")
        first.process.kill()
        first.process.wait(20)
        died = time.monotonic()
        assert end_of(second.caller(), job_id) == "success"
        assert second.caller().call("GET", f"/api/v1/jobs/{job_id}/logs").body == b"one\ntwo\n"
        assert end_of(second.caller(), submit(second.caller(), "echo hi")) == "success"
        assert time.monotonic() - died < 35, "the loops stood still for longer than a lease"
        assert before[0] in agents_of(config), "the agent ended itself while a server answered"
        first.start()  # and it may come back
        assert end_of(first.caller(), submit(first.caller(), "echo hi")) == "success"


@pytest.mark.slow
def test_an_agent_that_idles_hears_of_servers_that_come_and_go(
    tmp_path: Path, postgres_url: str
) -> None:
    """Its own may be killed a moment later, and then nobody could tell it any more."""
    with replicas(tmp_path, postgres_url, ["machine-a", "", ""]) as (first, second, third):
        first.start()
        job_id = submit(first.caller(), "echo one; sleep 8; echo two")
        eventually(lambda: _state(first.caller(), job_id) == "running", 60)
        second.start()
        third.start()
        eventually(lambda: _knows(first, second) and _knows(first, third))
        third.process.terminate()
        third.process.wait(20)
        eventually(lambda: not _knows(first, third))
        first.process.kill()
        assert end_of(second.caller(), job_id) == "success"
        assert second.caller().call("GET", f"/api/v1/jobs/{job_id}/logs").body == b"one\ntwo\n"


@pytest.mark.slow
def test_a_server_that_was_stopped_and_wakes_up_writes_nothing(
    tmp_path: Path, postgres_url: str
) -> None:
    with replicas(tmp_path, postgres_url, ["", "machine-b"]) as (first, second):
        first.start()
        boot = str(first.facts()["boot"])
        eventually(lambda: holders(postgres_url).get("loop-schedule") == boot)
        second.start()
        first.process.send_signal(signal.SIGSTOP)
        stopped = time.monotonic()
        try:
            assert end_of(second.caller(), submit(second.caller(), "echo hi")) == "success"
            assert time.monotonic() - stopped < 35
        finally:
            first.process.send_signal(signal.SIGCONT)
        ids = [submit(caller, "echo hi") for caller in (first.caller(), second.caller())]
        assert [end_of(first.caller(), job_id) for job_id in ids] == ["success"] * 2
        assert holders(postgres_url)["loop-schedule"] == str(second.facts()["boot"])
        assert first.process.poll() is None


@pytest.mark.slow
def test_an_agent_that_dies_is_started_by_its_own_server(tmp_path: Path, postgres_url: str) -> None:
    """Also when another server runs the loops, which cannot look into that machine."""
    with replicas(tmp_path, postgres_url, ["", "machine-b"]) as (first, second):
        first.start()
        second.start()
        config = second.home / "agent" / "agent.json"
        eventually(lambda: bool(agents_of(config)))
        before = agents_of(config)
        for pid in before:
            _kill(pid)
        assert end_of(first.caller(), submit(first.caller(), "echo hi")) == "success"
        assert not set(agents_of(config)) & set(before)


def test_machines_join_a_pool_while_their_agents_are_heard_of(
    tmp_path: Path, postgres_url: str
) -> None:
    with replicas(tmp_path, postgres_url, [""]) as (server,):
        server.start()
        db = open_postgres(postgres_url, now=NOW)
        try:
            for name, ago in (("here", 0), ("lately", 20), ("long-ago", 60)):
                agent = _an_agent(name, datetime.now(UTC) - timedelta(seconds=ago))
                db.write(partial(agents.upsert_agent, agent=agent))
            eventually(lambda: _nodes(server) == {"here": 8.0, "lately": 8.0})
        finally:
            db.close()


def _an_agent(name: str, seen_at: datetime) -> agents.Agent:
    return agents.Agent(
        id=name,
        pool=name,
        boot="boot",
        version="1",
        host="127.0.0.1",
        capacity=Resources(cpu=8.0, memory=2**33),
        enforces={},
        seen_at=seen_at,
    )


def _nodes(server: Replica) -> dict[str, float]:
    (pool,) = server.caller().get("/api/v1/admin/pools")["pools"]
    return {node["id"]: node["cpu"] for node in pool["nodes"]}


def _has_learned(first: Replica, second: Replica) -> bool:
    """Whether the agent of one knows the other; it is told with its orders, so it is given some."""
    assert end_of(second.caller(), submit(second.caller(), "echo hi")) == "success"
    return _knows(first, second)


def _knows(first: Replica, second: Replica) -> bool:
    """Whether the agent of one has the address of the other."""
    path = first.home / "agent" / "peers.json"
    return path.exists() and f":{second.own_port}" in path.read_text()


def _state(caller: SignedCaller, job_id: str) -> str:
    return str(caller.get(f"/api/v1/jobs/{job_id}")["job_status"])


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):  # an agent that is just starting forks
        os.kill(pid, signal.SIGKILL)
