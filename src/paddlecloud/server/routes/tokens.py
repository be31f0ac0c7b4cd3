"""Tokens: requested by mail, listed, created and revoked by their users."""

from __future__ import annotations

from paddlecloud.server.deps import Deps
from paddlecloud.server.http.routing import Access, Call, Router
from paddlecloud.server.schemas.accounts import (
    GenTokenAnswer,
    GenTokenRequest,
    NewToken,
    TokenRequest,
    TokensAnswer,
    TokensQuery,
    TokenView,
)
from paddlecloud.server.services.accounts import gen_token as accounts_gen_token
from paddlecloud.server.services.accounts import tokens

router = Router()


@router.post(
    "/api/v1/gen_token",
    "Have a token mailed to an address",
    access=Access.OPEN,
    body=GenTokenRequest,
    status=202,
)
def gen_token(deps: Deps, call: Call) -> GenTokenAnswer:
    return accounts_gen_token.request(deps, call.caller, call.body)


@router.get("/api/v1/tokens", "Your keys, without their secrets", query=TokensQuery)
def listed(deps: Deps, call: Call) -> TokensAnswer:
    return tokens.list_tokens(deps, call.caller.user_id, call.query)


@router.post(
    "/api/v1/tokens", "Make another pair of keys; the secret is shown this once", body=TokenRequest
)
def create(deps: Deps, call: Call) -> NewToken:
    return tokens.create_token(deps, call.caller, call.caller.user_id, call.body)


@router.post("/api/v1/tokens/{ak}/revoke", "Revoke one of your keys")
def revoke(deps: Deps, call: Call) -> TokenView:
    return tokens.revoke(deps, call.caller, call.path["ak"], call.caller.user_id)
