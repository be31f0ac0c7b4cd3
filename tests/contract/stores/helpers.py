"""Helpers that read the content and the paths of a store."""

from __future__ import annotations

import hashlib

from paddlecloud.stores import Store


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def paths(store: Store, prefix: str = "") -> list[str]:
    return [found.path for found in store.list(prefix)]


def content(store: Store, path: str) -> bytes:
    return b"".join(store.read(path))
