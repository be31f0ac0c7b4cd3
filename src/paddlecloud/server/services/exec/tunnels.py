"""Tunnels: byte streams between a client and a port of a worker, or a terminal beside it.

The server that a client is connected to offers the tunnel to the agent of the worker: every server
of the database is notified of it, and the one that the agent polls passes it on. The
agent connects to the port or to the terminal, and then to the server that made the offer, which
joins the two connections (`server/http/tunnel_relay.py`). The server never connects to an agent.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable

import msgspec

from paddlecloud.db.engine.base import Tx
from paddlecloud.db.tables.audit import Detail
from paddlecloud.model.errors import Conflict, Invalid, PaddleCloudError, Refused, Retry
from paddlecloud.model.jobs.job import Job, Replica
from paddlecloud.server.deps import Deps
from paddlecloud.server.http.auth import Caller
from paddlecloud.server.schemas.agent import TunnelOrder, TunnelRefusal
from paddlecloud.server.services.accounts.audit import record
from paddlecloud.server.services.exec import commands
from paddlecloud.server.services.exec.pending_tunnels import (
    CHANNEL,
    OFFER_SECONDS,
    Offer,
    PendingTunnel,
)
from paddlecloud.server.services.jobs import queries
from paddlecloud.server.services.jobs.settle import current_attempt


def find_worker(deps: Deps, caller: Caller, job_id: str, wanted: str | None) -> tuple[Job, Replica]:
    """The running worker of that name, by default the first, if this caller may see the job."""
    job = queries.get(deps, caller, job_id)
    attempt = deps.db.read(lambda tx: current_attempt(tx, job))
    return job, commands.running_worker(attempt, job, wanted)


def offer_port(
    deps: Deps, caller: Caller, job_id: str, wanted: str | None, port: int
) -> PendingTunnel:
    """Offer the agent of a running worker a tunnel to one of its ports."""
    job, replica = find_worker(deps, caller, job_id, wanted)
    if not port:
        raise Invalid("port_forward_missing")
    now, key = deps.clock(), (caller.ak, replica.id, port)
    is_new = deps.tunnels.audited.get(now, key) is None

    def audit(tx: Tx) -> None:
        if is_new:
            detail: Detail = {"owner": job.owner, "worker": replica.worker, "port": port}
            record(tx, caller, now, "job.port_forward", job.id, detail)

    pending = _offer(deps, caller, replica.id, replica.node, port=port, also=audit)
    deps.tunnels.audited.put(now, True, key)
    return pending


def offer_terminal(deps: Deps, caller: Caller, job_id: str, command_id: str) -> PendingTunnel:
    """Offer the agent of a command a tunnel to its terminal."""
    command = commands.get(deps, caller, job_id, command_id)
    if command.terminal is None:
        raise Invalid("exec_no_terminal", command=command.id)
    if command.ended_at is not None:
        raise Conflict("exec_ended", command=command.id)
    return _offer(deps, caller, command.replica, command.node, command=command.id)


def _offer(
    deps: Deps,
    caller: Caller,
    replica: str,
    node: str,
    *,
    port: int = 0,
    command: str = "",
    also: Callable[[Tx], None] = lambda _: None,
) -> PendingTunnel:
    order = TunnelOrder(
        id=secrets.token_hex(16),
        replica=replica,
        port=port,
        command=command,
        boot=deps.boot,
        url=deps.url,
    )
    offer = Offer(node=node, order=order)
    pending = PendingTunnel(offer=offer, caller=caller)
    deps.tunnels.begin(pending)

    def write(tx: Tx) -> None:
        also(tx)
        tx.notify(CHANNEL, msgspec.json.encode(offer).decode())

    try:
        deps.db.write(write, durable=False)
    except BaseException:
        deps.tunnels.end(pending)
        raise
    return pending


async def wait_for_agent(deps: Deps, pending: PendingTunnel, is_gone: Callable[[], bool]) -> None:
    """Return when the agent has connected; raises what it reports instead, or that it did not."""
    deadline = time.monotonic() + OFFER_SECONDS
    with deps.hub.waiter((CHANNEL, pending.id)) as waiter:
        while pending.end is None and pending.refusal is None:
            left = deadline - time.monotonic()
            if left <= 0 or is_gone() or deps.hub.closed:
                node, url = pending.offer.node, deps.url or "?"
                raise Retry("tunnel_agent_silent", node=node, url=url, seconds=OFFER_SECONDS)
            await waiter.wait(min(left, 1.0))
    deps.tunnels.stop_waiting(pending)
    if pending.refusal is not None:
        raise pending.refusal


def refuse(deps: Deps, node: str, tunnel_id: str, note: TunnelRefusal) -> None:
    """The agent cannot open a tunnel."""
    pending = deps.tunnels.find(node, tunnel_id)
    pending.refusal = _refusal(pending, note)
    deps.hub.notify(CHANNEL, tunnel_id)


def _refusal(pending: PendingTunnel, note: TunnelRefusal) -> PaddleCloudError:
    order = pending.offer.order
    worker = order.replica.rpartition(".")[2]
    job_id = order.replica.partition(".")[0]
    if note.cause == "closed":
        return Conflict("tunnel_port_closed", port=order.port, worker=worker, job_id=job_id)
    if note.cause == "foreign":
        return Refused("tunnel_port_foreign", port=order.port, worker=worker, job_id=job_id)
    if note.cause == "over":
        return Conflict("tunnel_worker_over", worker=worker, job_id=job_id)
    return Retry("tunnel_failed", worker=worker, reason=note.message[:300])
