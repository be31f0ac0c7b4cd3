"""Authentication by bearer token, for programs that cannot sign requests, such as Prometheus.

A token is good for the routes of its scope only. It is looked up for every request, so a revoked
one ends at once on every server.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import partial

from starlette.requests import Request

from paddlecloud.db.tables import bearer_tokens
from paddlecloud.model.errors import Unauthenticated
from paddlecloud.server.deps import Deps
from paddlecloud.server.http.auth import Caller, source_of
from paddlecloud.server.http.executors import in_thread


class BearerAuthenticator:
    def __init__(self, deps: Deps) -> None:
        self._deps = deps

    async def authenticate(self, request: Request, headers: Mapping[str, str]) -> Caller | None:
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            return None
        db, now = self._deps.db, self._deps.clock()
        digest = digest_of(given.strip())
        token = await in_thread(db.read, lambda tx: bearer_tokens.find(tx, digest))
        if token is None:
            raise Unauthenticated("auth_bearer_unknown")
        if bearer_tokens.is_use_due(token, now):
            db.submit(partial(bearer_tokens.note_use, ak=token.ak, now=now), durable=False)
        return Caller(ak=token.ak, kind=token.scope, source=source_of(request))


def digest_of(token: str) -> str:
    """What is stored of a token. Tokens are random and long, so a plain hash is enough."""
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()
