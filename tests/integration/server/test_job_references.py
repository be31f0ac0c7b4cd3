"""Jobs by their id, the beginning of it, `last` and their name, over HTTP."""

from __future__ import annotations

from dataclasses import replace

import pytest

from paddlecloud.db.tables import jobs
from paddlecloud.db.tables.users import UserRole
from paddlecloud.model.errors import Conflict, NotFound
from paddlecloud.testing import SignedCaller
from tests.integration.server.world import World
from tests.unit.db.values import a_job, a_spec

FIRST, SECOND, FOREIGN = ("job-" + head + "0" * 28 for head in ("ab12", "ab13", "ab14"))


def store(world: World, job_id: str, name: str, owner: str = "someone") -> None:
    job = replace(a_job(owner=owner, spec=a_spec(name=name)), id=job_id)
    world.deps.db.write(lambda tx: jobs.insert_job(tx, job))


@pytest.fixture
def world(world: World) -> World:
    store(world, FIRST, "resnet")
    store(world, SECOND, "resnet")
    store(world, FOREIGN, "secret", owner="somebody")
    return world


def resolved(caller: SignedCaller, name: str) -> str:
    reply = caller.call("GET", f"/api/v1/jobs/{name}", {"diff": 0})
    found = str(reply.json()["job_id"])
    assert reply.headers.get("x-job-id") == (None if name == found else found)
    return found


@pytest.mark.parametrize(
    ("name", "want"),
    [
        (FIRST, FIRST), ("ab12", FIRST), ("job-ab12", FIRST), (FIRST[4:], FIRST),
        ("last", SECOND), ("resnet", SECOND),
    ],
)  # fmt: skip
def test_every_way_to_name_a_job(world: World, name: str, want: str) -> None:
    assert resolved(world.user, name) == want


def test_the_id_comes_before_last_and_last_before_a_name(world: World) -> None:
    names = {"last": "job-cc01", "ab12": "job-cc02", "cc03": "job-cc03", "job-x": "job-cc04"}
    for name, head in names.items():
        store(world, head + "1" * 28, name)
    assert resolved(world.user, "last") == "job-cc04" + "1" * 28
    assert resolved(world.user, "ab12") == FIRST, "no job by its name if an id begins so"
    assert resolved(world.user, "job-x") == "job-cc04" + "1" * 28, "a name that looks like an id"


def test_an_ambiguous_beginning_is_refused_with_the_candidates(world: World) -> None:
    store(world, "job-ab12" + "1" * 28, "vgg")
    with pytest.raises(Conflict) as caught:
        resolved(world.user, "ab12")
    assert caught.value.code == "job_ambiguous"
    candidates = f"{'job-ab12' + '1' * 28} (vgg, submit), {FIRST} (resnet, submit)"
    assert caught.value.params["candidates"] == candidates
    for number in range(5):
        store(world, f"job-ab12{number}" + "2" * 27, "vgg")
    with pytest.raises(Conflict, match=r"submit\), …; give more of the id"):
        resolved(world.user, "ab12")


def test_jobs_of_others_are_found_by_nobody_but_an_admin(world: World) -> None:
    for name in (FOREIGN, "ab14", "secret"):
        with pytest.raises(NotFound):
            resolved(world.user, name)
    newcomer, admin = world.caller("newcomer"), world.caller("root", UserRole.ADMIN)
    with pytest.raises(NotFound) as caught:
        resolved(newcomer, "last")
    assert caught.value.code == "job_last_none"
    assert resolved(admin, "ab14") == FOREIGN
    for name in ("last", "secret"):
        with pytest.raises(NotFound):
            resolved(admin, name)


def test_every_route_of_a_job_takes_a_name(world: World) -> None:
    job_id, order = world.placed(job_name="mine")
    world.agent.start(order)
    world.agent.log(order, 0, b"hello\n")
    assert world.log("last") == b"hello\n"
    jobs_path = "/api/v1/jobs/mine"
    assert world.user.get(f"{jobs_path}/files")["job_id"] == job_id
    assert world.user.get(f"{jobs_path}/spec")["job_id"] == job_id
    assert world.user.get(f"{jobs_path}/usage")["workers"][0]["job_id"] == job_id
    assert world.user.post(f"{jobs_path}/kill", {})["job_id"] == job_id


def test_killing_again_succeeds_and_of_one_that_ended_says_how(world: World) -> None:
    job_id, order = world.placed()
    path = f"/api/v1/jobs/{job_id}/kill"
    for _ in range(2):
        assert world.user.post(path, {})["job_status"] == "killing"
    world.agent.exit(order, -15, log_size=0, cause="stopped")
    assert world.user.post(path, {})["job_status"] == "killed"
    failed, order = world.placed()
    world.agent.exit(order, 3, log_size=0)
    with pytest.raises(Conflict, match=r"ended as failed \(trainer-0 exited with code 3.*nothing"):
        world.user.post(f"/api/v1/jobs/{failed}/kill", {})
