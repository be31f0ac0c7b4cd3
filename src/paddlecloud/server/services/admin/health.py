"""Health checks for `doctor`: database, store, agents, isolation."""

from __future__ import annotations

import json
import secrets
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from paddlecloud.db.engine.sqlite import LITTLE_SPACE
from paddlecloud.db.tables import agents, counters, jobs
from paddlecloud.messages import render
from paddlecloud.model.errors import (
    Internal,
    PaddleCloudError,
    Refused,
    StorageFull,
    Unreachable,
)
from paddlecloud.server.deps import Deps
from paddlecloud.server.schemas.system import Check
from paddlecloud.server.services.placement import isolation

AGENT_FRESH = timedelta(seconds=70)
"""Twice the 30 s of a long poll, and some: an agent without contact for longer is silent."""


def checks(deps: Deps, owner: str, lang: str, *, all_of_it: bool) -> list[Check]:
    """`all_of_it` is for admins: other users do not see paths and counts of a team server."""
    links = [
        _check("database", lang, lambda: _database(deps, lang)),
        _check("store", lang, lambda: _store(deps, owner)),
        _check("agent", lang, lambda: _agents(deps, lang)),
    ]
    if deps.settings.team:
        links.append(_check("users", lang, lambda: _apart(deps, lang)))
    hidden = () if all_of_it or not deps.settings.team else ("database", "store")
    return [
        Check(name=link.name, ok=True, detail="") if link.ok and link.name in hidden else link
        for link in links
    ]


def _check(name: str, lang: str, probe: Callable[[], str]) -> Check:
    try:
        return Check(name=name, ok=True, detail=probe())
    except PaddleCloudError as error:
        return Check(name=name, ok=False, detail=error.text(lang))
    except OSError as error:  # the message of the system names the path
        return Check(name=name, ok=False, detail=str(error))


def _database(deps: Deps, lang: str) -> str:
    deps.db.write(lambda tx: counters.next_number(tx, "probe"))
    # This write may still fit into the log of the database; a job may not.
    if shutil.disk_usage(deps.settings.server_dir).free < LITTLE_SPACE:
        raise StorageFull("database_full", path=str(deps.settings.server_dir))
    count = sum(deps.db.read(jobs.count_by_state).values())
    return render("health_jobs" if count != 1 else "health_jobs_one", {"count": count}, lang)


def _store(deps: Deps, owner: str) -> str:
    path = f"users/{owner}/probe-{secrets.token_hex(8)}"
    deps.store.write(path, [b"probe"])
    try:
        found = b"".join(deps.store.read(path))
    finally:
        deps.store.delete(path)
    if found != b"probe":
        raise Internal("health_store", path=path, wrote="probe", found=repr(found[:50]))
    return str(deps.settings.store_dir)


def _agents(deps: Deps, lang: str) -> str:
    now = deps.clock()
    known = deps.db.read(agents.list_agents)
    silent = [agent for agent in known if now - agent.seen_at > AGENT_FRESH]
    if not known:
        raise Unreachable("health_no_agent")
    if silent:
        names = ", ".join(agent.id for agent in silent)
        raise Unreachable("health_agent_silent", seconds=AGENT_FRESH.seconds, agents=names)
    # The capacity that a pool plans with: settings override what the machine reports.
    counted = {node.id: node.total for nodes in deps.nodes().values() for node in nodes}
    capacities = [(agent.id, counted.get(agent.id, agent.capacity)) for agent in known]
    shown = ", ".join(
        f"{name}: {total.cpu:g} CPU, {total.memory / 2**30:.1f} GiB" for name, total in capacities
    )
    free = [agent.id for agent in known if agent.enforces.get("memory") is False]
    if deps.settings.team and free:
        params = {"agents": shown, "names": ", ".join(free)}
        shown = render("health_no_memory_limit", params, lang)
    return _with_deleted(deps, shown, lang)


def _with_deleted(deps: Deps, shown: str, lang: str) -> str:
    """Append what the agent of this machine recently had to delete (`agent/outputs/unsent.py`).
    Agents on other machines log it."""
    try:
        deleted = json.loads((deps.settings.agent_dir / "unsent.json").read_bytes())
        times, at = int(deleted["times"]), datetime.fromtimestamp(float(deleted["at"]), UTC)
    except (OSError, ValueError, KeyError, TypeError, OverflowError):
        return shown
    if deps.clock() - at > _LATELY:
        return shown
    day = deps.settings.format_time(at)
    return render("health_unsent_deleted", {"agents": shown, "times": times, "at": day}, lang)


def _apart(deps: Deps, lang: str) -> str:
    """Whether the jobs of different users are isolated; a pool of one user needs no isolation."""
    reasons = [found for pool in deps.pools.values() if (found := isolation.trouble(deps, pool))]
    for reason in reasons:
        if reason.code == "pool_not_separated":
            raise Refused(reason.code, **reason.params)
    words = [render(one.code, one.params, lang) for one in reasons]
    return "; ".join(words) or render("health_apart", {}, lang)


_LATELY = timedelta(days=7)
