"""The server itself: health, who am I, metrics, the interface's description."""

from __future__ import annotations

from starlette.responses import Response

from paddlecloud import __version__
from paddlecloud.server.deps import Deps
from paddlecloud.server.http.openapi import document
from paddlecloud.server.http.routing import Access, Call, Router, json_response
from paddlecloud.server.metrics import CONTENT_TYPE
from paddlecloud.server.schemas.system import DoctorAnswer, Health, WhoAmI
from paddlecloud.server.services.admin import gauges, health
from paddlecloud.server.services.jobs.views import iso

router = Router()


@router.get("/healthz", "Is the server up?", access=Access.OPEN)
def healthz(deps: Deps, _call: Call) -> Health:
    now = deps.clock().timestamp()
    return Health(ok=True, version=__version__, boot=deps.boot, time=now)


@router.get("/api/v1/whoami", "Who am I?")
def whoami(deps: Deps, call: Call) -> WhoAmI:
    return WhoAmI(
        user_id=call.caller.user_id,
        ak=call.caller.ak,
        role=call.caller.role,
        server=deps.settings.name,
        version=__version__,
        time=iso(deps.clock()),
    )


@router.get("/metrics", "Prometheus metrics", access=Access.METRICS, media="text/plain")
def metrics(deps: Deps, call: Call) -> Response:
    """Per-user figures: users who are not admins see only their own."""
    only = call.caller.user_id if call.caller.kind == "user" and not call.caller.is_admin else None
    return Response(deps.metrics.render(gauges.measure(deps, only)), media_type=CONTENT_TYPE)


@router.get("/api/v1/doctor", "Check every link", long=True)
def doctor(deps: Deps, call: Call) -> DoctorAnswer:
    caller = call.caller
    return DoctorAnswer(
        checks=health.checks(deps, caller.user_id, call.lang, all_of_it=caller.is_admin)
    )


@router.get("/api/v1/openapi.json", "This document")
def openapi(_deps: Deps, _call: Call) -> Response:
    from paddlecloud.server.route_table import ROUTES as ALL  # noqa: PLC0415 - the table holds us too

    return json_response(document(ALL))
