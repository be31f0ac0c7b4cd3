"""Users and their tokens. The embedded server has one of each, made at its first start.

A token is an access key; its secret key is derived from it and the server's own key (`auth`), so
the database holds nothing that opens anything.
"""

from __future__ import annotations

import getpass
import json
import os
import re
import secrets
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

from paddlecloud.db.engine.base import Database, Tx
from paddlecloud.db.tables import tokens, users
from paddlecloud.db.tables.tokens import Token, TokenKind
from paddlecloud.db.tables.users import User, UserRole
from paddlecloud.model.errors import ConfigError
from paddlecloud.server.http.auth import secret_of

_KEY = re.compile(rb"[0-9A-Fa-f]{64}")


def server_key(path: Path) -> bytes:
    """The secret of this server, made when there is none."""
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
    db: Database, key: bytes, path: Path, now: datetime, user_id: str | None = None
) -> str:
    """The id of the admin of this server, by default the person at the machine; their token is
    written to `path`."""
    kept = _kept(path)
    token = _good_token(db, kept, TokenKind.USER)
    if token is None:
        user = User(id=user_id or _user_name(), role=UserRole.ADMIN)
        token = _create(db, user, TokenKind.USER, now)
    facts = {"user_id": token.user_id, "ak": token.ak, "sk": secret_of(key, token.ak)}
    if kept != facts:
        write_private(path, json.dumps(facts))
    return token.user_id


def embedded_agent(
    db: Database,
    key: bytes,
    path: Path,
    node: str,
    endpoint_file: Path,
    now: datetime,
    more: Mapping[str, object] | None = None,
) -> None:
    """The configuration of the local agent, with a token of its own and what `more` it needs."""
    kept = _kept(path)
    token = _good_token(db, kept, TokenKind.AGENT)
    if token is None or token.user_id != node:
        token = _create(db, User(id=node), TokenKind.AGENT, now)
    facts: dict[str, object] = {
        **(more or {}),
        "agent_id": node,
        "ak": token.ak,
        "sk": secret_of(key, token.ak),
        "endpoint_file": str(endpoint_file),
    }
    if kept != facts:
        write_private(path, json.dumps(facts))


def check_machine(db: Database, node: str) -> None:
    """Machines and people have their names in one list: ConfigError when a person has this one."""
    if db.read(lambda tx: users.get_person(tx, node)) is not None:
        raise ConfigError("replica_node_person", node=node)


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    scratch = path.with_name(path.name + ".new")
    file = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        rest = text.encode()
        while rest:  # of a disk that is nearly full only a part may fit, without an error
            rest = rest[os.write(file, rest) :]
        os.fsync(file)
    finally:
        os.close(file)
    scratch.replace(path)


def _kept(path: Path) -> dict[str, object]:
    """What the file says; nothing when it is missing or damaged: it is then written again."""
    try:
        kept = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return kept if isinstance(kept, dict) else {}


def _good_token(db: Database, kept: dict[str, object], kind: TokenKind) -> Token | None:
    found = db.read(lambda tx: tokens.find_token(tx, str(kept.get("ak", ""))))
    return found if found is not None and found.kind is kind else None


def _create(db: Database, user: User, kind: TokenKind, now: datetime) -> Token:
    ak = secrets.token_hex(16)

    def create(tx: Tx) -> None:
        users.create_user(tx, user, now)
        if kind is TokenKind.AGENT:
            tokens.revoke_agent_keys(tx, user.id, now)
        tokens.create_token(tx, ak, user.id, kind, now)

    db.write(create)
    return Token(ak=ak, user_id=user.id, kind=kind, role=user.role)


def _user_name() -> str:
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        name = ""
    return re.sub(r"[^A-Za-z0-9_.-]", "-", name).strip(".-") or "user"
