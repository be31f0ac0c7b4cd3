"""A bucket that refuses one file, or breaks off in the middle of another; a real S3 server."""

from __future__ import annotations

import http.client
import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from paddlecloud.model.errors import Refused
from paddlecloud.server.__main__ import _is_news
from paddlecloud.server.settings import Settings
from paddlecloud.stores import create
from paddlecloud.stores.s3.store import S3Store
from tests.faulty_proxy import FaultyProxy, faulty_proxy
from tests.integration.server.conftest import MakeWorld
from tests.integration.server.test_user_bucket_timeouts import private_job
from tests.integration.server.world import World, close_buckets, eventually

BIG = b"z" * (8 * 1024 * 1024 - 1)
SAID = b"<Error><Code>XMinioInvalidObjectName</Code><Message>no such names</Message></Error>"
REFUSAL = b"HTTP/1.1 400 Bad\r\ncontent-length: %d\r\n\r\n%b" % (len(SAID), SAID)


@dataclass(frozen=True, kw_only=True)
class Scene:
    world: World
    way: FaultyProxy
    """To the bucket."""
    order: dict[str, Any]
    job_id: str

    @property
    def file(self) -> str:
        return f"/api/v1/jobs/{self.job_id}/files/output/{self.job_id}/rank-0/big"


@pytest.fixture(params=["the server's", "its owner's"])
def scene(
    request: pytest.FixtureRequest, make_world: MakeWorld, s3_settings: dict[str, str]
) -> Iterator[Scene]:
    with faulty_proxy(s3_settings["endpoint"]) as way:
        behind = create("s3", s3_settings | {"endpoint": way.url})
        assert isinstance(behind, S3Store)

        def change(settings: Settings) -> Settings:
            return replace(settings, private_store=replace(settings.private_store, door=way.url))

        def opened(_place: Path) -> S3Store:
            return behind

        if request.param == "the server's":
            world = make_world(change=change, store=opened)
            job_id, order = world.placed()
        else:
            world = make_world(change=change)
            order = private_job(world, s3_settings)
            job_id = world.user.get("/api/v1/jobs")["jobs"][0]["job_id"]
        yield Scene(world=world, way=way, order=order, job_id=job_id)
        close_buckets(world.deps)
        behind.close()


def test_a_file_that_the_bucket_refuses_is_told_by_its_name(scene: Scene) -> None:
    asked: list[bool] = []

    def there(piece: bytes) -> bytes:
        asked[:] = [b"/bad" in piece.split(b"\r\n")[0] and piece.startswith(b"PUT")]
        return piece

    scene.way.there = there
    scene.way.back = lambda piece: REFUSAL if asked[0] else piece
    agent = scene.world.agent
    refused = agent.upload(scene.order, "bad", b"1")
    assert (refused.status, refused.code) == (422, "store_refused")
    with pytest.raises(Refused, match=r"rank-0/bad \(400 XMinioInvalidObjectName no such names\)"):
        refused.json()
    assert agent.upload(scene.order, "good", b"2").status == 200


@pytest.mark.slow
def test_a_download_that_breaks_off_is_cut_and_told_in_one_line(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    assert scene.world.agent.upload(scene.order, "big", BIG).status == 200
    left = [len(BIG) // 2]

    def back(piece: bytes) -> bytes | None:
        left[0] -= len(piece)
        return piece if left[0] > 0 else None

    scene.way.back = back
    with caplog.at_level(logging.INFO):
        with pytest.raises(http.client.IncompleteRead):
            scene.world.user.call("GET", scene.file)
        # The server cuts the answer first and tells of it then.
        eventually(lambda: "was cut" in caplog.text)
    told = [record for record in caplog.records if _is_news(record)]
    assert [record.exc_info for record in told] == [None] * len(told)
    (line,) = [record.getMessage() for record in told if "was cut" in record.getMessage()]
    assert (scene.file in line, "does not respond" in line) == (True, True)
    assert line.startswith("request ")
