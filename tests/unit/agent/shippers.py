"""An agent's shippers without the rest of it: a server that takes files, and replicas with some."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

from paddlecloud.agent.config import AgentConfig
from paddlecloud.agent.context import Context
from paddlecloud.agent.log import AgentLog
from paddlecloud.agent.outputs import unsent
from paddlecloud.agent.outputs.shipper import Shippers
from paddlecloud.agent.registry import Stage, Tracked
from paddlecloud.agent.replica.records import exit_record
from paddlecloud.agent.server_link.channel import FileBody
from paddlecloud.agent.supervisor.zygote import Spawner
from paddlecloud.model.errors import PaddleCloudError, Retry
from paddlecloud.model.protocol.bce_auth import quote


class Server:
    """Takes files; those with a name in `slow` when it is told to, of `bad` it says a mistake, and
    those in `refused` never."""

    def __init__(self) -> None:
        self.slow: set[str] = set()
        self.bad: dict[str, int] = {}
        self.refused: dict[str, PaddleCloudError] = {}
        self.go = threading.Event()
        self.sent: list[str] = []
        self.bundles: list[list[str]] = []
        self.listed: list[str] = []
        self.missed: set[str] = set()
        self.entered: list[str] = []
        self.on_call: Callable[[], object] = lambda: None

    def call(
        self, method: str, path: str, body: FileBody | bytes, _query: object, *, timeout: float
    ) -> bytes:
        assert timeout > 0
        name = path.rpartition("/")[2]
        if name == "bundle":
            assert isinstance(body, bytes)
            return self._bundle(body)
        self.entered.append(name)
        self.on_call()
        if name in self.slow:
            assert self.go.wait(60)
        if self.bad.get(name, 0):
            self.bad[name] -= 1
            raise Retry("internal", request_id="r-1")
        if name in self.refused:
            raise self.refused[name]
        assert (method == "POST") == isinstance(body, bytes)
        if isinstance(body, FileBody):
            assert len(body.file.read()) == body.size
        self.sent.append(name)
        return b"{}"

    def _bundle(self, body: bytes) -> bytes:
        """Those of which nothing is to be said otherwise."""
        rows = json.loads(body.partition(b"\n")[0])["files"]
        names = [quote(row[0].rpartition("/")[2]) for row in rows]
        troubled = {*self.slow, *self.bad, *self.refused}
        taken = [name for name in names if name not in troubled]
        self.bundles.append(taken)
        self.entered += taken
        self.sent += taken
        left = [row[0] for row, name in zip(rows, names, strict=True) if name in troubled]
        return json.dumps({"missing": left}).encode()

    def parsed(self, answer: bytes) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(answer)
        return found

    def json(
        self, _method: str, _path: str, body: Mapping[str, Any], *_rest: object
    ) -> dict[str, Any]:
        if self.bad.get("listing", 0):
            self.bad["listing"] -= 1
            raise Retry("internal", request_id="r-2")
        names = [row[0] for row in body["files"]]
        missing = [name for name in names if name in self.missed]
        self.listed += [] if missing else names
        return {"missing": missing}


class Scene:
    def __init__(self, folder: Path) -> None:
        config = AgentConfig(
            path=folder / "agent.json", agent_id="a", ak="a", sk="s", url="http://127.0.0.1:9"
        )
        self.context = Context(config, AgentLog(folder / "agent.log"), cast("Spawner", None))
        self.context.ship_interval = 0.0
        self.server = Server()
        self.context.link.channel = lambda: cast("Any", self.server)  # type: ignore[method-assign]
        self.line = cast("Any", self.server)
        """To call a shipper by hand, without its threads."""
        self.shippers = Shippers(self.context)
        self._threads: list[threading.Thread] = []

    def replica(self, name: str, files: Mapping[str, bytes], *, over: bool) -> Tracked:
        root = self.context.registry.root(name)
        (root / "output").mkdir(parents=True)
        for path, content in files.items():
            (root / "output" / path).write_bytes(content)
            os.utime(root / "output" / path, (1.0, 1.0))
        tracked = self.context.registry.add(Tracked(id=name, fence=1, root=root, run=None, acked=0))
        tracked.stage = Stage.LAUNCHED
        if over:
            tracked.end(exit_record("exit", now=1.0))
        return tracked

    def begin(self) -> None:
        self._threads = [threading.Thread(target=body) for body in self.shippers.bodies()]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        self.server.go.set()
        self.context.stop()
        self.shippers.close()
        for thread in self._threads:
            thread.join(20)
            assert not thread.is_alive()


def over_well(scene: Scene, files: Mapping[str, bytes]) -> Tracked:
    tracked = scene.replica("a", files, over=True)
    tracked.exit = {**exit_record("exit", now=1.0), "exit_code": 0}
    return tracked


def kept_in(scene: Scene) -> list[str]:
    top = scene.context.directory / unsent.DIRECTORY
    return sorted(str(path.relative_to(top)) for path in top.rglob("*") if path.is_file())
