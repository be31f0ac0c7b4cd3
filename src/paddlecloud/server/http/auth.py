"""Authentication: makes a `Caller` of a request.

Each `Authenticator` knows one kind of credentials: signatures here, others in `metrics_auth`.
Routes and permissions know only the `Caller`. Secret keys are not stored: each is derived from its
access key and the server's own key, so a copied database opens nothing.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache, partial
from typing import Protocol

from starlette.requests import Request

from paddlecloud.db.engine.base import EVERYTHING, CanAutocommit, CanDefer, Tx
from paddlecloud.db.tables import agent_keys, audit, tokens
from paddlecloud.db.tables.agent_keys import AgentIdentity
from paddlecloud.db.tables.nonces import Pruner, SharedNonces, WriteBehindNonces
from paddlecloud.db.tables.tokens import Scope
from paddlecloud.db.tables.users import UserRole
from paddlecloud.model.errors import Unauthenticated
from paddlecloud.model.protocol import bce_auth
from paddlecloud.server.deps import Deps
from paddlecloud.server.http.executors import in_thread

REQUIRED = ("host", bce_auth.CONTENT_SHA256, bce_auth.NONCE)
_CACHE_SECONDS = 3.0
_CACHE_SIZE = 10_000
_USE_SECONDS = tokens.USE_STEP.total_seconds()
WRITE_BEHIND = 0.1
"""Seconds for which the nonce of a request that wrote nothing may be in memory only."""


@dataclass(frozen=True, kw_only=True)
class Caller:
    """Who makes a request: a user, an agent, a worker of a job, or a program that reads metrics."""

    ak: str
    kind: str
    """user, agent, job or metrics; a route is for one of them."""
    user_id: str = ""
    """The user, or the owner of the job; empty for others."""
    role: str = ""
    scope: str = Scope.FULL.value
    source: str = ""
    """Network address that the request came from."""
    agent: AgentIdentity | None = None
    unused_mail: bool = False

    @property
    def is_admin(self) -> bool:
        return self.role == UserRole.ADMIN

    @property
    def node(self) -> str:
        """The machine of an agent."""
        assert self.agent is not None  # routes for agents are called by agents only
        return self.agent.node


NO_CALLER = Caller(ak="", kind="")
ANONYMOUS = "anonymous"
"""The actor in the audit log of requests without authentication."""


class Authenticator(Protocol):
    async def authenticate(self, request: Request, headers: Mapping[str, str]) -> Caller | None:
        """The caller; None if the request has no credentials of this kind. Unauthenticated if they
        are not valid."""


async def authenticate(
    authenticators: Sequence[Authenticator], request: Request, headers: Mapping[str, str]
) -> Caller:
    """The caller, by the first authenticator that finds credentials."""
    for each in authenticators:
        caller = await each.authenticate(request, headers)
        if caller is not None:
            return caller
    raise Unauthenticated("auth_missing")


def find_caller(tx: Tx, ak: str) -> Caller | None:
    """The caller with this access key, if it is valid."""
    token = tokens.find_token(tx, ak)
    if token is not None:
        return Caller(
            ak=ak,
            kind=token.kind.value,
            user_id=token.user_id,
            role=token.role.value,
            scope=token.scope.value,
            unused_mail=token.unused_mail,
        )
    agent = agent_keys.find_key(tx, ak)
    return Caller(ak=ak, kind="agent", agent=agent) if agent is not None else None


class SignatureAuthenticator:
    """Checks the signature, the body's hash and the nonce of a request. One per server."""

    def __init__(self, deps: Deps) -> None:
        self._deps = deps
        self._cache: dict[str, tuple[float, Caller]] = {}
        self._used: dict[str, float] = {}
        """When the use of a key was last sent to the database."""
        self._changes = 0
        self._flush_pending = False
        self._nonces = _nonces(deps)
        self._pruner = Pruner(deps.db, deps.clock(), time.monotonic())
        self._unsubscribe = deps.db.subscribe(self._key_changed)

    def close(self) -> None:
        """Store the nonces that are in memory only. The event loop has ended."""
        self._unsubscribe()
        self._nonces.close()

    async def authenticate(self, request: Request, headers: Mapping[str, str]) -> Caller | None:
        authorization = headers.get("authorization")
        if not authorization:
            return None
        auth = bce_auth.parse(authorization)
        if auth.expire > bce_auth.DEFAULT_EXPIRE:
            limit = bce_auth.DEFAULT_EXPIRE
            raise Unauthenticated("auth_expire_long", expire=auth.expire, limit=limit)
        now = self._deps.clock()
        caller = await self._caller(auth.ak, now.timestamp(), source_of(request))
        self._verify(auth, caller is not None, request, headers, now.timestamp())
        assert caller is not None
        nonce = headers[bce_auth.NONCE]
        bce_auth.check_nonce(nonce)
        await self._spend(auth, nonce, now)
        self._note_use(caller, now)
        return caller

    def _verify(
        self,
        auth: bce_auth.Authorization,
        known: bool,
        request: Request,
        headers: Mapping[str, str],
        now: float,
    ) -> None:
        """Raise unless the signature is right under the key of this server or an earlier one."""
        keys = (self._deps.server_key, *self._deps.old_keys)
        for key in keys:
            try:
                bce_auth.verify(
                    auth,
                    secret_of(key, auth.ak) if known else None,
                    request.method,
                    request.scope["raw_path"].decode("latin-1"),
                    request.scope["query_string"].decode("latin-1"),
                    headers,
                    now,
                    _required(headers),
                )
            except Unauthenticated as error:
                if error.code != "auth_signature" or key is keys[-1]:
                    raise
            else:
                return

    def _note_use(self, caller: Caller, now: datetime) -> None:
        """Have the database store the use of a user's key, without waiting for it.

        The first use of a mailed key revokes earlier ones. The request for it does not, because
        a key can be requested for any address, by anyone.
        """
        if caller.kind != "user":
            return
        seconds = now.timestamp()
        used = self._used.get(caller.ak)
        if used is not None and not caller.unused_mail and 0 <= seconds - used < _USE_SECONDS:
            return
        self._used[caller.ak] = seconds
        replaces = caller.unused_mail and self._deps.settings.tokens.again == "replace"
        self._deps.db.submit(partial(note_use, caller, now, replaces), durable=caller.unused_mail)

    async def _caller(self, ak: str, now: float, source: str) -> Caller | None:
        until, caller = self._cache.get(ak, (0.0, NO_CALLER))
        if not until - _CACHE_SECONDS <= now < until:  # nor from before the clock was set back
            changes = self._changes
            found = await in_thread(self._deps.db.read, lambda tx: find_caller(tx, ak))
            if found is None:
                return None
            caller = found
            if len(self._cache) >= _CACHE_SIZE:
                self._cache.clear()
            if changes == self._changes:
                self._cache[ak] = (now + _CACHE_SECONDS, caller)
        return caller if caller.source == source else replace(caller, source=source)

    def _key_changed(self, channel: str, ak: str) -> None:
        """Evict a key that may have changed: all of them after notifications may have been lost.
        Called from any thread."""
        if channel == "token":
            self._changes += 1
            self._cache.pop(ak, None)
        elif channel == EVERYTHING:
            self._changes += 1
            self._cache.clear()

    async def _spend(self, auth: bce_auth.Authorization, nonce: str, now: datetime) -> None:
        nonces = self._nonces
        pruned = self._pruner.prune(now, time.monotonic())
        if isinstance(nonces, SharedNonces):
            new = await asyncio.wrap_future(nonces.spend(auth.ak, nonce, auth.expires_at))
        else:
            new = nonces.spend(auth.ak, nonce, auth.expires_at)
            self._flush_later(nonces)
            if pruned is not None:
                nonces.evict(pruned)
        if not new:
            raise Unauthenticated("auth_replay")

    def _flush_later(self, nonces: WriteBehindNonces) -> None:
        if not self._flush_pending:
            self._flush_pending = True
            asyncio.get_running_loop().call_later(WRITE_BEHIND, self._flush, nonces)

    def _flush(self, nonces: WriteBehindNonces) -> None:
        """Have the database write the nonces that no other commit has written."""
        self._flush_pending = False
        if not nonces.flush():
            self._flush_later(nonces)


def _nonces(deps: Deps) -> SharedNonces | WriteBehindNonces:
    if isinstance(deps.db, CanAutocommit):
        return SharedNonces(deps.db)
    assert isinstance(deps.db, CanDefer)  # a database is one or the other
    return WriteBehindNonces(deps.db, deps.clock())


def _required(headers: Mapping[str, str]) -> tuple[str, ...]:
    """Headers that a signature has to cover: all x-bce headers, and the checksum of a body without
    a digest."""
    ours = (name for name in headers if name.startswith("x-bce-"))
    unsigned = headers.get(bce_auth.CONTENT_SHA256) == bce_auth.UNSIGNED
    return (*REQUIRED, *ours, bce_auth.CONTENT_CRC32) if unsigned else (*REQUIRED, *ours)


def source_of(request: Request) -> str:
    """The network address at the other end of the connection."""
    client = request.scope.get("client")
    return str(client[0]) if client else ""


def network_of(source: str) -> str:
    """What a rate limit counts by: an IPv4 address, or the /64 network of an IPv6 address."""
    try:
        address = ipaddress.ip_address(source)
    except ValueError:
        return source
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, 64), strict=False))


def note_use(caller: Caller, now: datetime, replaces: bool, tx: Tx) -> None:
    """Store that a key was used; with `replaces`, its first use revokes older mailed ones."""
    if not tokens.note_use(tx, caller.ak, now) or not replaces:
        return
    for ak in tokens.revoke_older_mailed(tx, caller.ak, now):
        audit.record(
            tx,
            at=now,
            actor=caller.user_id,
            source=caller.source,
            action="token.replace",
            target=caller.user_id,
            detail={"ak": ak, "by": caller.ak},
        )


@lru_cache(maxsize=1024)
def secret_of(server_key: bytes, ak: str) -> str:
    return hmac.new(server_key, b"sk:" + ak.encode(), hashlib.sha256).hexdigest()
