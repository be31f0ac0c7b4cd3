"""Outputs on their way into a bucket in parts, when servers come and go; a real S3 server."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from paddlecloud.agent.config import AgentConfig
from paddlecloud.agent.server_link.channel import Channel, Link, PartBody
from paddlecloud.model.errors import NotFound, Refused, Unauthenticated
from paddlecloud.model.files.etag import LEAST_PART, joined_tag
from paddlecloud.server.caches import Caches
from paddlecloud.server.deps import Deps
from paddlecloud.server.schemas.transfer import JoinRequest, OutputParts, OutputPartsRequest
from paddlecloud.server.services.agents import assignment
from paddlecloud.server.services.agents.assignment import Assigned
from paddlecloud.server.services.jobs import delete
from paddlecloud.server.services.transfer import output_uploads
from paddlecloud.server.services.transfer.output_uploads import OutputUpload, sending_root
from paddlecloud.server.settings import Settings
from paddlecloud.stores.s3.store import S3Store
from tests.integration.server.conftest import MakeWorld
from tests.integration.server.test_direct_transfer import status_of
from tests.integration.server.world import NODE, World, a_submit, close_buckets

NAME = "output/big"
FIRST, SECOND = random.Random(1).randbytes(LEAST_PART), b"and more\n"
SIZE = LEAST_PART + len(SECOND)
TAGS = [hashlib.md5(part, usedforsecurity=False).hexdigest() for part in (FIRST, SECOND)]
WHEN = 1_589_710_569.123456
ASKED = OutputPartsRequest(size=SIZE, mtime=WHEN)


class Worker:
    """One that has an output file, which its agent brings to one server or another."""

    def __init__(self, world: World, deps: Deps, job_id: str, bucket: S3Store) -> None:
        self.world, self.deps, self.bucket = world, deps, bucket
        order = world.agent.order(job_id)
        self.job = world.job(job_id)
        self.assigned = assignment.for_upload(deps, NODE, order["replica"], order["fence"])
        self.opened = [deps]

    def another_server(self) -> Deps:
        """Which knows nothing but what the database and the store know."""
        self.opened.append(replace(self.deps, caches=Caches()))
        return self.opened[-1]

    def asks(
        self, asked: OutputPartsRequest = ASKED, assigned: Assigned | None = None
    ) -> OutputParts:
        return output_uploads.begin(self.another_server(), assigned or self.assigned, NAME, asked)

    def ends(self, upload: str) -> bool:
        asked = JoinRequest(upload=upload, size=SIZE)
        server = self.another_server()
        return output_uploads.finish(server, self.assigned, NAME, asked, lambda: None)

    def sends(self) -> OutputParts:
        """All parts, to an upload that is open then."""
        given = self.asks()
        for address, data in zip(given.addresses, (FIRST, SECOND), strict=True):
            assert status_of(address, data) == 200
        return given

    def later(self) -> Assigned:
        """The same replica in its next attempt."""
        attempt = self.assigned.attempt
        return replace(self.assigned, attempt=replace(attempt, fence=attempt.fence + 1))

    def records(self) -> list[str]:
        root = sending_root(self.job.owner, self.job.id)
        return [stat.path for stat in self.deps.store.list(f"{root}/")]


@pytest.fixture(params=["the server's", "its owner's"])
def worker(
    request: pytest.FixtureRequest,
    make_world: MakeWorld,
    s3_settings: dict[str, str],
    bucket: S3Store,
) -> Iterator[Worker]:
    """Its outputs lie in a bucket, of the server or of the job's owner."""

    def change(settings: Settings) -> Settings:
        door = replace(settings.private_store, door=s3_settings["endpoint"])
        return replace(settings, private_store=door)

    world = make_world(change=change)
    if request.param == "the server's":
        job_id = world.submit()
        deps = replace(world.deps, store=bucket)
    else:
        place = f"{s3_settings['bucket']}.bj.bcebos.com/{s3_settings['prefix']}"
        spec = {"start_cmd": "true", "public_bos": 0, "bos_url": place}
        access, secret = s3_settings["access_key"], s3_settings["secret_key"]
        body = a_submit(spec) | {"bos_access_key": access, "bos_secret_key": secret}
        job_id = world.user.post("/api/v1/jobs", body)["job"]["job_id"]
        deps = world.deps
    world.plan()
    made = Worker(world, deps, job_id, bucket)
    yield made
    for deps in made.opened:
        close_buckets(deps)


def test_another_server_goes_on(worker: Worker) -> None:
    given = worker.asks()
    assert (given.parts, given.tag, len(given.addresses)) == ([], "", 2)
    assert status_of(given.addresses[0], FIRST) == 200
    again = worker.asks()
    assert again.upload == given.upload
    assert [(number, tag.strip('"')) for number, tag in again.parts] == [(1, TAGS[0])]
    assert status_of(again.addresses[1], SECOND) == 200
    assert worker.ends(again.upload)
    (file,) = [stat for stat in worker.bucket.list() if stat.path.endswith("/big")]
    assert (file.size, file.path.endswith(f"{worker.job.id}/rank-0/big")) == (SIZE, True)


def test_parts_come_through_a_server_where_the_bucket_is_out_of_reach(worker: Worker) -> None:
    given = worker.asks()
    for number, data in enumerate((FIRST, SECOND), 1):
        deps = worker.another_server()
        upload = OutputUpload(deps, worker.assigned, NAME)
        record = upload.open(given.upload)
        assert record.size_of(number) == len(data)
        upload.put_part(record, number, data)
        there = [(one, tag.strip('"')) for one, tag in worker.asks().parts]
        assert there == list(enumerate(TAGS, 1))[:number]
    assert worker.ends(given.upload)
    (file,) = [stat for stat in worker.bucket.list() if stat.path.endswith("/big")]
    with worker.bucket.read(file.path) as reader:
        assert b"".join(reader) == FIRST + SECOND


@pytest.mark.parametrize("worker", ["its owner's"], indirect=True)
def test_such_parts_are_signed_by_their_digests(worker: Worker, tmp_path: Path) -> None:
    keys = worker.world.agent.caller
    url = f"http://127.0.0.1:{worker.world.stage.port}"
    config = AgentConfig(path=tmp_path / "a.json", agent_id=NODE, ak=keys.ak, sk=keys.sk, url=url)
    path = f"/agent/replicas/{worker.assigned.replica.id}/part/{NAME}"
    upload, fence = worker.asks().upload, worker.assigned.attempt.fence
    query = {"fence": fence, "upload": upload, "number": 2}
    with closing(Channel(Link(config))) as channel:
        with pytest.raises(Unauthenticated) as caught:
            channel.call("PUT", path, PartBody(data=SECOND), query)
        assert caught.value.code == "auth_body_hash"
        assert worker.asks().parts == []
        assert channel.call("PUT", path, SECOND, query) == b'{"number":2}'
    assert [number for number, _ in worker.asks().parts] == [2]


@pytest.mark.parametrize("size", [LEAST_PART, LEAST_PART + 1])
def test_only_parts_of_which_there_is_a_record_may_come_through_a_server(
    worker: Worker, size: int
) -> None:
    given = worker.asks(OutputPartsRequest(size=size, mtime=WHEN))
    assert given.through == (size > LEAST_PART) == bool(worker.records())
    assert given.addresses


@pytest.mark.parametrize("asked", [{"mtime": WHEN + 0.001}, {"size": SIZE + 1}, {"mtime": None}])
def test_parts_of_another_content_are_not_gone_on_with(
    worker: Worker, asked: dict[str, float | None]
) -> None:
    given = worker.sends()
    told = {"size": SIZE, "mtime": WHEN} | asked
    other = worker.asks(OutputPartsRequest(**told))  # type: ignore[arg-type]
    assert other.upload != given.upload
    assert (other.parts, other.tag) == ([], "")


def test_parts_of_an_earlier_attempt_are_not_gone_on_with(worker: Worker) -> None:
    given = worker.sends()
    other = worker.asks(assigned=worker.later())
    assert other.upload != given.upload
    assert (other.parts, other.tag) == ([], "")


def test_what_is_written_anew_again_and_again_leaves_one_open_upload(worker: Worker) -> None:
    for seconds in range(3):
        worker.asks(OutputPartsRequest(size=SIZE, mtime=WHEN + seconds))
    worker.asks(assigned=worker.later())
    assert worker.bucket.sweep(worker.world.clock() + timedelta(days=1)) == 1


def test_keys_that_may_drop_nothing_are_good_for_sending(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(*_: object) -> None:
        raise Refused("store_denied", place="there", detail="403")

    worker.asks()
    monkeypatch.setattr(S3Store, "drop_parts", denied)
    assert worker.asks(OutputPartsRequest(size=SIZE, mtime=WHEN + 1)).addresses


def test_an_end_that_nobody_heard_of_is_no_reason_to_send_it_again(worker: Worker) -> None:
    given = worker.sends()
    assert worker.ends(given.upload)
    assert worker.ends(given.upload)
    again = worker.asks()
    assert again.addresses == []
    assert again.tag.strip('"') == (joined_tag(TAGS) or "").strip('"')


def test_an_end_of_what_was_replaced_since_is_none(worker: Worker) -> None:
    given = worker.sends()
    assert worker.ends(given.upload)
    (file,) = [stat for stat in worker.bucket.list() if stat.path.endswith("/big")]
    modified = worker.world.clock() + timedelta(seconds=5)
    worker.bucket.write(file.path, [FIRST, SECOND], modified=modified)
    with pytest.raises(NotFound, match="upload"):
        worker.ends(given.upload)
    again = worker.asks()
    assert (again.tag, len(again.addresses)) == ("", 2)


def test_a_record_that_cannot_be_read_is_as_none(worker: Worker) -> None:
    given = worker.sends()
    (record,) = worker.records()
    worker.deps.store.write(record, [b'{"upload": 1'])
    other = worker.asks()
    assert other.upload != given.upload
    assert worker.ends(given.upload)


def test_records_are_few_and_go_with_the_job(worker: Worker) -> None:
    small = OutputPartsRequest(size=LEAST_PART, mtime=WHEN)
    assert len(worker.asks(small).addresses) == 1
    assert worker.records() == []
    for _ in range(2):
        worker.sends()
        worker.asks(OutputPartsRequest(size=SIZE, mtime=WHEN + 1))
    assert len(worker.records()) == 1
    delete.delete_stored(worker.deps, worker.job)
    assert worker.records() == []
