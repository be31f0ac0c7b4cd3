"""Machines that joined a pool: invited, listed, labelled, drained and removed by an admin."""

from __future__ import annotations

import hashlib
import ssl
from datetime import datetime, timedelta
from pathlib import Path

from paddlecloud.db.engine.base import Tx
from paddlecloud.db.tables import agent_keys, agents, attempts, machines
from paddlecloud.db.tables.agents import Agent
from paddlecloud.db.tables.machines import Machine
from paddlecloud.model.errors import Conflict, Invalid, NotFound
from paddlecloud.model.jobs.job import NOTHING, Resources
from paddlecloud.server.deps import Deps
from paddlecloud.server.http.auth import Caller
from paddlecloud.server.schemas.machines import (
    InviteAnswer,
    InviteRequest,
    MachineChange,
    MachineView,
)
from paddlecloud.server.services.accounts.audit import record
from paddlecloud.server.services.agents import join, lost_agents, package
from paddlecloud.server.services.jobs.views import iso

DRAINED = "drained by {user}"
MOST_LABELS = 50


def invite(deps: Deps, caller: Caller, request: InviteRequest) -> InviteAnswer:
    """A token with which machines join a pool, and all that the line to paste there needs."""
    lifetime = timedelta(seconds=request.ttl)
    expires_at = deps.clock() + lifetime
    token = join.create_token(deps, caller, request.pool, uses=request.uses, lifetime=lifetime)
    return InviteAnswer(
        pool=request.pool,
        token=token,
        uses=request.uses,
        expires_at=iso(expires_at),
        url=deps.url,
        tls_sha256=_certificate_sha256(deps) if deps.url.startswith("https:") else "",
        agent_sha256=package.package()[1],
    )


def list_machines(deps: Deps, pool: str | None = None) -> list[MachineView]:
    """All machines that joined, by pool and name."""

    def read(tx: Tx) -> list[MachineView]:
        return _views(tx, deps, [m for m in machines.list_machines(tx) if pool in (None, m.pool)])

    return deps.db.read(read)


def get(deps: Deps, name: str) -> MachineView:
    return deps.db.read(lambda tx: _views(tx, deps, [_known(tx, name)])[0])


def change(deps: Deps, caller: Caller, name: str, request: MachineChange) -> MachineView:
    """Set labels; take no new jobs there, or take them again. Running jobs go on."""
    now = deps.clock()

    def write(tx: Tx) -> None:
        machine = _known(tx, name)
        if request.labels is not None:
            changed = {**machine.labels, **request.labels}
            labels = {key: value for key, value in changed.items() if value is not None}
            if len(labels) > MOST_LABELS:
                raise Invalid("machine_labels", count=len(labels), limit=MOST_LABELS)
            machines.set_labels(tx, name, labels)
            record(tx, caller, now, "machine.label", name, {"labels": ", ".join(sorted(labels))})
        if request.drained is not None:
            reason = request.reason or DRAINED.format(user=caller.user_id)
            machines.set_drained(tx, name, reason if request.drained else None)
            action = "machine.drain" if request.drained else "machine.undrain"
            record(tx, caller, now, action, name, {"reason": request.reason})

    deps.db.write(write)
    deps.caches.machines.clear()
    return get(deps, name)


def remove(deps: Deps, caller: Caller, name: str) -> None:
    """Revoke the machine's key at once; its replicas are lost."""
    _remove(deps, caller, name, "machine.remove")


def leave(deps: Deps, caller: Caller, *, force: bool) -> str:
    """The machine of this agent leaves: as `remove`, but Conflict while jobs run there."""
    name = caller.node
    view = get(deps, name)
    if view.jobs and not force:
        raise Conflict("machine_busy", name=name, jobs=", ".join(view.jobs[:5]))
    _remove(deps, caller, name, "machine.leave")
    return name


def _remove(deps: Deps, caller: Caller, name: str, action: str) -> None:
    now = deps.clock()

    def write(tx: Tx) -> datetime | None:
        machine, agent = _known(tx, name), agents.get_agent(tx, name)
        agent_keys.revoke_keys(tx, name, now)
        machines.delete(tx, name)
        record(tx, caller, now, action, name, {"pool": machine.pool})
        return agent.seen_at if agent is not None else None

    seen_at = deps.db.write(write)
    deps.caches.machines.clear()
    lost_agents.mark_lost(deps, name, seen_at)
    deps.db.write(lambda tx: agents.delete(tx, name))
    deps.caches.machines.clear()


def _known(tx: Tx, name: str) -> Machine:
    found = machines.get(tx, name)
    if found is None:
        raise NotFound("machine_unknown", name=name[:100])
    return found


def _views(tx: Tx, deps: Deps, found: list[Machine]) -> list[MachineView]:
    contacts = {agent.id: agent for agent in agents.list_agents(tx)}
    used, jobs = attempts.used_on_nodes(tx), _jobs_by_node(tx)
    return [
        _view(deps, each, contacts.get(each.name), used.get(each.name, NOTHING), jobs)
        for each in found
    ]


def _jobs_by_node(tx: Tx) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for attempt in attempts.live_attempts(tx):
        for node in {replica.node for replica in attempt.replicas if not replica.over}:
            found.setdefault(node, []).append(attempt.job_id)
    return found


def _view(
    deps: Deps, machine: Machine, agent: Agent | None, used: Resources, jobs: dict[str, list[str]]
) -> MachineView:
    theirs = jobs.get(machine.name, [])
    has = agent.capacity if agent is not None else NOTHING
    return MachineView(
        name=machine.name,
        pool=machine.pool,
        state=_state(deps, machine, agent, theirs),
        reason=machine.drained or "",
        labels=dict(machine.labels),
        address=agent.host if agent is not None else "",
        version=agent.version if agent is not None else "",
        cpu=has.cpu,
        memory=has.memory,
        gpu=has.gpu,
        used_cpu=used.cpu,
        used_memory=used.memory,
        used_gpu=used.gpu,
        enforces=dict(agent.enforces) if agent is not None else {},
        jobs=theirs,
        joined_at=iso(machine.joined_at),
        seen_at=iso(agent.seen_at) if agent is not None else None,
    )


def _state(deps: Deps, machine: Machine, agent: Agent | None, jobs: list[str]) -> str:
    if agent is None:
        return "new"
    if deps.unreachable(agent):
        return "unreachable"
    if machine.drained is None:
        return "ready"
    return "draining" if jobs else "drained"


def _certificate_sha256(deps: Deps) -> str:
    """Of the certificate that this server shows, the first in its file; empty: another program
    in front of it has the certificate."""
    if not deps.settings.http.tls_cert:
        return ""
    text = Path(deps.settings.http.tls_cert).read_text("utf-8")
    end = "-----END CERTIFICATE-----"
    first = text[text.index("-----BEGIN CERTIFICATE-----") : text.index(end) + len(end)]
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(first)).hexdigest()
