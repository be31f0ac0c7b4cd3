"""Many small output files in one request: a line of JSON that tells what they are, and their bytes.

A request of its own costs a small file far more than its bytes do. So small ones are gathered until
they are worth one, each read once and at once. Whatever is not as usual about a file, here or on
the server, it is sent by itself: there is where its troubles are told and borne.
"""

from __future__ import annotations

import hashlib
import json
import time
from typing import TYPE_CHECKING

from paddlecloud.model.signing import quote
from paddlecloud.runtime import outputs

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from paddlecloud.runtime.book import Tracked
    from paddlecloud.runtime.link import Channel
    from paddlecloud.runtime.outputs import Found

#: A larger file is worth a request of its own.
LARGEST = 64 * 1024
_MOST_FILES = 256
_MOST_BYTES = 1024 * 1024
_TIMEOUT = 120.0


class Bundle:
    """Files that wait for each other."""

    def __init__(self) -> None:
        self._files: list[Found] = []
        self._bytes = 0

    def add(self, found: Found) -> bool:
        """Whether it is worth a request now."""
        self._files.append(found)
        self._bytes += found.size
        return len(self._files) >= _MOST_FILES or self._bytes >= _MOST_BYTES

    def take(self) -> list[Found]:
        """All of them; it is empty afterwards."""
        files, self._files, self._bytes = self._files, [], 0
        return files


def send(
    tracked: Tracked, files: Sequence[Found], channel: Channel
) -> dict[str, tuple[Found, str]]:
    """By name what was sent, and its sha256; the others have to be sent by themselves."""
    taken = {found.name: read for found in files if (read := _read(found, tracked.root))}
    rows = [(found.name, len(data), found.mtime) for found, data in taken.values()]
    head = json.dumps({"files": rows}).encode()
    body = b"\n".join((head, b"".join(data for _, data in taken.values())))
    path = f"/agent/replicas/{quote(tracked.id)}/bundle"
    answer = channel.call("POST", path, body, {"fence": tracked.fence}, timeout=_TIMEOUT)
    for name in channel.parsed(answer).get("missing", []):
        taken.pop(name, None)
    return {name: (found, _sha256(data)) for name, (found, data) in taken.items()}


def _read(found: Found, root: Path) -> tuple[Found, bytes] | None:
    """A file as it is now, whole; None where that is not so simple."""
    try:
        file = outputs.open_inside(found, root)
        if file is None:
            return None
        with file:
            before = outputs.to_send(found, file, now=time.time())
            data = file.read(LARGEST + 1)
            unchanged = outputs.found_again(found, file).mark == before.mark
    except OSError:
        return None
    return (before, data) if unchanged and len(data) == before.size <= LARGEST else None


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
