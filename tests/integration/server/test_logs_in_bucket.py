"""On a server whose files lie in a bucket: log files of earlier attempts, and who waits for it."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest

from paddlecloud.model.errors import Retry
from paddlecloud.server.http.app import App
from paddlecloud.server.services.agents import orders
from paddlecloud.server.services.transfer import agent_inputs
from paddlecloud.server.services.user_buckets import logs
from paddlecloud.stores.directory.store import DirectoryStore
from paddlecloud.stores.layered import LayeredStore
from paddlecloud.stores.s3.store import S3Store
from tests.integration.server.conftest import MakeWorld
from tests.integration.server.world import World, eventually


@pytest.fixture
def far(make_world: MakeWorld, bucket: S3Store) -> World:
    world = make_world(change=lambda s: replace(s, store=replace(s.store, kind="s3")))
    front = DirectoryStore(world.deps.settings.store_dir)
    world.deps = replace(world.deps, store=LayeredStore(front, bucket))
    world.app = App(world.deps)
    return world.enter()


def failed_once(world: World) -> str:
    """A job that left two log files and gets another attempt."""
    job_id, order = world.placed(max_retries=1)
    for name in ("events/a", "b"):
        assert world.agent.upload(order, name, b"1", area="log", mtime=1e9).status == 200
    world.agent.run(order, b"first\n", 101)
    world.clock.move(seconds=1)
    return job_id


def gets_a_place(world: World, job_id: str) -> bool:
    world.plan()
    return bool(world.look(job_id)["pool"])


def log_files(world: World, job_id: str) -> dict[str, bytes]:
    root = f"output/{job_id}/log/"
    listed = world.user.get(f"/api/v1/jobs/{job_id}/files")["files"]
    paths = [row["path"] for row in listed if row["path"].startswith(root)]
    found = {path: world.raw(f"/api/v1/jobs/{job_id}/files/{path}").body for path in paths}
    return {path.removeprefix(root): body for path, body in found.items()}


def test_log_files_in_a_bucket_are_set_aside_before_the_next_attempt(far: World) -> None:
    job_id = failed_once(far)
    eventually(lambda: gets_a_place(far, job_id), 60)
    second = far.agent.order(job_id)
    assert second["attempt"] == 2
    assert far.agent.upload(second, "events/a", b"2", area="log").status == 200
    assert log_files(far, job_id) == {
        "attempt-1/rank-0/b": b"1",
        "attempt-1/rank-0/events/a": b"1",
        "attempt-1/trainer-0.log": b"first\n",
        "rank-0/events/a": b"2",
    }
    copy = far.deps.store.stat(f"users/someone/output/{job_id}/log/attempt-1/rank-0/b")
    assert copy is not None
    assert copy.modified.timestamp() == 1e9, "it is as old as what it was made of"


def test_a_server_that_dies_in_between_goes_on_where_it_was(
    far: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = failed_once(far)
    tried = threading.Event()
    move = logs._move

    def cut(place: Any, source: str, target: str, is_due: Any) -> bool:
        if source.endswith("/b"):
            return move(place, source, target, is_due)
        tried.set()
        raise Retry("body_cut", size=0)

    with monkeypatch.context() as patch:
        patch.setattr(logs, "_move", cut)
        assert not gets_a_place(far, job_id)
        assert tried.wait(60)
        assert far.look(job_id)["queue_reason"].startswith("the log files of its last attempt")
        eventually(lambda: far.deps.caches.moved_logs.get((job_id, 1)) is None, 60)
    eventually(lambda: gets_a_place(far, job_id), 60)
    assert log_files(far, job_id) == {
        "attempt-1/rank-0/b": b"1",
        "attempt-1/rank-0/events/a": b"1",
        "attempt-1/trainer-0.log": b"first\n",
    }


@pytest.mark.parametrize("silent", ["list", "read", "write"])
def test_a_late_mover_leaves_the_files_of_the_next_attempt(
    far: World, monkeypatch: pytest.MonkeyPatch, silent: str
) -> None:
    """While it waits for an answer, another server is through with it and the job goes on."""
    job_id = failed_once(far)
    job, store = far.job(job_id), far.deps.store
    real = getattr(store, silent)

    def go_on() -> None:
        monkeypatch.setattr(store, silent, real)
        eventually(lambda: gets_a_place(far, job_id), 60)
        second = far.agent.order(job_id)
        for name in ("events/a", "b"):
            assert far.agent.upload(second, name, b"2", area="log", mtime=2e9).status == 200

    def late(*args: Any, **kwargs: Any) -> Any:
        if silent == "read":
            go_on()
        answer = real(*args, **kwargs)
        if silent == "list":
            answer = iter(list(answer))
        if silent != "read":
            go_on()
        return answer

    monkeypatch.setattr(store, silent, late)
    logs._move_all(far.deps, job)
    assert log_files(far, job_id) == {
        "attempt-1/rank-0/b": b"1",
        "attempt-1/rank-0/events/a": b"1",
        "attempt-1/trainer-0.log": b"first\n",
        "rank-0/b": b"2",
        "rank-0/events/a": b"2",
    }


def test_an_agent_that_asks_for_bytes_of_a_bucket_takes_no_thread_of_short_answers(
    far: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, order = far.placed()
    entry = far.agent.caller.get(
        f"/api/v1/agent/snapshots/{order['run']['snapshot']}", replica=order["replica"]
    )["entries"][0]
    seen: list[str] = []

    def spied(work: Any) -> Any:
        def call(*args: Any) -> Any:
            seen.append(threading.current_thread().name.partition("_")[0])
            return work(*args)

        return call

    monkeypatch.setattr(agent_inputs, "content", spied(agent_inputs.content))
    monkeypatch.setattr(orders, "outputs_before", spied(orders.outputs_before))
    reply = far.agent.caller.call(
        "GET", f"/api/v1/agent/blobs/{entry[3]}", {"replica": order["replica"]}
    )
    assert (reply.status, reply.body) == (200, b"echo hi\n")
    query = {"replica": order["replica"], "offset": "5"}
    reply = far.agent.caller.call("GET", f"/api/v1/agent/blobs/{entry[3]}", query)
    assert (reply.status, reply.body) == (200, b"hi\n")
    assert far.agent.caller.get(f"/api/v1/agent/replicas/{order['replica']}/outputs")["files"] == []
    assert len(seen) == 3
    assert "route" not in seen


def test_a_disk_is_asked_at_once(make_world: MakeWorld) -> None:
    world = make_world()
    job_id, order = world.placed(max_retries=1)
    world.agent.upload(order, "a", b"1", area="log")
    world.agent.exit(order, 101)
    world.clock.move(seconds=1)
    assert gets_a_place(world, job_id)
    assert len(world.deps.caches.moved_logs) == 0
