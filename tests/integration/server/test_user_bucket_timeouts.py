"""Users' own buckets that take connections and never answer: nobody else waits for them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from paddlecloud.model.errors import Unreachable
from paddlecloud.model.jobs.job import Job
from paddlecloud.server.services.user_buckets import logs
from paddlecloud.server.settings import Settings
from paddlecloud.stores.s3.store import S3Store
from paddlecloud.testing import Reply, exchange
from tests.integration.server.conftest import MakeWorld
from tests.integration.server.silent_proxy import Valve
from tests.integration.server.world import World, a_submit, close_buckets, eventually

PLACES = 32
"""As many calls of one user's agents may wait for the bucket, half of them in threads."""


@pytest.fixture
def world(make_world: MakeWorld, valve: Valve) -> Iterator[World]:
    def change(settings: Settings) -> Settings:
        door = replace(settings.private_store, door=f"http://127.0.0.1:{valve.port}")
        return replace(settings, private_store=door)

    made = make_world(change=change)
    yield made
    close_buckets(made.deps)


def private_job(
    world: World, settings: dict[str, str], region: str = "bj", **more: object
) -> dict[str, Any]:
    """The order to run a job with its files in a user's own bucket."""
    spec = {
        "start_cmd": "true",
        "public_bos": 0,
        "bos_url": f"{settings['bucket']}.{region}.bcebos.com/{settings['prefix']}",
        **more,
    }
    keys = {"bos_access_key": settings["access_key"], "bos_secret_key": settings["secret_key"]}
    job_id = world.user.post("/api/v1/jobs", a_submit(spec) | keys)["job"]["job_id"]
    world.plan()
    order = world.agent.order(job_id)
    world.agent.start(order)
    return order


class Calls:
    """Requests that run beside the test; what they were answered, if they were."""

    def __init__(self) -> None:
        self.replies: list[Reply] = []
        self._threads: list[threading.Thread] = []

    def start(self, call: Callable[[], Reply]) -> None:
        thread = threading.Thread(target=lambda: self.replies.append(call()), daemon=True)
        self._threads.append(thread)
        thread.start()

    def end(self) -> None:
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive()


def agent_call(world: World, order: dict[str, Any], method: str, below: str, body: bytes) -> Reply:
    """As a patient agent asks: it waits longer than this test takes."""
    path = f"/api/v1/agent/replicas/{order['replica']}/{below}"
    query = f"fence={order['fence']}"
    caller = world.agent.caller
    headers = caller.headers(method, path, query, body)
    where = (caller.host, caller.port, method, f"{path}?{query}")
    return exchange(*where, headers, body, timeout=120.0)


def test_a_silent_bucket_takes_no_threads_from_others(
    world: World, valve: Valve, s3_settings: dict[str, str]
) -> None:
    order = private_job(world, s3_settings)
    valve.silent = True
    calls = Calls()
    listing = b'{"files": [["output/a", 1, 1.0, "' + b"0" * 64 + b'"]]}'
    asked: list[tuple[str, str, bytes]] = [
        ("POST", "parts/output/big", b'{"size": 5}'),
        ("PUT", "parts/output/big", b'{"size": 5, "upload": "some"}'),
        ("POST", "listing", listing),
        ("PUT", "files/output/small", b"bytes"),
        ("GET", "outputs", b""),
    ]
    for method, below, body in asked * 8:
        calls.start(partial(agent_call, world, order, method, below, body))
    eventually(lambda: valve.asked >= PLACES // 2, 40)
    eventually(lambda: len(calls.replies) >= len(asked) * 8 - PLACES, 40)
    assert {reply.code for reply in calls.replies} == {"store_crowded"}
    other = world.caller("other")
    world.snapshot({"run.sh": b"true\n", "data": b"x" * 100_000}, other)
    assert world.submit(other)
    assert world.state(order["replica"].partition(".")[0]) == "running"
    assert len(calls.replies) == len(asked) * 8 - PLACES, "the bucket was silent all the time"
    valve.recover()
    calls.end()
    served = [reply.status for reply in calls.replies if reply.status != 503]
    assert len(served) == PLACES
    assert set(served) == {200, 404}, "there is no such upload, and all else is done"


def test_outputs_that_a_bucket_did_not_take_are_told_with_the_job(
    world: World, s3_settings: dict[str, str]
) -> None:
    order = private_job(world, s3_settings)
    assert order["run"]["patience"] == world.deps.settings.private_store.patience.total_seconds()
    lost = "output/model (refused); they are kept for 7 days on node-0 in /there"
    world.agent.exit(order, 0, cause="outputs_lost", message=lost)
    job = world.look(order["replica"].partition(".")[0])
    assert job["job_status"] == "failed"
    assert job["error_msg"].endswith(f"its bucket did not accept these outputs: {lost}")
    assert "keeps the keys it was submitted with" in job["failure"]["advice"]
    _, public = world.placed()
    stores = world.deps.settings.store.patience.total_seconds()
    assert public["run"].get("store_patience") == stores
    assert order["run"].get("store_patience") is None
    assert public["run"].get("patience") is None, "agents of before take it for a bucket's"


def test_logs_for_a_silent_bucket_are_tried_once_a_round(
    world: World, s3_settings: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = []
    for _ in range(2):
        order = private_job(world, s3_settings)
        world.agent.exit(order, 0)
        world.release()
        jobs.append(order["replica"].partition(".")[0])
    tried: list[str] = []

    def silence(_deps: object, job: Job, *_: object) -> None:
        tried.append(job.id)
        raise Unreachable("store_unreachable", place="there", reason="timed out")

    copy = logs._copy_job
    monkeypatch.setattr(logs, "_copy_job", silence)
    logs.copy_logs(world.deps, world.clock())
    assert len(tried) == 1
    assert all("does not respond" in world.look(job_id)["advice"][0] for job_id in jobs)
    monkeypatch.setattr(logs, "_copy_job", copy)
    logs.copy_logs(world.deps, world.clock.move(minutes=1))
    assert [world.look(job_id)["advice"] for job_id in jobs] == [[], []]


def test_a_job_that_began_since_shows_that_its_bucket_answers_again(
    world: World, s3_settings: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = logs._copy_job

    def silence(*_: object) -> None:
        raise Unreachable("store_unreachable", place="there", reason="timed out")

    def over() -> str:
        order = private_job(world, s3_settings)
        world.agent.run(order, b"said\n")
        world.release()
        return str(order["replica"].partition(".")[0])

    before = over()
    monkeypatch.setattr(logs, "_copy_job", silence)
    for seconds in (0, 3, 6, 16):
        logs.copy_logs(world.deps, world.clock.move(seconds=seconds))
    monkeypatch.setattr(logs, "_copy_job", copy)
    logs.copy_logs(world.deps, world.clock.move(seconds=1))
    assert world.look(before)["advice"] != [], "it was asked a second ago"
    later = over()
    logs.copy_logs(world.deps, world.clock.move(seconds=1))
    assert world.look(later)["advice"] == []


def test_logs_for_other_buckets_do_not_wait_for_a_silent_one(
    world: World, s3_settings: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def over(region: str, below: str = "") -> str:
        order = private_job(world, s3_settings | {"prefix": s3_settings["prefix"] + below}, region)
        world.agent.run(order, b"said\n")
        world.release()
        return str(order["replica"].partition(".")[0])

    silent = [over("bj", f"/{number}") for number in range(5)]
    world.clock.move(seconds=1)
    answers = over("gz")
    monkeypatch.setattr(logs, "COPY_BATCH", 2)
    tried: list[str] = []
    copy = logs._copy_job

    def some_are_silent(deps: Any, job: Job, *given: Any) -> None:
        tried.append(job.id)
        if job.id in silent:
            raise Unreachable("store_unreachable", place="there", reason="timed out")
        copy(deps, job, *given)

    monkeypatch.setattr(logs, "_copy_job", some_are_silent)
    logs.copy_logs(world.deps, world.clock())
    logs.copy_logs(world.deps, world.clock())
    assert (tried[0] in silent, tried[1:]) == (True, [answers]), "one silence speaks for all"
    rows = world.deps.db.read(lambda tx: tx.all("select job_id from private_stores where done = 1"))
    assert rows == [(answers,)]
    for number, job_id in enumerate(silent):
        told = world.look(job_id)["advice"][0]
        assert "does not respond" in told
        assert told.count(f"{s3_settings['prefix']}/") == told.count(f"/{number}"), "its own place"
    logs.copy_logs(world.deps, world.clock.move(seconds=3))
    assert (len(tried), tried[2] in silent) == (3, True)
    logs.copy_logs(world.deps, world.clock.move(seconds=4))
    assert len(tried) == 3, "the pause of the bucket grows"
    logs.copy_logs(world.deps, world.clock.move(seconds=2))
    assert len(tried) == 4


def test_a_job_that_waits_for_its_silent_bucket_lets_others_pass(
    world: World, valve: Valve, s3_settings: dict[str, str], bucket: S3Store
) -> None:
    order = private_job(world, s3_settings, max_retries=1)
    waits = order["replica"].partition(".")[0]
    assert world.agent.upload(order, "events/a", b"1", area="log").status == 200
    world.agent.run(order, b"first\n", 101)
    world.release()
    world.clock.move(seconds=1)
    valve.silent = True
    passes = world.submit(world.caller("other"))
    world.plan()
    passing = world.agent.order(passes)
    view = world.look(waits)
    assert (view["pool"], view["queue_reason"].split(" are being ")[0]) == (
        "",
        "the log files of its last attempt",
    )
    world.agent.exit(passing, 0)
    valve.recover()

    def has_its_place() -> bool:
        world.plan()
        return bool(world.look(waits)["pool"])

    eventually(has_its_place, 120)
    paths = [stat.path for stat in bucket.list(f"output/{waits}/log/")]
    assert paths == [f"output/{waits}/log/attempt-1/rank-0/events/a"]
