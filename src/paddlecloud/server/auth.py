"""Who is calling: the signature, the body's hash, the nonce and the Host header of a request.

The secret keys are not stored: each is derived from its access key and the server's own key, so a
copied database opens nothing. Known access keys are remembered for a few seconds, because every
request needs one.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from paddlecloud.db import coordination, tokens
from paddlecloud.db.base import Tx
from paddlecloud.model import signing
from paddlecloud.model.errors import Retry, Unauthenticated
from paddlecloud.server.deps import Deps

REQUIRED = ("host", signing.CONTENT_SHA256, signing.NONCE)
EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_REMEMBERED_SECONDS = 3.0


@dataclass(frozen=True, kw_only=True)
class Caller:
    ak: str
    user_id: str
    kind: str
    role: str


NOBODY = Caller(ak="", user_id="", kind="", role="")


class Gate:
    """Lets signed requests in. One per server."""

    def __init__(self, deps: Deps) -> None:
        self._deps = deps
        self._known: dict[str, tuple[float, Caller | None]] = {}

    async def admit(self, request: Request, headers: Mapping[str, str], kind: str) -> Caller:
        """The caller of a request whose signature holds and whose nonce is new."""
        auth = signing.parse(headers.get("authorization"))
        now = self._deps.clock()
        caller = await self._caller(auth.ak, now.timestamp())
        signing.verify(
            auth,
            secret_of(self._deps.server_key, auth.ak) if caller else None,
            request.method,
            request.scope["raw_path"].decode("latin-1"),
            request.scope["query_string"].decode("latin-1"),
            headers,
            now.timestamp(),
            REQUIRED,
        )
        assert caller is not None
        if caller.kind != kind:
            raise Unauthenticated("auth_role", ak=caller.ak, role=caller.kind)
        await self._spend(request.method, auth, headers[signing.NONCE])
        return caller

    async def _caller(self, ak: str, now: float) -> Caller | None:
        until, caller = self._known.get(ak, (0.0, None))
        if now < until:
            return caller
        found = await run_in_threadpool(self._deps.db.read, lambda tx: tokens.find_token(tx, ak))
        caller = (
            Caller(ak=found.ak, user_id=found.user_id, kind=found.kind.value, role=found.role.value)
            if found
            else None
        )
        if caller is not None:
            self._known[ak] = (now + _REMEMBERED_SECONDS, caller)
        return caller

    async def _spend(self, method: str, auth: signing.Authorization, nonce: str) -> None:
        expires = datetime.fromtimestamp(auth.expires_at, UTC)

        def spend(tx: Tx) -> bool:
            return coordination.spend_nonce(tx, auth.ak, nonce[:64], expires)

        try:
            new = await asyncio.wrap_future(self._deps.db.submit(spend, durable=False))
        except Retry:
            # A full disk must not keep people from looking at their jobs.
            if method != "GET":
                raise
            new = True
        if not new:
            raise Unauthenticated("auth_replay")


def secret_of(server_key: bytes, ak: str) -> str:
    return hmac.new(server_key, b"sk:" + ak.encode(), hashlib.sha256).hexdigest()


def check_host(host: str, own: str) -> None:
    """A page in a browser that resolves its own name to us sends that name: refuse it."""
    name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
    if name.strip("[]") not in (*_LOOPBACK, own):
        raise Unauthenticated("auth_host", host=host[:200])
