"""Tokens of users: create, list and revoke them. Every change writes its row of the audit log.

A secret key is returned once, by `create_token`; it is derived and never stored.
"""

from __future__ import annotations

import secrets
from dataclasses import replace

from paddlecloud.db.engine.base import Tx
from paddlecloud.db.tables import tokens
from paddlecloud.db.tables.tokens import Scope, TokenRow
from paddlecloud.model.errors import Conflict, NotFound
from paddlecloud.server.deps import Deps
from paddlecloud.server.http.auth import Caller, secret_of
from paddlecloud.server.schemas.accounts import (
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
"""Valid tokens of one user."""


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


def list_tokens(deps: Deps, user_id: str | None, query: TokensQuery) -> TokensAnswer:
    revoked = bool(query.revoked)
    found = deps.db.read(lambda tx: tokens.list_tokens(tx, user_id, all_of_them=revoked))
    return TokensAnswer(tokens=[token_view(row) for row in found])


def revoke(deps: Deps, caller: Caller, ak: str, owner: str | None) -> TokenView:
    """Revoke a token on every server at once; idempotent. `owner` None: of any user."""
    now = deps.clock()

    def store(tx: Tx) -> TokenRow:
        is_key = 0 < len(ak) <= 64 and ak.isascii() and ak.isprintable()
        row = tokens.get_token(tx, ak) if is_key else None
        if row is None or owner not in (None, row.user_id):
            raise NotFound("token_unknown", ak=ak[:100])
        if not tokens.revoke_token(tx, ak, now):
            return row
        record(tx, caller, now, "token.revoke", row.user_id, {"ak": ak, "name": row.name})
        return replace(row, revoked_at=now)

    return token_view(deps.db.write(store))


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
