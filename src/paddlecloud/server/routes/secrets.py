"""Secrets of the caller: names and times. No route for users returns a value."""

from __future__ import annotations

from paddlecloud.server.deps import Deps
from paddlecloud.server.http.routing import Call, Router
from paddlecloud.server.schemas.accounts import (
    DeletedSecret,
    SecretRequest,
    SecretsAnswer,
    SecretView,
)
from paddlecloud.server.services.accounts import secrets

router = Router()


@router.get("/api/v1/secrets", "Your secrets, without their values")
def listed(deps: Deps, call: Call) -> SecretsAnswer:
    return secrets.list_secrets(deps, call.caller.user_id)


@router.post("/api/v1/secrets", "Set a secret; its value is never returned", body=SecretRequest)
def set_secret(deps: Deps, call: Call) -> SecretView:
    return secrets.set_secret(deps, call.caller, call.body)


@router.post("/api/v1/secrets/{secret}/delete", "Delete a secret")
def delete(deps: Deps, call: Call) -> DeletedSecret:
    return secrets.delete_secret(deps, call.caller, call.path["secret"])
