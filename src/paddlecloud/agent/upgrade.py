"""Upgrades the agent of a machine: the server hands over a packed one (one file, made by
`server/services/agents/package`), which goes on in the same process; replicas continue.
"""

from __future__ import annotations

import hashlib
import os
import sys
from errno import EIO
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from paddlecloud.agent.server_link.channel import Channel

LINK = "agent.pyz"


def fetch(channel: Channel, directory: Path, sha256: str) -> Path:
    """Download the packed agent of this digest, and store it; OSError if it is another one."""
    content = channel.call("GET", f"/agent/package/{sha256}")
    if hashlib.sha256(content).hexdigest() != sha256:
        raise OSError(EIO, "its digest differs")
    return keep_program(directory, content)


def go_on_as(program: Path, config: Path) -> None:
    """Replace this process by the packed agent."""
    os.execv(sys.executable, [sys.executable, str(program), "--config", str(config)])


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
