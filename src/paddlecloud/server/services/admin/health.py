"""Every link of the chain as the server sees it, each with its word when it is broken."""

from __future__ import annotations

import json
import secrets
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from paddlecloud.db.engine.sqlite import LITTLE_SPACE
from paddlecloud.db.tables import agents, counters, jobs, outbox
from paddlecloud.messages import render
from paddlecloud.model.errors import (
    Internal,
    PaddleCloudError,
    Refused,
    StorageFull,
    Unreachable,
)
from paddlecloud.model.jobs.states import JobState
from paddlecloud.server.deps import Deps
from paddlecloud.server.schemas.system import Check
from paddlecloud.server.services.accounts import quota
from paddlecloud.server.services.placement import isolation


def checks(deps: Deps, owner: str, lang: str, *, all_of_it: bool) -> list[Check]:
    """`all_of_it` is for who runs the server: others need not know its paths and counts."""
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


def gauges(deps: Deps, only: str | None) -> list[tuple[str, dict[str, str], float]]:
    counts = deps.db.read(jobs.count_by_state)
    rows = [
        ("paddlecloud_jobs", {"state": state.value}, float(counts.get(state, 0)))
        for state in JobState
    ]
    waiting = deps.db.read(outbox.count_waiting)
    for kind in (outbox.MAIL, outbox.WEBHOOK):
        rows.append(("paddlecloud_outbox_waiting", {"kind": kind}, float(waiting.get(kind, 0))))
    now = deps.clock()
    for agent in deps.db.read(agents.list_agents):
        silent = (now - agent.seen_at).total_seconds()
        rows.append(("paddlecloud_agent_silent_seconds", {"agent": agent.id}, silent))
    return rows + quota.gauges(deps, only)


def _check(name: str, lang: str, look: Callable[[], str]) -> Check:
    try:
        return Check(name=name, ok=True, detail=look())
    except PaddleCloudError as error:
        return Check(name=name, ok=False, detail=error.text(lang))
    except OSError as error:  # in the words of the machine: it names the place
        return Check(name=name, ok=False, detail=str(error))


def _database(deps: Deps, lang: str) -> str:
    deps.db.write(lambda tx: counters.next_number(tx, "probe"))
    # A little fits into the log of the database for a while yet; a job may not.
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
    silent = [agent for agent in known if now - agent.seen_at > _FRESH]
    if not known:
        raise Unreachable("health_no_agent")
    if silent:
        names = ", ".join(agent.id for agent in silent)
        raise Unreachable("health_agent_silent", seconds=_FRESH.seconds, agents=names)
    # What a pool counts with: the settings may say otherwise than the machine.
    counted = {node.id: node.total for nodes in deps.nodes().values() for node in nodes}
    rooms = [(agent.id, counted.get(agent.id, agent.capacity)) for agent in known]
    shown = ", ".join(
        f"{name}: {room.cpu:g} CPU, {room.memory / 2**30:.1f} GiB" for name, room in rooms
    )
    free = [agent.id for agent in known if agent.enforces.get("memory") is False]
    if deps.settings.team and free:
        params = {"agents": shown, "names": ", ".join(free)}
        shown = render("health_no_memory_limit", params, lang)
    return _with_deleted(deps, shown, lang)


def _with_deleted(deps: Deps, shown: str, lang: str) -> str:
    """What the agent of this machine had to delete lately (`agent/outputs/unsent.py`); those of
    others     write it into their logs."""
    try:
        told = json.loads((deps.settings.agent_dir / "unsent.json").read_bytes())
        times, at = int(told["times"]), datetime.fromtimestamp(float(told["at"]), UTC)
    except (OSError, ValueError, KeyError, TypeError, OverflowError):
        return shown
    if deps.clock() - at > _LATELY:
        return shown
    day = at.astimezone(deps.settings.zone).isoformat(" ", "minutes")[:16]
    return render("health_unsent_deleted", {"agents": shown, "times": times, "at": day}, lang)


def _apart(deps: Deps, lang: str) -> str:
    """Whether the jobs of different users are kept apart; a pool that serves one user is fine."""
    told = [found for pool in deps.pools.values() if (found := isolation.trouble(deps, pool))]
    for reason in told:
        if reason.code == "pool_not_separated":
            raise Refused(reason.code, **reason.params)
    words = [render(one.code, one.params, lang) for one in told]
    return "; ".join(words) or render("health_apart", {}, lang)


_LATELY = timedelta(days=7)
_FRESH = timedelta(seconds=70)
"""A long poll lasts 30 s: twice that and a little is silence."""
