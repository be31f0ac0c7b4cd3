"""The server's key, the first user, and the key of the agent on the server's own machine.

They are created at the first start of a server and written to files of mode 0600. Secret keys are
derived from access keys and the server's own key (`auth.secret_of`), so the database holds none.
"""

from __future__ import annotations

import getpass
import json
import os
import re
import secrets
from collections.abc import Mapping
from datetime import datetime
from functools import partial
from pathlib import Path

from paddlecloud.db.engine.base import Database, Tx
from paddlecloud.db.tables import agent_keys, tokens, users
from paddlecloud.db.tables.agent_keys import AgentIdentity
from paddlecloud.db.tables.tokens import Token, TokenKind
from paddlecloud.db.tables.users import User, UserRole
from paddlecloud.model.errors import ConfigError
from paddlecloud.server.http.auth import secret_of

_KEY = re.compile(rb"[0-9A-Fa-f]{64}")


def server_key(path: Path) -> bytes:
    """The key of this server, created if there is none."""
    if not path.exists():
        write_private(path, secrets.token_hex(32))
    try:
        kept = path.read_bytes()
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError("server_key_unreadable", path=str(path), reason=reason) from error
    if not _KEY.fullmatch(kept.strip()):
        raise ConfigError("server_key_damaged", path=str(path), size=len(kept))
    return bytes.fromhex(kept.decode())


def embedded_user(
    db: Database,
    key: bytes,
    path: Path,
    now: datetime,
    user_id: str | None = None,
    lang: str = "en",
) -> str:
    """The id of the first admin of this server, by default the login name of its user; the key is
    written to `path`."""
    stored = _stored(path)
    ak = str(stored.get("ak", ""))
    token = db.read(lambda tx: tokens.find_token(tx, ak))
    if token is None or token.kind is not TokenKind.USER:
        user = User(id=user_id or _user_name(), role=UserRole.ADMIN, lang=lang)
        token = Token(
            ak=secrets.token_hex(16), user_id=user.id, kind=TokenKind.USER, role=user.role
        )

        def create(tx: Tx, ak: str) -> None:
            users.create_user(tx, user, now)
            tokens.create_token(tx, ak, user.id, now)

        db.write(partial(create, ak=token.ak))
    values = {"user_id": token.user_id, "ak": token.ak, "sk": secret_of(key, token.ak)}
    if stored != values:
        write_private(path, json.dumps(values))
    return token.user_id


def embedded_agent(
    db: Database,
    key: bytes,
    path: Path,
    node: str,
    pool: str,
    endpoint_file: Path,
    now: datetime,
    more: Mapping[str, object] | None = None,
) -> None:
    """Write the configuration of the local agent: its key, and what is in `more`."""
    stored = _stored(path)
    ak = str(stored.get("ak", ""))
    agent = db.read(lambda tx: agent_keys.find_key(tx, ak))
    if agent is None or agent.node != node:
        agent = AgentIdentity(ak=secrets.token_hex(16), agent_id=node, node=node, pool=pool)
        db.write(partial(_replace_key, agent=agent, now=now))
    elif agent.pool != pool:
        db.write(partial(agent_keys.set_pool, ak=ak, pool=pool))
    values: dict[str, object] = {
        **(more or {}),
        "agent_id": agent.agent_id,
        "ak": agent.ak,
        "sk": secret_of(key, agent.ak),
        "endpoint_file": str(endpoint_file),
    }
    if stored != values:
        write_private(path, json.dumps(values))


def write_private(path: Path, text: str) -> None:
    """Write a file of mode 0600 atomically."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    scratch = path.with_name(path.name + ".new")
    file = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        rest = text.encode()
        while rest:  # on a nearly full disk only a part may be written, without an error
            rest = rest[os.write(file, rest) :]
        os.fsync(file)
    finally:
        os.close(file)
    scratch.replace(path)


def _replace_key(tx: Tx, agent: AgentIdentity, now: datetime) -> None:
    agent_keys.revoke_keys(tx, agent.node, now)
    agent_keys.create_key(tx, agent, now)


def _stored(path: Path) -> dict[str, object]:
    """The values in a file; none if it is missing or damaged, and then it is written again."""
    try:
        stored = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return stored if isinstance(stored, dict) else {}


def _user_name() -> str:
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        name = ""
    return re.sub(r"[^A-Za-z0-9_.-]", "-", name).strip(".-") or "user"
