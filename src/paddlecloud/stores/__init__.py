"""Stores: places that keep bytes. `base` has the protocol, `create` opens a store by its kind.

Kinds: `directory`, `memory`, `s3`; others are installed packages with an entry point in the group
`paddlecloud.stores`. `logs` appends to logs, `pack` receives many files in one stream,
`user_bucket` opens buckets of users. What a path means is the server's business.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, cast

from paddlecloud.model.errors import ConfigError
from paddlecloud.stores.base import (
    CanLocalPath,
    CanMultipart,
    CanPresign,
    Part,
    Reader,
    Sink,
    Stat,
    Store,
)

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = [
    "CanLocalPath",
    "CanMultipart",
    "CanPresign",
    "Part",
    "Reader",
    "Sink",
    "Stat",
    "Store",
    "create",
    "kinds",
]

GROUP = "paddlecloud.stores"
_OWN = {"directory": "directory.store", "memory": "memory", "s3": "s3.store"}

Settings = Mapping[str, object]


def create(kind: str, settings: Settings) -> Store:
    """Open a store; ConfigError, with the known kinds, if there is no such kind."""
    if kind in _OWN:
        return cast("Store", import_module(f"{__name__}.{_OWN[kind]}").create(settings))
    point = _installed().get(kind)
    if point is None:
        raise ConfigError("store_kind_unknown", kind=kind, known=", ".join(kinds()))
    return cast("Store", point.load()(settings))


def kinds() -> list[str]:
    """Every known kind, in alphabetical order."""
    return sorted({*_OWN, *_installed()})


def _installed() -> dict[str, EntryPoint]:
    from importlib.metadata import entry_points  # noqa: PLC0415 - 30 ms that own kinds never need

    return {point.name: point for point in entry_points(group=GROUP)}
