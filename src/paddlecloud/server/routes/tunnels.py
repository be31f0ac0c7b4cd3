"""Tunnels to a port or a terminal of a worker: WebSockets of clients and of agents, joined here."""

from __future__ import annotations

from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from paddlecloud.model.errors import Invalid
from paddlecloud.server.deps import Deps
from paddlecloud.server.http.executors import in_thread
from paddlecloud.server.http.routing import BYTES, Access, Call, Router
from paddlecloud.server.http.tunnel_relay import (
    SwitchToTunnel,
    Tunnel,
    TunnelEnd,
    is_gone,
    websocket_key,
)
from paddlecloud.server.schemas.agent import TunnelRefusal
from paddlecloud.server.schemas.base import Answer
from paddlecloud.server.schemas.exec import PortForwardAnswer, PortForwardQuery, TunnelQuery
from paddlecloud.server.services.exec import commands, tunnels
from paddlecloud.server.services.exec.pending_tunnels import CHANNEL, PendingTunnel

router = Router()


@router.get(
    "/api/v1/jobs/{job_id}/port_forward",
    "The worker that ports are forwarded to",
    query=PortForwardQuery,
)
def worker(deps: Deps, call: Call) -> PortForwardAnswer:
    job, found = tunnels.find_worker(deps, call.caller, call.path["job_id"], call.query.worker)
    return PortForwardAnswer(job_id=job.id, worker=found.worker)


@router.get(
    "/api/v1/jobs/{job_id}/tunnel",
    "A WebSocket to a port of a worker",
    query=TunnelQuery,
    media=BYTES,
    status=101,
    acts=True,
)
async def port(deps: Deps, call: Call, request: Request) -> Response:
    key = websocket_key(call.headers, request.scope)
    job_id, query = call.path["job_id"], call.query
    if not key:
        await in_thread(tunnels.find_worker, deps, call.caller, job_id, query.worker)
        raise Invalid("tunnel_upgrade_missing")
    where = (job_id, query.worker, query.port)
    pending = await in_thread(tunnels.offer_port, deps, call.caller, *where)
    return await _joined(deps, pending, key, request)


@router.get(
    "/api/v1/jobs/{job_id}/commands/{command_id}/terminal",
    "A WebSocket to the terminal of a command",
    media=BYTES,
    status=101,
    acts=True,
)
async def terminal(deps: Deps, call: Call, request: Request) -> Response:
    key = websocket_key(call.headers, request.scope)
    job_id, command_id = call.path["job_id"], call.path["command_id"]
    if not key:
        await in_thread(commands.get, deps, call.caller, job_id, command_id)
        raise Invalid("tunnel_upgrade_missing")
    pending = await in_thread(tunnels.offer_terminal, deps, call.caller, job_id, command_id)
    return await _joined(deps, pending, key, request)


@router.get(
    "/api/v1/agent/tunnels/{tunnel_id}",
    "The agent's end of a tunnel, as a WebSocket",
    access=Access.AGENT,
    media=BYTES,
    status=101,
    acts=True,
)
async def agent_end(deps: Deps, call: Call, request: Request) -> Response:
    key = websocket_key(call.headers, request.scope)
    if not key:
        raise Invalid("tunnel_upgrade_missing")
    pending = deps.tunnels.find(call.caller.node, call.path["tunnel_id"])
    end = TunnelEnd()

    def opened() -> None:
        pending.end = call.caller, end
        deps.hub.notify(CHANNEL, pending.id)

    return SwitchToTunnel(key, end, opened)


@router.post(
    "/api/v1/agent/tunnels/{tunnel_id}/refuse",
    "Tell why a tunnel cannot be opened",
    access=Access.AGENT,
    body=TunnelRefusal,
)
def refuse(deps: Deps, call: Call) -> Answer:
    tunnels.refuse(deps, call.caller.node, call.path["tunnel_id"], call.body)
    return Answer()


async def _joined(deps: Deps, pending: PendingTunnel, key: str, request: Request) -> Response:
    """The client's end, once the agent's is there."""
    try:
        await tunnels.wait_for_agent(deps, pending, partial(is_gone, request.scope))
    except BaseException:
        deps.tunnels.end(pending)
        if pending.end is not None:
            pending.end[1].shutdown()
        raise
    assert pending.end is not None
    end = TunnelEnd()
    tunnel = Tunnel(deps, (pending.caller, end), pending.end, command=pending.offer.order.command)
    tunnel.on_end = partial(deps.tunnels.end, pending)
    return SwitchToTunnel(key, end, tunnel.start)
