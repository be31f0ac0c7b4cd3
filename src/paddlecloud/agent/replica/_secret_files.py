"""Writes the secrets of a replica into files that only its own processes can read.

The values are fetched when the replica starts and are written nowhere else: neither orders nor
records have them. The files are deleted when the replica is over, before the rest of it.
"""

from __future__ import annotations

import base64
import os
from contextlib import suppress
from typing import TYPE_CHECKING

from paddlecloud.agent.replica.records import SECRETS
from paddlecloud.agent.sandbox import workspace
from paddlecloud.model.jobs.param_checks import check_secret_name
from paddlecloud.model.protocol.bce_auth import quote

if TYPE_CHECKING:
    from pathlib import Path

    from paddlecloud.agent.server_link.channel import Channel
    from paddlecloud.agent.server_link.orders import Run

DIRECTORY = SECRETS
VARIABLE = "PADDLECLOUD_SECRETS"
_NEW = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW


def remove(root: Path) -> None:
    """Delete the files of a replica that is over."""
    with suppress(OSError):  # then they are deleted with the workspace
        workspace.remove(f"{root}/{DIRECTORY}")


def write(root: Path, run: Run, replica: str, channel: Channel) -> None:
    """Fetch the secrets of this replica and write their files; their directory exists. Refused if
    one is gone, or would travel unencrypted between machines."""
    found = channel.confidential(f"/agent/replicas/{quote(replica)}/secrets")["secrets"]
    os.chmod(f"{root}/{DIRECTORY}", 0o700)  # noqa: PTH101 - as elsewhere in the agent
    for name in run["secrets"]:
        fd = os.open(f"{root}/{DIRECTORY}/{check_secret_name(name)}", _NEW, 0o600)
        with os.fdopen(fd, "wb") as file:
            if run["uid"] is not None:
                os.fchown(fd, run["uid"], run["uid"])
            file.write(base64.b64decode(found[name]))
