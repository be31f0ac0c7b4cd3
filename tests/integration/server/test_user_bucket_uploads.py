"""Large files of `--files` on their way into a user's own bucket, in parts; a real S3 server."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from paddlecloud.client import response_schemas
from paddlecloud.client.download import engine
from paddlecloud.client.download._ranges import FEW, range_size
from paddlecloud.client.scan.walk import Scan, scan, stamp
from paddlecloud.client.transport import DONE
from paddlecloud.client.upload import user_bucket
from paddlecloud.client.upload._scanned_file import ScannedFile
from paddlecloud.client.upload.user_bucket import BucketTarget
from paddlecloud.model.errors import Conflict, Invalid, NotFound, PaddleCloudError, TooMany
from paddlecloud.model.policy.quota import Plan
from paddlecloud.net.connection_pool import Pool
from paddlecloud.server.services.transfer import open_uploads as records
from paddlecloud.server.services.user_buckets import uploads
from paddlecloud.server.settings import Settings
from paddlecloud.stores import user_bucket as buckets
from paddlecloud.stores.base import Stat
from paddlecloud.stores.s3.store import S3Store
from paddlecloud.transfer import parts
from paddlecloud.transfer.parts import PartSender
from paddlecloud.transfer.presigned import PresignedConnections
from paddlecloud.transfer.resume import Progress
from tests.contract.stores.open_uploads import open_uploads
from tests.integration.server.conftest import MakeWorld
from tests.integration.server.world import World, a_submit, close_buckets

PART = 5 * 1024 * 1024
"""The least that a bucket takes, and into what a file of this size is cut."""
SIZE = 2 * PART + 12345
FORMER = 16 * 1024 * 1024
"""Into what every large file was cut before."""


def tell(code: str, **_: object) -> None:
    raise AssertionError(code)


class Person:
    """Somebody with keys of a bucket, a directory, and the real client."""

    def __init__(self, world: World, settings: dict[str, str], top: Path) -> None:
        self.world = world
        self.keys = {
            "bos_access_key": settings["access_key"],
            "bos_secret_key": settings["secret_key"],
        }
        self.bos_url = f"{settings['bucket']}.bj.bcebos.com/{settings['prefix']}"
        self.top = top
        self.top.mkdir()
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.progress = 0
        self._transport = world.transport()

    def ask(self, where: str, schema: Any = DONE, **more: Any) -> Any:
        self.asked.append((where, more))
        asked = {**self.keys, "bos_url": self.bos_url, **more}
        return self._transport.post(f"/private{where}", asked, schema=schema, idempotent=True)

    def sends(self, name: str) -> None:
        def add(size: int) -> None:
            self.progress += size

        self.sends_with(self.ask, name, Progress(lambda size, _: add(size)))

    def sends_with(self, ask: Any, name: str, progress: Progress | None = None) -> None:
        """The large file, by these answers of the server; not resumed."""
        source = self.top / name
        status = source.stat()
        progress = progress or Progress()
        progress.begin(status.st_size)
        with ScannedFile(str(source), status.st_size, stamp(status), name) as file, Pool() as pool:
            connections = PresignedConnections(pool)
            target = BucketTarget(name, status.st_size, ask)
            PartSender(file, target, connections, progress, threads=4, total=SIZE).send()

    def begins(self, name: str, size: int) -> str:
        """An upload of a file, of which nothing is sent."""
        return str(self.ask("/uploads", path=name, size=size)["upload"])

    def numbers(self) -> list[int]:
        """The parts for which addresses were wanted."""
        found = [more["numbers"] for where, more in self.asked if where == "/uploads/addresses"]
        return sorted(number for numbers in found for number in numbers)

    def scan(self) -> Scan:
        return scan(str(self.top), now=4e9)

    def brings(
        self,
        told: Callable[[int], None] = lambda _: None,
        note: Callable[..., None] = tell,
        scan: Scan | None = None,
    ) -> int:
        """The bytes that had to be sent; `told` hears of them as a person would."""
        sent: list[int] = []

        def progress(now: int, _total: int) -> None:
            told(now)
            sent.append(now)

        spec = {"start_cmd": "true", "public_bos": 0, "bos_url": self.bos_url}
        request = a_submit(spec) | self.keys
        user_bucket.bring(self._transport, scan or self.scan(), request, progress, note)
        return sum(sent)


def with_door(settings: Settings, endpoint: str) -> Settings:
    return replace(settings, private_store=replace(settings.private_store, door=endpoint))


@pytest.fixture
def person(make_world: MakeWorld, s3_settings: dict[str, str], tmp_path: Path) -> Person:
    world = make_world(change=partial(with_door, endpoint=s3_settings["endpoint"]))
    return Person(world, s3_settings, tmp_path / "code")


def content(seed: int, size: int = SIZE) -> bytes:
    return random.Random(seed).randbytes(size)


def read(bucket: S3Store, path: str) -> bytes:
    with bucket.read(path) as reader:
        return b"".join(reader)


def code_of(call: Callable[[], object]) -> str:
    try:
        call()
    except PaddleCloudError as error:
        return error.code
    return ""


def test_a_large_file_goes_in_parts_and_only_once(person: Person, bucket: S3Store) -> None:
    (person.top / "deep").mkdir()
    (person.top / "deep" / "big é").write_bytes(content(1))
    (person.top / "run.sh").write_bytes(b"true\n")
    assert person.brings() == SIZE + 5
    assert read(bucket, "deep/big é") == content(1)
    (stat,) = bucket.list("deep/")
    assert stat.tag.endswith('-3"')
    assert open_uploads(bucket, "deep/big é") == []
    assert person.brings() == 0
    (person.top / "deep" / "big é").write_bytes(content(2))
    assert person.brings() == SIZE
    assert read(bucket, "deep/big é") == content(2)


def test_each_piece_of_a_large_input_is_asked_for_once(
    person: Person, bucket: S3Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket.write("big", [content(1)])
    spec = {"start_cmd": "true", "public_bos": 0, "bos_url": person.bos_url}
    answer = person.world.user.post("/api/v1/jobs", a_submit(spec) | person.keys)
    job_id = answer["job"]["job_id"]
    transport = person.world.transport()
    query = {"prefix": "big"}
    rows = transport.get(f"/jobs/{job_id}/files", query, schema=response_schemas.FILES)["files"]
    asked: list[int] = []
    opened = transport.open

    def counted(path: str, query: dict[str, int], **how: Any) -> Any:
        asked.append(query["offset"])
        return opened(path, query, **how)

    monkeypatch.setattr(transport, "open", counted)
    engine.download(transport, job_id, rows, str(tmp_path / "got"), now=4e9)
    transport.close()
    close_buckets(person.world.deps)
    assert sorted(asked) == [*range(0, SIZE, range_size(rows, FEW))]
    assert (tmp_path / "got" / "big").read_bytes() == content(1)


def test_a_client_that_is_stopped_leaves_no_file_and_the_next_one_goes_on(
    person: Person, bucket: S3Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    (person.top / "big").write_bytes(content(1))
    monkeypatch.setattr(parts, "URLS", 1)
    ask = person.ask

    def stopped(where: str, schema: Any = DONE, **more: Any) -> Any:
        if more.get("numbers") == [3]:
            raise KeyboardInterrupt
        return ask(where, schema, **more)

    monkeypatch.setattr(person, "ask", stopped)
    with pytest.raises(KeyboardInterrupt):
        person.sends("big")
    assert bucket.stat("big") is None
    ((upload, _),) = open_uploads(bucket, "big")
    there = [part.number for part in bucket.parts("big", upload)]
    monkeypatch.setattr(person, "ask", ask)
    person.asked.clear()
    person.progress = 0
    person.sends("big")
    assert person.numbers() == sorted({1, 2, 3} - set(there))
    assert 3 in person.numbers()
    assert person.progress == SIZE
    assert read(bucket, "big") == content(1)
    assert open_uploads(bucket, "big") == []


def test_parts_of_other_bytes_are_sent_again(person: Person, bucket: S3Store) -> None:
    (person.top / "big").write_bytes(content(1))
    upload = person.begins("big", SIZE)
    bucket.put_part("big", upload, 1, content(1)[:PART])
    bucket.put_part("big", upload, 2, content(9)[:PART])
    person.sends("big")
    assert person.numbers() == [2, 3]
    assert read(bucket, "big") == content(1)


def test_an_upload_that_was_begun_with_the_parts_of_before_goes_on(
    person: Person, bucket: S3Store
) -> None:
    data = content(1, FORMER + 12345)
    (person.top / "big").write_bytes(data)
    upload, deps = person.begins("big", len(data)), person.world.deps
    (stat,) = deps.store.list(f"{uploads.ROOT}/")
    record = records.read(deps, stat.path)
    assert record is not None and record.upload == upload
    records.write(deps, stat.path, msgspec.structs.replace(record, part_size=FORMER))
    bucket.put_part("big", upload, 1, data[:FORMER])
    person.sends("big")
    assert person.numbers() == [2]
    assert person.progress == len(data)
    assert read(bucket, "big") == data
    assert person.brings() == 0


def test_bytes_are_counted_as_they_go_out(person: Person, bucket: S3Store) -> None:
    (person.top / "big").write_bytes(content(1))
    (person.top / "small").write_bytes(b"x" * 1_000_000)
    told: list[int] = []
    person.brings(told.append)
    assert sum(told) == SIZE + 1_000_000
    assert max(told) <= 1024 * 1024
    assert bucket.stat("small") is not None


def test_what_a_bucket_does_not_keep_is_said(person: Person, bucket: S3Store) -> None:
    (person.top / "run.sh").write_bytes(b"true\n")
    (person.top / "run.sh").chmod(0o755)
    (person.top / "logs" / "of" / "today").mkdir(parents=True)
    (person.top / "data").mkdir()
    (person.top / "data" / "x").write_bytes(b"x")
    (person.top / "data" / "link").symlink_to("x")
    noted: list[tuple[str, object]] = []
    person.brings(note=lambda code, **params: noted.append((code, params)))
    assert noted == [
        ("private_links_skipped", {"paths": "data/link"}),
        ("private_files_bare", {"paths": "logs/of/today/, run.sh"}),
    ]


@pytest.mark.parametrize(
    ("names", "hint"),
    [
        (["a\\b"], r"a\\b is not a safe relative path"),
        (["x" * 256], "a name may have 255 bytes"),
        (["run.sh", "run.sh/output/log"], "run.sh/output/log is below run.sh"),
    ],
)
def test_an_object_that_is_no_file_is_named_with_its_bucket(
    monkeypatch: pytest.MonkeyPatch, person: Person, bucket: S3Store, names: list[str], hint: str
) -> None:
    now = datetime.now(UTC)
    found = [Stat(path=name, size=1, modified=now, tag='"x"') for name in names]
    monkeypatch.setattr(buckets, "list_user_bucket", lambda *_, **__: found)
    with pytest.raises(Invalid, match=f"bos_url={person.bos_url} holds .*{hint}.*rename or delete"):
        person.brings()


def test_whom_the_plan_refuses_sends_nothing_into_the_bucket(
    make_world: MakeWorld, s3_settings: dict[str, str], bucket: S3Store, tmp_path: Path
) -> None:
    def change(settings: Settings) -> Settings:
        settings = with_door(settings, s3_settings["endpoint"])
        return replace(settings, plans={**settings.plans, settings.default_plan: full})

    full = Plan(waiting_jobs=0)
    person = Person(make_world(change=change), s3_settings, tmp_path / "code")
    (person.top / "run.sh").write_bytes(b"true\n")
    with pytest.raises(TooMany, match="your plan allows 0"):
        person.brings()
    assert [stat.path for stat in bucket.list()] == []


def test_an_upload_that_somebody_else_ends_is_found_done(
    person: Person, bucket: S3Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when two people submit the same directory at once."""
    (person.top / "big").write_bytes(content(1))
    ended: list[int] = []
    post, paths = person._transport.post, list[str]()

    def beside(path: str, *given: Any, **how: Any) -> Any:
        answer = post(path, *given, **how)
        paths.append(path)
        if path == "/private/uploads/addresses" and not ended:
            ended.append(1)
            person.sends("big")
        return answer

    monkeypatch.setattr(person._transport, "post", beside)
    person.brings()
    assert ended
    assert read(bucket, "big") == content(1)
    assert paths.count("/private/uploads/join") == 1


def test_only_the_parts_that_are_named_are_joined(person: Person, bucket: S3Store) -> None:
    """SeaweedFS keeps both of a part that was sent twice; others refuse the tag of the earlier."""
    upload, data = person.ask("/uploads", path="big", size=SIZE)["upload"], content(1)
    pieces = [data[:PART], data[PART : 2 * PART], data[2 * PART :]]
    tags = [bucket.put_part("big", upload, n, piece).tag for n, piece in enumerate(pieces, 1)]
    named = {"path": "big", "upload": upload, "size": SIZE, "tags": tags}
    for wrong in (tags[:2], [tags[0], tags[0], tags[2]], [*tags, tags[0]]):
        other = named | {"tags": wrong}
        assert code_of(partial(person.ask, "/uploads/join", **other)) == "upload_incomplete"
    assert bucket.stat("big") is None
    bucket.put_part("big", upload, 2, content(9)[:PART])
    assert person.ask("/uploads/join", **named) == {"size": SIZE}
    assert person.ask("/uploads/join", **named) == {"size": SIZE}
    assert read(bucket, "big") == data
    with pytest.raises(NotFound):
        person.ask("/uploads/join", **(named | {"tags": [tags[0], tags[0], tags[2]]}))


def test_a_file_that_changes_while_it_is_sent_gets_no_name(person: Person, bucket: S3Store) -> None:
    (person.top / "big").write_bytes(content(1))
    ask = person.ask

    def meanwhile(where: str, schema: Any = DONE, **more: Any) -> Any:
        answer = ask(where, schema, **more)
        if where == "/uploads/addresses":
            os.utime(person.top / "big", (1, 1))
        return answer

    with pytest.raises(Conflict, match="big"):
        person.sends_with(meanwhile, "big")
    assert bucket.stat("big") is None


@pytest.mark.parametrize("size", [3, SIZE])
@pytest.mark.parametrize("there", [False, True])
def test_a_file_that_changed_since_it_was_scanned_is_not_sent(
    person: Person, bucket: S3Store, size: int, there: bool
) -> None:
    """With `there` the bucket has what the file became, so that nothing would have to be sent."""
    (person.top / "data").write_bytes(content(1, size))
    found = person.scan()
    (person.top / "data").write_bytes(content(2, size))
    if there:
        person.brings()
    with pytest.raises(Conflict, match="data") as caught:
        person.brings(scan=found)
    assert caught.value.code == "files_changed"
    assert (bucket.stat("data") is not None) == there


def test_an_old_upload_of_a_file_that_is_another_now_is_dropped(
    person: Person, bucket: S3Store
) -> None:
    theirs = bucket.begin_parts("big", part_size=PART)
    upload = person.begins("big", SIZE + 1)
    bucket.put_part("big", upload, 1, b"short")
    fresh = person.begins("big", SIZE)
    assert fresh != upload
    assert {name for name, _ in open_uploads(bucket, "big")} == {theirs, fresh}
    assert person.begins("big", SIZE) == fresh
