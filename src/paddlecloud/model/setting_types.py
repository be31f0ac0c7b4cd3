"""Types of settings: the loader converts a value by the name of its field's type.

The server's own settings and those of backends use them.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TypeAlias

Secret: TypeAlias = str
"""A text, or where to find one: { env = "NAME" } or { file = "path" }. Never shown."""
Size: TypeAlias = int
"""Bytes: a number, or a text such as "10Gi"."""
FilePath: TypeAlias = str
"""A path; a relative one begins at the settings file."""
Span: TypeAlias = timedelta
"""A duration that may be 0, which has a meaning of its own: see its text."""
