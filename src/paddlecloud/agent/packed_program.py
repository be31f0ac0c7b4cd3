"""The packed agent (one file, `server/services/agents/package`) in the directory of a machine."""

from __future__ import annotations

import hashlib
from pathlib import Path

LINK = "agent.pyz"


def keep_program(directory: Path, content: bytes) -> Path:
    """Store a packed agent under a name of its own, because Python reads from it while it runs;
    `agent.pyz` leads to the newest."""
    path = directory / f"agent-{hashlib.sha256(content).hexdigest()[:16]}.pyz"
    if not path.exists():
        aside = path.with_suffix(".new")
        aside.write_bytes(content)
        aside.chmod(0o755)
        aside.replace(path)
    link = directory / f"{LINK}.new"
    link.unlink(missing_ok=True)
    link.symlink_to(path.name)
    link.replace(directory / LINK)
    return path
