"""Real replicas for tests: start them, wait for a fact, and prove that nothing is left of them."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from paddlecloud.agent.replica import records
from paddlecloud.agent.replica.inspect import Observed, Phase, inspect, request_stop
from paddlecloud.agent.replica.records import ExitRecord, Launch
from paddlecloud.agent.sandbox import cgroups
from paddlecloud.agent.supervisor import processes
from paddlecloud.agent.supervisor.zygote import Spawner

T = TypeVar("T")

PATIENCE = 30.0


class Bench:
    """One spawner and the replicas started with it."""

    def __init__(self, spawner: Spawner, folder: Path) -> None:
        self.spawner = spawner
        self.folder = folder
        self.launches: list[Launch] = []

    def order(self, command: str, **changes: Any) -> Launch:
        """A replica that is prepared but not started."""
        replica_id = f"test-{uuid.uuid4().hex[:12]}"
        root = self.folder / replica_id
        (root / "work").mkdir(parents=True)
        env = {"PATH": os.environ["PATH"]}
        launch: Launch = {
            "replica_id": replica_id,
            "root": str(root),
            "command": command,
            "env": env,
            "grace": 5.0,
        }
        launch.update(changes)  # type: ignore[typeddict-item]
        self.launches.append(launch)
        return launch

    def start(self, command: str, **changes: Any) -> Path:
        launch = self.order(command, **changes)
        self.spawner.spawn(launch)
        return Path(launch["root"])

    def run(self, command: str, **changes: Any) -> tuple[Path, ExitRecord]:
        root = self.start(command, **changes)
        return root, ended(root)

    def start_on_a_used_supervisor(self, command: str, first: str = "true", **changes: Any) -> Path:
        """Start it below a supervisor that has had another replica, which ran `first`.

        Which supervisor a replica gets is not defined: a first one that took its time on a
        busy machine ends its supervisor. So it is tried until it comes about.
        """
        for _ in range(100):
            launch = self.order(first)
            used = self.spawner.spawn(launch)
            ended(Path(launch["root"]))
            eventually(partial(_is_free_or_gone, used))
            launch = self.order(command, **changes)
            root = Path(launch["root"])
            if self.spawner.spawn(launch) == used:
                return root
            request_stop(root, grace=0.0, now=time.time())
            ended(root)
        raise AssertionError("no supervisor ever took a second replica")

    def check_nothing_is_left(self) -> None:
        for launch in self.launches:
            _wait_for_the_supervisor(Path(launch["root"]))
            assert living(launch["replica_id"]) == []
        assert groups_of(launch["replica_id"] for launch in self.launches) == []


def eventually(fact: Callable[[], T | None], seconds: float = PATIENCE) -> T:
    """The first true answer of `fact`; fails when there is none in time."""
    deadline = time.monotonic() + seconds
    while True:
        answer = fact()
        if answer:
            return answer
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.005)


def ended(root: Path) -> ExitRecord:
    eventually(lambda: inspect(root).phase in (Phase.EXITED, Phase.LOST))
    found = inspect(root)
    assert found.exit is not None, found.phase
    return found.exit


def running(root: Path) -> Observed:
    """Once the command runs."""
    eventually(lambda: inspect(root).pid)
    return inspect(root)


def has_file(root: Path, name: str) -> str:
    """Once the replica wrote `name` in its working directory: what is in it."""
    file = root / "work" / name
    return eventually(lambda: file.read_text().strip() if file.exists() else "")


def living(replica_id: str) -> list[int]:
    return [
        pid for pid in processes.marked(f"{records.MARKER}={replica_id}") if processes.alive(pid)
    ]


def groups_of(replica_ids: Any) -> list[Path]:
    places = cgroups.detect()
    folders = [*places.v1.values(), *([places.v2] if places.v2 else [])]
    names = [cgroups.PREFIX + replica_id for replica_id in replica_ids]
    return [folder / name for folder in folders for name in names if (folder / name).exists()]


def _is_free_or_gone(supervisor_pid: int) -> bool:
    try:
        return Path(f"/proc/{supervisor_pid}/comm").read_text().strip() == "pc-spare"
    except OSError:
        return True


def _wait_for_the_supervisor(root: Path) -> None:
    eventually(lambda: records.lock_holder(root / records.LOCK) is None)
