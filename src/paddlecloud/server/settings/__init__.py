"""Settings of the server: read once in `main` and passed on as values.

`server.toml` is optional: the embedded server runs without it. Every key is checked, an unknown one
is refused with a suggestion, because a misspelt setting that is ignored is worse than none.
"""

from __future__ import annotations

from paddlecloud.server.settings.load import Origins, read_settings, read_with_origins
from paddlecloud.server.settings.values import (
    MIB,
    DatabaseSettings,
    Http,
    LocalPool,
    Mail,
    Notifications,
    PoolSettings,
    PrivateStoreSettings,
    ReplicaSettings,
    Retention,
    Running,
    Scheduling,
    Settings,
    StoreSettings,
    Tokens,
)

__all__ = [
    "MIB",
    "DatabaseSettings",
    "Http",
    "LocalPool",
    "Mail",
    "Notifications",
    "Origins",
    "PoolSettings",
    "PrivateStoreSettings",
    "ReplicaSettings",
    "Retention",
    "Running",
    "Scheduling",
    "Settings",
    "StoreSettings",
    "Tokens",
    "read_settings",
    "read_with_origins",
]
