"""Large outputs that come through the server in parts; the agent's own sender, a real server."""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from paddlecloud.agent.config import AgentConfig
from paddlecloud.agent.outputs import _multipart, scan
from paddlecloud.agent.registry import Tracked
from paddlecloud.agent.server_link import channel
from paddlecloud.agent.server_link.channel import Body, Channel, Link, PartBody
from paddlecloud.model.errors import PaddleCloudError, Retry, StaleFence, Unreachable
from paddlecloud.net.connection_pool import Pool
from paddlecloud.server.http import socket_body
from paddlecloud.server.schemas.transfer import JoinRequest
from paddlecloud.server.services.agents import assignment
from paddlecloud.server.services.transfer import output_uploads
from paddlecloud.server.services.transfer.output_uploads import OutputUpload, sending_root
from paddlecloud.stores.directory.safe_open import SCRATCH
from paddlecloud.transfer.presigned import PresignedConnections
from tests.integration.server.world import NODE, World

PART = 256 * 1024
COUNT = 5
DATA = random.Random(1).randbytes((COUNT - 1) * PART) + b"and more\n"
SHA256 = hashlib.sha256(DATA).hexdigest()
WHEN = 1_589_710_569.123456


class Line(Channel):
    """Of an agent; breaks before or behind a request, when it is told to."""

    def __init__(self, link: Link) -> None:
        super().__init__(link)
        self.sent: list[int] = []
        """The numbers of the parts that were taken."""
        self.left: int | None = None
        """So many parts until it breaks."""
        self.lose_the_end = False

    def call(
        self,
        method: str,
        path: str,
        body: Body = b"",
        query: Mapping[str, object] | None = None,
        **how: Any,
    ) -> bytes:
        number = (query or {}).get("number")
        if number is not None and self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise Unreachable("server_closed", address="there")
        answer = super().call(method, path, body, query, **how)
        if number is not None:
            self.sent.append(int(str(number)))
        elif method == "PUT" and self.lose_the_end:
            raise Unreachable("server_closed", address="there")
        return answer


class Agent:
    """Has one replica, whose large output it sends."""

    def __init__(self, world: World, root: Path) -> None:
        self.world = world
        self.job_id, self.order = world.placed()
        keys = world.agent.caller
        url = f"http://127.0.0.1:{world.stage.port}"
        config = AgentConfig(
            path=root / "agent.json", agent_id=NODE, ak=keys.ak, sk=keys.sk, url=url
        )
        self.line = Line(Link(config))
        replica, fence = self.order["replica"], self.order["fence"]
        self.tracked = Tracked(id=replica, fence=fence, root=root / "r", run=None, acked=0)
        self.file = root / "r" / "output" / "big"
        self.file.parent.mkdir(parents=True)
        self.writes(DATA)

    def writes(self, data: bytes, when: float = WHEN) -> None:
        self.file.write_bytes(data)
        os.utime(self.file, (when, when))

    def puts(self) -> str | None:
        (found,) = scan.scan(self.tracked.root)
        with self.file.open("rb") as file:
            sent = scan.refreshed(found, file)
            return _multipart.put(self.tracked, sent, file, self.line, PresignedConnections(Pool()))

    def asks(
        self, fence: int | None = None, size: int = len(DATA), **more: object
    ) -> dict[str, Any]:
        query = {"fence": self.tracked.fence if fence is None else fence}
        begin = {"size": size, "mtime": WHEN, **more}
        return self.line.json("POST", self.path("parts"), begin, query)

    def path(self, what: str) -> str:
        return f"/agent/replicas/{self.tracked.id}/{what}/output/big"

    def kept(self) -> bytes | None:
        """What the store has under the name."""
        folder = self.world.deps.settings.store_dir / "users" / "someone" / "output"
        file = folder / self.job_id / "rank-0" / "big"
        return file.read_bytes() if file.exists() else None

    def unfinished(self) -> list[Path]:
        return list((self.world.deps.settings.store_dir / SCRATCH).iterdir())

    def restart_server(self) -> None:
        """What it has in its memory is gone."""
        self.world.deps.verifications._digests.clear()


@pytest.fixture
def agent(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Agent]:
    monkeypatch.setattr(output_uploads, "LEAST", PART)
    made = Agent(world, tmp_path / "agent")
    yield made
    made.line.close()


def raised(work: Callable[[], object]) -> PaddleCloudError:
    with pytest.raises(PaddleCloudError) as caught:
        work()
    return caught.value


def test_it_gets_its_name_when_all_parts_are_there(agent: Agent) -> None:
    assert agent.puts() == SHA256
    assert agent.kept() == DATA
    assert agent.line.sent == [1, 2, 3, 4, 5]
    assert agent.unfinished() == []
    rows = agent.world.user.get(f"/api/v1/jobs/{agent.job_id}/files")["files"]
    assert (rows[-1]["size"], rows[-1]["time"]) == (len(DATA), "2020-05-17T10:16:09Z")


@pytest.mark.parametrize("restarts", [False, True])
def test_parts_that_are_there_are_not_sent_again(agent: Agent, restarts: bool) -> None:
    agent.line.left = 3
    assert raised(agent.puts).code == "server_closed"
    assert (agent.line.sent, agent.kept()) == ([1, 2, 3], None)
    if restarts:
        agent.restart_server()
    agent.line.left = None
    assert agent.puts() == SHA256
    assert agent.line.sent == [1, 2, 3, 4, 5]
    assert agent.kept() == DATA


def test_an_end_that_nobody_heard_of_is_no_reason_to_send_it_again(agent: Agent) -> None:
    agent.line.lose_the_end = True
    assert raised(agent.puts).code == "server_closed"
    assert agent.kept() == DATA
    given = agent.asks()
    assert (given["sha256"], given["parts"], given["addresses"]) == (SHA256, [], [])
    agent.line.lose_the_end = False
    assert agent.puts() == SHA256
    end = {"upload": given["upload"], "size": len(DATA), "sha256": SHA256}
    query = {"fence": agent.tracked.fence}
    assert agent.line.json("PUT", agent.path("parts"), end, query)["stored"] is True
    assert agent.line.sent == [1, 2, 3, 4, 5]


def test_bytes_of_two_files_that_look_the_same_never_make_one(agent: Agent) -> None:
    agent.line.left = 2
    assert raised(agent.puts).code == "server_closed"
    agent.line.left = None
    agent.writes(DATA[::-1])
    assert agent.puts() is None
    assert (agent.kept(), agent.unfinished()) == (None, [])
    assert agent.puts() == hashlib.sha256(DATA[::-1]).hexdigest()
    assert agent.kept() == DATA[::-1]


def test_parts_that_a_loss_of_power_took_are_noticed(agent: Agent) -> None:
    agent.line.left = 4
    raised(agent.puts)
    (upload,) = agent.unfinished()
    os.truncate(upload / "data", PART)
    agent.restart_server()
    agent.line.left = None
    assert agent.puts() is None
    assert (agent.kept(), agent.unfinished()) == (None, [])


def test_parts_of_an_earlier_state_of_the_file_go(agent: Agent) -> None:
    agent.line.left = 2
    raised(agent.puts)
    (old,) = agent.unfinished()
    agent.line.left = None
    agent.writes(DATA, WHEN + 1)
    assert agent.puts() == SHA256
    assert not old.exists()
    assert agent.line.sent == [1, 2, 1, 2, 3, 4, 5]


def test_an_attempt_that_is_over_brings_nothing(agent: Agent) -> None:
    upload = agent.asks()["upload"]
    late = {"fence": agent.tracked.fence - 1}
    assert raised(lambda: agent.asks(agent.tracked.fence - 1)).code == "fence_stale"
    body, query = PartBody(data=b"some"), late | {"upload": upload, "number": 1}
    part = agent.path("part")
    assert raised(lambda: agent.line.call("PUT", part, body, query)).code == "fence_stale"
    end = {"upload": upload, "size": len(DATA), "sha256": SHA256}
    assert (
        raised(lambda: agent.line.json("PUT", agent.path("parts"), end, late)).code == "fence_stale"
    )
    assert agent.asks()["parts"] == []


def test_one_that_ends_while_the_digest_is_taken_gives_no_name(agent: Agent) -> None:
    given = agent.asks()
    for number in range(1, COUNT + 1):
        body = PartBody(data=DATA[(number - 1) * PART : number * PART])
        query = {"fence": agent.tracked.fence, "upload": given["upload"], "number": number}
        agent.line.call("PUT", agent.path("part"), body, query)
    deps = agent.world.deps
    assigned = assignment.for_upload(deps, NODE, agent.tracked.id, agent.tracked.fence)
    asked = JoinRequest(upload=given["upload"], size=len(DATA), sha256=SHA256)

    def no_longer() -> None:
        raise StaleFence("fence_stale", replica=agent.tracked.id, fence=1, current=2)

    with pytest.raises(StaleFence):
        output_uploads.finish(deps, assigned, "output/big", asked, no_longer)
    assert agent.kept() is None
    assert output_uploads.finish(deps, assigned, "output/big", asked, lambda: None)
    assert agent.kept() == DATA


def test_two_that_end_it_at_the_same_time_both_hear_that_it_is_there(agent: Agent) -> None:
    given = agent.asks()
    deps = agent.world.deps
    assigned = assignment.for_upload(deps, NODE, agent.tracked.id, agent.tracked.fence)
    asked = JoinRequest(upload=given["upload"], size=len(DATA), sha256=SHA256)
    for number in range(1, COUNT + 1):
        upload = OutputUpload(deps, assigned, "output/big")
        data = DATA[(number - 1) * PART : number * PART]
        upload.put_part(upload.open(asked.upload), number, data)
    heard: list[bool] = []

    def meanwhile() -> None:
        heard.append(output_uploads.finish(deps, assigned, "output/big", asked, lambda: None))

    heard.append(output_uploads.finish(deps, assigned, "output/big", asked, meanwhile))
    assert heard == [True, True]
    assert (agent.kept(), agent.unfinished()) == (DATA, [])


def test_an_end_of_another_content_is_none(agent: Agent) -> None:
    assert agent.puts() == SHA256
    upload = agent.asks()["upload"]
    deps = agent.world.deps
    assigned = assignment.for_upload(deps, NODE, agent.tracked.id, agent.tracked.fence)
    other = JoinRequest(upload=upload, size=len(DATA), sha256="0" * 64)
    told = raised(lambda: output_uploads.finish(deps, assigned, "output/big", other, lambda: None))
    assert told.code == "upload_missing"


def test_a_damaged_part_is_not_kept(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(channel, "crc32", lambda _data: 1)
        told = raised(agent.puts)
    assert (type(told), told.code) == (Retry, "upload_damaged")
    assert agent.asks()["parts"] == []
    assert agent.puts() == SHA256


@pytest.mark.parametrize(("number", "size"), [(1, 9), (5, 8), (5, 10), (6, 9)])
def test_a_part_that_does_not_fit_is_refused(agent: Agent, number: int, size: int) -> None:
    query = {"fence": agent.tracked.fence, "upload": agent.asks()["upload"], "number": number}
    body = PartBody(data=bytes(size))
    told = raised(lambda: agent.line.call("PUT", agent.path("part"), body, query))
    assert told.code == "upload_part"
    other = query | {"upload": "0" * 24}
    told = raised(lambda: agent.line.call("PUT", agent.path("part"), body, other))
    assert told.code == "upload_missing"
    assert agent.asks()["parts"] == []


def test_an_end_without_a_digest_or_all_parts_is_none(agent: Agent) -> None:
    end: dict[str, object] = {"upload": agent.asks()["upload"], "size": len(DATA)}
    query = {"fence": agent.tracked.fence}
    told = raised(lambda: agent.line.json("PUT", agent.path("parts"), end, query))
    assert told.code == "body_invalid"
    end["sha256"] = SHA256
    told = raised(lambda: agent.line.json("PUT", agent.path("parts"), end, query))
    assert told.code == "upload_incomplete"
    assert agent.puts() == SHA256


def test_a_smaller_file_and_one_that_does_not_fit(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert agent.asks(size=PART - 1)["upload"] == ""
    monkeypatch.setattr(agent.world.deps.store, "free_bytes", lambda: len(DATA) - 1)
    told = raised(agent.puts)
    assert told.code == "store_full"
    assert agent.unfinished() == []
    root = sending_root("someone", agent.job_id)
    assert list(agent.world.deps.store.list(f"{root}/")) == []


def test_holes_take_no_room(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    data = bytes((COUNT - 1) * PART) + b"and more\n"
    with agent.file.open("wb") as file:
        file.seek((COUNT - 1) * PART)
        file.write(b"and more\n")
    os.utime(agent.file, (WHEN, WHEN))
    monkeypatch.setattr(agent.world.deps.store, "free_bytes", lambda: PART)
    assert raised(agent.asks).code == "store_full", "an agent of before does not tell of them"
    assert raised(lambda: agent.asks(allocated=PART + 1)).code == "store_full"
    assert agent.puts() == hashlib.sha256(data).hexdigest()
    assert agent.kept() == data


def test_few_parts_for_a_users_bucket_are_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    async def have(stack: AsyncExitStack, *users: str) -> None:
        for user in users:
            await stack.enter_async_context(socket_body.slot(user))

    async def crowd() -> list[Retry]:
        told = []
        async with AsyncExitStack() as stack:
            await have(stack, *["one"] * socket_body._OF_ONE)
            for more in (["one"], [f"user-{n}" for n in range(socket_body._OF_ALL)]):
                with pytest.raises(Retry) as caught:
                    await have(stack, *more)
                told.append(caught.value)
        async with AsyncExitStack() as stack:
            await have(stack, *["one"] * socket_body._OF_ONE)
        return told

    monkeypatch.setattr(socket_body, "_TURN", 0.01)
    told = asyncio.run(crowd())
    assert [error.code for error in told] == ["store_crowded"] * 2
    limits = [error.params["limit"] for error in told]
    assert limits == [socket_body._OF_ONE, socket_body._OF_ALL]
