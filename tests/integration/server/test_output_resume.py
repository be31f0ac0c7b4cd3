"""How much of a large output goes to the server twice when the server or the agent is killed."""

from __future__ import annotations

import hashlib
import json
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.integration.server.counting_proxy import Toll
from tests.integration.server.process import ServerProcess, agents_of, end_agents
from tests.integration.server.test_several_servers import end_of
from tests.integration.server.world import a_submit, eventually, packed

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

SIZE = 200_000_000
PART = 4 * 1024 * 1024
# Under its name at once: what an agent sees grow it sends more than once anyway.
WRITE = f'head -c {SIZE} /dev/urandom > big; sha256sum big; mv big "$OUTPUT_PATH/big"'


class Machine(ServerProcess):
    """A server, and an agent that has to go through a toll to it."""

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self.tolls: list[Toll] = []
        self._line = home / "line.json"
        self.config = home / "agent" / "agent.json"

    def open_toll(self, shut_at: int | None = None) -> Toll:
        """From now on the agent finds the server there."""
        made = Toll("127.0.0.1", self.port)
        made.shut_at(shut_at)
        self.tolls.append(made)
        scratch = self._line.with_suffix(".new")
        scratch.write_text(json.dumps(self.facts() | {"url": made.url}))
        scratch.replace(self._line)
        return made

    def lead_agent(self) -> None:
        """The next agent that is started asks there where the server is."""
        eventually(lambda: bool(agents_of(self.config)), 60)
        scratch = self.config.with_suffix(".new")
        scratch.write_text(
            json.dumps(json.loads(self.config.read_text()) | {"endpoint_file": str(self._line)})
        )
        scratch.chmod(0o600)
        scratch.replace(self.config)
        end_agents(self.config)

    @property
    def passed(self) -> int:
        return sum(toll.passed for toll in self.tolls)

    def kill_server(self) -> None:
        pid = self.facts()["pid"]
        os.kill(pid, signal.SIGKILL)
        (process,) = [one for one in self._started if one.pid == pid]
        process.wait(60)

    def kill_agents(self) -> None:
        for pid in agents_of(self.config):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def close(self) -> None:
        for toll in self.tolls:
            toll.close()
        super().close()


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    made = Machine(tmp_path / "home")
    made.start()
    made.lead_agent()
    yield made
    made.close()


@pytest.mark.parametrize("who", ["server", "agent"])
def test_a_twentieth_at_most_is_sent_twice(machine: Machine, who: str) -> None:
    toll = machine.open_toll(SIZE // 2)
    caller = machine.caller()
    caller.post("/api/v1/blobs", packed(b"x"))
    entry = ["x", "file", 1, hashlib.sha256(b"x").hexdigest(), 0, ""]
    files = caller.post("/api/v1/snapshots", {"entries": [entry]})["id"]
    body = a_submit({"start_cmd": WRITE, "snapshot": files})
    job_id = caller.post("/api/v1/jobs", body)["job"]["job_id"]
    assert toll.is_shut(120)
    if who == "agent":
        machine.kill_agents()
        toll.shut_at(None)
    else:
        machine.kill_server()
        toll.close()
        machine.start()
        machine.open_toll()
    caller = machine.caller()
    assert end_of(caller, job_id, 120) == "success"
    kept = machine.home / "store" / "users"
    (big,) = kept.glob(f"*/output/{job_id}/rank-0/big")
    said = caller.call("GET", f"/api/v1/jobs/{job_id}/logs").body.split()[0].decode()
    assert hashlib.sha256(big.read_bytes()).hexdigest() == said
    assert SIZE <= machine.passed <= SIZE * 1.05 + PART
    (row,) = [
        row for row in caller.get(f"/api/v1/jobs/{job_id}/files")["files"] if row.get("sha256")
    ]
    assert row["sha256"] == said
