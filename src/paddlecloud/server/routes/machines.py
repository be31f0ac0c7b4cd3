"""Routes of machines that join a pool, and of pools that an admin adds."""

from __future__ import annotations

from starlette.responses import Response

from paddlecloud.model.errors import NotFound
from paddlecloud.server.deps import Deps
from paddlecloud.server.http.routing import BYTES, Access, Call, Router
from paddlecloud.server.schemas.agent import LeaveRequest
from paddlecloud.server.schemas.machines import (
    InviteAnswer,
    InviteRequest,
    MachineChange,
    MachinesAnswer,
    MachineView,
    PoolAnswer,
    PoolRequest,
    RemovedMachine,
)
from paddlecloud.server.services import machines
from paddlecloud.server.services.admin import pools
from paddlecloud.server.services.agents import package

_MACHINES = "/api/v1/admin/machines"
router = Router()


@router.get(_MACHINES, "Machines that joined a pool", admin=True)
def machine_list(deps: Deps, _call: Call) -> MachinesAnswer:
    return MachinesAnswer(machines=machines.list_machines(deps))


@router.post(
    "/api/v1/admin/invites",
    "A token with which machines join a pool; it is shown this once",
    admin=True,
    body=InviteRequest,
)
def invite(deps: Deps, call: Call) -> InviteAnswer:
    return machines.invite(deps, call.caller, call.body)


@router.get(_MACHINES + "/{name}", "One machine", admin=True)
def machine_show(deps: Deps, call: Call) -> MachineView:
    return machines.get(deps, call.path["name"])


@router.post(
    _MACHINES + "/{name}", "Label, drain or undrain a machine", admin=True, body=MachineChange
)
def machine_change(deps: Deps, call: Call) -> MachineView:
    return machines.change(deps, call.caller, call.path["name"], call.body)


@router.post(
    _MACHINES + "/{name}/remove", "Revoke a machine's key; its replicas are lost", admin=True
)
def machine_remove(deps: Deps, call: Call) -> RemovedMachine:
    machines.remove(deps, call.caller, call.path["name"])
    return RemovedMachine(name=call.path["name"])


@router.post("/api/v1/admin/pools", "Add a pool", admin=True, body=PoolRequest)
def pool_create(deps: Deps, call: Call) -> PoolAnswer:
    return PoolAnswer(name=pools.create(deps, call.caller, call.body.name, call.body.options).name)


@router.post("/api/v1/admin/pools/{name}/delete", "Delete a pool that was added", admin=True)
def pool_delete(deps: Deps, call: Call) -> PoolAnswer:
    pools.delete(deps, call.caller, call.path["name"])
    return PoolAnswer(name=call.path["name"])


@router.get("/api/v1/agent/machine", "The machine of this agent", access=Access.AGENT)
def own_machine(deps: Deps, call: Call) -> MachineView:
    return machines.get(deps, call.caller.node)


@router.post("/api/v1/agent/leave", "Leave the pool", access=Access.AGENT, body=LeaveRequest)
def leave(deps: Deps, call: Call) -> RemovedMachine:
    return RemovedMachine(name=machines.leave(deps, call.caller, force=call.body.force))


@router.get(
    "/api/v1/agent/package/{sha256}", "The agent as one file", access=Access.OPEN, media=BYTES
)
def agent_package(_deps: Deps, call: Call) -> Response:
    content, sha256 = package.package()
    if call.path["sha256"] != sha256:
        raise NotFound("agent_package_unknown", sha256=call.path["sha256"][:64])
    return Response(content, media_type=BYTES, headers={"cache-control": "max-age=31536000"})
