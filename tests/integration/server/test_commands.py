"""Commands beside a worker, from the wish to the end, with an agent that does as it is told."""

from __future__ import annotations

import base64
import json
from datetime import timedelta
from typing import Any

import pytest

from paddlecloud.db import audit
from paddlecloud.db.tokens import UserRole
from paddlecloud.model.errors import Conflict, Invalid, NotFound, TooLarge, TooMany
from paddlecloud.server.services import commands, retention
from paddlecloud.testing import Reply
from tests.integration.server.world import World


def running(world: World, **changes: Any) -> tuple[str, dict[str, Any]]:
    job_id, order = world.placed(**changes)
    world.agent.start(order)
    return job_id, order


def begin(world: World, job_id: str, *argv: str, **asked: Any) -> dict[str, Any]:
    answer: dict[str, Any] = world.user.post(
        f"/api/v1/jobs/{job_id}/commands", {"argv": argv or ["ls"], **asked}
    )
    return answer


def heard(world: World, known: dict[str, bool] | None = None) -> list[dict[str, Any]]:
    body = {
        "agent": world.agent.name,
        "boot": world.agent.boot,
        "version": world.agent.version,
        "cursor": world.agent.cursor,
        "wait": 0.0,
        "capacity": {"cpu": 4.0, "memory": 2**33, "gpu": 0},
        "commands": known or {},
    }
    found: list[dict[str, Any]] = world.agent.caller.post("/api/v1/agent/poll", body)["commands"]
    return found


def bring(world: World, command: str, data: bytes, offset: int = 0, stream: str = "out") -> int:
    reply = world.agent.caller.call(
        "PUT", f"/api/v1/agent/commands/{command}/output",
        {"stream": stream, "offset": offset}, data,
    )  # fmt: skip
    return int(reply.json()["size"])


def end(world: World, command: str, **note: Any) -> bool:
    plain = {"cause": "exit", "exit_code": 0}
    path = f"/api/v1/agent/commands/{command}/end"
    return bool(world.agent.caller.post(path, plain | note)["ended"])


def frames(reply: Reply) -> list[tuple[str, bytes]]:
    found, rest = [], reply.body
    while rest:
        size = int.from_bytes(rest[1:5], "big")
        found.append((rest[:1].decode(), rest[5 : 5 + size]))
        rest = rest[5 + size :]
    return found


def output(world: World, job_id: str, command: str, **query: object) -> list[tuple[str, bytes]]:
    return frames(world.raw(f"/api/v1/jobs/{job_id}/commands/{command}/output", **query))


def test_a_command_is_heard_of_once_and_its_stop_once_more(world: World) -> None:
    job_id, order = running(world)
    made = begin(world, job_id, "sh", "-c", "echo $X", timeout=5, stdin="aGk=")
    assert (made["worker"], made["exit_code"], made["cause"]) == ("trainer-0", None, "")
    (told,) = heard(world)
    assert told == {
        "id": made["id"],
        "replica": order["replica"],
        "argv": ["sh", "-c", "echo $X"],
        "timeout": 5.0,
        "input": 2,
        "stop": False,
    }
    assert heard(world, {made["id"]: False}) == []
    world.user.post(f"/api/v1/jobs/{job_id}/commands/{made['id']}/stop")
    (told,) = heard(world, {made["id"]: False})
    assert told["stop"]
    assert heard(world, {made["id"]: True}) == []
    reply = world.agent.caller.call("GET", f"/api/v1/agent/commands/{made['id']}/input")
    assert reply.body == b"hi"


def test_output_comes_at_offsets_and_the_end_behind_it(world: World) -> None:
    job_id, _ = running(world)
    name = begin(world, job_id)["id"]
    assert output(world, job_id, name) == []
    assert bring(world, name, b"one ") == 4
    assert bring(world, name, b"one two", 0) == 7, "the same bytes are kept once"
    assert bring(world, name, b"late", 100) == 7, "a gap is not kept"
    assert bring(world, name, b"oops", 0, "err") == 4
    assert output(world, job_id, name) == [("o", b"one two"), ("e", b"oops")]
    assert output(world, job_id, name, out=4, err=4) == [("o", b"two")]
    assert not end(world, name, out_size=8, err_size=4), "a byte is missing"
    assert bring(world, name, b"!", 7) == 8
    assert end(world, name, exit_code=7, out_size=8, err_size=4)
    assert end(world, name, exit_code=9, out_size=8, err_size=4), "told twice is told once"
    (letter, text) = output(world, job_id, name, out=8, err=4, follow=1)[-1]
    view = json.loads(text)
    assert (letter, view["exit_code"], view["cause"], view["message"]) == ("x", 7, "exit", "")
    assert world.user.get(f"/api/v1/jobs/{job_id}/commands/{name}") == view
    assert heard(world) == []


@pytest.mark.parametrize(
    ("cause", "word", "says"),
    [
        ("wall_time", "timeout", "after its 5 s"),
        ("stopped", "stopped", "was stopped"),
        ("replica_over", "replica_over", "trainer-0 is over"),
        ("failed", "failed", "no room"),
        ("anything else", "failed", "no room"),
    ],
)
def test_why_it_ended_is_said(world: World, cause: str, word: str, says: str) -> None:
    job_id, _ = running(world)
    name = begin(world, job_id, timeout=5)["id"]
    assert end(world, name, cause=cause, exit_code=None, message="no room\0")
    view = world.user.get(f"/api/v1/jobs/{job_id}/commands/{name}")
    assert view["cause"] == word
    assert says in view["message"]


def test_what_cannot_be_run_is_refused(world: World) -> None:
    job_id = world.submit()
    with pytest.raises(Conflict, match="does not run"):
        begin(world, job_id)
    world.plan()
    order = world.agent.order(job_id)
    with pytest.raises(Conflict, match=r"does not run \(ordered\)"):
        begin(world, job_id)
    world.agent.start(order)
    with pytest.raises(Invalid, match="worker"):
        begin(world, job_id, worker="trainer-9")
    with pytest.raises(Invalid, match="needs a command"):
        world.user.post(f"/api/v1/jobs/{job_id}/commands", {"argv": []})
    with pytest.raises(Invalid, match="zero byte"):
        begin(world, job_id, "a\0b")
    with pytest.raises(Invalid, match=f"more than {commands.MOST_BYTES}"):
        begin(world, job_id, "x" * (commands.MOST_BYTES + 1))
    much = base64.b64encode(b"x" * (commands.MOST_STDIN + 1)).decode()
    with pytest.raises(TooLarge):
        begin(world, job_id, stdin=much)
    assert world.count("commands") == 0
    world.agent.exit(order)
    with pytest.raises(Conflict, match="does not run"):
        begin(world, job_id)


def test_there_is_a_limit_beside_one_worker(world: World) -> None:
    job_id, _ = running(world)
    names = [begin(world, job_id)["id"] for _ in range(commands.MOST_BESIDE)]
    with pytest.raises(TooMany, match=str(commands.MOST_BESIDE)):
        begin(world, job_id, stdin="aGk=")
    assert not list(world.deps.settings.store_dir.rglob("*.in"))
    assert end(world, names[0])
    assert begin(world, job_id)


def test_a_command_belongs_to_its_job_and_its_agent(world: World) -> None:
    job_id, order = running(world)
    name = begin(world, job_id)["id"]
    world.agent.exit(order)
    world.release()
    other, _ = running(world)
    for path in ("", "/output"):
        reply = world.user.call("GET", f"/api/v1/jobs/{other}/commands/{name}{path}")
        assert (reply.status, reply.code) == (404, "exec_unknown")
    stranger = world.agent_of("node-9").caller
    for method, path in (("GET", "input"), ("PUT", "output"), ("POST", "end")):
        body = b'{"cause": "exit"}' if method == "POST" else b""
        reply = stranger.call(method, f"/api/v1/agent/commands/{name}/{path}", body=body)
        assert (reply.status, reply.code) == (404, "exec_unknown")
    with pytest.raises(NotFound):
        world.caller("somebody else").post(f"/api/v1/jobs/{job_id}/commands", {"argv": ["ls"]})


def test_an_admin_may_and_every_command_is_audited(world: World) -> None:
    job_id, _ = running(world)
    begin(world, job_id, "sh", "-c", "echo secret")
    chief = world.caller("chief", role=UserRole.ADMIN)
    chief.post(f"/api/v1/jobs/{job_id}/commands", {"argv": ["ls"]})
    rows = world.deps.db.read(audit.listed)
    assert [(row.actor, row.action, row.target) for row in rows] == [
        ("chief", "job.exec", job_id),
        ("someone", "job.exec", job_id),
    ]
    assert rows[1].detail == {"owner": "someone", "worker": "trainer-0", "program": "sh"}


def test_a_command_whose_machine_is_gone_ends_after_its_worker(world: World) -> None:
    job_id, order = running(world)
    name = begin(world, job_id)["id"]
    world.agent.exit(order)
    assert output(world, job_id, name) == [], "its agent may still tell"
    world.clock.move(seconds=commands.GIVEN_UP.total_seconds() + 1)
    (_, text) = output(world, job_id, name, follow=1)[-1]
    assert json.loads(text)["cause"] == "replica_over"


def test_its_files_are_not_listed_and_go_with_the_job(world: World) -> None:
    job_id, order = running(world)
    name = begin(world, job_id, stdin="aGk=")["id"]
    bring(world, name, b"out")
    place = world.deps.settings.store_dir / commands.root_of("someone", job_id)
    assert sorted(path.suffix for path in place.iterdir()) == [".in", ".out"]
    listed = world.user.get(f"/api/v1/jobs/{job_id}/files")["files"]
    assert not [row for row in listed if name in row["path"]]
    world.agent.exit(order)
    world.release()
    world.clock.move(seconds=(world.deps.settings.retention.finished_jobs).total_seconds() + 60)
    retention.collect(world.with_clock(world.clock() + timedelta(seconds=1)))
    assert not list(place.glob("*"))
    assert world.count("commands") == 0
