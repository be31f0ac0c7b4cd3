"""Keys of a user's own bucket that are good no more: what older jobs left is reached anyway. And
files that a job wants which do not lie where it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from paddlecloud.db.engine.base import Tx
from paddlecloud.db.tables import user_buckets as rows
from paddlecloud.model.errors import Conflict, NotFound, Refused
from paddlecloud.server import encryption
from paddlecloud.server.services.user_buckets import buckets, logs
from paddlecloud.server.settings import Settings
from paddlecloud.stores.s3.store import S3Store
from paddlecloud.testing import SignedCaller
from tests.integration.server.conftest import MakeWorld
from tests.integration.server.world import World, a_submit, close_buckets

Submit = Callable[..., str]


@pytest.fixture
def world(make_world: MakeWorld, s3_settings: dict[str, str]) -> Iterator[World]:
    def change(settings: Settings) -> Settings:
        door = replace(settings.private_store, door=s3_settings["endpoint"])
        return replace(settings, private_store=door)

    made = make_world(change=change)
    yield made
    close_buckets(made.deps)


@pytest.fixture
def submit(world: World, s3_settings: dict[str, str]) -> Submit:
    """Submits a job with its files in a directory of the bucket."""

    def make(below: str = "", caller: SignedCaller | None = None, **more: str) -> str:
        keys = {
            "bos_access_key": s3_settings["access_key"],
            "bos_secret_key": s3_settings["secret_key"],
        }
        bos_url = f"{s3_settings['bucket']}.bj.bcebos.com/{s3_settings['prefix']}{below}"
        body = a_submit({"start_cmd": "true", "public_bos": 0, "bos_url": bos_url, **more})
        answer = (caller or world.user).post("/api/v1/jobs", body | keys)
        return str(answer["job"]["job_id"])

    return make


def replace_keys(world: World, job_id: str) -> None:
    """As when the pair with which it was submitted is deleted at the cloud."""
    job = world.job(job_id)
    context = f"bos {job.owner} {job.spec.bos_url}".encode()
    sealed = encryption.seal(world.deps.server_key, b'["gone", "gone", ""]', context)

    def write(tx: Tx) -> None:
        tx.execute("update private_stores set sealed = ? where job_id = ?", (sealed, job_id))

    world.deps.db.write(write)
    close_buckets(world.deps)


def paths(world: World, job_id: str) -> list[str]:
    found = world.user.get(f"/api/v1/jobs/{job_id}/files")["files"]
    return [row["path"] for row in found]


def test_a_job_is_validated_with_its_keys(
    world: World, s3_settings: dict[str, str], bucket: S3Store
) -> None:
    bucket.write("data", [b"1"])
    bos_url = f"{s3_settings['bucket']}.bj.bcebos.com/{s3_settings['prefix']}"
    body = a_submit({"start_cmd": "true", "public_bos": 0, "bos_url": bos_url})
    keys = {
        "bos_access_key": s3_settings["access_key"],
        "bos_secret_key": s3_settings["secret_key"],
    }
    answer = world.user.post("/api/v1/jobs/validate", body | keys)
    assert answer["has_files"] is False
    assert any("the only file (1 B)" in note for note in answer["notes"]), answer["notes"]
    wrong = body | keys | {"bos_secret_key": "wrong"}
    with pytest.raises(Refused) as refused:
        world.user.post("/api/v1/jobs/validate", wrong)
    assert refused.value.code == "private_store_denied"
    assert (world.count("jobs"), world.count("idempotency")) == (0, 0)


def test_results_are_reached_with_the_keys_of_a_newer_job(
    world: World, submit: Submit, bucket: S3Store
) -> None:
    old = submit()
    model = f"output/{old}/rank-0/model"
    bucket.write(model, [b"weights"])
    replace_keys(world, old)
    with pytest.raises(Refused, match="keys that this job was submitted with") as refused:
        paths(world, old)
    assert refused.value.code == "private_job_keys"
    submit("/another/directory")
    assert model in paths(world, old)
    assert world.raw(f"/api/v1/jobs/{old}/files/{model}").body == b"weights"


def test_keys_that_work_stay_in_use_whatever_the_answer_is(
    world: World, submit: Submit, bucket: S3Store
) -> None:
    old = submit()
    replace_keys(world, old)
    submit()
    asked: list[S3Store] = []

    def ask(store: S3Store) -> bytes:
        asked.append(store)
        return b"".join(store.read("not/there"))

    for _ in range(2):
        with pytest.raises(NotFound):
            buckets.ask_bucket(world.deps, world.job(old), ask)
    refused, first, again = asked
    assert refused is not first
    assert first is again


def test_the_keys_of_others_open_nothing(world: World, submit: Submit, bucket: S3Store) -> None:
    old = submit()
    replace_keys(world, old)
    submit(caller=world.caller("another"))
    with pytest.raises(Refused, match="keys that this job was submitted with"):
        paths(world, old)


def test_logs_are_copied_with_the_keys_of_a_newer_job(
    world: World, submit: Submit, bucket: S3Store
) -> None:
    old = submit()
    world.plan()
    order = world.agent.order(old)
    world.agent.start(order)
    world.agent.exit(order)
    world.release()
    replace_keys(world, old)
    submit()
    logs.copy_logs(world.deps, world.clock())
    assert world.deps.db.read(lambda tx: rows.to_copy(tx, world.clock(), 9)) == []
    assert world.deps.db.read(lambda tx: rows.trouble(tx, old)) is None


def test_files_of_the_store_are_not_in_a_bucket(world: World, submit: Submit) -> None:
    with pytest.raises(Conflict) as caught:
        submit(snapshot=world.snapshot({"a": b"1"}))
    assert caught.value.code == "snapshot_elsewhere"


def test_files_are_not_in_the_directory_above(
    world: World, submit: Submit, bucket: S3Store
) -> None:
    """They are the same files, but not at the same path."""
    bucket.write("below/a", [b"1"])
    files = str(world.job(submit("/below")).spec.snapshot)
    assert submit("/below", snapshot=files)
    with pytest.raises(Conflict) as caught:
        submit(snapshot=files)
    assert caught.value.code == "private_files_changed"
