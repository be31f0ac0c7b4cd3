"""Tokens: create, list and revoke them. Every change writes its row of the audit log.

Those of users are pairs of keys: the secret key is returned once, by `create_token`; it is derived
and never stored. Bearer tokens have no user; only their digests are stored.
"""

from __future__ import annotations

import secrets
from dataclasses import replace
from datetime import datetime

from paddlecloud.db.engine.base import Tx
from paddlecloud.db.tables import bearer_tokens, tokens
from paddlecloud.db.tables.bearer_tokens import BearerToken
from paddlecloud.db.tables.tokens import Origin, Scope, TokenRow
from paddlecloud.model.errors import Conflict, NotFound
from paddlecloud.server.deps import Deps
from paddlecloud.server.http.auth import Caller, secret_of
from paddlecloud.server.http.metrics_auth import digest_of
from paddlecloud.server.schemas.accounts import (
    BearerTokenRequest,
    NewBearerToken,
    NewToken,
    TokenRequest,
    TokensAnswer,
    TokensQuery,
    TokenView,
)
from paddlecloud.server.services.accounts.audit import record
from paddlecloud.server.services.accounts.users import find_user
from paddlecloud.server.services.jobs.views import iso

MAX_TOKENS = 100
"""Valid tokens of one user, and valid bearer tokens."""


def create_token(deps: Deps, caller: Caller, user_id: str, request: TokenRequest) -> NewToken:
    now = deps.clock()
    ak, name, scope = secrets.token_hex(16), request.name, Scope(request.scope)

    def store(tx: Tx) -> None:
        find_user(tx, user_id)
        if tokens.count_tokens(tx, user_id) >= MAX_TOKENS:
            raise Conflict("tokens_too_many", user_id=user_id, count=MAX_TOKENS)
        tokens.create_token(tx, ak, user_id, now, name=name, scope=scope)
        detail = {"ak": ak, "name": name, "scope": scope.value}
        record(tx, caller, now, "token.create", user_id, detail)

    deps.db.write(store)
    return NewToken(
        ak=ak,
        sk=secret_of(deps.server_key, ak),
        user_id=user_id,
        name=name,
        scope=scope.value,
        created_at=iso(now),
    )


def create_bearer_token(deps: Deps, caller: Caller, request: BearerTokenRequest) -> NewBearerToken:
    now = deps.clock()
    # The prefix is for people and secret scanners.
    secret = f"pcm-{secrets.token_hex(32)}"
    token = BearerToken(
        ak=secrets.token_hex(16), scope=request.scope, name=request.name, created_at=now
    )

    def store(tx: Tx) -> None:
        if bearer_tokens.count(tx) >= MAX_TOKENS:
            raise Conflict("bearer_tokens_too_many", count=MAX_TOKENS)
        bearer_tokens.insert(tx, token, digest_of(secret))
        detail = {"ak": token.ak, "name": token.name, "scope": token.scope}
        record(tx, caller, now, "token.create", "", detail)

    deps.db.write(store)
    return NewBearerToken(
        ak=token.ak, token=secret, name=token.name, scope=token.scope, created_at=iso(now)
    )


def list_tokens(deps: Deps, user_id: str | None, query: TokensQuery) -> TokensAnswer:
    """Tokens of a user; None: of all users, and bearer tokens. Newest first."""
    revoked = bool(query.revoked)

    def read(tx: Tx) -> list[TokenView]:
        of_users = tokens.list_tokens(tx, user_id, all_of_them=revoked)
        bearers = bearer_tokens.list_all(tx, revoked=revoked) if user_id is None else []
        return [token_view(row) for row in of_users] + [_bearer_view(row) for row in bearers]

    found = deps.db.read(read)
    return TokensAnswer(tokens=sorted(found, key=lambda view: view.created_at, reverse=True))


def revoke(deps: Deps, caller: Caller, ak: str, owner: str | None) -> TokenView:
    """Revoke a token on every server at once; idempotent. `owner` None: of any user."""
    now = deps.clock()

    def store(tx: Tx) -> TokenView:
        is_key = 0 < len(ak) <= 64 and ak.isascii() and ak.isprintable()
        row = tokens.get_token(tx, ak) if is_key else None
        if row is None and owner is None and is_key:
            bearer = bearer_tokens.get(tx, ak)
            if bearer is not None:
                return _revoke_bearer(tx, caller, bearer, now)
        if row is None or owner not in (None, row.user_id):
            raise NotFound("token_unknown", ak=ak[:100])
        if not tokens.revoke_token(tx, ak, now):
            return token_view(row)
        record(tx, caller, now, "token.revoke", row.user_id, {"ak": ak, "name": row.name})
        return token_view(replace(row, revoked_at=now))

    return deps.db.write(store)


def _revoke_bearer(tx: Tx, caller: Caller, token: BearerToken, now: datetime) -> TokenView:
    if not bearer_tokens.revoke(tx, token.ak, now):
        return _bearer_view(token)
    record(tx, caller, now, "token.revoke", "", {"ak": token.ak, "name": token.name})
    return _bearer_view(replace(token, revoked_at=now))


def token_view(row: TokenRow) -> TokenView:
    return TokenView(
        ak=row.ak,
        user_id=row.user_id,
        name=row.name,
        scope=row.scope.value,
        origin=row.origin.value,
        created_at=iso(row.created_at),
        last_used_at=iso(row.last_used_at) if row.last_used_at else None,
        revoked_at=iso(row.revoked_at) if row.revoked_at else None,
    )


def _bearer_view(token: BearerToken) -> TokenView:
    return TokenView(
        ak=token.ak,
        user_id="",
        name=token.name,
        scope=token.scope,
        origin=Origin.SHOWN.value,
        created_at=iso(token.created_at),
        last_used_at=iso(token.last_used_at) if token.last_used_at else None,
        revoked_at=iso(token.revoked_at) if token.revoked_at else None,
    )
