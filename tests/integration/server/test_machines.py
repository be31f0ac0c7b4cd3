"""Machines that joined a pool: listed, labelled, drained, unreachable, lost and removed."""

from __future__ import annotations

import hashlib
from datetime import timedelta
from typing import Any

import pytest

from paddlecloud import __version__
from paddlecloud.db.tables.users import UserRole
from paddlecloud.server.deps import JOINED_CONTACT, JOINED_WAIT
from paddlecloud.server.loops.reconcile import Watch
from paddlecloud.server.services.agents import package
from paddlecloud.testing import ScriptedAgent, SignedCaller, exchange
from tests.integration.server.conftest import MakeWorld
from tests.integration.server.test_agent_join import ask, joined
from tests.integration.server.world import World, a_submit

MACHINES = "/api/v1/admin/machines"
POOLS = {"gpus": {"nodes": "0", "join": "1"}}


@pytest.fixture
def world(make_world: MakeWorld) -> World:
    return make_world(pools=POOLS)


@pytest.fixture
def admin(world: World) -> SignedCaller:
    return world.caller("chief", UserRole.ADMIN)


def join_one(world: World, admin: SignedCaller, name: str) -> ScriptedAgent:
    token = admin.post("/api/v1/admin/invites", {"pool": "gpus"})["token"]
    agent = joined(world, ask(world, token, node=name))
    agent.poll()
    world.deps.caches.machines.clear()
    return agent


def replan(world: World) -> None:
    world.clock.move(seconds=2)
    world.plan()


def state_of(admin: SignedCaller, name: str) -> str:
    return str(admin.get(f"{MACHINES}/{name}")["state"])


def test_an_invitation_has_all_that_a_machine_needs(world: World, admin: SignedCaller) -> None:
    answer = admin.post("/api/v1/admin/invites", {"pool": "gpus", "uses": 2, "ttl": 60})
    assert (answer["pool"], answer["uses"], answer["tls_sha256"]) == ("gpus", 2, "")
    path = f"/api/v1/agent/package/{answer['agent_sha256']}"
    host = {"host": f"127.0.0.1:{world.stage.port}"}
    reply = exchange("127.0.0.1", world.stage.port, "GET", path, host, b"")
    assert reply.status == 200
    assert hashlib.sha256(reply.body).hexdigest() == answer["agent_sha256"]
    other = exchange("127.0.0.1", world.stage.port, "GET", path[:-1] + "x", host, b"")
    assert (other.status, other.code) == (404, "agent_package_unknown")


def test_a_machine_is_listed_with_what_it_has_and_runs(world: World, admin: SignedCaller) -> None:
    agent = join_one(world, admin, "gpu-01")
    job_id = world.submit()
    replan(world)
    agent.start(agent.order(job_id))
    (found,) = admin.get(MACHINES)["machines"]
    assert (found["name"], found["pool"], found["state"]) == ("gpu-01", "gpus", "ready")
    assert (found["cpu"], found["used_cpu"], found["jobs"]) == (4.0, 1.0, [job_id])
    assert found["version"] == __version__
    assert agent.caller.get("/api/v1/agent/machine")["name"] == "gpu-01"


def test_labels_are_set_and_removed(world: World, admin: SignedCaller) -> None:
    join_one(world, admin, "gpu-01")
    admin.post(f"{MACHINES}/gpu-01", {"labels": {"gpu": "a100", "rack": "3"}})
    answer = admin.post(f"{MACHINES}/gpu-01", {"labels": {"rack": None}})
    assert answer["labels"] == {"gpu": "a100"}
    (node,) = world.deps.nodes()["gpus"]
    assert node.has_labels([("gpu", "a100")])
    assert not node.has_labels([("gpu", "t4")])


def test_a_drained_machine_ends_its_jobs_and_gets_no_new_ones(
    world: World, admin: SignedCaller
) -> None:
    agent = join_one(world, admin, "gpu-01")
    first = world.submit()
    replan(world)
    order = agent.order(first)
    agent.start(order)
    answer = admin.post(f"{MACHINES}/gpu-01", {"drained": True, "reason": "new driver"})
    assert (answer["state"], answer["reason"]) == ("draining", "new driver")
    second = world.submit()
    replan(world)
    assert world.look(second)["job_status"] == "queue"
    agent.exit(order)
    agent.poll()
    assert world.state(first) == "success"
    world.release()
    assert state_of(admin, "gpu-01") == "drained"
    admin.post(f"{MACHINES}/gpu-01", {"drained": False})
    replan(world)
    assert agent.order(second)["job"] == second


def test_a_silent_machine_is_unreachable_then_lost(world: World, admin: SignedCaller) -> None:
    agent = join_one(world, admin, "gpu-01")
    job_id = world.submit(max_retries=1)
    replan(world)
    old = agent.order(job_id)
    agent.start(old)
    watch = Watch()
    watch.tick(world.deps, world.clock())
    world.clock.move(seconds=JOINED_CONTACT.total_seconds() + 1)
    assert JOINED_WAIT < JOINED_CONTACT <= timedelta(seconds=30)
    assert state_of(admin, "gpu-01") == "unreachable"
    assert world.deps.unschedulable() == {"gpu-01"}
    for _ in range(40):
        world.clock.move(seconds=5)
        watch.steps.seconds -= 5  # so much time has passed
        watch.tick(world.deps, world.clock())
    assert world.look(job_id)["job_status"] in ("schedule", "queue")
    other = join_one(world, admin, "gpu-02")
    replan(world)
    order = other.order(job_id)
    assert order["attempt"] == 2
    agent.exit(old)
    assert world.look(job_id)["attempts"] == 2, "what the lost machine says later counts no more"


def test_a_removed_machine_cannot_come_back(world: World, admin: SignedCaller) -> None:
    agent = join_one(world, admin, "gpu-01")
    job_id = world.submit(max_retries=0)
    replan(world)
    agent.start(agent.order(job_id))
    assert admin.post(f"{MACHINES}/gpu-01/remove", {}) == {"name": "gpu-01"}
    assert agent.caller.call("GET", "/api/v1/agent/machine").code == "auth_unknown_key"
    assert world.look(job_id)["job_status"] == "failed"
    assert "gpu-01" in world.look(job_id)["error_msg"]
    assert admin.get(MACHINES)["machines"] == []
    assert admin.call("GET", f"{MACHINES}/gpu-01").code == "machine_unknown"
    join_one(world, admin, "gpu-01")


def test_a_machine_leaves_when_nothing_runs(world: World, admin: SignedCaller) -> None:
    agent = join_one(world, admin, "gpu-01")
    job_id = world.submit()
    replan(world)
    order = agent.order(job_id)
    agent.start(order)
    reply = agent.caller.call("POST", "/api/v1/agent/leave", body=b"{}")
    assert (reply.status, reply.code) == (409, "machine_busy")
    agent.exit(order)
    world.release()
    assert agent.caller.post("/api/v1/agent/leave", {}) == {"name": "gpu-01"}
    actions = [row["action"] for row in admin.get("/api/v1/admin/audit")["events"]]
    assert actions[:3] == ["machine.leave", "agent.join", "join_token.create"]


def test_an_older_agent_is_handed_the_newer_one(world: World, admin: SignedCaller) -> None:
    agent = join_one(world, admin, "gpu-01")
    assert poll(agent)["package"] == ""
    agent.version = "0.0.9"
    answer = poll(agent)
    assert (answer["package"], answer["restart"]) == (package.package()[1], False)
    agent.version = "99.0"
    assert poll(agent)["package"] == "", "an older server does not take it back"


def poll(agent: ScriptedAgent) -> dict[str, Any]:
    body = {
        "agent": agent.name,
        "boot": agent.boot,
        "version": agent.version,
        "cursor": agent.cursor,
        "wait": 0,
        "capacity": {"cpu": 4.0, "memory": 2**30, "gpu": 0},
    }
    answer: dict[str, Any] = agent.caller.post("/api/v1/agent/poll", body)
    return answer


@pytest.mark.parametrize(
    ("path", "body", "code"),
    [
        ("/api/v1/admin/invites", {"pool": "none"}, "join_pool"),
        ("/api/v1/admin/invites", {"pool": "gpus", "uses": 0}, "body_invalid"),
        ("/api/v1/admin/invites", {"pool": "gpus", "ttl": 10**9}, "body_invalid"),
        (f"{MACHINES}/none", {"drained": True}, "machine_unknown"),
        (f"{MACHINES}/none/remove", {}, "machine_unknown"),
        ("/api/v1/admin/pools", {"name": "../x", "options": {}}, "body_invalid"),
        ("/api/v1/admin/pools", {"name": "x", "options": {"kind": "moon"}}, "settings_value"),
    ],
)
def test_wrong_requests_are_refused(
    admin: SignedCaller, path: str, body: dict[str, Any], code: str
) -> None:
    reply = admin.call("POST", path, body=body)
    assert reply.status in (400, 404, 409, 422), reply.status
    assert reply.code == code


def test_users_reach_none_of_it(world: World) -> None:
    for path in (MACHINES, f"{MACHINES}/gpu-01"):
        assert world.user.call("GET", path).status == 403
    for path in ("/api/v1/admin/invites", f"{MACHINES}/gpu-01", "/api/v1/admin/pools"):
        assert world.user.call("POST", path, body=b"{}").status == 403
    assert world.user.call("POST", "/api/v1/agent/leave", body=b"{}").status == 401


def test_a_job_goes_to_the_machines_with_its_labels(world: World, admin: SignedCaller) -> None:
    first, second = (join_one(world, admin, name) for name in ("gpu-01", "gpu-02"))
    for name, kind in (("gpu-01", "t4"), ("gpu-02", "a100")):
        admin.post(f"{MACHINES}/{name}", {"labels": {"gpu": kind}})
    one = world.submit(require="gpu=a100")
    gang = world.submit(require="gpu=a100", instance_count=3, distribute_job_type="NCCL2")
    replan(world)
    orders = second.poll()
    assert [(order["job"], order["want"]) for order in orders].count((gang, "run")) == 3
    assert one in {order["job"] for order in orders}
    assert first.poll() == []
    wait = world.submit(require="gpu=a100")
    replan(world)
    assert world.look(wait)["job_status"] == "queue", "the other machine is free"
    refused = world.user.call("POST", "/api/v1/jobs", body=a_submit(world.spec(require="gpu=h20")))
    assert refused.code == "require_none"
