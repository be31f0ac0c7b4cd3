"""Finds Prometheus for tests: on the PATH, or where install-test-tools.sh unpacked it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


class Missing(Exception):
    """No Prometheus can be had here; the message names what is missing."""


def find_program(name: str = "prometheus") -> Path:
    """`prometheus` or `promtool`."""
    unpacked = CACHE / "paddlecloud-dev" / "prometheus" / "usr" / "bin"
    found = shutil.which(name) or shutil.which(name, path=str(unpacked))
    if found is None:
        raise Missing(f"no {name}: run scripts/install-test-tools.sh (Debian: prometheus)")
    return Path(found)
