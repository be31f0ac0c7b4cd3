"""The HTTP face: one entry for every route that checks, decodes, calls and answers.

Async ends here and in the streaming routes: a plain route runs in a thread and never sees the
event loop.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as StarletteRoute
from starlette.routing import Router

from paddlecloud.model import signing
from paddlecloud.model.errors import Internal, NotFound, PaddleCloudError
from paddlecloud.server.auth import NOBODY, Gate, check_host
from paddlecloud.server.deps import Deps
from paddlecloud.server.http import (
    Access,
    Call,
    Route,
    SignedBody,
    decode_body,
    decode_query,
    json_response,
)
from paddlecloud.server.routes import ROUTES

log = logging.getLogger(__name__)


def make_app(deps: Deps) -> Router:
    """The router alone: `Entry` answers every error itself, so no middleware is needed."""
    entry = Entry(deps)
    routes = [
        StarletteRoute(route.path, entry.endpoint(route), methods=[route.method])
        for route in ROUTES
    ]
    routes.append(StarletteRoute("/{path:path}", entry.unknown, methods=_METHODS))
    return Router(routes=routes)


_METHODS = ["GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS"]


class Entry:
    def __init__(self, deps: Deps) -> None:
        self._deps = deps
        self._gate = Gate(deps)

    def endpoint(self, route: Route) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            return await self._answer(route, request)

        return answer

    async def unknown(self, request: Request) -> Response:
        error = NotFound("route_unknown", method=request.method, path=request.url.path[:200])
        return self._failure(error, request, secrets.token_hex(8))

    async def _answer(self, route: Route, request: Request) -> Response:
        began = time.perf_counter()
        request_id = secrets.token_hex(8)
        try:
            response = await self._handle(route, request, request_id)
        except PaddleCloudError as error:
            response = self._failure(error, request, request_id)
        except Exception:
            log.exception("request %s %s %s failed", request_id, request.method, route.path)
            response = self._failure(Internal("internal"), request, request_id)
        response.headers["x-request-id"] = request_id
        response.headers["x-paddlecloud-server"] = self._deps.boot
        spent = time.perf_counter() - began
        self._count(route, response.status_code, spent)
        log.debug(
            "request %s %s %s -> %d in %.1f ms",
            request_id,
            request.method,
            request.url.path,
            response.status_code,
            spent * 1000,
        )
        return response

    async def _handle(self, route: Route, request: Request, request_id: str) -> Response:
        headers = signing.header_map(request.scope["headers"])
        check_host(headers.get("host", ""), self._deps.settings.http.host)
        caller = NOBODY
        if route.access is not Access.OPEN:
            caller = await self._gate.admit(request, headers, route.access.value)
        call = Call(
            caller=caller,
            lang=_language(request),
            request_id=request_id,
            path=request.path_params,
            headers=headers,
            query=decode_query(request.query_params, route.query) if route.query else None,
            body=await self._body(route, request, headers),
        )
        if route.streaming is not None:
            result = await route.streaming(self._deps, call, request)
        else:
            assert route.plain is not None
            result = await run_in_threadpool(route.plain, self._deps, call)
        return result if isinstance(result, Response) else json_response(result)

    async def _body(self, route: Route, request: Request, headers: Mapping[str, str]) -> object:
        """The decoded JSON body; a streaming route without a shape reads its own."""
        if route.access is Access.OPEN or (route.streaming is not None and route.body is None):
            return None
        raw = await SignedBody(request, headers).whole(self._deps.settings.http.max_json)
        return decode_body(raw, route.body) if route.body else None

    def _failure(self, error: PaddleCloudError, request: Request, request_id: str) -> Response:
        if isinstance(error, Internal):
            error = Internal("internal", request_id=request_id)
        wire = error.to_wire(_language(request)) | {"request_id": request_id}
        response = json_response({"error": wire}, error.status)
        response.headers["x-request-id"] = request_id
        response.headers["x-paddlecloud-server"] = self._deps.boot
        return response

    def _count(self, route: Route, status: int, spent: float) -> None:
        where = {"method": route.method, "route": route.path}
        self._deps.metrics.add("paddlecloud_requests_total", where | {"status": str(status)})
        self._deps.metrics.add("paddlecloud_request_seconds_sum", where, spent)


def _language(request: Request) -> str:
    return "zh" if request.headers.get("accept-language", "").lower().startswith("zh") else "en"
