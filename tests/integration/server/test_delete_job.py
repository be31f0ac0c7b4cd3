"""A job that has ended can be deleted by its owner, with all that it left; no other can."""

from __future__ import annotations

import pytest

from paddlecloud.db.tables.users import UserRole
from paddlecloud.model.errors import Retry
from paddlecloud.server.services.admin import garbage_collection
from paddlecloud.server.services.jobs import delete
from paddlecloud.server.services.transfer.output_uploads import sending_root
from tests.integration.server.world import World


@pytest.fixture(autouse=True)
def nobody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Agents of this world ask for orders when they are told to."""
    monkeypatch.setattr(delete, "POLL_WITHIN", 0.0)


def place(job_id: str) -> str:
    return f"/api/v1/jobs/{job_id}/delete"


def ended(world: World) -> str:
    """A job with an output and a log, of which nothing is held any more."""
    job_id, order = world.placed()
    world.agent.start(order)
    assert world.agent.upload(order, "model", b"weights").status == 200
    world.agent.log(order, 0, b"one\n")
    world.agent.exit(order)
    world.release()
    return job_id


def test_it_goes_with_all_that_it_left(world: World) -> None:
    job_id = ended(world)
    other = ended(world)
    root = world.deps.settings.store_dir / "users" / "someone" / "output"
    assert sorted(found.name for found in root.iterdir()) == sorted([job_id, other])
    answer = world.user.post(place(job_id), {})
    assert answer["job_id"] == job_id
    assert answer["bytes"] >= len(b"weights") + len(b"one\n")
    assert [found.name for found in root.iterdir()] == [other]
    gone = world.user.call("GET", f"/api/v1/jobs/{job_id}")
    assert (gone.status, gone.code) == (404, "job_unknown")
    assert world.state(other) == "success"
    assert world.user.call("POST", place(job_id), body=b"{}").code == "job_unknown"


def test_one_that_lives_stays(world: World) -> None:
    waiting = world.submit()
    reply = world.user.call("POST", place(waiting), body=b"{}")
    assert (reply.status, reply.code) == (409, "job_not_over")
    assert world.look(waiting)["job_id"] == waiting


def test_one_that_has_just_ended_is_let_go_first(world: World) -> None:
    job_id, order = world.placed()
    world.agent.start(order)
    world.agent.exit(order)
    assert world.state(job_id) == "success"
    assert world.user.post(place(job_id), {})["job_id"] == job_id
    assert world.count("attempts") == 0


def test_one_that_its_pool_still_holds_stays_for_now(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id, order = world.placed()
    world.agent.start(order)
    world.agent.exit(order)

    def refuses(*_: object) -> None:
        raise Retry("internal", reason="it does not answer")

    with monkeypatch.context() as away:
        away.setattr(world.backends["local"], "stop", refuses)
        reply = world.user.call("POST", place(job_id), body=b"{}")
        assert (reply.status, reply.code) == (503, "job_is_held")
    assert world.user.post(place(job_id), {})["job_id"] == job_id


def test_others_cannot_and_admins_are_written_down(world: World) -> None:
    job_id = ended(world)
    stranger = world.caller("stranger")
    assert stranger.call("POST", place(job_id), body=b"{}").code == "job_unknown"
    admin = world.caller("chief", role=UserRole.ADMIN)
    admin.post(place(job_id), {})
    (event,) = admin.get("/api/v1/admin/audit")["events"]
    assert (event["action"], event["target"]) == ("job.delete", job_id)
    assert event["detail"]["owner"] == "someone"


def test_what_a_server_of_before_left_of_a_job_goes_later(world: World) -> None:
    job_id = ended(world)
    kept, left = (f"{sending_root('someone', name)}/record" for name in (job_id, "job-" + "0" * 32))
    for path in (kept, left):
        world.deps.store.write(path, [b"{}"])
    garbage_collection.collect(world.deps)
    assert [stat.path for stat in world.deps.store.list("users/someone/sending/")] == [kept]
