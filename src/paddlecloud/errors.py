"""The public name of the error tree: what `Client` raises, for `except` clauses of users' scripts.

The classes live in `model`, where every layer can raise them; this module adds nothing.
"""

from __future__ import annotations

from paddlecloud.model.errors import (
    ConfigError,
    Conflict,
    Forbidden,
    IllegalTransition,
    Internal,
    Invalid,
    NotFound,
    PaddleCloudError,
    Refused,
    Retry,
    SnapshotMissing,
    StaleFence,
    StaleVersion,
    StorageFull,
    TooLarge,
    TooMany,
    Unauthenticated,
    Unreachable,
)

__all__ = [
    "ConfigError",
    "Conflict",
    "Forbidden",
    "IllegalTransition",
    "Internal",
    "Invalid",
    "NotFound",
    "PaddleCloudError",
    "Refused",
    "Retry",
    "SnapshotMissing",
    "StaleFence",
    "StaleVersion",
    "StorageFull",
    "TooLarge",
    "TooMany",
    "Unauthenticated",
    "Unreachable",
]
