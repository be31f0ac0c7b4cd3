"""Submitting: once per key, nothing stored when refused, every wrong value told in words."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from paddlecloud.db.engine.base import Tx
from paddlecloud.db.tables import snapshots, user_buckets
from paddlecloud.model.files.snapshot import Entry, snapshot_of
from tests.integration.server.conftest import MakeWorld
from tests.integration.server.world import Stage, World, a_submit, packed

JOBS = "/api/v1/jobs"
VALIDATE = f"{JOBS}/validate"
BOTH = pytest.mark.parametrize("route", [JOBS, VALIDATE], ids=["submit", "validate"])
NOWHERE = "sha256:" + "0" * 64


def test_a_submit_is_a_waiting_job_with_a_reason(world: World) -> None:
    answer = world.user.post(JOBS, a_submit(world.spec(job_name="mnist", description="first")))
    job = answer["job"]
    assert (job["job_status"], job["job_name"], job["description"]) == (
        "schedule",
        "mnist",
        "first",
    )
    assert job["queue_reason"] == "it was just accepted and is being scheduled"
    assert job["bos_url"] == "paddlecloud-public.local/someone/job"
    assert job["attempts"] == 0
    assert world.look(job["job_id"])["queue_position"] == 0


def test_the_type_that_was_chosen_is_told(make_world: MakeWorld) -> None:
    world = make_world()
    answer = world.user.post(JOBS, a_submit(world.spec()))
    assert answer["job"]["job_type"] == "cpu"
    assert answer["notes"] == [
        "job_type is not given and no machine has a GPU: the job runs as job_type=cpu"
    ]
    assert world.user.post(JOBS, a_submit(world.spec(job_type="cpu")))["notes"] == []


def test_an_unset_type_is_gpu_where_there_is_one(make_world: MakeWorld) -> None:
    world = make_world(pools={"local": {"node": "node", "gpu": "2"}})
    answer = world.user.post(JOBS, a_submit(world.spec()))
    assert (answer["job"]["job_type"], answer["job"]["resources"]["gpu"]) == ("gpu", 1)
    assert answer["notes"] == []


def test_the_notes_are_in_the_language_of_the_caller(world: World) -> None:
    reply = world.user.call(
        "POST", JOBS, body=a_submit(world.spec()), headers={"accept-language": "zh-CN"}
    )
    assert reply.json()["notes"] == [
        "未指定 job_type 且没有带 GPU 的机器：任务按 job_type=cpu 运行"
    ]
    assert reply.json()["job"]["queue_reason"] == "任务刚刚提交，正在为它寻找资源"


def test_the_same_key_is_the_same_job(world: World) -> None:
    body = a_submit(world.spec(), "key-of-this-submit")
    ids = {world.user.post(JOBS, body)["job"]["job_id"] for _ in range(3)}
    assert len(ids) == 1
    assert world.count("jobs") == 1


def test_the_same_key_for_something_else_is_a_conflict(world: World) -> None:
    world.user.post(JOBS, a_submit(world.spec(), "key-of-this-submit"))
    reply = world.user.call(
        "POST", JOBS, body=a_submit(world.spec(job_name="b"), "key-of-this-submit")
    )
    assert (reply.status, reply.code) == (409, "idempotency_key_reused")
    assert world.count("jobs") == 1


def test_the_key_of_one_user_is_nothing_to_another(world: World) -> None:
    other = world.caller("another")
    first = world.user.post(JOBS, a_submit(world.spec(), "key-of-this-submit"))
    second = other.post(JOBS, a_submit(world.spec(other), "key-of-this-submit"))
    assert first["job"]["job_id"] != second["job"]["job_id"]


def test_sixteen_threads_with_one_key_make_one_job(world: World) -> None:
    body = a_submit(world.spec(), "key-of-this-submit")
    with ThreadPoolExecutor(16) as threads:
        replies = list(threads.map(lambda _: world.user.call("POST", JOBS, body=body), range(16)))
    assert {reply.status for reply in replies} == {200}
    assert len({reply.json()["job"]["job_id"] for reply in replies}) == 1
    assert world.count("jobs") == 1


def test_missing_files_store_nothing_and_the_key_stays_free(world: World) -> None:
    spec = world.spec()
    body = a_submit(spec | {"snapshot": NOWHERE}, "key-of-this-submit")
    reply = world.user.call("POST", JOBS, body=body)
    assert (reply.status, reply.code) == (409, "snapshot_missing")
    assert (world.count("jobs"), world.count("idempotency")) == (0, 0)
    assert world.user.post(JOBS, a_submit(spec, "key-of-this-submit"))["job"]["job_id"]


def test_a_job_is_validated_without_storing_anything(world: World) -> None:
    spec = world.spec()
    body = a_submit(spec, "key-of-this-submit")
    before = world.deps.db.read(lambda tx: tx.all("select * from snapshots"))
    world.clock.move(hours=1)
    answer = world.user.post(VALIDATE, body)
    note = "job_type is not given and no machine has a GPU: the job runs as job_type=cpu"
    trainer = {"role": "TRAINER", "count": 1, "cpu": 1.0, "memory": 0, "gpu": 0}
    plan = {"job_type": "cpu", "pools": ["local"], "workers": [trainer]}
    assert answer == {"has_files": True, "notes": [note], "plan": plan}
    assert world.deps.db.read(lambda tx: tx.all("select * from snapshots")) == before
    assert (world.count("jobs"), world.count("idempotency")) == (0, 0)
    asked = a_submit(spec | {"snapshot": NOWHERE})
    assert world.user.post(VALIDATE, asked)["has_files"] is False
    other = world.caller("another")
    assert other.post(VALIDATE, body)["has_files"] is False
    assert world.user.post(JOBS, body)["job"]["job_id"]


def test_files_in_a_bucket_are_no_files_of_a_public_job(world: World) -> None:
    """Nobody has their contents: what stands in their place is a mark."""
    found = snapshot_of([Entry(path="a", size=1, sha256="1" * 64)])
    empty = snapshot_of([])

    def keep(tx: Tx) -> None:
        for snapshot, tags in ((found, {"1" * 64: ("a", "tag")}), (empty, {})):
            snapshots.put_snapshot(tx, "someone", snapshot, world.clock())
            user_buckets.keep_tags(tx, "someone", snapshot.id, tags)

    spec = world.spec()
    world.deps.db.write(keep)
    for route in (VALIDATE, JOBS):
        reply = world.user.call("POST", route, body=a_submit(spec | {"snapshot": found.id}))
        assert (reply.status, reply.code) == (409, "snapshot_elsewhere")
    assert (world.count("jobs"), world.count("idempotency")) == (0, 0)
    world.user.post(JOBS, a_submit(spec | {"snapshot": empty.id}))


def test_files_of_another_user_are_missing_files(world: World) -> None:
    spec = world.spec(world.caller("another"))
    assert world.user.call("POST", JOBS, body=a_submit(spec)).code == "snapshot_missing"


WRONG_VALUES: list[tuple[str, Any, str]] = [
    ("start_cmd", None, "body_invalid"),
    ("start_cmd", "  ", "param_missing"),
    ("start_cmd", 7, "body_invalid"),
    ("start_cmd", "a\0b", "param_nul"),
    ("job_name", "", "param_name_length"),
    ("job_name", ["a"], "body_invalid"),
    ("job_name", "a/b", "param_name_letters"),
    ("cluster", 1, "body_invalid"),
    ("public_bcc", 2, "param_choice"),
    ("public_bcc", "yes", "body_invalid"),
    ("public_bos", True, "body_invalid"),
    ("job_type", "tpu", "param_choice"),
    ("job_type", 1, "body_invalid"),
    ("instance_count", 0, "param_range"),
    ("instance_count", 10**30, "param_range"),
    ("instance_count", 1.5, "body_invalid"),
    ("wall_time", -1, "wall_time_range"),
    ("wall_time", "00:30:00", "body_invalid"),
    ("bos_url", "nonsense", "bos_url_format"),
    ("bos_url", 1, "body_invalid"),
    ("snapshot", "md5:1", "snapshot_id_format"),
    ("snapshot", None, "files_needed"),
    ("directory", "a/b", "param_name_letters"),
    ("directory", 1, "body_invalid"),
    ("env", {"A": 1}, "body_invalid"),
    ("env", {"1A": "x"}, "env_name"),
    ("env", {"PADDLECLOUD_X": "x"}, "env_reserved"),
    ("env", [], "body_invalid"),
    ("inherited_env", {"A": None}, "body_invalid"),
    ("description", {}, "body_invalid"),
    ("max_retries", -1, "param_range"),
    ("max_retries", "1", "body_invalid"),
    ("priority", 201, "priority_format"),
    ("priority", "highest", "priority_format"),
    ("priority", 0.5, "body_invalid"),
    ("cpu", 0, "param_range"),
    ("cpu", "1", "body_invalid"),
    ("memory", 1, "memory_range"),
    ("memory", 1.5, "body_invalid"),
    ("gpu", 65, "param_range"),
    ("gpu", "1", "body_invalid"),
    ("distribute_job_type", "MPI", "param_choice"),
    ("distribute_job_type", 1, "body_invalid"),
    ("distribute_job_type", "NCCL2", "distribute_alone"),
    ("colour", "blue", "body_invalid"),
]


Refusing = tuple[World, dict[str, Any]]


@pytest.fixture(scope="module")
def one_world(stage: Stage, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Refusing]:
    """One world for all refusals: the point is that none of them changes it."""
    world = World(stage, tmp_path_factory.mktemp("refusing"))
    yield world, world.spec()
    world.close()


@pytest.fixture
def refusing(one_world: Refusing) -> Refusing:
    one_world[0].enter()
    return one_world


@BOTH
@pytest.mark.parametrize(("name", "value", "code"), WRONG_VALUES)
def test_a_wrong_value_is_refused_in_words(
    refusing: Refusing, name: str, value: object, code: str, route: str
) -> None:
    world, spec = refusing
    reply = world.user.call("POST", route, body=a_submit(spec | {name: value}))
    assert (reply.status, reply.code) == (400, code)
    message = str(reply.body.decode())
    assert name in message or code in ("bos_url_format", "files_needed"), message
    assert (world.count("jobs"), world.count("idempotency")) == (0, 0)


IMPOSSIBLE = [
    ({"instance_count": 501}, "replicas_too_many"),
    ({"instance_count": 2, "memory": 2**33}, "gang_never"),
    ({"public_bos": 0, "bos_url": "bucket.bj.bcebos.com/d"}, "private_store_keys"),
    ({"cluster": "cce"}, "cluster_unknown"),
    ({"job_type": "gpu"}, "job_type_none"),
    ({"cpu": 99}, "resources_never"),
    ({"memory": 2**40}, "resources_never"),
]


@BOTH
@pytest.mark.parametrize(("asked", "code"), IMPOSSIBLE)
def test_the_impossible_is_refused_before_any_upload(
    refusing: Refusing, asked: dict[str, Any], code: str, route: str
) -> None:
    world, spec = refusing
    body = a_submit(spec | {"snapshot": NOWHERE} | asked)
    reply = world.user.call("POST", route, body=body)
    assert (reply.status, reply.code) == (422, code)
    assert world.count("jobs") == 0


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"\xff",
        b"[" * 100_000,
        {"spec": {"start_cmd": "a"}},
        {"spec": {"start_cmd": "a"}, "idempotency_key": "short"},
        {"spec": {"start_cmd": "a"}, "idempotency_key": "k" * 65},
        {"spec": {"start_cmd": "a"}, "idempotency_key": "blank in it"},
    ],
    ids=["empty", "cut", "list", "not text", "deep", "no key", "short key", "long key", "bad key"],
)
def test_a_broken_body_is_refused(refusing: Refusing, body: object) -> None:
    reply = refusing[0].user.call("POST", JOBS, body=body)
    assert (reply.status, reply.code) == (400, "body_invalid")


def test_a_wall_time_is_kept_and_shown(world: World) -> None:
    job_id = world.submit(wall_time=5400)
    assert world.look(job_id)["wall_time"] == "01:30:00"


def test_a_snapshot_is_stored_only_when_every_content_is_here(world: World) -> None:
    here, absent = b"here", b"absent"
    entries = [
        [name, "file", len(data), hashlib.sha256(data).hexdigest(), 0, ""]
        for name, data in (("a", here), ("b", absent))
    ]
    assert world.user.post("/api/v1/blobs", packed(here))["stored"] == 1
    answer = world.user.post("/api/v1/snapshots", {"entries": entries})
    assert answer["missing"] == [hashlib.sha256(absent).hexdigest()]
    body = a_submit({"start_cmd": "x", "snapshot": answer["id"]})
    assert world.user.call("POST", JOBS, body=body).code == "snapshot_missing"
    assert world.user.post("/api/v1/blobs", packed(absent))["stored"] == 1
    assert world.user.post("/api/v1/snapshots", {"entries": entries})["missing"] == []
    assert world.user.post(JOBS, body)["job"]["snapshot"] == answer["id"]


@pytest.mark.parametrize(
    ("row", "code"),
    [
        (["../a", "file", 1, "0" * 64, 0, ""], "path_unsafe"),
        (["/a", "file", 1, "0" * 64, 0, ""], "path_unsafe"),
        (["a", "socket", 1, "0" * 64, 0, ""], "snapshot_kind"),
        (["a", "file", -1, "0" * 64, 0, ""], "body_invalid"),
        (["a", "dir", 10**30, "", 0, ""], "body_invalid"),
        (["a\udcff", "file", 1, "0" * 64, 0, ""], "body_invalid"),
        (["a\ud800", "file", 1, "0" * 64, 0, ""], "body_invalid"),
        (["a", "link", 0, "", 0, "b\udcff"], "body_invalid"),
        (["a", "file", 1, "xyz", 0, ""], "snapshot_digest"),
        (["a", "link", 0, "", 0, "../../etc/passwd"], "snapshot_link"),
        (["a", "file", 1], "body_invalid"),
    ],
)
def test_a_hostile_manifest_is_refused(refusing: Refusing, row: list[object], code: str) -> None:
    reply = refusing[0].user.call("POST", "/api/v1/snapshots", body={"entries": [row]})
    assert (reply.status, reply.code) == (400, code)


def test_contents_that_are_not_what_they_say_are_refused(world: World) -> None:
    lie = packed(b"truth")[:-5] + b"false"
    assert world.user.call("POST", "/api/v1/blobs", body=lie).code == "blob_digest"
    cut = packed(b"truth")[:-1]
    assert world.user.call("POST", "/api/v1/blobs", body=cut).code == "pack_malformed"
    assert [stat.path for stat in world.deps.store.list("users/")] == []


def test_a_repeat_is_answered_even_when_it_would_be_refused_today(world: World) -> None:
    body = a_submit(world.spec(cpu=1))
    first = world.user.post("/api/v1/jobs", body)
    world.plan()
    world.agent.start(world.agent.order(first["job"]["job_id"]), pid=77)
    world.backends["local"].script.cpu = 0.5
    again = world.user.post("/api/v1/jobs", body)["job"]
    assert again == world.look(first["job"]["job_id"])
    assert (again["job_status"], again["instance_ids_list"]) == ("running", ["77"])
    reply = world.user.call("POST", "/api/v1/jobs", body=a_submit(body["spec"]))
    assert (reply.status, reply.code) == (422, "resources_never")
    changed = a_submit(body["spec"] | {"start_cmd": "other"}, body["idempotency_key"])
    assert world.user.call("POST", "/api/v1/jobs", body=changed).code == "idempotency_key_reused"
    assert world.count("jobs") == 1


def test_a_disk_that_gives_an_error_costs_the_difference_and_no_job(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def worn_out(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    git = {"commit": "0" * 40, "branch": "main", "dirty": "1"}
    body = a_submit(world.spec(git=git)) | {"diff": "-one\n"}
    with monkeypatch.context() as disk:
        disk.setattr(world.deps.store, "write", worn_out)
        answer = world.user.post(JOBS, body)
    assert answer["notes"][-1].startswith("cannot store the differences from the commit")
    assert "Input/output error" in answer["notes"][-1]
    job_id = answer["job"]["job_id"]
    assert world.user.post(JOBS, body)["job"]["job_id"] == job_id, "the same, and it is kept now"
    with monkeypatch.context() as disk:
        disk.setattr(world.deps.store, "read", worn_out)
        assert "Input/output error" in world.look(job_id)["git"]["diff_missing"]
    assert world.look(job_id)["git"]["diff"] == "-one\n"


def test_a_mistake_of_ours_is_logged_with_its_request(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("oh")

    monkeypatch.setattr(world.deps.db, "read", fail)
    caplog.set_level("INFO", "paddlecloud.server.http.app")
    reply = world.user.call("GET", "/api/v1/jobs")
    monkeypatch.undo()
    assert reply.status == 500
    line = f"request {reply.headers['x-request-id']}: GET /api/v1/jobs answered 500"
    assert any(line in record.getMessage() for record in caplog.records)


def test_a_link_may_lead_out_only_where_jobs_run_beside_their_submitter(
    make_world: MakeWorld,
) -> None:
    link = {"entries": [("data", "link", 0, "", 0, "/data/set")]}
    world = make_world()
    assert world.user.post("/api/v1/snapshots", link)["missing"] == []
    world.close()
    team = make_world(change=lambda settings: replace(settings, team=True))
    reply = team.user.call("POST", "/api/v1/snapshots", body=link)
    assert (reply.status, reply.code) == (400, "snapshot_link")


def test_a_dry_run_of_files_stores_nothing(world: World) -> None:
    text = b"new"
    entry = ("new", "file", len(text), hashlib.sha256(text).hexdigest(), 0, "")
    body = {"entries": [entry], "dry_run": 1}
    before = world.count("snapshots")
    assert world.user.post("/api/v1/snapshots", body)["missing"] == [entry[3]]
    world.user.call("POST", "/api/v1/blobs", body=packed(text))
    assert world.user.post("/api/v1/snapshots", body)["missing"] == []
    assert world.count("snapshots") == before
