"""Tokens of users: create, list and revoke them. Every change writes its row of the audit log.

A secret key is returned once, by `create_token`; it is derived and never stored.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, replace

from paddlecloud.db.engine.base import Tx
from paddlecloud.db.tables import tokens
from paddlecloud.db.tables.tokens import Scope, TokenRow
from paddlecloud.model.errors import Conflict, NotFound
from paddlecloud.server.deps import Deps
from paddlecloud.server.http.auth import Caller, secret_of
from paddlecloud.server.schemas.accounts import TokenRequest, TokenView
from paddlecloud.server.services.accounts.audit import record
from paddlecloud.server.services.accounts.users import find_user
from paddlecloud.server.services.jobs.views import iso

MAX_TOKENS = 100
"""Valid tokens of one user."""


@dataclass(frozen=True, kw_only=True)
class CreatedToken:
    """A new token with its secret key, which cannot be requested again."""

    row: TokenRow
    sk: str


def create_token(deps: Deps, caller: Caller, user_id: str, request: TokenRequest) -> CreatedToken:
    now = deps.clock()
    row = TokenRow(
        ak=secrets.token_hex(16),
        user_id=user_id,
        name=request.name,
        scope=Scope(request.scope),
        origin=tokens.Origin.SHOWN,
        created_at=now,
        last_used_at=None,
        revoked_at=None,
    )

    def store(tx: Tx) -> None:
        find_user(tx, user_id)
        if tokens.count_tokens(tx, user_id) >= MAX_TOKENS:
            raise Conflict("tokens_too_many", user_id=user_id, count=MAX_TOKENS)
        tokens.create_token(tx, row.ak, user_id, now, name=row.name, scope=row.scope)
        detail = {"ak": row.ak, "name": row.name, "scope": row.scope.value}
        record(tx, caller, now, "token.create", user_id, detail)

    deps.db.write(store)
    return CreatedToken(row=row, sk=secret_of(deps.server_key, row.ak))


def list_tokens(deps: Deps, user_id: str | None, *, revoked: bool) -> list[TokenView]:
    found = deps.db.read(lambda tx: tokens.list_tokens(tx, user_id, all_of_them=revoked))
    return [token_view(row) for row in found]


def revoke(deps: Deps, caller: Caller, ak: str, owner: str | None) -> TokenView:
    """Revoke a token on every server at once; idempotent. `owner` None: of any user."""
    now = deps.clock()

    def store(tx: Tx) -> TokenRow:
        row = tokens.get_token(tx, ak) if _is_key(ak) else None
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


def _is_key(ak: str) -> bool:
    return 0 < len(ak) <= 64 and ak.isascii() and ak.isprintable()
