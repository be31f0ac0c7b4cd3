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
from functools import lru_cache

from starlette.requests import Request

from paddlecloud.db import tokens
from paddlecloud.db.nonces import WriteBehindNonces
from paddlecloud.model import signing
from paddlecloud.model.errors import Unauthenticated
from paddlecloud.server.deps import Deps
from paddlecloud.server.threads import in_thread

REQUIRED = ("host", signing.CONTENT_SHA256, signing.NONCE)
EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_REMEMBERED_SECONDS = 3.0
WRITE_BEHIND = 0.1
"""Seconds that a spent nonce may be in memory alone."""


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
        self._revocations = 0
        self._flush_pending = False
        self._nonces = WriteBehindNonces(deps.db, deps.clock())
        self._unsubscribe = deps.db.subscribe(self._forget)

    def close(self) -> None:
        """Write down what was only in memory. The event loop that served is over."""
        self._unsubscribe()
        self._nonces.flush(self._deps.clock())

    async def admit(self, request: Request, headers: Mapping[str, str], kind: str) -> Caller:
        """The caller of a request whose signature holds and whose nonce is new."""
        auth = signing.parse(headers.get("authorization"))
        if auth.expire > signing.DEFAULT_EXPIRE:
            limit = signing.DEFAULT_EXPIRE
            raise Unauthenticated("auth_expire_long", expire=auth.expire, limit=limit)
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
        self._spend(auth, headers[signing.NONCE])
        return caller

    async def _caller(self, ak: str, now: float) -> Caller | None:
        until, caller = self._known.get(ak, (0.0, None))
        if until - _REMEMBERED_SECONDS <= now < until:  # not from before the clock was set back
            return caller
        revocations = self._revocations
        found = await in_thread(self._deps.db.read, lambda tx: tokens.find_token(tx, ak))
        caller = (
            Caller(ak=found.ak, user_id=found.user_id, kind=found.kind.value, role=found.role.value)
            if found
            else None
        )
        if caller is not None and revocations == self._revocations:
            self._known[ak] = (now + _REMEMBERED_SECONDS, caller)
        return caller

    def _forget(self, channel: str, ak: str) -> None:
        """A key was made or revoked: ask the database for it again. Called from any thread."""
        if channel == "token":
            self._revocations += 1
            self._known.pop(ak, None)

    def _spend(self, auth: signing.Authorization, nonce: str) -> None:
        if not self._nonces.spend(auth.ak, nonce[:64], auth.expires_at):
            raise Unauthenticated("auth_replay")
        self._flush_later()

    def _flush_later(self) -> None:
        if not self._flush_pending:
            self._flush_pending = True
            asyncio.get_running_loop().call_later(WRITE_BEHIND, self._flush)

    def _flush(self) -> None:
        """Hand the nonces that were spent since the last time to the database."""
        self._flush_pending = False
        if not self._nonces.flush(self._deps.clock()):
            self._flush_later()


@lru_cache(maxsize=1024)
def secret_of(server_key: bytes, ak: str) -> str:
    return hmac.new(server_key, b"sk:" + ak.encode(), hashlib.sha256).hexdigest()


def check_host(host: str, own: str) -> None:
    """A page in a browser that resolves its own name to us sends that name: refuse it."""
    name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
    if name.strip("[]") not in (*_LOOPBACK, own):
        shown = host[:200].encode("ascii", "backslashreplace").decode()
        raise Unauthenticated("auth_host", host=shown)
