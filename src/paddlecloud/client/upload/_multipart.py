"""Sends one big blob in parts: to the server, or by presigned URLs to its store.

A part that goes to the server is signed with its CRC-32, which costs a third of a digest and finds
damage on the way; the digest of the whole, known from the scan, is verified by the server before
the blob gets its name.
"""

from __future__ import annotations

from zlib import crc32

from paddlecloud.client import response_schemas
from paddlecloud.client.file_names import shown
from paddlecloud.client.response_checks import refuse
from paddlecloud.client.upload._scanned_file import ScannedFile
from paddlecloud.transfer.parts import PartSender, Target, Upload
from paddlecloud.transfer.resume import restarted_if_stale

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from paddlecloud.client.scan.walk import Source
    from paddlecloud.client.transport import Transport
    from paddlecloud.transfer.presigned import PresignedConnections
    from paddlecloud.transfer.resume import Progress

#: Parts that are under way at once, at most: enough that neither side waits for the other.
AT_ONCE = 3


def send(
    transport: Transport,
    sha256: str,
    source: Source,
    total: int,
    progress: Progress,
    connections: PresignedConnections,
) -> None:
    """Send a file; done when the server has verified it. `total` is the size of all files that are
    sent together. When the store cannot be reached, `connections` know it for the next file."""
    with ScannedFile(*source) as file, restarted_if_stale(shown(source[0])):
        target = _BlobTarget(transport, sha256, file, connections)
        PartSender(file, target, connections, progress, threads=AT_ONCE, total=total).send()


class _BlobTarget(Target):
    def __init__(
        self,
        transport: Transport,
        sha256: str,
        file: ScannedFile,
        connections: PresignedConnections,
    ) -> None:
        self._transport = transport
        self._path = f"/uploads/{sha256}"
        self._connections = connections
        self._request: dict[str, object] = {"sha256": sha256, "size": file.size}
        allocated = file.allocated
        if allocated is not None and allocated < file.size:
            self._request["allocated"] = allocated

    def begin(self) -> Upload:
        state = self._state()
        part_size, urls = state.get("part_size", 0), dict(state.get("urls", []))
        if not state["stored"] and not part_size:
            refuse("part_size", part_size, "response_positive")
        return Upload(
            part_size,
            dict.fromkeys(state.get("parts", []), ""),
            stored=state["stored"],
            verified=True,
            urls=urls or None,
        )

    def presign(self, numbers: Sequence[int]) -> Mapping[int, str]:
        return dict(self._state().get("urls", []))

    def put(self, number: int, data: memoryview) -> str:
        self._transport.put(f"{self._path}/{number}", data, f"{crc32(data):08x}")
        return ""

    def complete(self, tags: Sequence[str], sha256: str) -> None:
        """A verification that takes long is answered from time to time: not yet."""
        how: dict[str, Any] = {"schema": response_schemas.FINISHED, "idempotent": True}
        while not self._transport.post(f"{self._path}/finish", {}, **how)["stored"]:
            pass

    def _state(self) -> dict[str, Any]:
        asked = {**self._request, "direct": not self._connections.is_any_away}
        how: dict[str, Any] = {"schema": response_schemas.UPLOAD, "idempotent": True}
        return self._transport.post("/uploads", asked, **how)
