"""Places that keep bytes: the plug (`base`), its kinds (one file each), logs, and the pack stream.

A store is found by the name of its file: `create("directory", {"root": ...})` imports
`stores/directory.py` and calls its `create(settings)`. A store that is installed separately
announces itself in the entry-point group `paddlecloud.stores`. There is no list to edit.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Mapping
from importlib import import_module, metadata
from typing import cast

from paddlecloud.model.errors import ConfigError
from paddlecloud.stores.base import CanLocalPath, CanRange, Reader, Sink, Stat, Store

__all__ = ["CanLocalPath", "CanRange", "Reader", "Sink", "Stat", "Store", "create", "kinds"]

GROUP = "paddlecloud.stores"

Settings = Mapping[str, object]
Factory = Callable[[Settings], Store]


def create(kind: str, settings: Settings) -> Store:
    """The store of this kind; ConfigError names the known kinds when there is none."""
    factory = _own(kind) or _installed(kind)
    if factory is None:
        raise ConfigError("store_kind_unknown", kind=kind, known=", ".join(kinds()))
    return factory(settings)


def kinds() -> list[str]:
    """Every kind that `create` knows, in alphabetical order."""
    own = [name for name in _modules() if _own(name)]
    return sorted({*own, *(point.name for point in metadata.entry_points(group=GROUP))})


def _own(kind: str) -> Factory | None:
    if kind not in _modules():
        return None
    module = import_module(f"{__name__}.{kind}")
    return cast("Factory | None", getattr(module, "create", None))


def _modules() -> list[str]:
    return [module.name for module in pkgutil.iter_modules(__path__)]


def _installed(kind: str) -> Factory | None:
    for point in metadata.entry_points(group=GROUP, name=kind):
        return cast("Factory", point.load())
    return None
