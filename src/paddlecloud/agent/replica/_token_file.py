"""Writes the token file of a replica, which only its own processes can read.

With this token a trainer may ask the server for the data tasks of its own job, and nothing else.
The file also has the server's address: an embedded server gets another port at each start, so the
file names its endpoint file; further servers on the same database are listed.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from typing import TYPE_CHECKING

from paddlecloud.agent.replica.records import TOKEN
from paddlecloud.model.errors import PaddleCloudError

if TYPE_CHECKING:
    from pathlib import Path

    from paddlecloud.agent.server_link.channel import Link
    from paddlecloud.agent.server_link.orders import Run

DIRECTORY = TOKEN
FILE = "token.json"
VARIABLE = "PADDLECLOUD_TOKEN_FILE"
_NEW = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW


def write(root: Path, run: Run, replica: str, link: Link) -> str:
    """Write the file of this replica, whose directory exists; its path."""
    path = f"{root}/{DIRECTORY}/{FILE}"
    config = link.config
    url = ""
    with suppress(PaddleCloudError):
        url = link.endpoint().url
    value = {
        "url": url,
        "endpoint_file": str(config.endpoint_file or ""),
        "peers": list(link.peers),
        "ca_file": config.ca_file,
        "ak": replica,
        "sk": run["secret"],
        "job_id": run["env"].get("JOB_ID", ""),
        "worker": run["worker"],
    }
    fd = os.open(path, _NEW, 0o600)
    try:
        os.write(fd, json.dumps(value).encode())
        if run["uid"] is not None:
            os.fchown(fd, run["uid"], run["uid"])
    finally:
        os.close(fd)
    return path
