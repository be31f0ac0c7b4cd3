"""Secrets of users: set, list and delete them, and give those of a job to its agents.

A value is sealed before it is stored, bound to its owner and name, and is unsealed only for the
agent that starts a replica of a job which names it. A job refers to secrets by name, so that each
start gets the value of that time. The audit log has names only.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping

from paddlecloud.db.engine.base import Tx
from paddlecloud.db.tables import secrets
from paddlecloud.db.tables.secrets import SecretRow
from paddlecloud.model.errors import Conflict, Invalid, NotFound, Refused, TooLarge
from paddlecloud.model.jobs.job import Job, JobSpec
from paddlecloud.model.jobs.param_checks import MAX_SECRET_BYTES, check_secret_name
from paddlecloud.server import encryption
from paddlecloud.server.deps import Deps
from paddlecloud.server.http.auth import Caller
from paddlecloud.server.schemas.accounts import (
    DeletedSecret,
    SecretRequest,
    SecretsAnswer,
    SecretView,
)
from paddlecloud.server.services.accounts.audit import record
from paddlecloud.server.services.jobs.views import iso

MAX_SECRETS = 100
"""Secrets of one user."""


def set_secret(deps: Deps, caller: Caller, request: SecretRequest) -> SecretView:
    """Store a value under a name, in place of an earlier one."""
    name = check_secret_name(request.name)
    try:
        value = base64.b64decode(request.value, validate=True)
    except (binascii.Error, ValueError):
        raise Invalid("secret_encoding", name=name) from None
    if len(value) > MAX_SECRET_BYTES:
        raise TooLarge("secret_long", name=name, size=len(value), limit=MAX_SECRET_BYTES)
    owner, now = caller.user_id, deps.clock()
    sealed = encryption.seal(deps.server_key, value, _context(owner, name))

    def store(tx: Tx) -> SecretRow:
        known = {row.name for row in secrets.list_secrets(tx, owner)}
        if name not in known and len(known) >= MAX_SECRETS:
            raise Conflict("secrets_too_many", count=MAX_SECRETS)
        row = secrets.put_secret(tx, owner, name, sealed, now, is_text=_is_text(value))
        record(tx, caller, now, "secret.set", owner, {"name": name})
        return row

    return _view(deps.db.write(store))


def list_secrets(deps: Deps, owner: str) -> SecretsAnswer:
    found = deps.db.read(lambda tx: secrets.list_secrets(tx, owner))
    return SecretsAnswer(secrets=[_view(row) for row in found])


def delete_secret(deps: Deps, caller: Caller, name: str) -> DeletedSecret:
    owner, now = caller.user_id, deps.clock()

    def store(tx: Tx) -> None:
        if not secrets.delete_secret(tx, owner, name):
            raise NotFound("secret_unknown", name=name[:100])
        record(tx, caller, now, "secret.delete", owner, {"name": name})

    deps.db.write(store)
    return DeletedSecret(name=name)


def check_submit(tx: Tx, owner: str, spec: JobSpec) -> None:
    """Refused if the job names a secret that its owner does not have, or that no variable can
    hold."""
    if not spec.secrets:
        return
    found = {row.name: row for row in secrets.find_secrets(tx, owner, list(spec.secrets))}
    missing = [name for name in spec.secrets if name not in found]
    if missing:
        raise Refused("secret_missing", names=", ".join(missing), name=missing[0])
    for name, variable in spec.secrets.items():
        if variable and not found[name].is_text:
            raise Refused("secret_binary", name=name, variable=variable)


def values_of(deps: Deps, job: Job) -> Mapping[str, str]:
    """The present values of a job's secrets in base64, by name. Refused if one was deleted since
    the submit."""
    wanted = job.spec.secrets
    rows = deps.db.read(lambda tx: secrets.find_secrets(tx, job.owner, list(wanted)))
    missing = sorted(wanted.keys() - {row.name for row in rows})
    if missing:
        raise Refused("secret_deleted", names=", ".join(missing), name=missing[0])
    keys = (deps.server_key, *deps.old_keys)
    found = {}
    for row in rows:
        if wanted[row.name] and not row.is_text:
            raise Refused("secret_binary", name=row.name, variable=wanted[row.name])
        value = encryption.unseal(keys, row.sealed, _context(job.owner, row.name))
        found[row.name] = base64.b64encode(value).decode()
    return found


def _is_text(value: bytes) -> bool:
    try:
        return "\0" not in value.decode()
    except UnicodeDecodeError:
        return False


def _context(owner: str, name: str) -> bytes:
    return f"secret\0{owner}\0{name}".encode()


def _view(row: SecretRow) -> SecretView:
    return SecretView(name=row.name, created_at=iso(row.created_at), updated_at=iso(row.updated_at))
