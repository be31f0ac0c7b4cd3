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
from datetime import datetime
from pathlib import Path

from paddlecloud.db import tokens
from paddlecloud.db.base import Database, Tx
from paddlecloud.db.tokens import TokenKind, User, UserRole
from paddlecloud.server.auth import secret_of


def server_key(path: Path) -> bytes:
    """The secret of this server, made when there is none."""
    if not path.exists():
        write_private(path, secrets.token_hex(32))
    return bytes.fromhex(path.read_text("ascii").strip())


def embedded_user(db: Database, key: bytes, path: Path, now: datetime) -> str:
    """The id of the person this server belongs to; their token is written to `path`."""
    if path.exists():
        kept = json.loads(path.read_text("utf-8"))
        if db.read(lambda tx: tokens.find_token(tx, kept["ak"])) is not None:
            return str(kept["user_id"])
    user_id, ak = _user_name(), secrets.token_hex(16)
    _create(db, User(id=user_id, role=UserRole.ADMIN), ak, TokenKind.USER, now)
    sk = secret_of(key, ak)
    write_private(path, json.dumps({"user_id": user_id, "ak": ak, "sk": sk}))
    return user_id


def embedded_agent(
    db: Database, key: bytes, path: Path, node: str, endpoint_file: Path, now: datetime
) -> None:
    """The configuration of the local agent, with a token of its own."""
    if path.exists():
        kept = json.loads(path.read_text("utf-8"))
        if db.read(lambda tx: tokens.find_token(tx, kept["ak"])) is not None:
            return
    ak = secrets.token_hex(16)
    _create(db, User(id=node), ak, TokenKind.AGENT, now)
    config = {
        "agent_id": node,
        "ak": ak,
        "sk": secret_of(key, ak),
        "endpoint_file": str(endpoint_file),
    }
    write_private(path, json.dumps(config))


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    scratch = path.with_name(path.name + ".new")
    file = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        os.write(file, text.encode())
        os.fsync(file)
    finally:
        os.close(file)
    scratch.replace(path)


def _create(db: Database, user: User, ak: str, kind: TokenKind, now: datetime) -> None:
    def create(tx: Tx) -> None:
        tokens.create_user(tx, user, now)
        tokens.create_token(tx, ak, user.id, kind, now)

    db.write(create)


def _user_name() -> str:
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        name = ""
    return re.sub(r"[^A-Za-z0-9_.-]", "-", name).strip(".-") or "user"
