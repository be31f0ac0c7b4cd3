"""Commands beside a worker, from the wish to the end, with an agent that does as it is told."""

from __future__ import annotations

import base64
import json
from datetime import timedelta
from http.client import IncompleteRead
from typing import Any

import pytest

from paddlecloud.db.tables import audit
from paddlecloud.db.tables.users import UserRole
from paddlecloud.model.errors import Conflict, Invalid, NotFound, TooLarge, TooMany
from paddlecloud.server.loops.exec_idle import EVERY, ExecIdle
from paddlecloud.server.services.admin import garbage_collection
from paddlecloud.server.services.exec import commands, stream
from paddlecloud.server.services.exec import output as exec_output
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


def brought(
    world: World, command: str, data: bytes, offset: int = 0, stream: str = "out"
) -> dict[str, Any]:
    reply = world.agent.caller.call(
        "PUT", f"/api/v1/agent/commands/{command}/output",
        {"stream": stream, "offset": offset}, data,
    )  # fmt: skip
    answer: dict[str, Any] = reply.json()
    return answer


def bring(world: World, command: str, data: bytes, offset: int = 0, stream: str = "out") -> int:
    return int(brought(world, command, data, offset, stream)["size"])


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
        "terminal": None,
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
        ("wall_time", "timeout", "after 5 s"),
        ("stopped", "stopped", "was stopped"),
        ("replica_over", "replica_over", "trainer-0 has ended"),
        ("output_lost", "output_lost", "no room? bytes of the command's output"),
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
    with pytest.raises(Conflict, match="is not running"):
        begin(world, job_id)
    world.plan()
    order = world.agent.order(job_id)
    with pytest.raises(Conflict, match=r"is not running \(ordered\)"):
        begin(world, job_id)
    world.agent.start(order)
    with pytest.raises(Invalid, match="worker"):
        begin(world, job_id, worker="trainer-9")
    with pytest.raises(Invalid, match="needs a command"):
        world.user.post(f"/api/v1/jobs/{job_id}/commands", {"argv": []})
    with pytest.raises(Invalid, match="NUL byte"):
        begin(world, job_id, "a\0b")
    with pytest.raises(Invalid, match=f"more than {commands.MOST_BYTES}"):
        begin(world, job_id, "x" * (commands.MOST_BYTES + 1))
    much = base64.b64encode(b"x" * (commands.MOST_STDIN + 1)).decode()
    with pytest.raises(TooLarge):
        begin(world, job_id, stdin=much)
    assert world.count("commands") == 0
    world.agent.exit(order)
    with pytest.raises(Conflict, match="is not running"):
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


def test_a_command_whose_agent_brings_output_is_not_given_up(world: World) -> None:
    job_id, order = running(world)
    name = begin(world, job_id)["id"]
    world.agent.exit(order)
    for at in range(3):
        world.clock.move(seconds=commands.GIVEN_UP.total_seconds() - 5)
        assert bring(world, name, b"x", at) == at + 1
        assert output(world, job_id, name, out=at) == [("o", b"x")]
    world.clock.move(seconds=commands.GIVEN_UP.total_seconds() + 1)
    (_, text) = output(world, job_id, name, out=3, follow=1)[-1]
    assert json.loads(text)["cause"] == "replica_over"


def test_its_files_are_not_listed_and_go_with_the_job(world: World) -> None:
    job_id, order = running(world)
    name = begin(world, job_id, stdin="aGk=")["id"]
    bring(world, name, b"out")
    place = world.deps.settings.store_dir / exec_output.root_of("someone", job_id)
    assert sorted(path.suffix for path in place.iterdir()) == [".in", ".out"]
    listed = world.user.get(f"/api/v1/jobs/{job_id}/files")["files"]
    assert not [row for row in listed if name in row["path"]]
    world.agent.exit(order)
    world.release()
    world.clock.move(seconds=(world.deps.settings.retention.finished_jobs).total_seconds() + 60)
    garbage_collection.collect(world.with_clock(world.clock() + timedelta(seconds=1)))
    assert not list(place.glob("*"))
    assert world.count("commands") == 0


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A window of four pieces of ten bytes."""
    monkeypatch.setattr(exec_output, "SEGMENT", 10)
    monkeypatch.setattr(exec_output, "WINDOW", 40)
    monkeypatch.setattr(stream, "RESPONSE_BYTES", 20)


def kept(world: World, job_id: str) -> list[str]:
    place = world.deps.settings.store_dir / exec_output.root_of("someone", job_id)
    return sorted(path.name.partition(".")[2] for path in place.iterdir())


@pytest.mark.usefixtures("small")
def test_any_amount_goes_through_the_window(world: World) -> None:
    job_id, _ = running(world)
    name = begin(world, job_id)["id"]
    whole = bytes(range(256))
    assert brought(world, name, whole) == {"size": 40, "room": 0, "left": False}
    assert brought(world, name, whole[40:], 40)["size"] == 40, "nobody has taken any"
    assert output(world, job_id, name) == [("o", whole[n : n + 10]) for n in (0, 10, 20, 30)]
    assert brought(world, name, b"", 40)["room"] == 0, "what was sent need not have arrived"
    assert output(world, job_id, name, out=29)[0] == ("o", whole[29:30])
    assert kept(world, job_id) == ["out.2", "out.3"]
    assert brought(world, name, whole, 0) == {"size": 60, "room": 0, "left": False}
    got, at = whole[:29], 29
    while at < len(whole):
        got += b"".join(data for _, data in output(world, job_id, name, out=at))
        at = len(got)
        output(world, job_id, name, out=at)
        assert bring(world, name, whole, 0) > at or at == len(whole)
        assert len(kept(world, job_id)) <= 4
    assert got == whole
    assert bring(world, name, whole) == len(whole), "all of it again changes nothing"
    assert end(world, name, out_size=len(whole))
    assert [kind for kind, _ in output(world, job_id, name, out=at, follow=1)] == ["x"]


@pytest.mark.usefixtures("small")
def test_an_answer_that_is_long_enough_asks_for_the_next_question(world: World) -> None:
    job_id, _ = running(world)
    name = begin(world, job_id)["id"]
    bring(world, name, b"x" * 40)
    first = output(world, job_id, name, follow=1)
    assert first == [("o", b"x" * 10), ("o", b"x" * 10), ("m", b"")]


@pytest.mark.usefixtures("small")
def test_what_was_taken_is_not_read_again_as_if_it_were_the_whole(world: World) -> None:
    job_id, _ = running(world)
    name = begin(world, job_id)["id"]
    bring(world, name, b"x" * 25)
    output(world, job_id, name, out=1_000)
    assert kept(world, job_id) == ["out", "out.1", "out.2"], "nobody can have what never was"
    output(world, job_id, name, out=25)
    reply = world.user.call("GET", f"/api/v1/jobs/{job_id}/commands/{name}/output", {"out": 19})
    assert (reply.status, reply.code) == (409, "exec_output_taken")
    assert output(world, job_id, name, out=20) == [("o", b"x" * 5)]


@pytest.mark.usefixtures("small")
def test_who_reads_slower_than_another_is_not_told_that_this_was_all(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id, _ = running(world)
    name = begin(world, job_id)["id"]
    bring(world, name, b"x" * 25)
    output(world, job_id, name, out=25)
    assert end(world, name, out_size=25)
    # Whoever began before the other took it.
    monkeypatch.setattr(stream, "_begin", lambda *_: None)
    with pytest.raises(IncompleteRead):
        output(world, job_id, name, out=9, follow=1)
    assert [kind for kind, _ in output(world, job_id, name, out=20, follow=1)] == ["o", "x"]


@pytest.mark.usefixtures("small")
def test_what_an_earlier_version_kept_in_one_file_goes_on_there(world: World) -> None:
    job_id, _ = running(world)
    name = begin(world, job_id)["id"]
    path = f"{exec_output.root_of('someone', job_id)}/{name}.out"
    whole = bytes(range(80))
    world.deps.logs.append(path, 0, whole[:50])
    assert bring(world, name, whole[40:], 40) == 80
    got = b""
    while len(got) < 80:
        got += b"".join(data for _, data in output(world, job_id, name, out=len(got)))
    assert got == whole
    assert kept(world, job_id) == ["out"]
    assert end(world, name, out_size=80)
    assert [kind for kind, _ in output(world, job_id, name, out=80, follow=1)] == ["x"]


class Steps:
    """The time that a loop sees pass, and what it does then."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._now = 0.0
        self._holding = ExecIdle(lambda: self._now)

    def pass_by(self, seconds: float) -> None:
        for _ in range(int(seconds // EVERY.total_seconds())):
            self._now += EVERY.total_seconds()
            self._world.clock.move(seconds=EVERY.total_seconds())
            self._holding.tick(self._world.deps, self._world.clock())

    def sleep(self, seconds: float) -> None:
        """As a machine does, with the clock going on."""
        self._now += seconds
        self._world.clock.move(seconds=seconds)
        self._holding.tick(self._world.deps, self._world.clock())


LEFT = commands.LEFT_AFTER.total_seconds()


@pytest.mark.usefixtures("small")
def test_a_command_that_nobody_reads_is_ended(world: World) -> None:
    job_id, _ = running(world)
    name, steps = begin(world, job_id)["id"], Steps(world)
    assert bring(world, name, b"x" * 50) == 40
    steps.pass_by(LEFT)
    assert heard(world, {name: False}) == []
    steps.pass_by(15)
    (told,) = heard(world, {name: False})
    assert told["stop"]
    assert brought(world, name, b"", 40) == {"size": 40, "room": 0, "left": True}
    assert end(world, name, cause="stopped", exit_code=143, out_size=40)
    view = world.user.get(f"/api/v1/jobs/{job_id}/commands/{name}")
    assert (view["cause"], view["exit_code"]) == ("left", 143)
    assert "its output was not read for 120 s" in view["message"]


def test_a_command_lives_while_somebody_reads_or_asks(world: World) -> None:
    job_id, _ = running(world)
    name, steps = begin(world, job_id)["id"], Steps(world)
    for _ in range(3):
        steps.pass_by(LEFT - 20)
        world.user.get(f"/api/v1/jobs/{job_id}/commands/{name}")
        steps.pass_by(LEFT - 20)
        output(world, job_id, name)
    other = Steps(world)
    with world.deps.hub.waiter(("command", name)):
        for _ in range(60):
            steps.pass_by(5)
            other.pass_by(5)
    steps.sleep(24 * 3600)
    assert heard(world, {name: False}) == []
    steps.pass_by(LEFT + 15)
    assert [one["stop"] for one in heard(world, {name: False})] == [True]


def test_one_that_nobody_reads_and_nobody_runs_is_over(world: World) -> None:
    job_id, order = running(world)
    name, steps = begin(world, job_id)["id"], Steps(world)
    world.agent.exit(order)
    steps.pass_by(LEFT + 15)
    view = world.user.get(f"/api/v1/jobs/{job_id}/commands/{name}")
    assert view["cause"] == "replica_over"
