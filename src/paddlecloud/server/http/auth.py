"""Who is calling: the signature, the body's hash and the nonce of a request.

The secret keys are not stored: each is derived from its access key and the server's own key, so a
copied database opens nothing. Known access keys are remembered for a few seconds, because every
request needs one.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache, partial

from starlette.requests import Request

from paddlecloud.db.engine.base import EVERYTHING, CanAutocommit, CanDefer, Tx
from paddlecloud.db.tables import audit, tokens
from paddlecloud.db.tables.nonces import Pruner, SharedNonces, WriteBehindNonces
from paddlecloud.db.tables.tokens import Scope, TokenKind
from paddlecloud.db.tables.users import UserRole
from paddlecloud.model.errors import Unauthenticated
from paddlecloud.model.protocol import bce_auth
from paddlecloud.server.deps import Deps
from paddlecloud.server.http.executors import in_thread

REQUIRED = ("host", bce_auth.CONTENT_SHA256, bce_auth.NONCE)
_REMEMBERED_SECONDS = 3.0
_MOST_REMEMBERED = 10_000
_NOTED_SECONDS = tokens.USE_STEP.total_seconds()
WRITE_BEHIND = 0.1
"""Seconds that the nonce of a request that wrote nothing may be in memory alone."""


@dataclass(frozen=True, kw_only=True)
class Caller:
    ak: str
    user_id: str
    kind: str
    role: str
    scope: str = Scope.FULL.value
    source: str = ""
    """Network address that the request came from."""
    unused_mail: bool = False

    @property
    def is_admin(self) -> bool:
        return self.role == UserRole.ADMIN


NOBODY = Caller(ak="", user_id="", kind="", role="")
ANONYMOUS = "anonymous"
"""Who did what nobody signed, in the audit."""


class Gate:
    """Lets signed requests in. One per server."""

    def __init__(self, deps: Deps) -> None:
        self._deps = deps
        self._known: dict[str, tuple[float, Caller | None]] = {}
        self._noted: dict[str, float] = {}
        """When the use of a key was last handed to the database."""
        self._revocations = 0
        self._flush_pending = False
        self._nonces = _nonces(deps)
        self._pruner = Pruner(deps.db, deps.clock(), time.monotonic())
        self._unsubscribe = deps.db.subscribe(self._forget)

    def close(self) -> None:
        """Write down what was only in memory. The event loop that served is over."""
        self._unsubscribe()
        self._nonces.close()

    async def admit(self, request: Request, headers: Mapping[str, str], kind: str) -> Caller:
        """The caller of a request whose signature holds and whose nonce is new."""
        auth = bce_auth.parse(headers.get("authorization"))
        if auth.expire > bce_auth.DEFAULT_EXPIRE:
            limit = bce_auth.DEFAULT_EXPIRE
            raise Unauthenticated("auth_expire_long", expire=auth.expire, limit=limit)
        now = self._deps.clock()
        caller = await self._caller(auth.ak, now.timestamp(), source_of(request))
        self._verify(auth, caller is not None, request, headers, now.timestamp())
        assert caller is not None
        if caller.kind != kind:
            raise Unauthenticated("auth_role", ak=caller.ak, role=caller.kind)
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
        """Raise unless the signature is right under the key of this server or one of before."""
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
        """Have the database remember the use of a key; nobody waits for it.

        The first use of a mailed key is when it replaces those of before: not when it was asked
        for, because anybody can ask in anybody's name.
        """
        if caller.kind == TokenKind.JOB:
            return
        seconds = now.timestamp()
        noted = self._noted.get(caller.ak)
        if noted is not None and not caller.unused_mail and 0 <= seconds - noted < _NOTED_SECONDS:
            return
        self._noted[caller.ak] = seconds
        replaces = caller.unused_mail and self._deps.settings.tokens.again == "replace"
        self._deps.db.submit(partial(note_use, caller, now, replaces), durable=caller.unused_mail)

    async def _caller(self, ak: str, now: float, source: str) -> Caller | None:
        until, caller = self._known.get(ak, (0.0, None))
        if until - _REMEMBERED_SECONDS <= now < until:  # not from before the clock was set back
            if caller is None or caller.source == source:
                return caller
            return replace(caller, source=source)
        revocations = self._revocations
        found = await in_thread(self._deps.db.read, lambda tx: tokens.find_token(tx, ak))
        caller = (
            Caller(
                ak=found.ak,
                user_id=found.user_id,
                kind=found.kind.value,
                role=found.role.value,
                scope=found.scope.value,
                source=source,
                unused_mail=found.unused_mail,
            )
            if found
            else None
        )
        if len(self._known) >= _MOST_REMEMBERED:
            self._known.clear()
        if caller is not None and revocations == self._revocations:
            self._known[ak] = (now + _REMEMBERED_SECONDS, caller)
        return caller

    def _forget(self, channel: str, ak: str) -> None:
        """What a key may do has changed: ask the database again. Called from any thread.

        `*` is told after notes may have been lost: any key may have changed.
        """
        if channel == "token":
            self._revocations += 1
            self._known.pop(ak, None)
        elif channel == EVERYTHING:
            self._revocations += 1
            self._known.clear()

    async def _spend(self, auth: bce_auth.Authorization, nonce: str, now: datetime) -> None:
        nonces = self._nonces
        pruned = self._pruner.prune(now, time.monotonic())
        if isinstance(nonces, SharedNonces):
            asked = nonces.spend(auth.ak, nonce, auth.expires_at)
            new = await asyncio.wrap_future(asked)
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
        """Have the database write the nonces that no other commit has carried along."""
        self._flush_pending = False
        if not nonces.flush():
            self._flush_later(nonces)


def _nonces(deps: Deps) -> SharedNonces | WriteBehindNonces:
    if isinstance(deps.db, CanAutocommit):
        return SharedNonces(deps.db)
    assert isinstance(deps.db, CanDefer)  # a database is one or the other
    return WriteBehindNonces(deps.db, deps.clock())


def _required(headers: Mapping[str, str]) -> tuple[str, ...]:
    """What a signature has to cover: every x-bce header, and without a digest the checksum."""
    ours = (name for name in headers if name.startswith("x-bce-"))
    unsigned = headers.get(bce_auth.CONTENT_SHA256) == bce_auth.UNSIGNED
    return (*REQUIRED, *ours, bce_auth.CONTENT_CRC32) if unsigned else (*REQUIRED, *ours)


def source_of(request: Request) -> str:
    """The network address at the other end of the connection."""
    client = request.scope.get("client")
    return str(client[0]) if client else ""


def note_use(caller: Caller, now: datetime, replaces: bool, tx: Tx) -> None:
    """Write down that a key was used; with `replaces`, its first use ends older mailed ones."""
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
