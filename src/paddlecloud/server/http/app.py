"""The ASGI application: checks and decodes every request, calls its route, encodes the response.

A plain route runs in a thread; only streaming routes run in the event loop.
"""

from __future__ import annotations

import logging
import re
import secrets
import time
from collections.abc import Mapping
from dataclasses import replace

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import compile_path
from starlette.types import Receive, Scope, Send

from paddlecloud.db.tables.bearer_tokens import METRICS
from paddlecloud.model.errors import Internal, NotFound, PaddleCloudError, TooMany
from paddlecloud.model.jobs.references import is_job_id
from paddlecloud.model.protocol import bce_auth
from paddlecloud.server.deps import Deps
from paddlecloud.server.http.auth import (
    NO_CALLER,
    SignatureAuthenticator,
    authenticate,
    source_of,
)
from paddlecloud.server.http.executors import in_long_thread, in_thread
from paddlecloud.server.http.metrics_auth import BearerAuthenticator
from paddlecloud.server.http.origin_check import OriginCheck
from paddlecloud.server.http.permissions import check_rights
from paddlecloud.server.http.request_body import (
    decode_body,
    decode_query,
    inflated,
    read_body,
    signed_body,
)
from paddlecloud.server.http.routing import Access, Call, Cut, Route, json_response
from paddlecloud.server.route_table import ROUTES
from paddlecloud.server.services.jobs import references

log = logging.getLogger(__name__)


class App:
    """Every response, errors too, is made in one place, so it needs neither Starlette's router nor
    its middleware, which take a third of a small request."""

    def __init__(self, deps: Deps) -> None:
        self._deps = deps
        self._origin_check = OriginCheck(deps.settings)
        self._signatures = SignatureAuthenticator(deps)
        self._authenticators = (BearerAuthenticator(deps), self._signatures)
        self._own_name = (b"x-paddlecloud-server", deps.boot.encode())
        self._fixed: dict[tuple[str, str], Route] = {}
        self._patterns: dict[str, list[tuple[re.Pattern[str], Route]]] = {}
        for route in ROUTES:
            if "{" in route.path:
                # DOTALL: a file name may contain any character, a line end too.
                pattern = re.compile(compile_path(route.path)[0].pattern, re.DOTALL)
                self._patterns.setdefault(route.method, []).append((pattern, route))
            else:
                self._fixed[route.method, route.path] = route

    def close(self) -> None:
        """Store what was only in memory. The event loop has ended."""
        self._signatures.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        request, request_id = Request(scope, receive, send), secrets.token_hex(8)
        found = self._find(scope["method"], scope["path"])
        response = await self._answer(request, request_id, *found)
        try:
            await response(scope, receive, send)
        except PaddleCloudError as error:  # a store failed in the middle of a file
            log.warning("request %s was cut: %s: %s", request_id, scope["path"][:200], error)
            raise Cut(error.code) from error

    def _find(self, method: str, path: str) -> tuple[Route | None, Mapping[str, str]]:
        fixed = self._fixed.get((method, path))
        if fixed is not None:
            return fixed, {}
        for pattern, route in self._patterns.get(method, ()):
            match = pattern.match(path)
            if match is not None:
                return route, match.groupdict()
        return None, {}

    async def _answer(
        self, request: Request, request_id: str, route: Route | None, path: Mapping[str, str]
    ) -> Response:
        began = time.perf_counter()
        try:
            headers = bce_auth.header_map(request.scope["headers"])
            self._origin_check.check(headers)
            if route is None:
                where = request.scope["path"][:200]
                raise NotFound("route_unknown", method=request.method, path=where)
            response = await self._handle(route, request, headers, path, request_id)
        except PaddleCloudError as error:
            response = self._failure(error, request, request_id)
        except ModuleNotFoundError as error:  # some packages are imported by those who need them
            missing = Internal("server_package_missing", package=error.name or str(error))
            log.error("request %s: %s", request_id, missing)
            response = self._failure(missing, request, request_id)
        except Exception:
            log.exception("request %s failed: %s", request_id, request.scope["path"])
            internal = Internal("internal", request_id=request_id)
            response = self._failure(internal, request, request_id)
        response.raw_headers += [(b"x-request-id", request_id.encode()), self._own_name]
        spent = time.perf_counter() - began
        place = route.path if route else "unknown"
        self._deps.metrics.answered(request.method, place, response.status_code, spent)
        level = logging.INFO if response.status_code >= 500 else logging.DEBUG
        if log.isEnabledFor(level):
            where = request.scope["path"][:200]
            line = (request_id, request.method, where, response.status_code, spent * 1000)
            log.log(level, "request %s: %s %s answered %d in %.1f ms", *line)
        return response

    async def _handle(
        self,
        route: Route,
        request: Request,
        headers: Mapping[str, str],
        path: Mapping[str, str],
        request_id: str,
    ) -> Response:
        if route.access is Access.OPEN:
            caller = replace(NO_CALLER, source=source_of(request))
        else:
            caller = await authenticate(self._authenticators, request, headers)
            check_rights(caller, route.access.value, writes=route.writes, admin=route.admin)
        resolved = ""
        if route.access is Access.USER and "job_id" in path and not is_job_id(path["job_id"]):
            resolved = await in_thread(references.resolve, self._deps, caller, path["job_id"])
            path = {**path, "job_id": resolved}
        lang = _language(headers.get("accept-language", ""))
        query: object = None
        if route.query is not None:
            query = decode_query(request.query_params.multi_items(), route.query, lang)
        # A bearer token is for a GET, and nothing vouches for a body.
        is_signed = caller.kind != METRICS
        call = Call(
            caller=caller,
            lang=lang,
            request_id=request_id,
            path=path,
            headers=headers,
            query=query,
            body=await self._body(route, request, headers, lang) if is_signed else None,
        )
        if route.streaming is not None:
            result = await route.streaming(self._deps, call, request)
        else:
            assert route.plain is not None
            run = in_long_thread if route.long else in_thread
            result = await run(route.plain, self._deps, call)
        response = result if isinstance(result, Response) else json_response(result, route.status)
        if resolved:  # with the id a client repeats and continues requests about the same job
            response.raw_headers.append((b"x-job-id", resolved.encode()))
        return response

    async def _body(
        self, route: Route, request: Request, headers: Mapping[str, str], lang: str
    ) -> object:
        """The decoded JSON body; a streaming route without a schema reads its own."""
        if route.access is Access.OPEN:
            return decode_body(await read_body(request), route.body, lang) if route.body else None
        if route.streaming is not None and route.body is None and route.method != "GET":
            return None
        limit = self._deps.settings.http.max_json
        raw = await signed_body(request, headers, limit)
        if headers.get("content-encoding") == "deflate":
            raw = await in_long_thread(inflated, raw, limit)
        return decode_body(raw, route.body, lang) if route.body else None

    def _failure(self, error: PaddleCloudError, request: Request, request_id: str) -> Response:
        lang = _language(request.headers.get("accept-language", ""))
        wire = error.to_wire(lang) | {"request_id": request_id}
        response = json_response({"error": wire}, error.status)
        seconds = error.params.get("seconds")
        if isinstance(error, TooMany) and seconds is not None:
            response.headers["retry-after"] = str(seconds)
        return response


def _language(accepted: str) -> str:
    return "zh" if accepted.lower().startswith("zh") else "en"
