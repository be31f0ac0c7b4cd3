"""Downloads files of a job: asks the server for each, and takes up again where a stream broke.

Where the bytes go, and that they appear whole or not at all, is the work of `files.py`.
"""

from __future__ import annotations

from paddlecloud.client import files
from paddlecloud.client.retries import patiently, pause
from paddlecloud.model.errors import Retry
from paddlecloud.model.signing import quote

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Any

    from paddlecloud.client.transport import Stream, Transport

BLOCK = 1024 * 1024


def download(
    transport: Transport,
    path: str,
    rows: Sequence[Mapping[str, Any]],
    download_dir: str,
    progress: Callable[[int], None] | None = None,
) -> int:
    """Get the files of these rows, which lie below `path` on the server; how many bytes came."""
    tell = None if progress is None else lambda _path, count: progress(count)

    def fetch(name: str) -> files.Fetched:
        target = f"{path}/{quote(name, '/')}"
        stream = patiently(lambda: transport.open(target))
        length = stream.headers.get("content-length")
        return files.Fetched(
            _pieces(transport, target, stream),
            int(length) if length is not None else None,
            stream.headers.get("x-content-sha256"),
        )

    return files.download(fetch, [str(row["path"]) for row in rows], download_dir, progress=tell)


def _pieces(transport: Transport, target: str, stream: Stream | None) -> Iterator[bytes]:
    offset = 0
    tries = 0
    while True:
        try:
            if stream is None:
                stream = transport.open(target, {"offset": offset})
            with stream:
                while piece := stream.read(BLOCK):
                    tries = 0
                    offset += len(piece)
                    yield piece
            return
        except Retry as error:
            tries += 1
            pause(error, tries)
            stream = None
