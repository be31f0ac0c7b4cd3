"""A bucket of the server's own: outputs come straight from it, and its silence is told in time."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from paddlecloud.server.settings import Settings
from paddlecloud.stores import create
from paddlecloud.stores.directory.store import DirectoryStore
from paddlecloud.stores.layered import LayeredStore
from paddlecloud.stores.s3 import _client as client
from paddlecloud.stores.s3.store import S3Store
from tests.integration.server.conftest import MakeWorld
from tests.integration.server.silent_proxy import Valve
from tests.integration.server.test_outputs import listing
from tests.integration.server.test_user_bucket_timeouts import Calls
from tests.integration.server.world import World, a_submit, close_buckets

WHEN = 1589710569.25
MODEL = b"the first model\n"
DIRTY = {"commit": "0" * 40, "branch": "main", "dirty": "1"}


@pytest.fixture
def world(make_world: MakeWorld, valve: Valve, s3_settings: dict[str, str]) -> Iterator[World]:
    behind = create("s3", {**s3_settings, "endpoint": f"http://127.0.0.1:{valve.port}"})
    assert isinstance(behind, S3Store)

    def change(settings: Settings) -> Settings:
        door = replace(settings.private_store, door=s3_settings["endpoint"])
        store = replace(settings.store, kind="s3")
        return replace(settings, team=True, store=store, private_store=door)

    def opened(place: Path) -> LayeredStore:
        return LayeredStore(DirectoryStore(place), behind)

    made = make_world(change=change, store=opened)
    yield made
    close_buckets(made.deps)
    behind.close()


@contextmanager
def silence(valve: Valve) -> Iterator[None]:
    """Meanwhile the store answers nothing, and is waited for half a second."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client, "PROMPT", (4.0, 0.5))
        patch.setattr(client, "PROMPT_AGAIN", 0.5)
        valve.silent = True
        yield
        valve.recover()


def rows_of(world: World, job_id: str, **query: object) -> tuple[dict[str, Any], dict[str, str]]:
    """The outputs of a job by their names, and where else they are."""
    answer = world.user.get(f"/api/v1/jobs/{job_id}/files", **query)
    rows = {row["path"].rpartition("/")[2]: row for row in answer["files"]}
    ways = {path.rpartition("/")[2]: way for path, way in answer.get("ways", {}).items()}
    return rows, ways


def fetched(address: str) -> tuple[str, bytes]:
    """From which server, and what."""
    parts = urlsplit(address)
    connection = http.client.HTTPConnection(parts.netloc, timeout=30)
    try:
        connection.request("GET", f"{parts.path}?{parts.query}")
        return parts.netloc, connection.getresponse().read()
    finally:
        connection.close()


def ended(world: World, names: tuple[str, ...] = ("model",)) -> tuple[str, dict[str, Any]]:
    """A job that is over, with these outputs and their list."""
    job_id, order = world.placed()
    world.agent.start(order)
    for name in names:
        assert world.agent.upload(order, name, MODEL, mtime=WHEN).status == 200
    digest = sha256(MODEL).hexdigest()
    rows = [[f"output/{name}", len(MODEL), WHEN, digest] for name in names]
    assert listing(world, order, rows).json() == {"missing": []}
    world.agent.run(order, b"log\n")
    world.release()
    return job_id, order


@pytest.mark.parametrize("count", [1, 5])
def test_outputs_are_had_from_the_bucket(world: World, valve: Valve, count: int) -> None:
    names = tuple(f"model-{number}" for number in range(count))
    job_id, _ = ended(world, names)
    rows, ways = rows_of(world, job_id, direct=1)
    for name in names:
        assert rows[name]["sha256"] == sha256(MODEL).hexdigest()
        assert rows[name]["time"] == "2020-05-17T10:16:09Z", "as it was written"
        assert "written_sha256" not in rows[name]
        assert fetched(ways[name]) == (f"127.0.0.1:{valve.port}", MODEL)
        path = f"/api/v1/jobs/{job_id}/files/output/{job_id}/rank-0/{name}"
        version = world.raw(path).headers["x-content-version"]
        assert version.startswith(f"{len(MODEL)}-{rows[name]['time']}")
    assert set(ways) == set(names), "a log is here"


def test_what_was_replaced_since_has_no_digest(world: World) -> None:
    job_id, _ = ended(world)
    owner = world.job(job_id).owner
    path = f"users/{owner}/output/{job_id}/rank-0/model"
    when = datetime.fromtimestamp(WHEN, UTC)
    world.deps.store.write(path, [MODEL.upper()], modified=when)
    rows, ways = rows_of(world, job_id, direct=1)
    assert rows["model"]["sha256"] is None, "of the same size and time, and another"
    assert rows["model"]["written_sha256"] == sha256(MODEL).hexdigest()
    assert ways == {}
    world.deps.store.write(path, [MODEL])
    rows, ways = rows_of(world, job_id, direct=1)
    assert rows["model"]["sha256"] == sha256(MODEL).hexdigest(), "the same again"
    assert set(ways) == {"model"}


def test_lists_of_before_are_understood(world: World) -> None:
    job_id, _ = ended(world)
    owner = world.job(job_id).owner
    path = f"output/{job_id}/rank-0/model"
    row = [path, len(MODEL), WHEN, sha256(MODEL).hexdigest()]
    kept = f"users/{owner}/listings/{job_id}/trainer-0.json"
    world.deps.store.write(kept, [json.dumps([row]).encode()])
    rows, ways = rows_of(world, job_id, direct=1)
    assert rows["model"]["sha256"] is None
    assert rows["model"]["written_sha256"] == sha256(MODEL).hexdigest()
    assert ways == {}


def dirty(world: World, diff: str = "-one\n+two\n") -> dict[str, Any]:
    """The answer to the submit of a job from a repository in which something was changed."""
    body = a_submit(world.spec(git=DIRTY)) | {"diff": diff}
    answer: dict[str, Any] = world.user.post("/api/v1/jobs", body)
    return answer


def test_a_look_at_a_job_does_not_fail_with_the_store(world: World, valve: Valve) -> None:
    job_id = dirty(world)["job"]["job_id"]
    assert world.look(job_id)["git"] == DIRTY | {"diff": "-one\n+two\n"}
    assert world.look(job_id, diff=0)["git"] == DIRTY
    with silence(valve):
        assert world.look(job_id, diff=0)["git"] == DIRTY
        assert valve.asked == 0, "nobody asks the store for what is not wanted"
        git = world.look(job_id)["git"]
    told = git.pop("diff_missing")
    assert git == DIRTY
    assert told.startswith("the store ")
    assert f"(127.0.0.1:{valve.port}) does not respond" in told
    assert world.look(job_id)["git"] == DIRTY | {"diff": "-one\n+two\n"}


@pytest.mark.slow
def test_the_silence_of_the_store_is_told(world: World, valve: Valve) -> None:
    job_id, _ = ended(world)
    entries = [["new", "file", 3, sha256(b"new").hexdigest(), 0, ""]]
    file = f"/api/v1/jobs/{job_id}/files/output/{job_id}/rank-0/model"
    offer = json.dumps({"entries": entries}).encode()
    calls = [
        partial(world.user.call, "GET", f"/api/v1/jobs/{job_id}/files"),
        partial(world.user.call, "GET", file),
        partial(world.user.call, "POST", "/api/v1/snapshots", None, offer),
    ]
    answered = Calls()
    with silence(valve):
        for call in calls * 4:
            answered.start(call)
        answered.end()
    told = {(reply.status, reply.code) for reply in answered.replies}
    assert told == {(503, "store_unreachable")}
    assert world.raw(file).body == MODEL


def test_the_silence_of_the_store_is_told_of_a_job_with_a_bucket_of_its_own(
    world: World, valve: Valve, s3_settings: dict[str, str]
) -> None:
    """Its files lie elsewhere, but the lists and logs of its workers here."""
    keys = {
        "bos_access_key": s3_settings["access_key"],
        "bos_secret_key": s3_settings["secret_key"],
    }
    bos_url = f"{s3_settings['bucket']}.bj.bcebos.com/{s3_settings['prefix']}/private"
    spec = {"start_cmd": "true", "public_bos": 0, "bos_url": bos_url}
    job_id = world.user.post("/api/v1/jobs", a_submit(spec) | keys)["job"]["job_id"]
    with silence(valve):
        reply = world.user.call("GET", f"/api/v1/jobs/{job_id}/files")
    assert (reply.status, reply.code) == (503, "store_unreachable")
    assert world.user.get(f"/api/v1/jobs/{job_id}/files")["files"]


def test_a_job_whose_difference_cannot_be_kept_is_a_job(world: World, valve: Valve) -> None:
    spec = world.spec(git=DIRTY)
    with silence(valve):
        answer = world.user.post("/api/v1/jobs", a_submit(spec) | {"diff": "-one\n"})
    note = answer["notes"][-1]
    assert note.startswith("cannot store the differences from the commit with the job: the store")
    assert world.look(answer["job"]["job_id"])["git"] == DIRTY | {"diff": ""}
