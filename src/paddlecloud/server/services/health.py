"""Every link of the chain as the server sees it, each with its word when it is broken."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable
from datetime import timedelta

from paddlecloud.db import agents, coordination, jobs
from paddlecloud.db.sqlite import LITTLE_SPACE
from paddlecloud.model.errors import PaddleCloudError, StorageFull
from paddlecloud.model.states import JobState
from paddlecloud.server.deps import Deps
from paddlecloud.server.shapes import Check


def checks(deps: Deps, owner: str) -> list[Check]:
    return [
        _check("database", lambda: _database(deps)),
        _check("store", lambda: _store(deps, owner)),
        _check("agent", lambda: _agents(deps)),
    ]


def gauges(deps: Deps) -> list[tuple[str, dict[str, str], float]]:
    counts = deps.db.read(jobs.count_by_state)
    rows = [
        ("paddlecloud_jobs", {"state": state.value}, float(counts.get(state, 0)))
        for state in JobState
    ]
    now = deps.clock()
    for agent in deps.db.read(agents.list_agents):
        silent = (now - agent.seen_at).total_seconds()
        rows.append(("paddlecloud_agent_silent_seconds", {"agent": agent.id}, silent))
    return rows


def _check(name: str, look: Callable[[], str]) -> Check:
    try:
        return Check(name=name, ok=True, detail=look())
    except (PaddleCloudError, OSError) as error:
        return Check(name=name, ok=False, detail=str(error))


def _database(deps: Deps) -> str:
    deps.db.write(lambda tx: coordination.next_number(tx, "probe"))
    # A little fits into the log of the database for a while yet; a job may not.
    if shutil.disk_usage(deps.settings.server_dir).free < LITTLE_SPACE:
        raise StorageFull("database_full", path=str(deps.settings.server_dir))
    count = sum(deps.db.read(jobs.count_by_state).values())
    return f"{count} jobs"


def _store(deps: Deps, owner: str) -> str:
    path = f"users/{owner}/probe-{secrets.token_hex(8)}"
    deps.store.write(path, [b"probe"])
    try:
        found = b"".join(deps.store.read(path))
    finally:
        deps.store.delete(path)
    if found != b"probe":
        raise OSError(f"wrote 5 bytes to {path} and read {found!r} back")
    return str(deps.settings.store_dir)


def _agents(deps: Deps) -> str:
    now = deps.clock()
    known = deps.db.read(agents.list_agents)
    silent = [agent for agent in known if now - agent.seen_at > _FRESH]
    if not known or silent:
        names = ", ".join(agent.id for agent in silent) or "none was ever seen"
        raise OSError(f"no word from the agent for over {_FRESH.seconds} s: {names}")
    return ", ".join(
        f"{agent.id}: {agent.capacity.cpu:g} CPU, {agent.capacity.memory / 2**30:.1f} GiB"
        for agent in known
    )


_FRESH = timedelta(seconds=70)
"""A long poll lasts 30 s: twice that and a little is silence."""
