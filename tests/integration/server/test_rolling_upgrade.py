"""Old and new side by side: servers are exchanged one by one, and clients are older for long.

A newer server is one whose migrations are one more than ours: this very program, told to look for
them in another directory. What an old client says and reads was recorded from version 0.1 with its
own server (tests/golden): each request is sent again, and each answer must still have everything
that the old one had.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psycopg
import pytest

from paddlecloud.db.engine._migrate import FOLDER, migrations
from tests.integration.server.process import ended
from tests.integration.server.several_servers import Replica, replicas, submit
from tests.integration.server.test_several_servers import end_of
from tests.integration.server.world import World

GOLDEN = Path(__file__).parents[2] / "golden" / "client-0.1.json"
OURS = len(migrations())
PROGRAM = """
import sys
from pathlib import Path
from paddlecloud.db.engine import _migrate as migrate

folder = Path(sys.argv.pop(1))
migrate.migrations.__defaults__ = (folder,)
migrate.migrate.__kwdefaults__["folder"] = folder
from paddlecloud.server.__main__ import main

sys.exit(main())
"""
USED = {
    "max_rss": 2**20,
    "cpu_seconds": 0.1,
    "ran": 0.2,
    "enforced": {"cpu": True, "memory": False, "pids": True},
}
ADDS = "alter table jobs add column later text;\ncreate table later (id text primary key);\n"


def make_newer(replica: Replica, folder: Path, oldest: int) -> Replica:
    """Let it be of the next version, whose migration works with servers from `oldest` on."""
    known = folder / "migrations"
    shutil.copytree(FOLDER, known)
    (known / f"{OURS + 1:04}_next.sql").write_text(f"-- oldest: {oldest}\n{ADDS}")
    (folder / "newer.py").write_text(PROGRAM)
    replica.program = [sys.executable, "-P", str(folder / "newer.py"), str(known)]
    return replica


def applied(url: str) -> int:
    with psycopg.connect(url) as connection:
        row = connection.execute("select max(number) from schema_migrations").fetchone()
    assert row is not None
    return int(row[0])


@pytest.mark.slow
def test_an_old_server_goes_on_beside_a_newer_one(tmp_path: Path, postgres_url: str) -> None:
    with replicas(tmp_path, postgres_url, ["machine-a", ""]) as (old, other):
        old.start()
        assert applied(postgres_url) == OURS
        before = submit(old.caller(), "echo before")
        new = make_newer(other, tmp_path, oldest=OURS)
        new.start()
        assert applied(postgres_url) == OURS + 1
        for server in (old, new):
            assert end_of(server.caller(), submit(server.caller(), "echo hi")) == "success"
        assert end_of(new.caller(), before) == "success"
        old.process.terminate()
        assert old.process.wait(20) == 0
        old.start()
        assert end_of(old.caller(), submit(old.caller(), "echo again")) == "success"


@pytest.mark.slow
def test_an_old_server_does_not_start_on_what_it_would_damage(
    tmp_path: Path, postgres_url: str
) -> None:
    with replicas(tmp_path, postgres_url, ["", ""]) as (old, other):
        make_newer(other, tmp_path, oldest=OURS + 1).start()
        code, told = ended(old.spawn())
        assert code == 1
        assert str(OURS + 1) in told
        assert "Traceback" not in told


@pytest.fixture(scope="module")
def wire() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(GOLDEN.read_text("utf-8"))
    return found


def test_an_old_client_reads_in_every_answer_what_it_used_to(
    world: World, wire: list[dict[str, Any]]
) -> None:
    names: dict[str, str] = {}
    order: dict[str, Any] = {}
    for number, exchange in enumerate(wire):
        answer = replayed(world, exchange, names)
        where = f"{number}: {exchange['method']} {exchange['target']}"
        check_covers(exchange["answer"], answer, where)
        if exchange["target"] == "/api/v1/jobs" and exchange["status"] == 200:
            name = "{second}" if "{first}" in names else "{first}"
            names[name] = answer["job"]["job_id"]
            order = run(world, names[name])
            if name == "{first}":
                finish(world, order)
        if exchange["target"].endswith("/kill"):
            world.agent.exit(order, None, cause="stopped", signal=15, **USED)
    assert {"{first}", "{second}"} == names.keys()


def replayed(world: World, exchange: Mapping[str, Any], names: Mapping[str, str]) -> Any:
    """The answer to a recorded request, with the ids of today."""
    target = exchange["target"]
    for name, value in names.items():
        target = target.replace(name, value)
    path, _, pairs = target.partition("?")
    query = dict(pair.split("=") for pair in pairs.split("&") if pair)
    raw = exchange["body"]
    body = raw if isinstance(raw, dict | list) else bytes.fromhex(raw)
    signed = world.user.headers(exchange["method"], path, pairs, b"")
    assert set(signed) <= set(exchange["headers"]), "it signed other headers"
    said = {name: text for name, text in exchange["headers"].items() if text}
    reply = world.user.call(exchange["method"], path, query, body, said)
    assert reply.status == exchange["status"], (target, reply.body)
    if reply.headers.get("content-type") == "application/json":
        return json.loads(reply.body)
    return reply.body.decode()


def run(world: World, job_id: str) -> dict[str, Any]:
    world.plan()
    order = world.agent.order(job_id)
    world.agent.start(order)
    return order


def finish(world: World, order: dict[str, Any]) -> None:
    """As the first job did then."""
    world.agent.upload(order, "model", b"model\n")
    world.agent.log(order, 0, b"hi\n")
    world.agent.exit(order, 0, log_size=3, **USED)


def check_covers(old: Any, new: Any, where: str) -> None:
    """Whether everything that was there still is, in the same form; more may have come."""
    if isinstance(old, dict):
        assert isinstance(new, dict), where
        for name, value in old.items():
            assert name in new, f"{where}: {name} is gone"
            check_covers(value, new[name], f"{where}.{name}")
    elif isinstance(old, list):
        assert isinstance(new, list), where
        assert bool(old) <= bool(new), f"{where} is empty"
        for value in old[:1]:
            check_covers(value, new[0], f"{where}[0]")
    elif old is not None:
        assert type(new) is type(old), f"{where}: {old!r} became {new!r}"
